//! Servers with a proxy in front of them, or with none.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use moonwire_report::{Cell, Counted};

use super::running::death_deadline;
use super::{Contestant, MetricsPage, RunningContestant, StartError, Surroundings};
use crate::cgroup::CpuGroup;
use crate::pauses::{PauseLog, Pauses};

/// What is to run.
#[derive(Debug, Clone)]
pub(crate) struct StackSpec<'a> {
    /// The server, and how many of it.
    pub(crate) backend: &'a Contestant,
    pub(crate) backends: usize,
    /// Workers of each of them.
    pub(crate) backend_workers: u32,
    pub(crate) backend_cpus: &'a [usize],
    /// What they may use together.
    pub(crate) backend_group: Option<Arc<CpuGroup>>,
    /// What stands in front of them; a control without a process is the same as none.
    pub(crate) proxy: Option<&'a Contestant>,
    pub(crate) proxy_workers: u32,
    pub(crate) proxy_cpus: &'a [usize],
    pub(crate) proxy_group: Option<Arc<CpuGroup>>,
    /// Whether clients come over TLS. It ends in the proxy, or in the servers if there is none.
    pub(crate) tls: bool,
}

/// All of it, running. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct RunningStack {
    backends: Vec<RunningContestant>,
    proxy: Option<RunningContestant>,
    urls: Vec<String>,
    amplify_urls: Vec<String>,
    broadcast_urls: Vec<String>,
}

/// Which part of a stack does not run, and why. Displays as one sentence.
#[derive(Debug)]
pub(crate) struct StackError {
    name: String,
    error: StartError,
}

impl fmt::Display for StackError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            StartError::Files(sentence) => write!(to, "{}: {sentence}", self.name),
            StartError::Process(error) => write!(to, "{}: {error}", self.name),
        }
    }
}

impl std::error::Error for StackError {}

impl StackError {
    /// What went wrong, where it is known of whom it is told.
    pub(crate) fn clause(&self) -> String {
        match &self.error {
            StartError::Files(sentence) => sentence.clone(),
            StartError::Process(error) => error.to_string(),
        }
    }
}

/// How all of it ended.
#[derive(Debug)]
pub(crate) struct StoppedStack {
    /// The names of those that had to be killed.
    pub(crate) killed: Vec<String>,
    /// What the servers counted together, if all of them say so.
    pub(crate) counted: Option<Counted>,
}

impl RunningStack {
    /// Starts the servers, then what stands in front of them. Each has a folder in `folder`.
    pub(crate) fn start(
        spec: &StackSpec<'_>,
        around: &Surroundings,
        folder: &Path,
    ) -> Result<Self, StackError> {
        let proxy = spec.proxy.filter(|proxy| proxy.has_process());
        let within = |contestant: &Contestant| {
            let name = contestant.name();
            move |error| StackError { name, error }
        };
        let mut around = around.clone();
        around.workers = spec.backend_workers;
        let front_address = around.address;
        if proxy.is_some() {
            // The link is between the clients and the proxy.
            around.address = Ipv4Addr::LOCALHOST.into();
        }
        let mut backends = Vec::new();
        for number in 1..=spec.backends {
            let folder = folder.join(format!("backend{number}"));
            let tls = spec.tls && proxy.is_none();
            let (backend, cpus) = (spec.backend, spec.backend_cpus);
            let group = spec.backend_group.clone();
            let started = RunningContestant::start(backend, tls, &around, folder, cpus, group);
            backends.push(started.map_err(within(backend))?);
        }
        let of_backends = |of: fn(&RunningContestant) -> Option<&str>| -> Vec<String> {
            let urls = backends.iter().filter_map(of);
            urls.map(str::to_owned).collect()
        };
        let mut urls = of_backends(|backend| Some(backend.url()));
        let mut amplify_urls = of_backends(RunningContestant::amplify_url);
        let mut broadcast_urls = of_backends(RunningContestant::broadcast_url);
        let Some(proxy) = proxy else {
            return Ok(Self {
                backends,
                proxy: None,
                urls,
                amplify_urls,
                broadcast_urls,
            });
        };
        around.workers = spec.proxy_workers;
        around.address = front_address;
        around.backends = urls.iter().map(|url| split(url).0.to_owned()).collect();
        let place = folder.join("proxy");
        let (cpus, group) = (spec.proxy_cpus, spec.proxy_group.clone());
        let started = RunningContestant::start(proxy, spec.tls, &around, place, cpus, group);
        let front = started.map_err(within(proxy))?;
        for urls in [&mut urls, &mut amplify_urls, &mut broadcast_urls] {
            // All servers have the same paths.
            urls.truncate(1);
            for url in urls {
                *url = format!("{}{}", front.url(), split(url).1);
            }
        }
        Ok(Self {
            backends,
            proxy: Some(front),
            urls,
            amplify_urls,
            broadcast_urls,
        })
    }

    /// Where the echo is: at the proxy, or at each of the servers if there is none.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Where the amplifying service is, in the same way; empty if the server has none.
    pub(crate) fn amplify_urls(&self) -> &[String] {
        &self.amplify_urls
    }

    /// Where each message goes to all that have subscribed, in the same way.
    pub(crate) fn broadcast_urls(&self) -> &[String] {
        &self.broadcast_urls
    }

    /// Where the servers tell what they count while they run; empty unless all of them do.
    pub(crate) fn metrics(&self) -> Vec<MetricsPage> {
        let pages = self
            .backends
            .iter()
            .map(|backend| backend.metrics().cloned());
        pages.collect::<Option<_>>().unwrap_or_default()
    }

    /// The servers.
    pub(crate) fn backends(&self) -> &[RunningContestant] {
        &self.backends
    }

    /// What stands in front of them.
    pub(crate) fn proxy(&self) -> Option<&RunningContestant> {
        self.proxy.as_ref()
    }

    /// The ids of the servers' processes; their children are found by whoever looks at them.
    pub(crate) fn backend_roots(&self) -> Vec<i32> {
        let roots = self.backends.iter().flat_map(RunningContestant::pids);
        roots.collect()
    }

    /// The ids of the proxy's processes, in the same way.
    pub(crate) fn proxy_roots(&self) -> Vec<i32> {
        let proxy = self.proxy.as_ref();
        proxy.map_or_else(Vec::new, RunningContestant::pids)
    }

    /// What rations the CPU of the servers, if anything does.
    pub(crate) fn backend_group(&self) -> Option<&Arc<CpuGroup>> {
        self.backends.first().and_then(RunningContestant::group)
    }

    /// The same of what is measured: the proxy, or the servers if there is none.
    pub(crate) fn measured_group(&self) -> Option<&Arc<CpuGroup>> {
        match &self.proxy {
            Some(proxy) => proxy.group(),
            None => self.backend_group(),
        }
    }

    /// The ids of the processes of what is measured: the proxy, or the servers if there is none.
    pub(crate) fn measured_roots(&self) -> Vec<i32> {
        match &self.proxy {
            Some(proxy) => proxy.pids(),
            None => self.backend_roots(),
        }
    }

    /// Pauses of the garbage collector of what is measured that were told since this was called
    /// last; `None` where its runtime tells none.
    pub(crate) fn measured_pauses(&self) -> Option<Pauses> {
        let logs: Vec<PauseLog> = match &self.proxy {
            Some(proxy) => proxy.pause_logs().collect(),
            None => self
                .backends
                .iter()
                .flat_map(RunningContestant::pause_logs)
                .collect(),
        };
        Pauses::drained(&logs)
    }

    /// Kills all of it at once, with all that descends from it.
    pub(crate) fn kill(&self) {
        self.parts().for_each(RunningContestant::kill);
    }

    /// Kills what is measured.
    pub(crate) fn kill_measured(&self) {
        match &self.proxy {
            Some(proxy) => proxy.kill(),
            None => self.backends.iter().for_each(RunningContestant::kill),
        }
    }

    /// Starts what was killed again, at the same ports.
    pub(crate) fn start_measured_again(&mut self) -> Result<(), StackError> {
        let measured = match &mut self.proxy {
            Some(proxy) => std::slice::from_mut(proxy),
            None => self.backends.as_mut_slice(),
        };
        for part in measured {
            let name = part.name().to_owned();
            part.start_again()
                .map_err(|error| StackError { name, error })?;
        }
        Ok(())
    }

    /// Who ended, and how, after a cell that all were to serve.
    pub(crate) fn death(&self, cell: &Cell) -> Option<String> {
        let deadline = death_deadline(cell);
        let mut parts = self.parts();
        parts.find_map(|part| Some(format!("{}: {}", part.name(), part.death(deadline)?)))
    }

    /// Who has ended, and how, where no cell says anything.
    pub(crate) fn any_death(&self) -> Option<String> {
        self.death(&Cell::default())
    }

    /// Stops all, the proxy first; the error is a sentence.
    pub(crate) fn stop(self) -> Result<StoppedStack, String> {
        let mut killed = Vec::new();
        let mut counted = Some(Counted::default());
        if let Some(proxy) = self.proxy {
            let name = proxy.name().to_owned();
            killed.extend(proxy.stop()?.is_killed.then_some(name));
        }
        for backend in self.backends {
            let name = backend.name().to_owned();
            let stopped = backend.stop()?;
            killed.extend(stopped.is_killed.then_some(name));
            counted = counted.zip(stopped.counted).map(|(sum, one)| Counted {
                received: sum.received + one.received,
                sent: sum.sent + one.sent,
            });
        }
        Ok(StoppedStack { killed, counted })
    }

    fn parts(&self) -> impl Iterator<Item = &RunningContestant> {
        self.proxy.iter().chain(&self.backends)
    }
}

/// The address with its port, and the path.
fn split(url: &str) -> (&str, &str) {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let path = after.find('/').unwrap_or(after.len());
    after.split_at(path)
}
