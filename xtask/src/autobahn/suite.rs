//! The suite's runners, `autobahn.py` and `autobahn_original.py` in `xtask/peers`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};

use super::client::Client;
use super::settings::{Round, Runner};
use super::verdicts::Verdicts;
use crate::server::Server;
use crate::{peers, place};

pub(crate) struct Suite {
    /// Chosen cases, in the suite's order.
    cases: Vec<String>,
}

impl Suite {
    pub(crate) fn new(globs: &[String]) -> Result<Self> {
        let output = command(Runner::Kosoku)?
            .arg("list")
            .args(globs)
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "the suite does not list its cases");
        let cases: Vec<String> = String::from_utf8(output.stdout)?
            .split_whitespace()
            .map(str::to_string)
            .collect();
        ensure!(!cases.is_empty(), "no case matches {}", globs.join(" "));
        Ok(Self { cases })
    }

    pub(crate) fn cases(&self) -> &[String] {
        &self.cases
    }

    /// A fuzzing client against a server that echoes at `url`.
    pub(crate) fn against_server(
        &self,
        round: Round,
        runner: Runner,
        url: &str,
    ) -> Result<Verdicts> {
        let folder = empty_folder(round)?;
        let mut command = command(runner)?;
        command.arg("client").arg(url).arg(&folder);
        command.arg(jobs().to_string()).args(&self.cases);
        let status = command.stdin(Stdio::null()).status()?;
        ensure!(status.success(), "the suite's client ended with {status}");
        Verdicts::read(folder)
    }

    /// A fuzzing server, to which the client connects once for each case.
    pub(crate) fn against_client(
        &self,
        round: Round,
        runner: Runner,
        client: &Client,
    ) -> Result<Verdicts> {
        let folder = empty_folder(round)?;
        let mut command = command(runner)?;
        command.args(["server", round.scheme()]).arg(&folder);
        let server = Server::start(command.args(&self.cases))?;
        client.run(&server.url, &self.cases, jobs())?;
        server.count("results ")?;
        Verdicts::read(folder)
    }
}

fn command(runner: Runner) -> Result<Command> {
    let script = match runner {
        Runner::Kosoku => "autobahn.py",
        Runner::Original => "autobahn_original.py",
    };
    let mut command = Command::new(peers::python()?);
    // Without -B Python writes files beside the script.
    command.arg("-B");
    command.arg(place::root().join("xtask/peers").join(script));
    Ok(command)
}

/// The folder of a round's reports, without those of the last time.
fn empty_folder(round: Round) -> Result<PathBuf> {
    let folder = place::target()?.join("autobahn").join(round.to_string());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("old reports")?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Cases at a time. Many have a deadline of a second, so that no more run than there are cores.
fn jobs() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}
