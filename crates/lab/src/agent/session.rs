//! What an agent does for its lab. When a session ends, so does all that it has started.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonwire_report::Cell;
use rustix::process::{Resource, getrlimit};
use tempfile::TempDir;

use super::wire::{
    Answer, LINE_BYTES_MAX, Lineup, PAUSES_PER_LINE, Preparation, Prepared, Reading, Request, Role,
    Started, TimedPause, TimedPauses, TimedSample, Wire, WireError, fitting,
};
use crate::battle::{SAMPLING_PERIOD, Spread};
use crate::cgroup::{CpuGroup, CpuLimits};
use crate::contestant::{
    Kind, Roster, RunningStack, StackSpec, Surroundings, write_certificate_for,
};
use crate::environment;
use crate::pauses::Pause;
use crate::rations::Rations;
use crate::sampling::{Sample, Sampler};
use crate::scenario::{BACKENDS_MAX, WORKERS_MAX};

/// What an agent has for any lab.
#[derive(Debug)]
pub(super) struct Means {
    pub(super) roster: Roster,
    pub(super) program: PathBuf,
    pub(super) peers: PathBuf,
    /// Where each session has a folder of its own.
    pub(super) folder: PathBuf,
}

/// A lab that has been let in, and what was started for it.
pub(super) struct Session<'a> {
    means: &'a Means,
    around: Surroundings,
    rations: Option<Rations>,
    stack: Option<RunningStack>,
    samplers: BTreeMap<Role, Sampler>,
    unsent: BTreeMap<Role, VecDeque<Sample>>,
    unsent_pauses: VecDeque<Pause>,
    spread: Option<Spread>,
    /// How many stacks there were.
    stacks: usize,
    /// Files of the contestants; removed with this.
    folder: TempDir,
}

impl<'a> Session<'a> {
    /// Begins; the lab reaches this host at `address`. The error is a sentence.
    pub(super) fn new(means: &'a Means, address: IpAddr) -> Result<Self, String> {
        if !address.is_ipv4() {
            return Err(format!(
                "you reach me at {address}, and contestants are told IPv4 addresses only: name me \
                 by one"
            ));
        }
        let folder = tempfile::tempdir_in(&means.folder);
        let folder = folder.map_err(|error| format!("there is no folder for files: {error}"))?;
        let mut around = Surroundings::new(&means.program, &means.peers, folder.path());
        around.address = address;
        Ok(Self {
            means,
            around,
            rations: None,
            stack: None,
            samplers: BTreeMap::new(),
            unsent: BTreeMap::new(),
            unsent_pauses: VecDeque::new(),
            spread: None,
            stacks: 0,
            folder,
        })
    }

    /// Does what the lab asks for until it is gone, and says how that was seen. One that says
    /// nothing for `silence_max` is.
    pub(super) fn run(mut self, wire: &mut Wire, silence_max: Duration) -> WireError {
        loop {
            let received = wire.receive::<Request>(silence_max, LINE_BYTES_MAX);
            let (request, arrived) = match received {
                Ok(received) => received,
                Err(error) => return error,
            };
            let answer = if matches!(request, Request::Clock) {
                // As soon as it can be, so that little lies between the readings.
                Ok(Answer::Clock {
                    arrived,
                    left: Reading::now(),
                })
            } else {
                self.answer(request)
            };
            let answer = answer.unwrap_or_else(|sentence| Answer::Failed { sentence });
            if let Err(error) = wire.send(&answer) {
                return error;
            }
        }
    }

    fn answer(&mut self, request: Request) -> Result<Answer, String> {
        match request {
            Request::Hello { .. } | Request::Clock => Err("that was said already".to_owned()),
            Request::Prepare(preparation) => self.prepare(&preparation),
            Request::Alive { look } => Ok(self.alive(look)),
            Request::Start(lineup) => self.start(&lineup),
            Request::Watch { role } => self.watch(role),
            Request::Samples { role } => Ok(self.samples(role)),
            Request::Pauses => Ok(Answer::Pauses {
                pauses: self.pauses()?,
            }),
            Request::Spread => Ok(Answer::Spread {
                shares: self.spread.take().unwrap_or_default().end(),
            }),
            Request::Kill => {
                self.running()?.kill_measured();
                Ok(Answer::Done)
            }
            Request::StartAgain => {
                let stack = self.stack.as_mut().ok_or(NOTHING_RUNS)?;
                let again = stack.start_measured_again();
                again.map_err(|error| error.to_string())?;
                Ok(Answer::Done)
            }
            Request::Death { in_trouble } => Ok(Answer::Death {
                sentence: self.running()?.death(&cell(in_trouble)),
            }),
            Request::Stop => {
                let stack = self.stack.take().ok_or(NOTHING_RUNS)?;
                self.forget();
                let stopped = stack.stop()?;
                Ok(Answer::Stopped {
                    killed: stopped.killed,
                    counted: stopped.counted,
                })
            }
        }
    }

    fn running(&self) -> Result<&RunningStack, String> {
        let stack = self.stack.as_ref();
        stack.ok_or_else(|| NOTHING_RUNS.to_owned())
    }

    fn prepare(&mut self, asked: &Preparation) -> Result<Answer, String> {
        if asked.replies > REPLIES_MAX {
            return Err(format!(
                "there are at most {REPLIES_MAX} replies to a message"
            ));
        }
        let limit = |asked: Option<f64>| {
            let text = asked.map(|processors| processors.to_string());
            text.map_or(Ok(None), |text| CpuLimits::parse(&text))
        };
        self.rations = Some(Rations::of(CpuLimits {
            server: limit(asked.server_cpu_limit)?,
            proxy: limit(asked.proxy_cpu_limit)?,
            client: None,
        })?);
        self.around.replies = asked.replies;
        let (mut versions, mut contestant_files) = (BTreeMap::new(), BTreeMap::new());
        let of_kind = |kind, names: &[String]| -> Result<Vec<_>, String> {
            let named = names.iter();
            named
                .map(|name| self.means.roster.one(kind, name))
                .collect()
        };
        let servers = of_kind(Kind::Server, &asked.servers)?;
        let proxies = of_kind(Kind::Proxy, &asked.proxies)?;
        for contestant in servers.iter().chain(&proxies) {
            if contestant.has_process() {
                versions.insert(contestant.name(), contestant.version(&self.around)?);
                contestant_files.insert(contestant.name(), contestant.sha256().to_owned());
            }
        }
        let Surroundings {
            address,
            certificate,
            key,
            ..
        } = &self.around;
        write_certificate_for(*address, certificate, key)?;
        let text = std::fs::read_to_string(certificate);
        Ok(Answer::Prepared(Box::new(Prepared {
            environment: environment::describe(Vec::new(), 0),
            versions,
            contestant_files,
            certificate: text.map_err(|error| format!("no certificate: {error}"))?,
            descriptors_max: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
        })))
    }

    fn start(&mut self, lineup: &Lineup) -> Result<Answer, String> {
        if self.stack.is_some() {
            return Err("contestants run already: one cell at a time".to_owned());
        }
        check(lineup)?;
        let backend = self.means.roster.one(Kind::Server, &lineup.backend)?;
        let proxy = lineup.proxy.as_ref();
        let proxy = proxy.map(|name| self.means.roster.one(Kind::Proxy, name));
        let proxy = proxy.transpose()?;
        let is_proxied = proxy.as_ref().is_some_and(|proxy| proxy.has_process());
        let rations = self.rations.as_ref().filter(|_| lineup.is_limited);
        let group = |is_there, make: fn(&Rations) -> _| match rations.filter(|_| is_there) {
            Some(rations) => make(rations),
            None => Ok(None),
        };
        let spec = StackSpec {
            backend: &backend,
            backends: lineup.backends,
            backend_workers: lineup.backend_workers,
            backend_cpus: &[],
            backend_group: group(true, Rations::server)?,
            proxy: proxy.as_ref(),
            proxy_workers: lineup.proxy_workers,
            proxy_cpus: &[],
            proxy_group: group(is_proxied, Rations::proxy)?,
            tls: lineup.tls,
        };
        self.stacks += 1;
        let place: &Path = self.folder.path();
        let place = place.join(format!("cell{}", self.stacks));
        let stack = RunningStack::start(&spec, &self.around, &place);
        let stack = stack.map_err(|error| error.to_string())?;
        let processors = |group: Option<&Arc<CpuGroup>>| group.map(|group| group.processors());
        let started = Started {
            urls: stack.urls().to_vec(),
            amplify_urls: stack.amplify_urls().to_vec(),
            broadcast_urls: stack.broadcast_urls().to_vec(),
            has_proxy: is_proxied,
            measured_cpu_limit: processors(stack.measured_group()),
            backend_cpu_limit: processors(stack.backend_group()),
        };
        self.stack = Some(stack);
        Ok(Answer::Started(started))
    }

    fn watch(&mut self, role: Role) -> Result<Answer, String> {
        let stack = self.running()?;
        let (roots, group) = match role {
            Role::Measured => (stack.measured_roots(), stack.measured_group()),
            Role::Backends => (stack.backend_roots(), stack.backend_group()),
        };
        let sampler = Sampler::start_in(&roots, group.cloned(), SAMPLING_PERIOD);
        // After a restart they are watched again, and the shares are those of the whole cell.
        if role == Role::Measured && self.spread.is_none() {
            self.spread = Some(Spread::begin(stack));
        }
        self.unsent.remove(&role);
        self.samplers.insert(role, sampler);
        Ok(Answer::Done)
    }

    fn samples(&mut self, role: Role) -> Answer {
        let unsent = self.unsent.entry(role).or_default();
        if let Some(sampler) = self.samplers.remove(&role) {
            unsent.extend(sampler.stop().0);
        }
        let (now, reading) = (Instant::now(), Reading::now());
        let timed = |sample: Sample| TimedSample {
            at_ns: reading.monotonic_ns - now.duration_since(sample.at).as_nanos() as i64,
            sample,
        };
        let length = fitting(&*unsent);
        Answer::Samples {
            samples: unsent.drain(..length).map(timed).collect(),
            more: !unsent.is_empty(),
        }
    }

    fn pauses(&mut self) -> Result<Option<TimedPauses>, String> {
        let mut left_out = 0;
        if self.unsent_pauses.is_empty() {
            let Some(pauses) = self.running()?.measured_pauses() else {
                return Ok(None);
            };
            let (told, without_room) = pauses.into_parts();
            (self.unsent_pauses, left_out) = (told.into(), without_room);
        }
        let (now, reading) = (Instant::now(), Reading::now());
        let timed = |pause: Pause| TimedPause {
            ended_ns: reading.monotonic_ns - now.duration_since(pause.ended).as_nanos() as i64,
            length_ns: pause.length.as_nanos() as u64,
        };
        let length = self.unsent_pauses.len().min(PAUSES_PER_LINE);
        Ok(Some(TimedPauses {
            pauses: self.unsent_pauses.drain(..length).map(timed).collect(),
            left_out,
            more: !self.unsent_pauses.is_empty(),
        }))
    }

    fn alive(&mut self, look: bool) -> Answer {
        if look {
            self.spread.iter_mut().for_each(Spread::look);
        }
        let usage = self.samplers.iter();
        // Whose they are is known to the lab.
        let usage = usage.filter_map(|(role, sampler)| Some((*role, sampler.newest().usage("")?)));
        Answer::Alive {
            usage: usage.collect(),
        }
    }

    fn forget(&mut self) {
        self.samplers.clear();
        self.unsent.clear();
        self.unsent_pauses.clear();
        self.spread = None;
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(stack) = &self.stack {
            stack.kill();
        }
    }
}

/// Numbers that come over the wire have the bounds of a scenario.
fn check(lineup: &Lineup) -> Result<(), String> {
    let workers = [lineup.backend_workers, lineup.proxy_workers];
    let are_few = workers
        .iter()
        .all(|workers| (1..=WORKERS_MAX).contains(workers));
    match are_few && (1..=BACKENDS_MAX as usize).contains(&lineup.backends) {
        true => Ok(()),
        false => Err(format!(
            "there are from 1 to {BACKENDS_MAX} backends and from 1 to {WORKERS_MAX} workers"
        )),
    }
}

/// What the death of a server is judged by.
fn cell(in_trouble: bool) -> Cell {
    Cell {
        ended_early: in_trouble.then(|| "in trouble".to_owned()),
        ..Cell::default()
    }
}

/// As in a scenario.
const REPLIES_MAX: u32 = u16::MAX as u32;
const NOTHING_RUNS: &str = "no contestant runs";

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use super::*;

    fn means() -> Means {
        Means {
            roster: Roster::load(None).unwrap(),
            program: PathBuf::from("/none"),
            peers: PathBuf::from("/none"),
            folder: std::env::temp_dir(),
        }
    }

    #[test]
    fn a_lab_that_asks_for_too_much_is_told_and_one_that_is_silent_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lab = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut wire = Wire::new(listener.accept().unwrap().0).unwrap();
        let lineup = |backend: &str, backends: usize| {
            let lineup = Request::Start(Lineup {
                backend: backend.to_owned(),
                backends,
                backend_workers: 1,
                proxy: None,
                proxy_workers: 1,
                tls: false,
                is_limited: true,
            });
            serde_json::to_string(&lineup).unwrap()
        };
        let preparation = Request::Prepare(Preparation {
            servers: Vec::new(),
            proxies: Vec::new(),
            replies: 65_536,
            server_cpu_limit: None,
            proxy_cpu_limit: None,
        });
        for request in [
            serde_json::to_string(&preparation).unwrap(),
            lineup("moonwire", 65),
            lineup("../../bin/sh", 1),
            "{\"request\":\"stop\"}".to_owned(),
        ] {
            writeln!(lab, "{request}").unwrap();
        }
        let means = means();
        let session = Session::new(&means, Ipv4Addr::LOCALHOST.into()).unwrap();
        let folder = session.folder.path().to_owned();
        let end = session.run(&mut wire, Duration::from_millis(100));
        assert!(matches!(end, WireError::Silent(_)), "{end}");
        assert!(!folder.exists());
        drop(wire);
        let answers: Vec<String> = BufReader::new(lab).lines().map_while(Result::ok).collect();
        assert_eq!(answers.len(), 4, "{answers:?}");
        let expected = [
            "at most 65535 replies",
            "from 1 to 64 backends",
            "there is no server",
            NOTHING_RUNS,
        ];
        for (answer, part) in answers.iter().zip(expected) {
            assert!(
                answer.contains("failed") && answer.contains(part),
                "{answer}"
            );
        }
    }

    #[test]
    fn a_lab_that_comes_by_an_address_of_another_kind_is_told() {
        let means = means();
        let refused = Session::new(&means, Ipv6Addr::LOCALHOST.into());
        assert!(refused.is_err_and(|why| why.contains("IPv4 addresses only")));
    }
}
