//! The figures of a cell by their names: what thresholds are on, and what a contest is judged by.

use std::fmt;

use crate::cell::Cell;
use crate::format;
use crate::growth::{Growth, GrowthVerdict, LOAD_SECONDS_MIN};
use crate::histogram::Histogram;
use crate::quantiles::microseconds;
use crate::statistics::bootstrap::Bounds;

/// One figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// A statistic of a latency, in nanoseconds.
    Latency(Latency, Statistic),
    /// Any other number.
    Figure(Figure),
}

/// A latency that a cell has a histogram of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Published to each that hears it.
    Delivery,
    /// Published to the first that hears it.
    FirstReceiver,
    /// Published until the last one has heard it.
    LastReceiver,
    /// Published until half of all have heard it.
    MedianReceiver,
    /// Intended send time to the first reply.
    FirstReply,
    /// All of a handshake.
    Handshake,
    /// Its TCP part.
    HandshakeTcp,
    /// Its TLS part.
    HandshakeTls,
    /// Its HTTP part.
    HandshakeUpgrade,
    /// Sent to read by the server.
    OneWay,
    /// The loss of a connection until it was up again.
    Recovery,
    /// Intended send time to the last reply.
    Response,
    /// Actual send to each reply, as uwebsocket-benchmark has it.
    RoundTripSeed,
    /// The generator's own delay.
    SendLag,
    /// Written to the last reply.
    Service,
    /// Waiting for one of the slots.
    SlotWait,
}

/// A figure of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The largest value.
    Max,
    /// The mean.
    Mean,
    /// The smallest value.
    Min,
    /// The value at this share of all, 0 to 1.
    Quantile(f64),
}

/// A number of a cell that is no latency of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Connections given up.
    ConnectsFailed,
    /// Replies that are not what was sent.
    Corrupt,
    /// Connections that were lost.
    Disconnected,
    /// Replies that came twice.
    Duplicate,
    /// Seconds from the start of the load until the last reply.
    DurationS,
    /// Errors of all kinds.
    Errors,
    /// 1 where memory leaks, 0 where it does not; no value of a run too short to tell.
    Leaks,
    /// Replies that never came.
    Lost,
    /// Seconds from the first attempt until every connection was up.
    OnlineS,
    /// Replies per second.
    RateReceived,
    /// Messages per second.
    RateSent,
    /// Share of the copies of what was published that were heard, 0 to 1.
    Reach,
    /// Replies.
    Received,
    /// Connections that came back.
    Reconnected,
    /// Share of the lost connections that came back, 0 to 1.
    Recovered,
    /// Replies out of order.
    Reordered,
    /// Messages.
    Sent,
    /// CPU of what was measured while messages were sent, in cores.
    ServerCpu,
    /// CPU of what was measured for each message, nanoseconds.
    ServerCpuPerMessage,
    /// Largest resident memory of what was measured, bytes.
    ServerMemoryPeak,
    /// Resident memory that each connection added to what was measured, bytes.
    ServerMemoryPerConnection,
    /// Connections that do not read and that the server has ended.
    SilentCut,
    /// Messages nobody asked for.
    Unexpected,
    /// Subscribers that heard nothing.
    Unreached,
    /// Messages that were due and never sent.
    Unsent,
}

/// What the value of a metric is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Things per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// A share of 1.
    Share,
}

impl Metric {
    /// What its value is in.
    pub fn unit(self) -> MetricUnit {
        match self {
            Self::Latency(..) => MetricUnit::Nanoseconds,
            Self::Figure(figure) => match figure {
                Figure::DurationS | Figure::OnlineS => MetricUnit::Seconds,
                Figure::RateReceived | Figure::RateSent => MetricUnit::PerSecond,
                Figure::ServerMemoryPeak | Figure::ServerMemoryPerConnection => MetricUnit::Bytes,
                Figure::Reach | Figure::Recovered => MetricUnit::Share,
                Figure::ConnectsFailed
                | Figure::Corrupt
                | Figure::Disconnected
                | Figure::Duplicate
                | Figure::Errors
                | Figure::Leaks
                | Figure::Lost
                | Figure::Received
                | Figure::Reconnected
                | Figure::Reordered
                | Figure::Sent
                | Figure::ServerCpu
                | Figure::SilentCut
                | Figure::Unexpected
                | Figure::Unreached
                | Figure::Unsent => MetricUnit::Count,
                Figure::ServerCpuPerMessage => MetricUnit::Nanoseconds,
            },
        }
    }

    /// Reads a name such as `response.p99`, `p(99.9)`, `lost`; `None` for one there is not.
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix("latency.").unwrap_or(name);
        if let Some(figure) = Figure::parse(name) {
            return Some(Self::Figure(figure));
        }
        if let Some(statistic) = Statistic::parse(name) {
            return Some(Self::Latency(Latency::Response, statistic));
        }
        // The dot of `response.p99.9` belongs to the statistic: try each split.
        name.match_indices('.').find_map(|(at, _)| {
            let latency = Latency::parse(&name[..at])?;
            Some(Self::Latency(latency, Statistic::parse(&name[at + 1..])?))
        })
    }

    /// Its value; `None` where nothing was recorded.
    pub fn value(self, cell: &Cell) -> Option<f64> {
        match self {
            Self::Latency(latency, statistic) => statistic.of(latency.histogram(cell)?),
            Self::Figure(figure) => figure.of(cell),
        }
    }

    /// What is said where it has no value.
    pub fn missing(self) -> &'static str {
        match self {
            Self::Figure(Figure::Leaks) => {
                "no answer: it takes a minute of load on as many connections to tell"
            }
            Self::Latency(..) | Self::Figure(_) => "no sample",
        }
    }

    /// How long a load takes at least, in seconds, that has a value of it.
    pub fn load_seconds_min(self) -> u64 {
        match self {
            Self::Figure(Figure::Leaks) => LOAD_SECONDS_MIN,
            Self::Latency(..) | Self::Figure(_) => 0,
        }
    }

    /// Whether more of it is better.
    pub fn is_better_high(self) -> bool {
        match self {
            Self::Latency(..) => false,
            Self::Figure(figure) => match figure {
                Figure::RateReceived
                | Figure::RateSent
                | Figure::Reach
                | Figure::Received
                | Figure::Reconnected
                | Figure::Recovered
                | Figure::Sent => true,
                Figure::ConnectsFailed
                | Figure::Corrupt
                | Figure::Disconnected
                | Figure::Duplicate
                | Figure::DurationS
                | Figure::Errors
                | Figure::Leaks
                | Figure::Lost
                | Figure::OnlineS
                | Figure::Reordered
                | Figure::ServerCpu
                | Figure::ServerCpuPerMessage
                | Figure::ServerMemoryPeak
                | Figure::ServerMemoryPerConnection
                | Figure::SilentCut
                | Figure::Unexpected
                | Figure::Unreached
                | Figure::Unsent => false,
            },
        }
    }

    /// A value of it with its interval, where there is one, and its unit.
    pub(crate) fn estimate(self, value: f64, bounds: Option<Bounds>) -> String {
        let value = self.quantity(value);
        match bounds.map(|it| [it.low, it.high].map(|end| self.quantity(end))) {
            Some([low, high]) => format!("{value} [{low}, {high}]"),
            None => value,
        }
    }

    /// A value of it with its unit.
    pub fn quantity(self, value: f64) -> String {
        match self.unit() {
            MetricUnit::Bytes => format::bytes(value),
            MetricUnit::Count if self == Self::Figure(Figure::ServerCpu) => format::percent(value),
            MetricUnit::Count => format::rate(value),
            MetricUnit::Nanoseconds => format::latency(microseconds(value)),
            MetricUnit::PerSecond => format!("{}/s", format::rate(value)),
            MetricUnit::Seconds => format::seconds(value),
            MetricUnit::Share => format::percent(value),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency(latency, statistic) => {
                write!(f, "{} {statistic}", name_of(&LATENCIES, latency))
            }
            Self::Figure(figure) => f.write_str(name_of(&FIGURES, figure)),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Mean => f.write_str("mean"),
            Self::Min => f.write_str("min"),
            // 0.999 times 100 is not 99.9.
            Self::Quantile(share) => write!(f, "p{}", (share * 1e6).round() / 1e4),
        }
    }
}

impl Latency {
    fn parse(name: &str) -> Option<Self> {
        value_of(&LATENCIES, name)
    }

    /// The name that a user types.
    pub(crate) fn name(self) -> &'static str {
        name_of(&LATENCIES, &self)
    }

    /// Its histogram; `None` where it was refused.
    pub(crate) fn histogram(self, cell: &Cell) -> Option<&Histogram> {
        let fan_out = cell.fan_out.as_ref();
        Some(match self {
            Self::Delivery => &fan_out?.delivery,
            Self::FirstReceiver => &fan_out?.first_receiver,
            Self::LastReceiver => &fan_out?.last_receiver,
            Self::MedianReceiver => &fan_out?.median_receiver,
            Self::FirstReply => &cell.latency.first_reply,
            Self::Handshake => &cell.handshake.total,
            Self::HandshakeTcp => &cell.handshake.tcp,
            Self::HandshakeTls => &cell.handshake.tls,
            Self::HandshakeUpgrade => &cell.handshake.upgrade,
            Self::OneWay => return cell.latency.one_way.histogram(),
            Self::Recovery => &cell.recovery.time,
            Self::Response => &cell.latency.response,
            Self::RoundTripSeed => &cell.latency.round_trip_seed,
            Self::SendLag => &cell.latency.send_lag,
            Self::Service => &cell.latency.service,
            Self::SlotWait => &cell.latency.slot_wait,
        })
    }
}

impl Statistic {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix("_us").unwrap_or(text);
        match text {
            "min" => return Some(Self::Min),
            "max" => return Some(Self::Max),
            "mean" | "avg" => return Some(Self::Mean),
            "med" | "median" => return Some(Self::Quantile(0.5)),
            _ => {}
        }
        let digits = text.strip_prefix('p')?;
        let digits = match digits.strip_prefix('(') {
            Some(rest) => rest.strip_suffix(')')?,
            None => digits,
        };
        let percent: f64 = digits.replace('_', ".").parse().ok()?;
        (percent > 0.0 && percent <= 100.0).then_some(Self::Quantile(percent / 100.0))
    }

    /// Its value, nanoseconds; `None` of an empty histogram.
    pub(crate) fn of(self, histogram: &Histogram) -> Option<f64> {
        match self {
            Self::Min => histogram.min_ns().map(|ns| ns as f64),
            Self::Max => histogram.max_ns().map(|ns| ns as f64),
            Self::Mean => histogram.mean_ns(),
            Self::Quantile(share) => histogram.quantile_ns(share).map(|ns| ns as f64),
        }
    }
}

impl Figure {
    fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix("messages.").unwrap_or(name);
        match name {
            "rate.sent_per_s" => Some(Self::RateSent),
            "rate.received_per_s" => Some(Self::RateReceived),
            _ => value_of(&FIGURES, name),
        }
    }

    fn of(self, cell: &Cell) -> Option<f64> {
        let whole = match self {
            Self::OnlineS => return cell.connects.all_online_ms.map(|ms| ms / 1e3),
            Self::DurationS => return duration_s(cell),
            Self::RateReceived => return Some(cell.rate.received_per_s),
            Self::RateSent => return Some(cell.rate.sent_per_s),
            Self::ServerCpuPerMessage => return cell.server.as_ref()?.cpu_ns_per_message,
            Self::ServerCpu => {
                let server = cell.server.as_ref()?;
                return Some(server.cpu_s? / server.observed_s?);
            }
            Self::ServerMemoryPerConnection => return memory_per_connection(cell),
            Self::ServerMemoryPeak => cell.server.as_ref()?.rss_peak_bytes?,
            Self::ConnectsFailed => cell.connects.failed,
            Self::Corrupt => cell.messages.corrupt,
            Self::Disconnected => cell.connects.disconnected,
            Self::Duplicate => cell.messages.duplicate,
            Self::Errors => cell.errors.values().sum(),
            Self::Leaks => u64::from(Growth::of(cell)?.verdict == GrowthVerdict::Leaks),
            Self::Lost => cell.messages.lost,
            Self::Received => cell.messages.received,
            Self::Reconnected => cell.connects.reconnected,
            Self::Recovered => {
                let lost = cell.connects.disconnected;
                let back = cell.connects.reconnected.min(lost);
                return (lost > 0).then(|| back as f64 / lost as f64);
            }
            Self::Reach => return cell.fan_out.as_ref()?.reach(),
            Self::SilentCut => cell.fan_out.as_ref()?.silent_cut,
            Self::Unreached => cell.fan_out.as_ref()?.unreached,
            Self::Reordered => cell.messages.reordered,
            Self::Sent => cell.messages.sent,
            Self::Unexpected => cell.messages.unexpected,
            Self::Unsent => cell.messages.unsent,
        };
        Some(whole as f64)
    }
}

/// What the process had more at the end of the load than before the first connection, for each of
/// those that were up.
fn memory_per_connection(cell: &Cell) -> Option<f64> {
    let server = cell.server.as_ref()?;
    let (before, after) = (server.rss_start_bytes?, server.rss_bytes?);
    let connections = cell.intervals.iter().map(|interval| interval.connected);
    let connections = connections.max().filter(|count| *count > 0)?;
    Some((after as f64 - before as f64).max(0.0) / connections as f64)
}

/// What the rate of the replies is over: the time until the last of them.
fn duration_s(cell: &Cell) -> Option<f64> {
    let per_s = Some(cell.rate.received_per_s).filter(|per_s| *per_s > 0.0)?;
    Some(cell.messages.received as f64 / per_s)
}

fn value_of<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

/// The first name of a value.
fn name_of<'a, T: PartialEq>(names: &[(&'a str, T)], value: &T) -> &'a str {
    let found = names.iter().find(|(_, known)| known == value);
    found.map_or("", |(name, _)| name)
}

const LATENCIES: [(&str, Latency); 17] = [
    ("delivery", Latency::Delivery),
    ("first_receiver", Latency::FirstReceiver),
    ("last_receiver", Latency::LastReceiver),
    ("median_receiver", Latency::MedianReceiver),
    ("first_reply", Latency::FirstReply),
    ("handshake", Latency::Handshake),
    ("handshake.total", Latency::Handshake),
    ("handshake.tcp", Latency::HandshakeTcp),
    ("handshake.tls", Latency::HandshakeTls),
    ("handshake.upgrade", Latency::HandshakeUpgrade),
    ("one_way", Latency::OneWay),
    ("recovery", Latency::Recovery),
    ("response", Latency::Response),
    ("round_trip_seed", Latency::RoundTripSeed),
    ("send_lag", Latency::SendLag),
    ("service", Latency::Service),
    ("slot_wait", Latency::SlotWait),
];

const FIGURES: [(&str, Figure); 25] = [
    ("connects.failed", Figure::ConnectsFailed),
    ("corrupt", Figure::Corrupt),
    ("disconnected", Figure::Disconnected),
    ("duplicate", Figure::Duplicate),
    ("duration_s", Figure::DurationS),
    ("errors", Figure::Errors),
    ("leaks", Figure::Leaks),
    ("lost", Figure::Lost),
    ("online_s", Figure::OnlineS),
    ("received_rate", Figure::RateReceived),
    ("rate", Figure::RateSent),
    ("reach", Figure::Reach),
    ("received", Figure::Received),
    ("reconnected", Figure::Reconnected),
    ("recovered", Figure::Recovered),
    ("reordered", Figure::Reordered),
    ("sent", Figure::Sent),
    ("server.cpu", Figure::ServerCpu),
    ("server.cpu_per_message", Figure::ServerCpuPerMessage),
    ("server.memory_peak", Figure::ServerMemoryPeak),
    (
        "server.memory_per_connection",
        Figure::ServerMemoryPerConnection,
    ),
    ("silent_cut", Figure::SilentCut),
    ("unexpected", Figure::Unexpected),
    ("unreached", Figure::Unreached),
    ("unsent", Figure::Unsent),
];

/// What an unknown name is answered with.
pub const METRICS: &str = "use p(99), min, mean, max of response, service, send_lag, slot_wait, \
     first_reply, round_trip_seed, one_way, recovery, delivery, first_receiver, median_receiver, \
     last_receiver, handshake[.tcp|.tls|.upgrade], or sent, received, reach, unreached, \
     silent_cut, lost, duplicate, reordered, corrupt, unexpected, unsent, errors, connects.failed, \
     disconnected, reconnected, recovered, leaks, rate, received_rate, online_s, duration_s, \
     server.cpu, server.cpu_per_message, server.memory_peak, server.memory_per_connection";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Server;

    #[test]
    fn every_name_is_read_and_told_again() {
        let known = FIGURES.iter().map(|(name, _)| *name);
        for name in known {
            assert_eq!(Metric::parse(name).unwrap().to_string(), name);
            assert!(METRICS.contains(name), "{name}");
        }
        for (name, told) in [
            ("p(99.9)", "response p99.9"),
            ("handshake.tls.p99", "handshake.tls p99"),
            ("service.med", "service p50"),
            ("send_lag.avg", "send_lag mean"),
        ] {
            assert_eq!(Metric::parse(name).unwrap().to_string(), told);
        }
        assert_eq!(Metric::parse("latencey.p99"), None);
    }

    #[test]
    fn what_was_not_recorded_has_no_value() {
        let value = |name: &str, cell: &Cell| Metric::parse(name).unwrap().value(cell);
        let mut cell = Cell::default();
        for name in ["p99", "one_way.mean", "server.memory_peak", "online_s"] {
            assert_eq!(value(name, &cell), None, "{name}");
        }
        cell.server = Some(Server {
            rss_peak_bytes: Some(4096),
            ..Server::default()
        });
        assert_eq!(value("server.memory_peak", &cell), Some(4096.0));
        assert_eq!(value("lost", &cell), Some(0.0));
    }
}
