//! How connections and work are spread over several servers behind a proxy.

use moonwire_report::BackendShare;
use procfs::net::TcpState;
use procfs::process::Process;

use crate::contestant::{RunningContestant, RunningStack};
use crate::process::tree;
use crate::scheduling;

/// Looks at each of the servers while messages are sent.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    servers: Vec<Server>,
    looks: u64,
    /// Whether they are in the network namespace of this process: then they are seen also after
    /// they were killed and started again, as others.
    are_here: bool,
}

#[derive(Debug)]
struct Server {
    root: i32,
    port: Option<u16>,
    cpu_start_ns: u64,
    /// Connections, added up over all looks.
    connections: u64,
}

impl Spread {
    /// Begins. Of one server nothing is to be said.
    pub(crate) fn begin(stack: &RunningStack) -> Self {
        let servers = match stack.backends() {
            [] | [_] => &[],
            several => several,
        };
        let server = |server: &RunningContestant| Server {
            root: server.pid(),
            port: server.port(),
            cpu_start_ns: cpu_ns(server.pid()),
            connections: 0,
        };
        Self {
            servers: servers.iter().map(server).collect(),
            looks: 0,
            are_here: servers.first().is_some_and(|it| is_here(it.pid())),
        }
    }

    /// Counts the connections of each.
    pub(crate) fn look(&mut self) {
        let Some(first) = self.servers.first() else {
            return;
        };
        // They share a network namespace, which need not be this one.
        let process = match self.are_here {
            true => Process::myself(),
            false => Process::new(first.root),
        };
        let Ok(process) = process else {
            return;
        };
        let tables = [process.tcp(), process.tcp6()];
        self.looks += 1;
        for entry in tables.into_iter().flatten().flatten() {
            let port = Some(entry.local_address.port());
            let server = self.servers.iter_mut().find(|server| server.port == port);
            if let Some(server) = server.filter(|_| entry.state == TcpState::Established) {
                server.connections += 1;
            }
        }
    }

    /// What each of them had.
    pub(crate) fn end(&self) -> Vec<BackendShare> {
        let looks = self.looks.max(1) as f64;
        let share = |server: &Server| BackendShare {
            connections: server.connections as f64 / looks,
            cpu_s: cpu_ns(server.root).saturating_sub(server.cpu_start_ns) as f64 / 1e9,
        };
        self.servers.iter().map(share).collect()
    }
}

/// Whether a process has the network of this one.
fn is_here(pid: i32) -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let own = network("self");
    own.is_some() && own == network(&pid.to_string())
}

/// CPU time of a process and of what it has started.
fn cpu_ns(root: i32) -> u64 {
    let pids = tree::pids(&[root]);
    let used = pids
        .into_iter()
        .map(|pid| scheduling::process_cpu(pid).as_nanos() as u64);
    used.sum()
}
