//! The load on a server, and what it costs the server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contender::Contender;
use super::row::{Echo, Kind};
use crate::acceptance::pinned;

/// What a load came to.
pub(super) struct Outcome {
    run: Value,
    /// Nanoseconds that the server's threads have run meanwhile.
    pub(super) server_ns: f64,
    /// How long it took, or only its sending where the rest is of no interest.
    elapsed_ns: f64,
}

impl Outcome {
    /// A number of the Run file.
    pub(super) fn number(&self, pointer: &str) -> Result<f64> {
        let value = self.run.pointer(pointer).and_then(Value::as_f64);
        value.with_context(|| format!("the result has no number at {pointer}"))
    }

    /// The same where it may be missing.
    pub(super) fn number_or_nan(&self, pointer: &str) -> f64 {
        self.number(pointer).unwrap_or(f64::NAN)
    }

    /// Connections that have resumed a session of TLS.
    pub(super) fn resumed(&self) -> f64 {
        let agreed = self.run.pointer("/tls_agreed").and_then(Value::as_array);
        let resumed = agreed.into_iter().flatten();
        resumed
            .filter_map(|agreed| agreed["resumed"].as_f64())
            .sum()
    }

    /// How much of a processor the server used, connecting and closing included.
    pub(super) fn server_share(&self) -> f64 {
        self.server_ns / self.elapsed_ns
    }
}

/// A generator of one thread, that has everything in common with the others.
pub(super) fn command(contender: &Contender, program: &Path) -> Command {
    let mut command = pinned(Some(GENERATOR_CPU), program.as_os_str());
    command.args(["load", contender.url(), "-t", "1", "--binary", "-k"]);
    command.args(["--driver", "io_uring", "--tls-records", "own"]);
    if matches!(contender.kind, Kind::Floor(_)) {
        command.arg("--no-mask");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// The arguments for messages of this kind.
pub(super) fn echo(command: &mut Command, load: Echo) {
    command.args(["-c", &load.connections.to_string()]);
    command.args(["-p", &load.in_flight.to_string()]);
    command.args(["--message-size", &load.message_bytes.to_string()]);
}

/// Runs it to its end. Nothing may be lost.
pub(super) fn run(contender: &Contender, mut command: Command) -> Result<Outcome> {
    let file = tempfile::NamedTempFile::new().context("a file for the result")?;
    command.arg("--json").arg(file.path());
    let (before, begin) = (contender.cpu_ns()?, Instant::now());
    let output = command.output().context("the generator")?;
    let (used, elapsed) = (contender.cpu_ns()? - before, begin.elapsed());
    let text = std::fs::read_to_string(file.path())?;
    ensure!(
        !text.is_empty(),
        "the generator has left no result: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut outcome = Outcome {
        run: serde_json::from_str(&text).context("its result")?,
        server_ns: used as f64,
        elapsed_ns: elapsed.as_nanos() as f64,
    };
    if let Kind::Floor(_) = contender.kind {
        // It does not answer close frames, which are awaited for seconds.
        outcome.elapsed_ns = outcome.number("/rate/duration_s")? * 1e9;
    }
    for what in ["/messages/lost", "/messages/corrupt", "/connects/failed"] {
        let count = outcome.number(what)?;
        ensure!(count == 0.0, "{}: {count} of {what}", contender.kind.name());
    }
    Ok(outcome)
}

/// Beside the server's.
pub(super) const GENERATOR_CPU: u8 = 1;
