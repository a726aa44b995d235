//! Thresholds on a result, in the grammar that users of k6 know: `p(99)<5ms`, `lost==0`.
//!
//! An expression is a metric, a comparison and a number: `[LATENCY.]STATISTIC OP DURATION` or
//! `COUNTER OP NUMBER`. A latency without a unit is in milliseconds, as in k6; a latency without
//! a name is the response time.

use std::fmt;

use moonwire_report::{Cell, Histogram, Threshold};
use serde::{Serialize, Serializer};

use crate::scenario::ScenarioError;

/// One threshold, read once and evaluated at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    /// As typed.
    expression: String,
    metric: Metric,
    comparison: Comparison,
    /// Nanoseconds for a latency, the number itself for a counter.
    bound: f64,
}

impl Slo {
    /// Reads an expression; an unknown metric is an error, not a passed check.
    pub fn parse(expression: &str) -> Result<Self, ScenarioError> {
        let wrong = |why: String| {
            Err(ScenarioError::new(format!(
                "the threshold `{expression}` {why}"
            )))
        };
        let Some((at, sign, comparison)) = find_comparison(expression) else {
            return wrong("has no comparison: write for example p(99)<5ms".to_owned());
        };
        let name = expression[..at].trim();
        let value = expression[at + sign.len()..].trim();
        let Some(metric) = Metric::parse(name) else {
            return wrong(format!("names `{name}`, which is not a metric: {METRICS}"));
        };
        let bound = match metric {
            Metric::Latency(..) => parse_latency_ns(value),
            Metric::Count(_) => parse_count(value),
        };
        match bound {
            Some(bound) => Ok(Self {
                expression: expression.to_owned(),
                metric,
                comparison,
                bound,
            }),
            None => wrong(format!(
                "compares with `{value}`, which is not a number it can be"
            )),
        }
    }

    /// What the result says. A latency of which there is no sample does not pass.
    pub fn evaluate(&self, cell: &Cell) -> Threshold {
        let found = self.metric.value(cell);
        let actual = match (&self.metric, found) {
            (_, None) => "no sample".to_owned(),
            (Metric::Latency(..), Some(ns)) => format!("{:.3} ms", ns / 1e6),
            (Metric::Count(_), Some(count)) => format!("{}", (count * 1000.0).round() / 1000.0),
        };
        let passed = found.is_some_and(|found| self.comparison.holds(found, self.bound));
        Threshold {
            expression: self.expression.clone(),
            actual,
            passed,
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}

impl Serialize for Slo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.expression)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    Latency(Latency, Statistic),
    Count(Count),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latency {
    FirstReply,
    Handshake,
    HandshakeTcp,
    HandshakeTls,
    HandshakeUpgrade,
    OneWay,
    Response,
    RoundTripSeed,
    SendLag,
    Service,
    SlotWait,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Max,
    Mean,
    Min,
    /// 0 to 1.
    Quantile(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    ConnectsFailed,
    Corrupt,
    Duplicate,
    Errors,
    Lost,
    RateReceived,
    RateSent,
    Received,
    Reordered,
    Sent,
    Unexpected,
    Unsent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    AtMost,
    Below,
    Differs,
    Equals,
}

impl Comparison {
    fn holds(self, found: f64, bound: f64) -> bool {
        match self {
            Self::Above => found > bound,
            Self::AtLeast => found >= bound,
            Self::AtMost => found <= bound,
            Self::Below => found < bound,
            Self::Differs => found != bound,
            Self::Equals => found == bound,
        }
    }
}

impl Metric {
    fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix("latency.").unwrap_or(name);
        if let Some(count) = parse_counter(name) {
            return Some(Self::Count(count));
        }
        if let Some(statistic) = Statistic::parse(name) {
            return Some(Self::Latency(Latency::Response, statistic));
        }
        // The dot of `response.p99.9` belongs to the statistic: try each split.
        name.match_indices('.').find_map(|(at, _)| {
            let latency = parse_latency_name(&name[..at])?;
            Some(Self::Latency(latency, Statistic::parse(&name[at + 1..])?))
        })
    }

    fn value(self, cell: &Cell) -> Option<f64> {
        match self {
            Self::Latency(latency, statistic) => statistic.of(latency.histogram(cell)?),
            Self::Count(count) => Some(count.of(cell)),
        }
    }
}

impl Latency {
    fn histogram(self, cell: &Cell) -> Option<&Histogram> {
        Some(match self {
            Self::FirstReply => &cell.latency.first_reply,
            Self::Handshake => &cell.handshake.total,
            Self::HandshakeTcp => &cell.handshake.tcp,
            Self::HandshakeTls => &cell.handshake.tls,
            Self::HandshakeUpgrade => &cell.handshake.upgrade,
            Self::OneWay => return cell.latency.one_way.histogram(),
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

    fn of(self, histogram: &Histogram) -> Option<f64> {
        match self {
            Self::Min => histogram.min_ns().map(|ns| ns as f64),
            Self::Max => histogram.max_ns().map(|ns| ns as f64),
            Self::Mean => histogram.mean_ns(),
            Self::Quantile(q) => histogram.quantile_ns(q).map(|ns| ns as f64),
        }
    }
}

impl Count {
    fn of(self, cell: &Cell) -> f64 {
        let whole = match self {
            Self::RateReceived => return cell.rate.received_per_s,
            Self::RateSent => return cell.rate.sent_per_s,
            Self::ConnectsFailed => cell.connects.failed,
            Self::Corrupt => cell.messages.corrupt,
            Self::Duplicate => cell.messages.duplicate,
            Self::Errors => cell.errors.values().sum(),
            Self::Lost => cell.messages.lost,
            Self::Received => cell.messages.received,
            Self::Reordered => cell.messages.reordered,
            Self::Sent => cell.messages.sent,
            Self::Unexpected => cell.messages.unexpected,
            Self::Unsent => cell.messages.unsent,
        };
        whole as f64
    }
}

fn parse_counter(name: &str) -> Option<Count> {
    Some(match name.strip_prefix("messages.").unwrap_or(name) {
        "connects.failed" => Count::ConnectsFailed,
        "corrupt" => Count::Corrupt,
        "duplicate" => Count::Duplicate,
        "errors" => Count::Errors,
        "lost" => Count::Lost,
        "rate" | "rate.sent_per_s" => Count::RateSent,
        "rate.received_per_s" => Count::RateReceived,
        "received" => Count::Received,
        "reordered" => Count::Reordered,
        "sent" => Count::Sent,
        "unexpected" => Count::Unexpected,
        "unsent" => Count::Unsent,
        _ => return None,
    })
}

fn parse_latency_name(name: &str) -> Option<Latency> {
    Some(match name {
        "first_reply" => Latency::FirstReply,
        "handshake" | "handshake.total" => Latency::Handshake,
        "handshake.tcp" => Latency::HandshakeTcp,
        "handshake.tls" => Latency::HandshakeTls,
        "handshake.upgrade" => Latency::HandshakeUpgrade,
        "one_way" => Latency::OneWay,
        "response" => Latency::Response,
        "round_trip_seed" => Latency::RoundTripSeed,
        "send_lag" => Latency::SendLag,
        "service" => Latency::Service,
        "slot_wait" => Latency::SlotWait,
        _ => return None,
    })
}

fn find_comparison(expression: &str) -> Option<(usize, &'static str, Comparison)> {
    let at = expression.find(['<', '>', '=', '!'])?;
    COMPARISONS
        .iter()
        .find(|(sign, _)| expression[at..].starts_with(sign))
        .map(|&(sign, comparison)| (at, sign, comparison))
}

fn parse_latency_ns(text: &str) -> Option<f64> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits_end].parse().ok()?;
    let unit_ns = match text[digits_end..].trim_start() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "" | "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(number * unit_ns)
}

fn parse_count(text: &str) -> Option<f64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'm' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

/// Longest signs first.
const COMPARISONS: [(&str, Comparison); 7] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equals),
    ("!=", Comparison::Differs),
    ("<", Comparison::Below),
    (">", Comparison::Above),
    ("=", Comparison::Equals),
];

/// What an unknown name is answered with.
const METRICS: &str = "use p(99), min, mean, max of response, service, send_lag, slot_wait, \
     first_reply, round_trip_seed, one_way, handshake[.tcp|.tls|.upgrade], or sent, received, \
     lost, duplicate, reordered, corrupt, unexpected, unsent, errors, connects.failed, rate";

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        let mut cell = Cell::default();
        for ms in 1..=100 {
            cell.latency.response.record(ms * 1_000_000);
        }
        cell.messages.sent = 20_000;
        cell.rate.sent_per_s = 999.5;
        cell
    }

    fn passes(expression: &str) -> bool {
        Slo::parse(expression).unwrap().evaluate(&cell()).passed
    }

    #[test]
    fn expressions_of_k6_and_of_the_file_are_read() {
        assert!(passes("p(99)<100ms"));
        assert!(!passes("p(99)<90"));
        assert!(passes("response.p99 <= 99.1ms"));
        assert!(passes("latency.response.p99_9_us<=101ms"));
        assert!(passes("response.p99.9>99ms"));
        assert!(passes("max<0.2s"));
        assert!(passes("avg<51ms"));
        assert!(passes("lost==0"));
        assert!(passes("messages.sent>=20k"));
        assert!(passes("rate>900"));
        assert!(!passes("rate>=1k"));
    }

    #[test]
    fn no_sample_does_not_pass() {
        let threshold = Slo::parse("one_way.p99<1s").unwrap().evaluate(&cell());
        assert!(!threshold.passed);
        assert_eq!(threshold.actual, "no sample");
    }

    #[test]
    fn mistakes_are_one_sentence_each() {
        for (expression, why) in [
            ("latencey.p99<5ms", "not a metric"),
            ("p(99)", "no comparison"),
            ("p(99)<fast", "not a number"),
            ("p(101)<5ms", "not a metric"),
            ("lost==zero", "not a number"),
            ("", "no comparison"),
        ] {
            let sentence = Slo::parse(expression).expect_err(expression).to_string();
            assert!(sentence.contains(why), "{sentence}");
        }
    }
}
