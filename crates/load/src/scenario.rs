//! What to load, how and for how long, as a value that always can run.
//!
//! [`Settings`] is what a user asked for; [`Scenario::new`] checks it once and gives one sentence
//! per mistake. After that nothing is checked again.

mod check;

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use moonwire_net::{DriverChoice, TlsRecords};
use moonwire_proto::{DeflateOffer, WebSocketVersion};
use moonwire_report::{ClockOffset, header_value_shown};
use serde::{Serialize, Serializer};

use crate::fragments::FragmentShare;
use crate::pool::PayloadSource;
use crate::reconnect::Reconnect;
use crate::schedule;
use crate::slo::Slo;
use crate::stages::RateStages;
use crate::target::Target;

/// A checked scenario: every value of it can run.
#[derive(Clone, Debug)]
pub struct Scenario(Settings);

impl Scenario {
    /// Checks the settings; the error says the first mistake in one sentence.
    pub fn new(settings: Settings) -> Result<Self, ScenarioError> {
        check::check(&settings)?;
        Ok(Self(settings))
    }

    /// Connections over all targets.
    pub fn connections_total(&self) -> u32 {
        self.0.connections * u32::try_from(self.0.targets.len()).expect("checked against the max")
    }

    /// Connections that send messages: the first ones.
    pub(crate) fn senders(&self) -> u32 {
        let publishers = self.0.fan_out.map(|fan_out| fan_out.publishers);
        publishers.unwrap_or_else(|| self.connections_total())
    }

    /// Connections that are to get each message: the first ones.
    pub(crate) fn listeners(&self) -> u32 {
        let silent = self.0.fan_out.map_or(0, |fan_out| fan_out.silent);
        self.connections_total().saturating_sub(silent)
    }

    /// Worker threads that have at least one connection.
    pub(crate) fn workers(&self) -> u32 {
        let open = self.0.open_max.unwrap_or(u32::MAX);
        self.0.threads.min(self.connections_total()).min(open)
    }

    /// Most connections that are open at once.
    pub(crate) fn open_max(&self) -> u32 {
        let open = self.0.open_max.unwrap_or(u32::MAX);
        open.min(self.connections_total())
    }

    /// Most messages that one connection may have unanswered, where the pacing limits it.
    pub(crate) fn in_flight_max(&self) -> Option<u32> {
        match self.0.pacing {
            Pacing::Closed { in_flight } => Some(in_flight),
            Pacing::Open { in_flight, .. }
            | Pacing::Batches { in_flight, .. }
            | Pacing::Stages { in_flight, .. } => in_flight,
            Pacing::Hold => None,
        }
    }

    /// How the rate changes, where it does.
    pub(crate) fn stages(&self) -> Option<&RateStages> {
        match &self.0.pacing {
            Pacing::Stages { stages, .. } => Some(stages),
            Pacing::Closed { .. } | Pacing::Open { .. } | Pacing::Batches { .. } | Pacing::Hold => {
                None
            }
        }
    }

    /// Messages that the schedule would send, where that is known before the run.
    pub fn messages_planned(&self) -> Option<u64> {
        let connections = u64::from(self.senders());
        let of_schedule = match self.0.pacing {
            Pacing::Batches { batch, batches, .. } => Some(
                connections
                    .saturating_mul(u64::from(batch))
                    .saturating_mul(batches),
            ),
            Pacing::Hold => Some(0),
            Pacing::Closed { .. } => {
                let each = self.0.messages_per_connection;
                each.map(|each| connections.saturating_mul(each))
            }
            Pacing::Stages {
                ref stages,
                arrival: Arrival::Constant,
                ..
            } => Some(schedule::messages_of(stages)),
            Pacing::Open { .. } | Pacing::Stages { .. } => None,
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
    /// How the workers ask the kernel for their sockets. Over io_uring all sends of a turn go with
    /// one call, after they were stamped.
    #[serde(serialize_with = "driver_field")]
    pub driver: DriverChoice,
    /// Who seals and opens the records of TLS 1.3.
    #[serde(serialize_with = "tls_records_field")]
    pub tls_records: TlsRecords,
    /// Resume sessions of TLS where a server lets one, as clients do that come again.
    pub tls_resume: bool,
    /// Processors to pin the workers to, in turn; empty leaves them to the kernel.
    pub pin: Vec<usize>,
    /// Whether the workers go before everything else on their processors, where the kernel allows
    /// it: for processors that no server has to share, and loads that leave some time to others.
    pub real_time: bool,
    /// The file of a control group that each worker writes itself into; `None` leaves them in that
    /// of the process.
    pub group: Option<PathBuf>,
    /// Most handshakes in flight at once, over all workers.
    pub connect_concurrency: u32,
    /// Handshakes started per second; `None` starts them as fast as the concurrency allows.
    pub connect_rate: Option<f64>,
    /// Starts connections in groups instead.
    pub connect_group: Option<ConnectGroup>,
    /// Starts each connection later by a time that is drawn from the seed, below this one.
    pub start_delay: Option<Duration>,
    /// Send nothing before every connection is up or given up.
    pub barrier: bool,
    /// Messages that each connection sends, one after the other's reply; then it closes, and
    /// another one opens in its place. `None`: connections stay open to the end.
    pub messages_per_connection: Option<u64>,
    /// Most connections that are open at once, over all workers, from the first packet until the
    /// socket is closed; `None` opens all of them.
    pub open_max: Option<u32>,
    /// In a closed loop: how long a connection waits after a reply before its next message is due.
    pub think: Option<Duration>,
    /// Spreads the first sends evenly over this long: connection `c` of `n` starts `c / n` of it
    /// late.
    pub stagger: Option<Duration>,
    /// What is sent, and how a reply is verified.
    pub workload: Workload,
    /// Messages of the user's own instead of those that are made here: an echo only.
    pub payloads: Option<PayloadSource>,
    /// The frames of a message; without any it is one.
    pub fragments: Vec<FragmentShare>,
    /// What some connections send, all get, instead of an answer each.
    pub fan_out: Option<FanOut>,
    /// Whether frames are masked, as RFC 6455 demands; servers must refuse those that are not.
    pub masked: bool,
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
    /// The peer is going to fail on purpose: what is lost speaks not against the run.
    pub peer_fails: bool,
    /// Subprotocols offered in the handshake, most wanted first.
    pub subprotocols: Vec<String>,
    /// The compression to offer; `None` offers none.
    #[serde(serialize_with = "deflate_field")]
    pub deflate: Option<DeflateOffer>,
    /// The version in the handshake; the frames are the same.
    #[serde(serialize_with = "version_field")]
    pub websocket_version: WebSocketVersion,
    /// Further header fields of the handshake.
    #[serde(serialize_with = "headers_field")]
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
    /// What is known of the servers' clock, where they are on another host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_clock: Option<ClockOffset>,
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

fn driver_field<S: Serializer>(driver: &DriverChoice, serializer: S) -> Result<S::Ok, S::Error> {
    driver.name().serialize(serializer)
}

fn tls_records_field<S: Serializer>(
    records: &TlsRecords,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    records.name().serialize(serializer)
}

fn headers_field<S: Serializer>(
    headers: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let shown = headers.iter();
    serializer.collect_seq(shown.map(|(name, value)| (name, header_value_shown(name, value))))
}

fn version_field<S: Serializer>(
    version: &WebSocketVersion,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    version.field().serialize(serializer)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            connections: 10,
            threads: 1,
            driver: DriverChoice::default(),
            tls_records: TlsRecords::default(),
            tls_resume: false,
            pin: Vec::new(),
            real_time: false,
            group: None,
            connect_concurrency: 256,
            connect_rate: None,
            connect_group: None,
            start_delay: None,
            barrier: true,
            messages_per_connection: None,
            open_max: None,
            think: None,
            stagger: None,
            workload: Workload::Echo {
                size: 64,
                binary: false,
            },
            payloads: None,
            fragments: Vec::new(),
            fan_out: None,
            masked: true,
            replies: 1,
            pacing: Pacing::Closed { in_flight: 1 },
            stop: Stop::After(Duration::from_secs(10)),
            drain: Duration::from_secs(10),
            reconnect: Reconnect::Never,
            peer_fails: false,
            subprotocols: Vec::new(),
            deflate: None,
            websocket_version: WebSocketVersion::default(),
            headers: Vec::new(),
            insecure: false,
            cacert: None,
            sources: Vec::new(),
            handshake_timeout: Duration::from_secs(30),
            seed: 1,
            raw_csv: None,
            same_host: false,
            server_clock: None,
            idle_poll: false,
            link_delay: None,
            slo: Vec::new(),
        }
    }
}

/// A few publish, all subscribe: each connection sends the text `subscribe`, gets `subscribed`, and
/// from then on every message that any of them sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FanOut {
    /// Connections that send: the first ones. They hear themselves, too.
    pub publishers: u32,
    /// Connections that read nothing once they have subscribed: the last ones.
    pub silent: u32,
}

/// Connections that are started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectGroup {
    /// How many, over all targets.
    pub connections: u32,
    /// From the start of one group to the start of the next.
    pub every: Duration,
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// An open loop whose rate changes over time, and ends with its last stage.
    Stages {
        /// The rate over time, over all connections.
        stages: RateStages,
        /// How the messages are spread over time.
        arrival: Arrival,
        /// Most messages unanswered per connection; later ones keep their intended time.
        in_flight: Option<u32>,
    },
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
    /// When the schedule ends by itself: batches, stages, or connections of some messages each.
    Schedule,
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

/// Largest payload: what a session takes by default.
pub(crate) const SIZE_MAX: usize = 16 * 1024 * 1024;
/// The fields of uwebsocket-benchmark with the longest numbers and one byte of filler.
pub(crate) const AMPLIFY_SIZE_MIN: usize = 112;

#[cfg(test)]
mod tests;
