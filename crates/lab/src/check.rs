//! Whether a contestant can take part: it is started, serves one echo and is stopped, without TLS
//! and with it. Proxies stand in front of two servers, and clients load one.

mod reach;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use moonwire_load::{Control, FanOut, Pacing, Scenario, Settings, Stop, Target, Workload};

use crate::contestant::{
    Contestant, Errand, Kind, RunningStack, StackSpec, Surroundings, run_client, write_certificate,
};
use crate::process::tree;

/// What a check found.
#[derive(Debug)]
pub struct Check {
    /// As the contestant tells it itself.
    pub version: String,
    /// Without TLS: what it did, or what went wrong, a clause.
    pub plain: Result<Trial, String>,
    /// The same with TLS.
    pub tls: Result<Trial, String>,
}

/// What a contestant did.
#[derive(Debug)]
pub enum Trial {
    /// It served messages.
    Served {
        /// How long an echo took.
        echo: Duration,
        /// How long all replies of its amplifying service took.
        amplify: Option<Duration>,
        /// How long a message took to get to the last of three that had subscribed.
        broadcast: Option<Duration>,
    },
    /// It sent messages.
    Sent {
        /// Messages that came back: all of them.
        messages: u64,
        /// Its median of their latency.
        median: Duration,
    },
}

impl Check {
    /// Whether it can take part in anything.
    pub fn is_passed(&self) -> bool {
        self.plain.is_ok() && self.tls.is_ok()
    }
}

/// With whom a contestant is checked, and where they are.
#[derive(Debug, Clone)]
pub struct CheckSpec {
    /// The server behind proxies, and under clients.
    pub backend: Contestant,
    /// The moonwire that is a contestant: this program, normally.
    pub program: PathBuf,
    /// What `cargo xtask peers` has installed.
    pub peers: PathBuf,
}

/// Checks one contestant. The error is a sentence: it is not here, or nothing can be written.
pub fn check_contestant(contestant: &Contestant, spec: &CheckSpec) -> Result<Check, String> {
    let folder =
        tempfile::tempdir().map_err(|error| format!("no folder for its files: {error}"))?;
    let around = Surroundings::new(&spec.program, &spec.peers, folder.path());
    let version = contestant.version(&around)?;
    if contestant.kind() != Kind::Server {
        spec.backend.version(&around)?;
    }
    write_certificate(&around.certificate, &around.key)?;
    let try_one = |tls: bool, name: &str| {
        let bench = Bench {
            around: around.clone(),
            folder: folder.path().join(name),
            tls,
        };
        bench.check(contestant, &spec.backend)
    };
    Ok(Check {
        version,
        plain: try_one(false, "plain"),
        tls: try_one(true, "tls"),
    })
}

/// The version of a contestant that is installed; the error is a sentence that says how it is.
pub fn installed_version(
    contestant: &Contestant,
    program: &Path,
    peers: &Path,
) -> Result<String, String> {
    contestant.version(&Surroundings::new(program, peers, Path::new("")))
}

/// Where one contestant is checked.
struct Bench {
    around: Surroundings,
    folder: PathBuf,
    tls: bool,
}

impl Bench {
    fn check(&self, contestant: &Contestant, backend: &Contestant) -> Result<Trial, String> {
        let (backend, proxy) = match contestant.kind() {
            Kind::Server => (contestant, None),
            Kind::Proxy => (backend, Some(contestant)),
            Kind::Client => (backend, None),
        };
        let spec = StackSpec {
            backend,
            backends: proxy.map_or(1, |_| PROXIED),
            backend_workers: 1,
            backend_cpus: &[],
            backend_group: None,
            proxy,
            proxy_workers: 1,
            proxy_cpus: &[],
            proxy_group: None,
            tls: self.tls,
        };
        let stack = RunningStack::start(&spec, &self.around, &self.folder);
        let stack = stack.map_err(|error| error.clause())?;
        let trial = match contestant.kind() {
            Kind::Server | Kind::Proxy => self.serve(&stack, backend),
            Kind::Client => self.send(&stack, contestant),
        };
        let is_spread = match stack.proxy() {
            Some(_) if !self.tls && trial.is_ok() => match contestant.is_sticky() {
                true => reach::addresses_stay(&stack),
                false => reach::backends_are_reached(&stack),
            },
            Some(_) | None => Ok(()),
        };
        let death = stack.any_death();
        let pids = tree::pids(&[stack.proxy_roots(), stack.backend_roots()].concat());
        let killed = stack.stop()?.killed;
        if let Some(death) = death {
            return Err(death);
        }
        let trial = trial?;
        is_spread?;
        if let Some(pid) = pids.into_iter().find(|pid| tree::is_there(*pid)) {
            return Err(format!("its process {pid} is there after its end"));
        }
        if let Some(name) = killed.first() {
            return Err(format!(
                "{name} did not end when it was asked to and was killed"
            ));
        }
        Ok(trial)
    }

    fn serve(&self, stack: &RunningStack, backend: &Contestant) -> Result<Trial, String> {
        let echo = Workload::Echo {
            size: 64,
            binary: false,
        };
        let amplified = Workload::Amplify {
            size: 256,
            time_unit: backend.amplify_time_unit(),
        };
        let alone = |workload, replies| Settings {
            connections: 1,
            workload,
            replies,
            ..Settings::default()
        };
        let replies = u16::try_from(self.around.replies).unwrap_or(u16::MAX);
        let mut echo_took = Duration::ZERO;
        for url in stack.urls() {
            echo_took = self.exchange(url, alone(echo, 1))?;
        }
        let amplify = stack.amplify_urls().first();
        let amplify = amplify.map(|url| {
            let took = self.exchange(url, alone(amplified, replies));
            took.map_err(|why| format!("{replies} replies to one message: {why}"))
        });
        // A proxy in front of several servers divides those that are to hear each other.
        let broadcast = stack.broadcast_urls().first();
        let broadcast = broadcast.filter(|_| stack.proxy().is_none()).map(|url| {
            let took = self.exchange(url, audience(echo));
            took.map_err(|why| format!("a message to {AUDIENCE} that have subscribed: {why}"))
        });
        Ok(Trial::Served {
            echo: echo_took,
            amplify: amplify.transpose()?,
            broadcast: broadcast.transpose()?,
        })
    }

    /// One message, and what it took until its last reply, or copy.
    fn exchange(&self, url: &str, settings: Settings) -> Result<Duration, String> {
        let target = Target::parse(url).map_err(|error| error.to_string())?;
        let scenario = Scenario::new(Settings {
            targets: vec![target],
            pacing: Pacing::Closed { in_flight: 1 },
            stop: Stop::Messages(1),
            cacert: self.tls.then(|| self.around.certificate.clone()),
            same_host: true,
            ..settings
        })
        .map_err(|error| error.to_string())?;
        let mut control = Control {
            stop: Arc::new(AtomicBool::new(false)),
            on_progress: None,
        };
        let outcome = moonwire_load::run(&scenario, &mut control);
        let cell = outcome.map_err(|error| error.to_string())?.cell;
        let fan_out = cell.fan_out.as_ref();
        let latency = fan_out.map_or(&cell.latency.response, |it| &it.last_receiver);
        let latency = latency.quantile_ns(1.0);
        let is_whole = cell.messages.lost == 0 && cell.messages.corrupt == 0;
        let Some(latency_ns) = latency.filter(|_| is_whole) else {
            let why = cell.errors.keys().next().map(ToString::to_string);
            let none = || match cell.messages.corrupt {
                0 => "no answer came".to_owned(),
                _ => "what came back is not what was sent".to_owned(),
            };
            return Err(why.unwrap_or_else(none));
        };
        Ok(Duration::from_nanos(latency_ns))
    }

    fn send(&self, stack: &RunningStack, client: &Contestant) -> Result<Trial, String> {
        let around = Surroundings {
            folder: self.folder.join("client"),
            errand: Errand {
                url: stack.urls().first().cloned().unwrap_or_default(),
                connections: 2,
                rate: 20,
                duration_s: 2,
                message_bytes: 64,
                payload: "echo",
            },
            ..self.around.clone()
        };
        let figures = run_client(client, &around, &[], None)?;
        if figures.received == 0 || figures.received != figures.sent {
            return Err(format!(
                "of {} messages that it sent {} came back",
                figures.sent, figures.received
            ));
        }
        let median = Duration::from_secs_f64(figures.latency_us.p50.clamp(0.0, 1e12) / 1e6);
        Ok(Trial::Sent {
            messages: figures.received,
            median,
        })
    }
}

/// One that sends and several that hear it.
fn audience(workload: Workload) -> Settings {
    Settings {
        connections: AUDIENCE,
        workload,
        fan_out: Some(FanOut {
            publishers: 1,
            silent: 0,
        }),
        ..Settings::default()
    }
}

/// Those that subscribe to what one of them sends.
const AUDIENCE: u32 = 3;
/// Servers behind a proxy that is checked.
const PROXIED: usize = 2;
