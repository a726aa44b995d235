//! A running server, on its processor.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::row::{Kind, Row};
use crate::acceptance::pinned;
use crate::server::Server;

/// One of a row.
pub(super) struct Contender {
    pub(super) kind: Kind,
    server: Server,
    pids: Vec<u32>,
}

impl Contender {
    pub(super) fn start(kind: Kind, row: &Row, program: &Path) -> Result<Self> {
        let mut command = match kind.contestant() {
            Some(name) => {
                let mut command = Command::new(program);
                command.args(["lab", "start", name, "--cpus", &SERVER_CPU.to_string()]);
                if row.is_tls {
                    command.arg("--tls");
                }
                command
            }
            None => {
                let mut command = pinned(Some(SERVER_CPU), program.as_os_str());
                command.args(["lab", "null-server", "--raw"]);
                command
            }
        };
        if let Some(driver) = kind.driver() {
            command.env("MOONWIRE_DRIVER", driver.name());
            command.env("MOONWIRE_TLS_RECORDS", "own");
        }
        let mut server = Server::start(&mut command).with_context(|| kind.name())?;
        let pids = match kind.contestant() {
            Some(_) => server.line("processes ")?,
            None => server.id().to_string(),
        };
        let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
        Ok(Self {
            kind,
            pids: pids.collect(),
            server,
        })
    }

    /// Where it echoes.
    pub(super) fn url(&self) -> &str {
        &self.server.url
    }

    /// What its processes have in memory that is in no file: the pages of a program are shared by
    /// all that run it.
    pub(super) fn memory_bytes(&self) -> Result<f64> {
        let mut total = 0.0;
        for pid in &self.pids {
            let file = format!("/proc/{pid}/smaps_rollup");
            let text = std::fs::read_to_string(&file).with_context(|| file.clone())?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("Anonymous:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
            total += kib.with_context(|| format!("{file} has no Anonymous"))? * 1024.0;
        }
        Ok(total)
    }

    /// Descriptors that its processes have open.
    pub(super) fn descriptors(&self) -> Result<usize> {
        let mut total = 0;
        for pid in &self.pids {
            let folder = format!("/proc/{pid}/fd");
            total += std::fs::read_dir(&folder)
                .with_context(|| folder.clone())?
                .count();
        }
        Ok(total)
    }

    /// Nanoseconds that its threads have run. Those that have ended are not counted: none of these
    /// servers ends any.
    pub(super) fn cpu_ns(&self) -> Result<u64> {
        let mut total = 0;
        for pid in &self.pids {
            let tasks = format!("/proc/{pid}/task");
            for task in std::fs::read_dir(&tasks).with_context(|| tasks.clone())? {
                let file = task?.path().join("schedstat");
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                let run = text
                    .split(' ')
                    .next()
                    .and_then(|run| run.parse::<u64>().ok());
                total += run.unwrap_or(0);
            }
        }
        Ok(total)
    }
}

/// All servers share it: only one has something to do at a time.
const SERVER_CPU: u8 = 0;
