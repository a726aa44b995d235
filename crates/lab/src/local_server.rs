//! A server on this host that a load run was pointed at: found by its port, sampled from outside.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use moonwire_load::{Phase, Target};
use moonwire_report::{Cell, Server};
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process};

use crate::bench::merge::{self, Phases};
use crate::sampling::Sampler;

/// The process behind the targets, being sampled.
#[derive(Debug)]
pub struct LocalServer {
    server: Server,
    sampler: Sampler,
    phases: Phases,
}

impl LocalServer {
    /// Finds the one process of this host that listens at the targets' ports and begins to sample
    /// it. `None` when a target is elsewhere, when several processes share the work (their sum is
    /// not what any of them uses), or when this user may not see whose socket it is.
    pub fn find(targets: &[Target]) -> Option<Self> {
        let mut processes = HashSet::new();
        for target in targets {
            processes.extend(listeners(address(target)?));
        }
        let pid = processes
            .iter()
            .next()
            .copied()
            .filter(|_| processes.len() == 1)?;
        let name = Process::new(pid)
            .and_then(|process| process.stat())
            .ok()?
            .comm;
        let server = Server {
            name,
            urls: targets
                .iter()
                .map(|target| target.url().to_owned())
                .collect(),
            ..Server::default()
        };
        let sampler = Sampler::start(&[pid], SAMPLE_PERIOD);
        Some(Self {
            server,
            sampler,
            phases: Phases::default(),
        })
    }

    /// Notes the phase that the run is in now.
    pub fn note(&mut self, phase: Phase) {
        self.phases.note(phase, Instant::now());
    }

    /// Ends the sampling and puts the figures into the cell of the run.
    pub fn finish(self, cell: &mut Cell) {
        let phases = self.phases;
        self.finish_at(cell, &phases, Instant::now());
    }

    /// The same for a run whose phases were noted elsewhere and that ended at `end`.
    pub(crate) fn finish_at(self, cell: &mut Cell, phases: &Phases, end: Instant) {
        let series = self.sampler.stop();
        merge::add_server(cell, self.server, &series, phases, end);
    }
}

/// The target's address, if it is this host's.
fn address(target: &Target) -> Option<SocketAddr> {
    let mut addresses = (target.host(), target.port()).to_socket_addrs().ok()?;
    // Only an address of this host can be bound to.
    addresses.find(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
}

/// The processes that listen where a connection to `address` would go.
fn listeners(address: SocketAddr) -> HashSet<i32> {
    let entries = procfs::net::tcp()
        .into_iter()
        .chain(procfs::net::tcp6())
        .flatten();
    let inodes: HashSet<u64> = entries
        .filter(|entry| entry.state == TcpState::Listen && takes(entry, address))
        .map(|entry| entry.inode)
        .collect();
    let processes = procfs::process::all_processes()
        .into_iter()
        .flatten()
        .flatten();
    processes
        .filter(|process| owns(process, &inodes))
        .map(|process| process.pid)
        .collect()
}

fn takes(entry: &TcpNetEntry, address: SocketAddr) -> bool {
    let local = entry.local_address;
    let unspecified = match local.ip() {
        IpAddr::V4(ip) => ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    local.port() == address.port() && (unspecified || local.ip() == address.ip())
}

fn owns(process: &Process, inodes: &HashSet<u64>) -> bool {
    let mut descriptors = process.fd().into_iter().flatten().flatten();
    descriptors.any(|descriptor| {
        matches!(descriptor.target, FDTarget::Socket(inode) if inodes.contains(&inode))
    })
}

/// Often enough to tell the sending phase from the handshakes before it.
const SAMPLE_PERIOD: Duration = Duration::from_millis(250);
