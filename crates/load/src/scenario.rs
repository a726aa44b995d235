//! What to load, how and for how long, as a value that always can run.
//!
//! [`Settings`] is what a user asked for; [`Scenario::new`] checks it once and gives one sentence
//! per mistake. After that nothing is checked again.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use moonwire_net::random_mask;
use moonwire_proto::{ClientKey, DeflateOffer, UpgradeRequest, WebSocketVersion};
use serde::{Serialize, Serializer};

use crate::slo::Slo;
use crate::target::Target;

/// A checked scenario: every value of it can run.
#[derive(Clone, Debug)]
pub struct Scenario(Settings);

impl Scenario {
    /// Checks the settings; the error says the first mistake in one sentence.
    pub fn new(settings: Settings) -> Result<Self, ScenarioError> {
        check_connections(&settings)?;
        check_pacing(&settings)?;
        check_workload(&settings)?;
        check_headers(&settings)?;
        Ok(Self(settings))
    }

    /// Connections over all targets.
    pub fn connections_total(&self) -> u32 {
        self.0.connections * u32::try_from(self.0.targets.len()).expect("checked against the max")
    }

    /// Worker threads that have at least one connection.
    pub(crate) fn workers(&self) -> u32 {
        self.0.threads.min(self.connections_total())
    }

    /// Most messages that one connection may have unanswered, where the pacing limits it.
    pub(crate) fn in_flight_max(&self) -> Option<u32> {
        match self.0.pacing {
            Pacing::Closed { in_flight } => Some(in_flight),
            Pacing::Open { in_flight, .. } | Pacing::Batches { in_flight, .. } => in_flight,
            Pacing::Hold => None,
        }
    }

    /// Messages that the schedule would send, where that is known before the run.
    pub fn messages_planned(&self) -> Option<u64> {
        let connections = u64::from(self.connections_total());
        let of_schedule = match self.0.pacing {
            Pacing::Batches { batch, batches, .. } => Some(
                connections
                    .saturating_mul(u64::from(batch))
                    .saturating_mul(batches),
            ),
            Pacing::Hold => Some(0),
            Pacing::Closed { .. } | Pacing::Open { .. } => None,
        };
        match (self.0.stop, of_schedule) {
            (Stop::Messages(total), Some(of_schedule)) => Some(total.min(of_schedule)),
            (Stop::Messages(total), None) => Some(total),
            (Stop::After(_) | Stop::Schedule, of_schedule) => of_schedule,
        }
    }
}

impl Deref for Scenario {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

/// Everything that shapes a run. Unset fields come from [`Settings::default`].
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Where to connect; `connections` are made to each of them.
    pub targets: Vec<Target>,
    /// Connections per target.
    pub connections: u32,
    /// Worker threads, each with a driver and a recorder of its own.
    pub threads: u32,
    /// Processors to pin the workers to, in turn; empty leaves them to the kernel.
    pub pin: Vec<usize>,
    /// Most handshakes in flight at once, over all workers.
    pub connect_concurrency: u32,
    /// Handshakes started per second; `None` starts them as fast as the concurrency allows.
    pub connect_rate: Option<f64>,
    /// Send nothing before every connection is up or given up.
    pub barrier: bool,
    /// Spreads the first sends evenly over this long: connection `c` of `n` starts `c / n` of it
    /// late.
    pub stagger: Option<Duration>,
    /// What is sent, and how a reply is verified.
    pub workload: Workload,
    /// Replies expected to each message.
    pub replies: u16,
    /// When messages are sent.
    pub pacing: Pacing,
    /// When sending ends.
    pub stop: Stop,
    /// How long replies are awaited after the last send before they count as lost.
    pub drain: Duration,
    /// What follows a failed or lost connection.
    pub reconnect: Reconnect,
    /// Subprotocols offered in the handshake, most wanted first.
    pub subprotocols: Vec<String>,
    /// The compression to offer; `None` offers none.
    #[serde(serialize_with = "deflate_field")]
    pub deflate: Option<DeflateOffer>,
    /// Further header fields of the handshake.
    pub headers: Vec<(String, String)>,
    /// Take any certificate.
    pub insecure: bool,
    /// Trust anchors in PEM instead of the system's.
    pub cacert: Option<PathBuf>,
    /// Local addresses to connect from; empty chooses by itself.
    pub sources: Vec<IpAddr>,
    /// Longest time from the first packet to the server's 101.
    pub handshake_timeout: Duration,
    /// Seed of arrivals and payloads.
    pub seed: u64,
    /// Where to stream one line per reply.
    pub raw_csv: Option<PathBuf>,
    /// The caller knows that every target shares this host's clock.
    pub same_host: bool,
    /// Threads of idle priority keep the processors from halting. They wait whenever anything else
    /// runs, so that the kernel's pressure figure is left out.
    pub idle_poll: bool,
    /// The stand-in for a link: messages are held this long at the generator, each way.
    pub link_delay: Option<Duration>,
    /// Conditions that the result has to meet.
    pub slo: Vec<Slo>,
}

/// An offer as it stands in the request.
fn deflate_field<S: Serializer>(
    offer: &Option<DeflateOffer>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    offer.map(|offer| offer.field()).serialize(serializer)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            connections: 10,
            threads: 1,
            pin: Vec::new(),
            connect_concurrency: 256,
            connect_rate: None,
            barrier: true,
            stagger: None,
            workload: Workload::Echo {
                size: 64,
                binary: false,
            },
            replies: 1,
            pacing: Pacing::Closed { in_flight: 1 },
            stop: Stop::After(Duration::from_secs(10)),
            drain: Duration::from_secs(10),
            reconnect: Reconnect::Never,
            subprotocols: Vec::new(),
            deflate: None,
            headers: Vec::new(),
            insecure: false,
            cacert: None,
            sources: Vec::new(),
            handshake_timeout: Duration::from_secs(30),
            seed: 1,
            raw_csv: None,
            same_host: false,
            idle_poll: false,
            link_delay: None,
            slo: Vec::new(),
        }
    }
}

/// What a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// The peer sends each message back as it is.
    Echo {
        /// Bytes of the payload; 0 works.
        size: usize,
        /// Binary instead of text frames.
        binary: bool,
    },
    /// Alternately a text of `size` bytes and an empty binary message; the peer sends each back. So
    /// did the benchmark of LAppS, whatever size it printed.
    Alternating {
        /// Bytes of the text.
        size: usize,
    },
    /// The JSON of uwebsocket-benchmark in binary frames: the peer answers with its own clock.
    Amplify {
        /// Bytes of the whole JSON text.
        size: usize,
        /// Unit of `created_at` and `server_latency`.
        time_unit: TimeUnit,
    },
}

impl Workload {
    /// Bytes of a message, on average.
    pub(crate) fn payload_bytes(self) -> usize {
        match self {
            Self::Echo { size, .. } | Self::Amplify { size, .. } => size,
            Self::Alternating { size } => size / 2,
        }
    }
}

/// Unit of the times inside a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Servers of uwebsocket-benchmark as they are: one-way latencies have a resolution of 1 ms.
    Milliseconds,
    /// Our own servers.
    Microseconds,
}

impl TimeUnit {
    /// Nanoseconds in one unit.
    pub(crate) fn nanoseconds(self) -> u64 {
        match self {
            Self::Milliseconds => 1_000_000,
            Self::Microseconds => 1_000,
        }
    }
}

/// When messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Each connection keeps this many messages unanswered; the peer sets the pace.
    Closed {
        /// Messages unanswered per connection, at least 1.
        in_flight: u32,
    },
    /// Messages are due at times that do not depend on the peer.
    Open {
        /// Messages per second over all connections.
        rate: f64,
        /// How the messages are spread over time.
        arrival: Arrival,
        /// Most messages unanswered per connection; later ones keep their intended time.
        in_flight: Option<u32>,
    },
    /// As uwebsocket-benchmark does: `batches` times `batch` messages per connection, one batch
    /// every `wait`.
    Batches {
        /// Messages of one batch.
        batch: u32,
        /// From the start of one batch to the start of the next.
        wait: Duration,
        /// Batches per connection.
        batches: u64,
        /// Most messages unanswered per connection; later ones keep their intended time.
        in_flight: Option<u32>,
    },
    /// Connections are opened and held; nothing is sent.
    Hold,
}

/// How an open loop spreads its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// One message every 1/rate, connections in turn.
    Constant,
    /// Independent arrivals, exponential gaps, from the seed.
    Poisson,
}

/// When sending ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// No message is intended at or after this time from the start.
    After(Duration),
    /// Messages over all connections.
    Messages(u64),
    /// When the schedule ends by itself: batches only.
    Schedule,
}

/// What follows a connection that failed or was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconnect {
    /// It stays down.
    Never,
    /// A new one is made after this time (at least [`RECONNECT_DELAY_MIN`]).
    After(Duration),
}

/// A mistake in the settings; the text is one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(String);

impl ScenarioError {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

fn check_connections(settings: &Settings) -> Result<(), ScenarioError> {
    if settings.targets.is_empty() {
        return mistake("there is no URL to load: give at least one ws:// or wss:// URL");
    }
    if settings.connections == 0 {
        return mistake("there must be at least 1 connection");
    }
    let total = u64::from(settings.connections) * settings.targets.len() as u64;
    if total > u64::from(CONNECTIONS_MAX) {
        return mistake(format!(
            "{total} connections are more than the {CONNECTIONS_MAX} that one run can number"
        ));
    }
    if settings.threads == 0 || settings.threads > THREADS_MAX {
        return mistake(format!("threads must be between 1 and {THREADS_MAX}"));
    }
    if settings.connect_concurrency == 0 {
        return mistake("the connect concurrency must be at least 1");
    }
    if let Some(rate) = settings.connect_rate {
        check_rate("connection rate", rate)?;
    }
    if settings.handshake_timeout.is_zero() || settings.handshake_timeout > DURATION_MAX {
        return mistake("the handshake timeout must be more than 0 and at most 30 days");
    }
    Ok(())
}

fn check_pacing(settings: &Settings) -> Result<(), ScenarioError> {
    match settings.pacing {
        Pacing::Closed { in_flight } => check_in_flight(Some(in_flight))?,
        Pacing::Open {
            rate, in_flight, ..
        } => {
            check_rate("message rate", rate)?;
            check_in_flight(in_flight)?;
            if settings.stagger.is_some() {
                return mistake(
                    "a stagger shapes batches and closed loops; the rate spreads an open loop",
                );
            }
        }
        Pacing::Batches {
            batch,
            wait,
            batches,
            in_flight,
        } => {
            check_in_flight(in_flight)?;
            if batch == 0 || batches == 0 {
                return mistake("there must be at least 1 batch of at least 1 message");
            }
            if wait > DURATION_MAX {
                return mistake("the wait between batches must be at most 30 days");
            }
        }
        Pacing::Hold => {}
    }
    check_stop(settings)?;
    check_stagger(settings)?;
    if settings.drain > DURATION_MAX {
        return mistake("the drain must be at most 30 days");
    }
    if settings
        .link_delay
        .is_some_and(|delay| delay > LINK_DELAY_MAX)
    {
        return mistake("the delay of the stand-in link must be at most 60 s");
    }
    Ok(())
}

fn check_stop(settings: &Settings) -> Result<(), ScenarioError> {
    match settings.stop {
        Stop::After(duration) if duration.is_zero() || duration > DURATION_MAX => {
            mistake("the duration must be more than 0 and at most 30 days")
        }
        Stop::Messages(0) => mistake("the number of messages must be at least 1"),
        Stop::Messages(_) if settings.pacing == Pacing::Hold => {
            mistake("connections that are only held need a duration, not a number of messages")
        }
        Stop::Schedule if !matches!(settings.pacing, Pacing::Batches { .. }) => {
            mistake("only batches end by themselves: give a duration or a number of messages")
        }
        Stop::After(_) | Stop::Messages(_) | Stop::Schedule => Ok(()),
    }
}

fn check_stagger(settings: &Settings) -> Result<(), ScenarioError> {
    let Some(stagger) = settings.stagger else {
        return Ok(());
    };
    if stagger > DURATION_MAX {
        return mistake("the stagger must be at most 30 days");
    }
    if let Pacing::Batches { wait, .. } = settings.pacing
        && !wait.is_zero()
        && stagger > wait
    {
        return mistake(format!(
            "a stagger of {stagger:?} is longer than the wait of {wait:?} between batches, so that \
             the rate would never be reached: give a shorter one"
        ));
    }
    if let Stop::After(duration) = settings.stop
        && stagger > duration
    {
        return mistake(format!(
            "a stagger of {stagger:?} is longer than the duration of {duration:?}, so that some \
             connections would never send: give a shorter one"
        ));
    }
    Ok(())
}

fn check_in_flight(in_flight: Option<u32>) -> Result<(), ScenarioError> {
    match in_flight {
        Some(0) => mistake("there must be at least 1 message in flight per connection"),
        Some(n) if n > IN_FLIGHT_MAX => mistake(format!(
            "{n} messages in flight per connection are more than the maximum of {IN_FLIGHT_MAX}"
        )),
        Some(_) | None => Ok(()),
    }
}

fn check_rate(what: &str, rate: f64) -> Result<(), ScenarioError> {
    if rate.is_finite() && (RATE_MIN..=RATE_MAX).contains(&rate) {
        return Ok(());
    }
    mistake(format!(
        "the {what} must be between {RATE_MIN} and {RATE_MAX} per second, not {rate}"
    ))
}

fn check_workload(settings: &Settings) -> Result<(), ScenarioError> {
    if settings.replies == 0 {
        return mistake("there must be at least 1 reply per message");
    }
    match settings.workload {
        Workload::Echo { size, .. }
        | Workload::Alternating { size }
        | Workload::Amplify { size, .. }
            if size > SIZE_MAX =>
        {
            mistake(format!(
                "a message of {size} bytes is more than the maximum of {SIZE_MAX}"
            ))
        }
        Workload::Amplify { size, .. } if size < AMPLIFY_SIZE_MIN => mistake(format!(
            "an amplify message needs at least {AMPLIFY_SIZE_MIN} bytes for its fields, not {size}"
        )),
        Workload::Echo { .. } | Workload::Alternating { .. } | Workload::Amplify { .. } => Ok(()),
    }
}

fn check_headers(settings: &Settings) -> Result<(), ScenarioError> {
    let token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    for (name, value) in &settings.headers {
        if !token(name) {
            return mistake(format!("`{name}` is not the name of a header field"));
        }
        if value.bytes().any(|b| b < 0x20 && b != b'\t' || b == 0x7f) {
            return mistake(format!(
                "the value of header `{name}` holds a control character"
            ));
        }
        let request = UpgradeRequest {
            host: "localhost".to_owned(),
            target: "/".to_owned(),
            subprotocols: Vec::new(),
            headers: vec![(name.clone(), value.clone())],
            deflate: None,
            version: WebSocketVersion::default(),
            key: ClientKey::generate(random_mask),
        };
        if request.encode().is_err() {
            return mistake(format!(
                "the header `{name}` is part of every upgrade and cannot be given"
            ));
        }
    }
    match settings.subprotocols.iter().find(|name| !token(name)) {
        Some(name) => mistake(format!("`{name}` is not the name of a subprotocol")),
        None => Ok(()),
    }
}

fn mistake<T>(sentence: impl Into<String>) -> Result<T, ScenarioError> {
    Err(ScenarioError::new(sentence))
}

/// Connections of one run: their number takes 30 bits of a payload's header.
const CONNECTIONS_MAX: u32 = 10_000_000;
/// Worker threads of one run.
const THREADS_MAX: u32 = 1024;
/// Messages in flight on one connection; each costs 32 bytes of ledger.
const IN_FLIGHT_MAX: u32 = 65_536;
/// Slowest rate: one per 1000 s, the resolution of the schedule.
const RATE_MIN: f64 = 0.001;
/// Fastest rate; far above what one machine sends.
const RATE_MAX: f64 = 1e9;
/// Longest of all durations.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest delay of the stand-in link: it keeps 24 bytes per message meanwhile.
const LINK_DELAY_MAX: Duration = Duration::from_secs(60);
/// Largest payload: what a session takes by default.
const SIZE_MAX: usize = 16 * 1024 * 1024;
/// The fields of uwebsocket-benchmark with the longest numbers and one byte of filler.
pub(crate) const AMPLIFY_SIZE_MIN: usize = 112;
/// Shortest pause before a connection is made again: a refused port must not be hammered.
pub(crate) const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
