//! A client of somebody else's: it is told what to do and prints what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::running::{RunningContestant, StartError};
use super::{Contestant, Surroundings};
use crate::cgroup::CpuGroup;

/// What a client says of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFigures {
    /// Messages that it sent.
    pub sent: u64,
    /// Messages that came back.
    pub received: u64,
    /// Messages that it knows not to have come back.
    pub lost: Option<u64>,
    /// What it measured.
    pub latency_us: LatencyMicros,
    /// Where its latencies begin.
    pub latency_from: LatencyFrom,
}

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyMicros {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// Where a latency begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LatencyFrom {
    /// When the message was meant to be sent.
    Intended,
    /// When it was sent.
    Sent,
}

/// Runs a client to its end in this group; `around.errand` says what it is to do. The error is a
/// sentence.
pub(crate) fn run_client(
    client: &Contestant,
    around: &Surroundings,
    cpus: &[usize],
    group: Option<Arc<CpuGroup>>,
) -> Result<ClientFigures, String> {
    let tls = around.errand.url.starts_with("wss:");
    let allowed = Duration::from_secs(around.errand.duration_s.into()) + PATIENCE;
    let deadline = Instant::now() + allowed;
    let running = RunningContestant::start_client(client, tls, around, cpus, group);
    let running = running.map_err(|error| match error {
        StartError::Files(sentence) => sentence,
        StartError::Process(error) => error.to_string(),
    })?;
    let name = client.name();
    let exit = running.wait_until(deadline);
    let said = running.output();
    running.stop()?;
    let last = || said.iter().rev().find(|line| !line.trim().is_empty());
    let last = || last().map_or_else(String::new, |line| format!("; it said: {line}"));
    let Some(exit) = exit else {
        return Err(format!("{name} did not end within {allowed:?}{}", last()));
    };
    if exit.code != Some(0) {
        return Err(format!("{name} ended with {exit}{}", last()));
    }
    read(&said).ok_or_else(|| {
        format!(
            "{name} printed no line with its figures as JSON (lab/contestants/README.md has the \
             fields){}",
            last()
        )
    })
}

/// The last line that is what a client should print.
fn read(said: &[String]) -> Option<ClientFigures> {
    let mut lines = said.iter().rev();
    lines.find_map(|line| serde_json::from_str(line).ok())
}

/// What a client may take to start, to wait for the last replies and to end.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_the_last_line_that_has_them() {
        let lines = |lines: &[&str]| -> Vec<String> {
            lines.iter().map(|line| (*line).to_owned()).collect()
        };
        let figures = r#"{"sent":20,"received":19,"lost":1,"latency_from":"sent",
            "latency_us":{"p50":1,"p90":2.5,"p99":3,"max":4,"mean":1.5}}"#
            .replace('\n', "");
        let read_figures = read(&lines(&["starting", &figures, "", "done"])).unwrap();
        assert_eq!((read_figures.sent, read_figures.received), (20, 19));
        assert_eq!(read_figures.latency_from, LatencyFrom::Sent);
        assert_eq!(read_figures.latency_us.p90, 2.5);
        assert_eq!(read(&lines(&["{\"sent\": 20}"])), None);
        assert_eq!(read(&[]), None);
        let odd = figures.replace("\"sent\",", "\"thought\",");
        assert_eq!(read(&lines(&[&odd])), None);
    }
}
