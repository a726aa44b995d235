//! One server under one load.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::contender::Contender;
use super::row::{Kind, Row};
use crate::acceptance::pinned;

/// What one turn came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) messages: f64,
    pub(super) messages_per_s: f64,
    /// Of the server, for each message, by the scheduler's clock.
    pub(super) cpu_ns: f64,
    /// How much of its processor the server used.
    pub(super) server_share: f64,
    /// How much of its processor the generator used.
    pub(super) generator_share: f64,
    pub(super) p99_us: f64,
}

/// Loads it for as long as the plan says.
pub(super) fn load(
    contender: &Contender,
    row: &Row,
    duration: Duration,
    program: &Path,
) -> Result<Measured> {
    let file = tempfile::NamedTempFile::new().context("a file for the result")?;
    let mut command = pinned(Some(GENERATOR_CPU), program.as_os_str());
    command.args(["load", contender.url(), "-t", "1", "--binary", "-k"]);
    command.args(["-c", &row.connections.to_string()]);
    command.args(["-p", &row.in_flight.to_string()]);
    command.args(["--message-size", &row.message_bytes.to_string()]);
    command.args(["-d", &format!("{}s", duration.as_secs())]);
    command.args(["--driver", "io_uring", "--tls-records", "own"]);
    command.arg("--json").arg(file.path());
    if matches!(contender.kind, Kind::Floor(_)) {
        command.arg("--no-mask");
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let (before, begin) = (contender.cpu_ns()?, Instant::now());
    let output = command.output().context("the generator")?;
    let (used, elapsed) = (contender.cpu_ns()? - before, begin.elapsed());
    let text = std::fs::read_to_string(file.path())?;
    ensure!(
        !text.is_empty(),
        "the generator has left no result: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let run: Value = serde_json::from_str(&text).context("its result")?;
    let number = |pointer: &str| {
        let value = run.pointer(pointer).and_then(Value::as_f64);
        value.with_context(|| format!("the result has no number at {pointer}"))
    };
    let lost = number("/messages/lost")? + number("/messages/corrupt")?;
    ensure!(
        lost == 0.0,
        "{}: {lost} messages lost or corrupt",
        contender.kind.name()
    );
    let messages = number("/messages/received")?;
    Ok(Measured {
        name: contender.kind.name(),
        messages,
        messages_per_s: number("/rate/received_per_s")?,
        cpu_ns: used as f64 / messages,
        server_share: used as f64 / elapsed.as_nanos() as f64,
        generator_share: number("/generator/cpu_share")?,
        p99_us: number("/latency/response/p99_us").unwrap_or(f64::NAN),
    })
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:.0} messages/s, {:.0} ns of the server each ({:.0} % busy, generator {:.0} %)",
            self.name,
            self.messages_per_s,
            self.cpu_ns,
            self.server_share * 100.0,
            self.generator_share * 100.0
        )
    }
}

/// Beside the server's.
const GENERATOR_CPU: u8 = 1;
