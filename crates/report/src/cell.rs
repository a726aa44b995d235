//! One cell: the measurements of one scenario. A load run is one cell, a bench has many.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::contest::Contest;
use crate::counts::{Bytes, Connects, Messages, Rate};
use crate::environment::{Generator, Link, Server, Threshold};
use crate::fan_out::FanOut;
use crate::growth::Growth;
use crate::histogram::Histogram;
use crate::interval::Interval;
use crate::metric::Latency;
use crate::one_way::{ClockOffset, OneWay};
use crate::parameters::Parameters;
use crate::processor::Processor;
use crate::quantiles::Quantiles;
use crate::stage::Stage;
use crate::time_block::TimeBlock;
use crate::tls::Tls;
use crate::verdict::{Assessment, Verdict};

/// Everything measured for one set of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What tells this cell from its neighbours.
    pub parameters: Parameters,
    /// Its place in a contest; `None` outside of the lab.
    pub contest: Option<Contest>,
    /// Whether its figures may be believed.
    pub assessment: Assessment,
    /// Thresholds the user set.
    pub thresholds: Vec<Threshold>,
    /// Why it ended before its time: a signal, a dead server; `None` when it ran to its end.
    pub ended_early: Option<String>,
    /// Message counters.
    pub messages: Messages,
    /// Errors by kind.
    pub errors: BTreeMap<String, u64>,
    /// Close codes received, by code (`1006` stands for no close frame at all).
    pub closes: BTreeMap<String, u64>,
    /// Latency histograms.
    pub latency: Latencies,
    /// Handshake histograms.
    pub handshake: Handshake,
    /// Connection counters.
    pub connects: Connects,
    /// How lost connections came back.
    pub recovery: Recovery,
    /// Who heard what was published, where that was the load.
    pub fan_out: Option<FanOut>,
    /// Connections that came up over TLS, by the cipher suite they agreed on.
    pub ciphers: BTreeMap<String, u64>,
    /// What connections over TLS agreed on, each set of terms once.
    pub tls_agreed: Vec<Tls>,
    /// Byte counters.
    pub bytes: Bytes,
    /// Rates over the sending phase.
    pub rate: Rate,
    /// The server, where it is local.
    pub server: Option<Server>,
    /// The servers behind it, where it is a proxy of the lab.
    pub backends: Option<Server>,
    /// The generator's own use of the machine.
    pub generator: Generator,
    /// Processors of the machine over the sending phase; empty where nobody looked.
    pub processors: Vec<Processor>,
    /// The link, `None` when nothing is known about it.
    pub link: Option<Link>,
    /// Every resolved parameter of the scenario, by its name on the command line.
    pub scenario: BTreeMap<String, serde_json::Value>,
    /// One entry a second.
    pub intervals: Vec<Interval>,
    /// The stages of the load, where its rate changes.
    pub stages: Vec<Stage>,
    /// Its response times in equal parts of the sending phase, by intended time: together they are
    /// those of the whole.
    pub blocks: Vec<TimeBlock>,
}

/// The latency histograms of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Intended send time to the last reply: what a user waits.
    pub response: Histogram,
    /// Written to the socket to the last reply: what the server and the link took.
    pub service: Histogram,
    /// Intended send time to written, less the wait for a slot: the generator's own delay.
    pub send_lag: Histogram,
    /// The part of a late send spent waiting for one of the `-p` slots.
    pub slot_wait: Histogram,
    /// Intended send time to the first reply.
    pub first_reply: Histogram,
    /// The round trip as uwebsocket-benchmark defines it: actual send to each reply, one sample a
    /// reply.
    pub round_trip_seed: Histogram,
    /// Sent to read by the server, by wall clocks.
    pub one_way: OneWay,
}

/// How long connections took to come up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handshake {
    /// TCP connect.
    pub tcp: Histogram,
    /// TLS handshake; empty for ws://.
    pub tls: Histogram,
    /// HTTP upgrade.
    pub upgrade: Histogram,
    /// All of it.
    pub total: Histogram,
    /// From the intended start to the 101, with the wait for a slot and attempts that failed; empty
    /// where connections have no such time.
    pub response: Histogram,
}

/// How connections that were lost came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovery {
    /// From the loss to the next 101.
    pub time: Histogram,
    /// Connections that came back, by the attempts that took.
    pub attempts: BTreeMap<String, u64>,
}

impl Cell {
    /// Makes it last so many seconds, each as it is said.
    #[cfg(test)]
    pub(crate) fn fill_seconds(&mut self, seconds: usize, second: impl Fn(usize) -> Interval) {
        self.rate.duration_s = seconds as f64;
        let interval = |at| Interval {
            start_s: at as f64,
            length_s: 1.0,
            ..second(at)
        };
        self.intervals = (0..seconds).map(interval).collect();
    }

    /// The samples of a latency in blocks of time, or as one where there are none: then also of a
    /// rate that changes, because its blocks differ by what was asked for.
    pub(crate) fn blocks_of(&self, latency: Latency) -> Option<Vec<TimeBlock>> {
        let is_divided = latency == Latency::Response && self.parameters.stages.is_none();
        if is_divided && !self.blocks.is_empty() {
            return Some(self.blocks.clone());
        }
        let histogram = latency.histogram(self)?;
        (!histogram.is_empty()).then(|| vec![TimeBlock::of(histogram)])
    }

    /// A name for files and tables that tells it from every other cell of its run.
    pub(crate) fn key(&self) -> String {
        let contest = self.contest.as_ref();
        contest.map_or_else(String::new, Contest::key) + &self.parameters.key()
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CellOut::of(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CellIn::deserialize(deserializer).map(Self::from)
    }
}

/// A cell as the file holds it; the figures are computed from the histograms on each write.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CellOut<'a> {
    #[serde(flatten)]
    parameters: &'a Parameters,
    #[serde(flatten)]
    contest: &'a Option<Contest>,
    /// Connections asked for, under the name that cells of the lab have it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    verdict: Verdict,
    verdict_reasons: &'a [String],
    thresholds: &'a [Threshold],
    ended_early: &'a Option<String>,
    messages: Messages,
    errors: &'a BTreeMap<String, u64>,
    closes: &'a BTreeMap<String, u64>,
    latency: LatencyOut<'a>,
    handshake: HandshakeOut,
    connects: Connects,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<RecoveryOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fan_out: &'a Option<FanOut>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ciphers: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "<[Tls]>::is_empty")]
    tls_agreed: &'a [Tls],
    bytes: Bytes,
    rate: Rate,
    server: &'a Option<Server>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backends: &'a Option<Server>,
    #[serde(skip_serializing_if = "Option::is_none")]
    growth: Option<Growth>,
    generator: &'a Generator,
    #[serde(skip_serializing_if = "<[Processor]>::is_empty")]
    processors: &'a [Processor],
    link: &'a Option<Link>,
    scenario: &'a BTreeMap<String, serde_json::Value>,
    intervals: &'a [Interval],
    #[serde(skip_serializing_if = "<[Stage]>::is_empty")]
    stage_figures: &'a [Stage],
    #[serde(skip_serializing_if = "<[TimeBlock]>::is_empty")]
    response_blocks: &'a [TimeBlock],
    histograms: HistogramsOut<'a>,
}

#[derive(Serialize, JsonSchema)]
struct LatencyOut<'a> {
    response: Quantiles,
    service: Quantiles,
    send_lag: Quantiles,
    slot_wait: Quantiles,
    first_reply: Quantiles,
    round_trip_seed: Quantiles,
    one_way: Option<Quantiles>,
    one_way_resolution_us: Option<u64>,
    one_way_refused: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_way_clock: Option<ClockOffset>,
}

#[derive(Serialize, JsonSchema)]
struct HandshakeOut {
    tcp: Quantiles,
    tls: Quantiles,
    upgrade: Quantiles,
    total: Quantiles,
    response: Quantiles,
}

#[derive(Serialize, JsonSchema)]
struct RecoveryOut<'a> {
    #[serde(flatten)]
    time: Quantiles,
    attempts: &'a BTreeMap<String, u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Histograms")]
struct HistogramsOut<'a> {
    response: &'a Histogram,
    service: &'a Histogram,
    send_lag: &'a Histogram,
    slot_wait: &'a Histogram,
    first_reply: &'a Histogram,
    round_trip_seed: &'a Histogram,
    one_way: Option<&'a Histogram>,
    handshake_tcp: &'a Histogram,
    handshake_tls: &'a Histogram,
    handshake_upgrade: &'a Histogram,
    handshake_total: &'a Histogram,
    handshake_response: &'a Histogram,
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    recovery: &'a Histogram,
}

impl<'a> CellOut<'a> {
    fn of(cell: &'a Cell) -> Self {
        Self {
            parameters: &cell.parameters,
            contest: &cell.contest,
            connections: cell.contest.is_none().then_some(cell.parameters.clients),
            verdict: cell.assessment.verdict(),
            verdict_reasons: cell.assessment.reasons(),
            thresholds: &cell.thresholds,
            ended_early: &cell.ended_early,
            messages: cell.messages,
            errors: &cell.errors,
            closes: &cell.closes,
            latency: LatencyOut::of(&cell.latency),
            handshake: HandshakeOut::of(&cell.handshake),
            connects: cell.connects,
            recovery: RecoveryOut::of(&cell.recovery),
            fan_out: &cell.fan_out,
            ciphers: &cell.ciphers,
            tls_agreed: &cell.tls_agreed,
            bytes: cell.bytes,
            rate: cell.rate,
            server: &cell.server,
            backends: &cell.backends,
            growth: Growth::of(cell),
            generator: &cell.generator,
            processors: &cell.processors,
            link: &cell.link,
            scenario: &cell.scenario,
            intervals: &cell.intervals,
            stage_figures: &cell.stages,
            response_blocks: &cell.blocks,
            histograms: HistogramsOut::of(cell),
        }
    }
}

impl<'a> LatencyOut<'a> {
    fn of(latency: &'a Latencies) -> Self {
        Self {
            response: Quantiles::of(&latency.response),
            service: Quantiles::of(&latency.service),
            send_lag: Quantiles::of(&latency.send_lag),
            slot_wait: Quantiles::of(&latency.slot_wait),
            first_reply: Quantiles::of(&latency.first_reply),
            round_trip_seed: Quantiles::of(&latency.round_trip_seed),
            one_way: latency.one_way.histogram().map(Quantiles::of),
            one_way_resolution_us: latency.one_way.resolution_us(),
            one_way_refused: latency.one_way.refusal(),
            one_way_clock: latency.one_way.clock(),
        }
    }
}

impl HandshakeOut {
    fn of(handshake: &Handshake) -> Self {
        Self {
            tcp: Quantiles::of(&handshake.tcp),
            tls: Quantiles::of(&handshake.tls),
            upgrade: Quantiles::of(&handshake.upgrade),
            total: Quantiles::of(&handshake.total),
            response: Quantiles::of(&handshake.response),
        }
    }
}

impl<'a> RecoveryOut<'a> {
    fn of(recovery: &'a Recovery) -> Option<Self> {
        (!recovery.time.is_empty()).then(|| Self {
            time: Quantiles::of(&recovery.time),
            attempts: &recovery.attempts,
        })
    }
}

impl<'a> HistogramsOut<'a> {
    fn of(cell: &'a Cell) -> Self {
        let (latency, handshake) = (&cell.latency, &cell.handshake);
        Self {
            response: &latency.response,
            service: &latency.service,
            send_lag: &latency.send_lag,
            slot_wait: &latency.slot_wait,
            first_reply: &latency.first_reply,
            round_trip_seed: &latency.round_trip_seed,
            one_way: latency.one_way.histogram(),
            handshake_tcp: &handshake.tcp,
            handshake_tls: &handshake.tls,
            handshake_upgrade: &handshake.upgrade,
            handshake_total: &handshake.total,
            handshake_response: &handshake.response,
            recovery: &cell.recovery.time,
        }
    }
}

/// A cell as it is read: figures that the histograms give are ignored.
#[derive(Deserialize)]
struct CellIn {
    #[serde(flatten)]
    parameters: Parameters,
    #[serde(flatten)]
    contest: Option<Contest>,
    verdict: Verdict,
    #[serde(default)]
    verdict_reasons: Vec<String>,
    #[serde(default)]
    thresholds: Vec<Threshold>,
    #[serde(default)]
    ended_early: Option<String>,
    messages: Messages,
    #[serde(default)]
    errors: BTreeMap<String, u64>,
    #[serde(default)]
    closes: BTreeMap<String, u64>,
    latency: LatencyIn,
    #[serde(default)]
    connects: Connects,
    #[serde(default)]
    recovery: RecoveryIn,
    #[serde(default)]
    fan_out: Option<FanOut>,
    #[serde(default)]
    ciphers: BTreeMap<String, u64>,
    #[serde(default)]
    tls_agreed: Vec<Tls>,
    #[serde(default)]
    bytes: Bytes,
    #[serde(default)]
    rate: Rate,
    #[serde(default)]
    server: Option<Server>,
    #[serde(default)]
    backends: Option<Server>,
    #[serde(default)]
    generator: Generator,
    #[serde(default)]
    processors: Vec<Processor>,
    #[serde(default)]
    link: Option<Link>,
    #[serde(default)]
    scenario: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    intervals: Vec<Interval>,
    #[serde(default)]
    stage_figures: Vec<Stage>,
    #[serde(default)]
    response_blocks: Vec<TimeBlock>,
    histograms: HistogramsIn,
}

#[derive(Deserialize)]
struct LatencyIn {
    #[serde(default)]
    one_way_resolution_us: Option<u64>,
    #[serde(default)]
    one_way_refused: Option<String>,
    #[serde(default)]
    one_way_clock: Option<ClockOffset>,
}

#[derive(Default, Deserialize)]
struct RecoveryIn {
    #[serde(default)]
    attempts: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct HistogramsIn {
    response: Histogram,
    service: Histogram,
    send_lag: Histogram,
    slot_wait: Histogram,
    first_reply: Histogram,
    round_trip_seed: Histogram,
    one_way: Option<Histogram>,
    handshake_tcp: Histogram,
    handshake_tls: Histogram,
    handshake_upgrade: Histogram,
    handshake_total: Histogram,
    #[serde(default)]
    handshake_response: Histogram,
    #[serde(default)]
    recovery: Histogram,
}

impl From<CellIn> for Cell {
    fn from(file: CellIn) -> Self {
        let one_way = match (file.latency.one_way_refused, file.histograms.one_way) {
            (Some(reason), _) => OneWay::Refused {
                reason,
                clock: file.latency.one_way_clock,
            },
            (None, histogram) => OneWay::Measured {
                histogram: histogram.unwrap_or_default(),
                resolution_us: file.latency.one_way_resolution_us.unwrap_or(1),
                clock: file.latency.one_way_clock,
            },
        };
        Self {
            parameters: file.parameters,
            contest: file.contest,
            assessment: Assessment::restored(file.verdict, file.verdict_reasons),
            thresholds: file.thresholds,
            ended_early: file.ended_early,
            messages: file.messages,
            errors: file.errors,
            closes: file.closes,
            latency: Latencies {
                response: file.histograms.response,
                service: file.histograms.service,
                send_lag: file.histograms.send_lag,
                slot_wait: file.histograms.slot_wait,
                first_reply: file.histograms.first_reply,
                round_trip_seed: file.histograms.round_trip_seed,
                one_way,
            },
            handshake: Handshake {
                tcp: file.histograms.handshake_tcp,
                tls: file.histograms.handshake_tls,
                upgrade: file.histograms.handshake_upgrade,
                total: file.histograms.handshake_total,
                response: file.histograms.handshake_response,
            },
            connects: file.connects,
            recovery: Recovery {
                time: file.histograms.recovery,
                attempts: file.recovery.attempts,
            },
            fan_out: file.fan_out,
            ciphers: file.ciphers,
            tls_agreed: file.tls_agreed,
            bytes: file.bytes,
            rate: file.rate,
            server: file.server,
            backends: file.backends,
            processors: file.processors,
            generator: file.generator,
            link: file.link,
            scenario: file.scenario,
            intervals: file.intervals,
            stages: file.stage_figures,
            blocks: file.response_blocks,
        }
    }
}
