//! A contestant that was started.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use moonwire_report::Cell;

use super::certificate::save;
use super::{Contestant, Surroundings};
use crate::process::{ChildProcess, ProcessError};

/// A server under load. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct RunningContestant {
    process: ChildProcess,
    url: String,
    /// Where its files are.
    folder: PathBuf,
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
    /// Starts it with its files in `folder`, which is made, on these processors.
    pub(crate) fn start(
        contestant: &Contestant,
        tls: bool,
        around: &Surroundings,
        folder: PathBuf,
        cpus: &[usize],
    ) -> Result<Self, StartError> {
        std::fs::create_dir_all(&folder).map_err(|error| {
            let path = folder.display();
            StartError::Files(format!("{path} cannot be made: {error}"))
        })?;
        let started = |error| StartError::Process(ProcessError::Start(error));
        let around = Surroundings {
            folder: folder.clone(),
            port: free_port().map_err(started)?,
            ..around.clone()
        };
        for (file, text) in contestant.files(&around) {
            save(&folder.join(file), &text).map_err(StartError::Files)?;
        }
        let spec = contestant.child(tls, &around, cpus);
        let process = ChildProcess::start(&spec).map_err(StartError::Process)?;
        Ok(Self {
            process,
            url: contestant.url(tls, &around),
            folder,
        })
    }

    /// Where its echo is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// How it ended, if it has, after a cell that it was to serve.
    pub(crate) fn death(&self, cell: &Cell) -> Option<String> {
        // Its end may be seen by the generator a moment before it is seen here.
        let in_trouble = cell.ended_early.is_some() || !cell.errors.is_empty();
        let patience = if in_trouble {
            EXIT_PATIENCE
        } else {
            Duration::ZERO
        };
        let exit = self.process.wait_until(Instant::now() + patience)?;
        let said = self.process.output_tail();
        let last = said
            .last()
            .map_or_else(String::new, |line| format!("; it said: {line}"));
        Some(format!(
            "the server process ended during the run ({exit}){last}"
        ))
    }

    /// Stops it and keeps what it said. Whether it had to be killed; the error is a sentence.
    pub(crate) fn stop(self) -> Result<bool, String> {
        let had_ended = self.process.exit().is_some();
        let exit = self.process.stop(STOP_GRACE);
        let said = self.process.output_tail().join("\n") + "\n";
        save(&self.folder.join("server.log"), &said)?;
        // Node ends by the signal; a server that had to be killed is another matter.
        Ok(exit.signal == Some(SIGKILL) && !had_ended)
    }
}

/// A port nobody listens on.
fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(listener.local_addr()?.port())
}

/// Longer than moonwire's own drain timeout, so that it can end by itself.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// How long the end of a server that seems to have died is waited for.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);
const SIGKILL: i32 = 9;
