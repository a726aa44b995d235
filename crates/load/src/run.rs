//! From a scenario to a result.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use moonwire_report::{Cell, Verdict};

use crate::crew::Crew;
use crate::latency_step::LatencyStep;
use crate::outcome::outcome;
use crate::plan::Plan;
use crate::preflight;
use crate::raw::RawFile;
use crate::scenario::Scenario;

/// How a run is watched and stopped from outside.
#[derive(Default)]
pub struct Control<'a> {
    /// Set to end the run early: connections are closed with 1000 and the result is made.
    pub stop: Arc<AtomicBool>,
    /// Called about once a second, and once when sending starts and ends.
    pub on_progress: Option<&'a mut dyn FnMut(&Progress)>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What the run is doing.
    pub phase: Phase,
    /// Time since the first connection was attempted.
    pub elapsed: Duration,
    /// Time since sending started, zero before.
    pub sending: Duration,
    /// When sending ends by its schedule, from its start; `None` where the peer decides.
    pub sending_planned: Option<Duration>,
    /// Connections up now.
    pub connected: u64,
    /// Connections that came up so far, those included that have ended; `None` where a connection
    /// makes no room for another one.
    pub made: Option<u64>,
    /// Connections the scenario wants.
    pub connections: u64,
    /// Messages sent so far.
    pub sent: u64,
    /// Messages planned, where known.
    pub planned: Option<u64>,
    /// Replies received so far.
    pub received: u64,
    /// Errors so far.
    pub errors: u64,
    /// Response time of the last second, p50 and p99 in nanoseconds.
    pub response_ns: Option<(u64, u64)>,
    /// The distribution of all response times so far.
    pub response_steps: Vec<LatencyStep>,
}

/// The phases of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Handshakes.
    Connecting,
    /// Messages are due.
    Sending,
    /// The last messages were sent; replies are awaited.
    Draining,
    /// Closing handshakes.
    Closing,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All figures; its assessment holds the verdict with its reasons.
    pub cell: Cell,
    /// How it ended.
    pub ending: Ending,
}

impl Outcome {
    /// The verdict, for the exit code.
    pub fn verdict(&self) -> Verdict {
        self.cell.assessment.verdict()
    }

    /// False when a threshold failed.
    pub fn thresholds_passed(&self) -> bool {
        self.cell
            .thresholds
            .iter()
            .all(|threshold| threshold.passed)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As its scenario says.
    Completed,
    /// [`Control::stop`] was set.
    Interrupted,
    /// No connection was left to go on with; the sentence says what happened.
    Died(String),
}

/// Why a run could not start. Displays as one sentence.
#[derive(Debug)]
pub enum LoadError {
    /// [`Control::stop`] was set before there was anything to report.
    Interrupted(String),
    /// A file to be written cannot be.
    Output(String),
    /// The messages that were to be sent could not be had.
    Payload(String),
    /// The machine does not allow what the scenario needs; names the command that fixes it.
    Preflight(String),
    /// The host of a URL has no address.
    Resolve(String),
    /// The operating system refused a thread or a driver.
    System(String),
    /// The trust anchors cannot be read.
    Tls(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(sentence)
            | Self::Output(sentence)
            | Self::Payload(sentence)
            | Self::Preflight(sentence)
            | Self::Resolve(sentence)
            | Self::System(sentence)
            | Self::Tls(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for LoadError {}

/// Runs the scenario on the calling thread and its workers; returns when everything is closed.
pub fn run(scenario: &Scenario, control: &mut Control<'_>) -> Result<Outcome, LoadError> {
    let addresses = Plan::resolve(scenario)?;
    let provision = preflight::check(scenario, &addresses).map_err(LoadError::Preflight)?;
    let plan = Arc::new(Plan::new(scenario, addresses, provision, &control.stop)?);
    let raw = scenario.raw_csv.as_deref().map(create_raw).transpose()?;
    let crew = Crew::hire(&plan, raw.as_ref())?;
    let mut records = crew.watch(control)?;
    let written = raw.map_or(Ok(()), RawFile::finish);
    records.csv_error = written.err().map(|error| error.to_string());
    Ok(outcome(&plan, &records))
}

fn create_raw(path: &Path) -> Result<RawFile, LoadError> {
    RawFile::create(path).map_err(|error| {
        LoadError::Output(format!("{} cannot be written: {error}", path.display()))
    })
}
