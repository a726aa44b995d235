//! A contestant that was started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moonwire_report::{Cell, Counted};

use super::certificate::save;
use super::counters::Counters;
use super::metrics::MetricsPage;
use super::template::free_ports_at;
use super::{Contestant, Surroundings};
use crate::cgroup::CpuGroup;
use crate::pauses::PauseLog;
use crate::process::{ChildProcess, ChildSpec, Exit, ProcessError, Ready, tree};
use crate::scheduling;

/// A contestant with all its processes. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct RunningContestant {
    name: String,
    /// In the order in which they were started; the last one is the contestant itself.
    processes: Vec<ChildProcess>,
    /// How each of them was started.
    specs: Vec<ChildSpec>,
    url: String,
    amplify_url: Option<String>,
    broadcast_url: Option<String>,
    /// Where its files are.
    folder: PathBuf,
    counters: Option<Counters>,
    /// Where it tells what it counts while it runs.
    metrics: Option<MetricsPage>,
    /// Rations what its processes use. The last, as it goes when they have ended.
    group: Option<Arc<CpuGroup>>,
}

/// How a contestant ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    /// Whether it had to be killed.
    pub(crate) is_killed: bool,
    /// What it says that it has counted.
    pub(crate) counted: Option<Counted>,
}

/// Why a contestant does not run.
#[derive(Debug)]
pub(crate) enum StartError {
    /// Its files cannot be written; a sentence.
    Files(String),
    /// It was started and is not ready.
    Process(ProcessError),
}

impl RunningContestant {
    /// Starts it with its files in `folder`, which is made, on these processors and in this group.
    pub(crate) fn start(
        contestant: &Contestant,
        tls: bool,
        around: &Surroundings,
        folder: PathBuf,
        cpus: &[usize],
        group: Option<Arc<CpuGroup>>,
    ) -> Result<Self, StartError> {
        let around = Surroundings {
            folder,
            ports: free_ports_at(&around.at).map_err(not_started)?,
            ..around.clone()
        };
        write_files(contestant, &around)?;
        let mut specs = contestant.children(tls, &around, cpus);
        for spec in &mut specs {
            spec.group = group.as_ref().map(|group| group.process_file());
        }
        Ok(Self {
            name: contestant.name(),
            processes: start_all(&specs)?,
            specs,
            metrics: contestant.file.metrics.as_ref().and_then(|metrics| {
                let address = (around.address, around.ports[0]).into();
                let certificate = tls.then_some(around.certificate.as_path());
                MetricsPage::new(metrics, address, certificate)
            }),
            url: contestant.url(tls, &around),
            amplify_url: contestant.amplify_url(tls, &around),
            broadcast_url: contestant.broadcast_url(tls, &around),
            folder: around.folder,
            counters: contestant.file.counters.clone(),
            group,
        })
    }

    /// Starts a client in `around.folder`, in this group. It is never ready: it runs to its end.
    pub(crate) fn start_client(
        client: &Contestant,
        tls: bool,
        around: &Surroundings,
        cpus: &[usize],
        group: Option<Arc<CpuGroup>>,
    ) -> Result<Self, StartError> {
        let ports = free_ports_at(&around.at).map_err(not_started)?;
        let around = Surroundings {
            ports,
            ..around.clone()
        };
        write_files(client, &around)?;
        let mut specs = client.children(tls, &around, cpus);
        for spec in &mut specs {
            spec.ready = Ready::Started;
            spec.group = group.as_ref().map(|group| group.process_file());
        }
        Ok(Self {
            name: client.name(),
            processes: start_all(&specs)?,
            specs,
            url: around.errand.url.clone(),
            amplify_url: None,
            broadcast_url: None,
            folder: around.folder,
            counters: None,
            metrics: None,
            group,
        })
    }

    /// What rations its CPU, if anything does.
    pub(crate) fn group(&self) -> Option<&Arc<CpuGroup>> {
        self.group.as_ref()
    }

    /// Where it tells what it counts while it runs, if it does.
    pub(crate) fn metrics(&self) -> Option<&MetricsPage> {
        self.metrics.as_ref()
    }

    /// Where the pauses of its garbage collector are told, if they are. What takes the place of
    /// killed processes tells its own there, too.
    pub(crate) fn pause_logs(&self) -> impl Iterator<Item = PauseLog> {
        self.specs.iter().filter_map(|spec| spec.pauses.clone())
    }

    /// Who it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its echo is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where its amplifying service is.
    pub(crate) fn amplify_url(&self) -> Option<&str> {
        self.amplify_url.as_deref()
    }

    /// Where it sends each message to all that have subscribed.
    pub(crate) fn broadcast_url(&self) -> Option<&str> {
        self.broadcast_url.as_deref()
    }

    /// The port in its address.
    pub(crate) fn port(&self) -> Option<u16> {
        let address = self.url.split('/').nth(2)?;
        address.rsplit(':').next()?.parse().ok()
    }

    /// The process id of the contestant itself; 0 of one that has no process.
    pub(crate) fn pid(&self) -> i32 {
        self.processes.last().map_or(0, ChildProcess::pid)
    }

    /// The ids of the processes that were started and have not ended, as an id that has may be
    /// somebody else's; their own children are found by [`tree::pids`].
    pub(crate) fn pids(&self) -> Vec<i32> {
        let running = self.processes.iter().filter(|it| it.exit().is_none());
        running.map(ChildProcess::pid).collect()
    }

    /// How it ended, if it has, or does so until the deadline.
    pub(crate) fn death(&self, deadline: Instant) -> Option<String> {
        let ended = |process: &ChildProcess| {
            let exit = process.wait_until(deadline)?;
            let said = process.output_tail();
            let last = said
                .last()
                .map_or_else(String::new, |line| format!("; it said: {line}"));
            Some(format!(
                "the server process ended during the run ({exit}){last}"
            ))
        };
        self.processes.iter().find_map(ended)
    }

    /// Waits for the end of the contestant itself, but not past `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<Exit> {
        self.processes.last()?.wait_until(deadline)
    }

    /// The last lines of what it printed.
    pub(crate) fn output(&self) -> Vec<String> {
        let processes = self.processes.iter();
        processes.flat_map(ChildProcess::output_tail).collect()
    }

    /// Kills it at once, with all that descends from it.
    pub(crate) fn kill(&self) {
        let members = tree::members(&self.pids());
        for process in self.processes.iter().rev() {
            process.stop(Duration::ZERO);
        }
        tree::kill(&members);
    }

    /// Starts it as it was started before, at the same ports.
    pub(crate) fn start_again(&mut self) -> Result<(), StartError> {
        self.processes = start_all(&self.specs)?;
        Ok(())
    }

    /// Stops it and keeps what it said; the error is a sentence.
    pub(crate) fn stop(self) -> Result<Stopped, String> {
        let mut is_killed = false;
        // What stands in front ends first, so that nobody loses whom it talks to.
        for process in self.processes.iter().rev() {
            let had_ended = process.exit().is_some();
            // Of one that had ended the id may be somebody else's.
            let roots: &[i32] = if had_ended { &[] } else { &[process.pid()] };
            let members = tree::members(roots);
            let exit = process.stop(STOP_GRACE);
            // Those that have left the process group would be nobody's now.
            tree::kill(&members);
            // Node ends by the signal; a server that had to be killed is another matter.
            is_killed |= exit.signal == Some(SIGKILL) && !had_ended;
        }
        let said = self.output();
        save(&self.folder.join("server.log"), &(said.join("\n") + "\n"))?;
        let counted = self.counters.as_ref().and_then(|it| it.read(&said));
        Ok(Stopped { is_killed, counted })
    }
}

/// Until when the deaths of servers are waited for, of all of them together, after this cell: where
/// it went wrong, the generator may have seen an end a moment before it is seen here.
pub(crate) fn death_deadline(cell: &Cell) -> Instant {
    let in_trouble = cell.ended_early.is_some() || !cell.errors.is_empty();
    let patience = if in_trouble {
        EXIT_PATIENCE
    } else {
        Duration::ZERO
    };
    Instant::now() + patience
}

/// Starts them one after the other. Those before one that does not start are dropped, which ends
/// them.
fn start_all(specs: &[ChildSpec]) -> Result<Vec<ChildProcess>, StartError> {
    let started = specs.iter().map(ChildProcess::start);
    let started: Vec<ChildProcess> = started
        .collect::<Result<_, _>>()
        .map_err(StartError::Process)?;
    // Some programs choose the processors of their workers themselves, those of others among them.
    for (process, spec) in started.iter().zip(specs) {
        for pid in tree::pids(&[process.pid()]) {
            scheduling::keep_on(pid, &spec.cpus);
        }
    }
    Ok(started)
}

/// Its programs and configurations, in the folder of `around`.
fn write_files(contestant: &Contestant, around: &Surroundings) -> Result<(), StartError> {
    let folder: &Path = &around.folder;
    std::fs::create_dir_all(folder).map_err(|error| {
        let path = folder.display();
        StartError::Files(format!("{path} cannot be made: {error}"))
    })?;
    for (file, text) in contestant.files(around) {
        save(&folder.join(file), &text).map_err(StartError::Files)?;
    }
    Ok(())
}

fn not_started(error: std::io::Error) -> StartError {
    StartError::Process(ProcessError::Start(error))
}

/// Longer than moonwire's own drain timeout, so that it can end by itself.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// How long the end of a server that seems to have died is waited for.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);
const SIGKILL: i32 = 9;
