//! Thresholds on a result, in the grammar that users of k6 know: `p(99)<5ms`, `lost==0`.
//!
//! An expression is a metric, a comparison and a number: `[LATENCY.]STATISTIC OP DURATION` or
//! `FIGURE OP NUMBER`, which may have the unit of the figure: `rate>10k/s`,
//! `server.memory_peak<100MiB`, `reach>=99.9%`, `online_s<2s`, `server.cpu_per_message<20us`. A
//! latency without a unit is in milliseconds, as in k6, any other figure in that of its value; a
//! latency without a name is the response time.

use std::fmt;
use std::time::Duration;

use moonwire_report::{Cell, METRICS, Metric, MetricUnit, Threshold};
use serde::{Serialize, Serializer};

use crate::quantity;

use crate::scenario::ScenarioError;

/// One threshold, read once and evaluated at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    /// As typed.
    expression: String,
    metric: Metric,
    comparison: Comparison,
    /// In the unit of the metric.
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
        // A name as in the Run file says the unit of its figure.
        let is_in_us = name.ends_with("_us");
        match parse_bound(metric, value, is_in_us) {
            Some(bound) => Ok(Self {
                expression: expression.to_owned(),
                metric,
                comparison,
                bound,
            }),
            None => wrong(format!(
                "compares with `{value}`, which is not a number it can be: write {}",
                example(metric)
            )),
        }
    }

    /// How long a load has to last for an answer, in seconds.
    pub fn load_seconds_min(&self) -> u64 {
        self.metric.load_seconds_min()
    }

    /// That a load of this length says nothing of it; a sentence.
    pub fn too_short(&self, duration: Duration) -> String {
        format!(
            "the threshold `{self}` takes a load of {} s at least, and this one lasts \
             {duration:?}: load for longer, or leave it out",
            self.load_seconds_min()
        )
    }

    /// What the result says. What was not measured does not pass.
    pub fn evaluate(&self, cell: &Cell) -> Threshold {
        let found = self.metric.value(cell);
        let actual = match (&self.metric, found) {
            (metric, None) => metric.missing().to_owned(),
            (Metric::Latency(..), Some(ns)) => format!("{:.3} ms", ns / 1e6),
            (Metric::Figure(_), Some(found)) => match self.metric.unit() {
                MetricUnit::Count | MetricUnit::PerSecond => {
                    format!("{}", (found * 1000.0).round() / 1000.0)
                }
                // Two that print alike may differ: all digits are there.
                MetricUnit::Bytes => format!("{} ({found} B)", self.metric.quantity(found)),
                MetricUnit::Share => format!("{}", (found * 1e6).round() / 1e6),
                MetricUnit::Nanoseconds => format!("{} µs", found.round() / 1e3),
                MetricUnit::Seconds => format!("{} s", (found * 1e6).round() / 1e6),
            },
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

fn find_comparison(expression: &str) -> Option<(usize, &'static str, Comparison)> {
    let at = expression.find(['<', '>', '=', '!'])?;
    COMPARISONS
        .iter()
        .find(|(sign, _)| expression[at..].starts_with(sign))
        .map(|&(sign, comparison)| (at, sign, comparison))
}

/// A number in the unit of the metric; a bare latency is in milliseconds, as in k6.
fn parse_bound(metric: Metric, text: &str, is_in_us: bool) -> Option<f64> {
    let bare_ns = match metric {
        Metric::Latency(..) if is_in_us => 1e3,
        Metric::Latency(..) => 1e6,
        Metric::Figure(_) => 1.0,
    };
    match metric.unit() {
        MetricUnit::Bytes => quantity::size(text).ok().map(|bytes| bytes as f64),
        MetricUnit::Count => parse_count(text),
        MetricUnit::Nanoseconds => parse_ns(text, bare_ns),
        MetricUnit::PerSecond => parse_count(text.strip_suffix("/s").unwrap_or(text).trim_end()),
        MetricUnit::Seconds => parse_ns(text, 1e9).map(|ns| ns / 1e9),
        MetricUnit::Share => match text.strip_suffix('%') {
            // Read as it is written: 99.9 / 100 is not the number that is nearest to 0.999.
            Some(percent) => parse_count(&format!("{}e-2", percent.trim_end())),
            None => parse_count(text),
        },
    }
}

/// What a bound of the metric looks like.
fn example(metric: Metric) -> &'static str {
    match metric.unit() {
        MetricUnit::Bytes => "bytes such as 100MiB",
        MetricUnit::Count => "a number such as 0 or 10k",
        MetricUnit::Nanoseconds => "a time such as 500us or 5ms",
        MetricUnit::PerSecond => "a number per second such as 500 or 10k",
        MetricUnit::Seconds => "a time such as 500ms or 2s",
        MetricUnit::Share => "a share such as 0.99 or 99%",
    }
}

/// A time in nanoseconds; `bare_ns` is what a number without a unit counts.
fn parse_ns(text: &str, bare_ns: f64) -> Option<f64> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits_end].parse().ok()?;
    let unit_ns = match text[digits_end..].trim_start() {
        "" => bare_ns,
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    Some(number * unit_ns)
}

fn parse_count(text: &str) -> Option<f64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'm' => (&text[..text.len() - 1], 1e6),
        b'g' => (&text[..text.len() - 1], 1e9),
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

#[cfg(test)]
mod tests {
    use moonwire_report::Server;

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
        assert!(!passes("latency.response.p99_us<5000"));
        assert!(passes("latency.response.p99_us<100000"));
        assert!(passes("response.p99.9>99ms"));
        assert!(passes("max<0.2s"));
        assert!(passes("avg<51ms"));
        assert!(passes("lost==0"));
        assert!(passes("messages.sent>=20k"));
        assert!(passes("rate>900"));
        assert!(!passes("rate>=1k"));
    }

    #[test]
    fn bounds_have_the_unit_of_their_figure() {
        let mut cell = cell();
        cell.server = Some(Server {
            rss_peak_bytes: Some(100 << 20),
            cpu_ns_per_message: Some(5_500.0),
            ..Server::default()
        });
        cell.connects.all_online_ms = Some(1500.0);
        cell.connects.disconnected = 1000;
        cell.connects.reconnected = 995;
        let judge = |expression: &str| {
            let threshold = Slo::parse(expression).expect(expression).evaluate(&cell);
            (threshold.passed, threshold.actual)
        };
        for (expression, passes) in [
            ("p(99.9)<101ms", true),
            ("p(99.9)<0.05s", false),
            ("p(50) < 50500us", true),
            ("rate>0.9k", true),
            ("rate>10k", false),
            ("rate < 1000/s", true),
            ("server.memory_peak<=100MiB", true),
            ("server.memory_peak<100MiB", false),
            ("server.memory_peak<104857601", true),
            ("server.memory_peak<104.8MB", false),
            ("server.cpu_per_message<6us", true),
            ("server.cpu_per_message<5400", false),
            ("online_s<2s", true),
            ("online_s<1400ms", false),
            ("online_s<1.6", true),
            ("recovered>=99.5%", true),
            ("recovered>0.995", false),
            ("lost==0", true),
        ] {
            assert_eq!(
                judge(expression).0,
                passes,
                "{expression}: {:?}",
                judge(expression)
            );
        }
        let told = |expression: &str| judge(expression).1;
        assert_eq!(told("server.memory_peak<1GiB"), "100 MiB (104857600 B)");
        assert_eq!(told("server.cpu_per_message<6us"), "5.5 µs");
        assert_eq!(told("online_s<2s"), "1.5 s");
        assert_eq!(told("recovered>=99%"), "0.995");
        for share in ["99.9", "99.99", "0.9", "1.1", "8.8"] {
            let slo = Slo::parse(&format!("reach>={share}%")).unwrap();
            assert_eq!(slo.bound, format!("{share}e-2").parse::<f64>().unwrap());
        }
        for expression in [
            "lost<5ms",
            "rate>10MiB",
            "p(99)<5MiB",
            "server.memory_peak<5ms",
        ] {
            let sentence = Slo::parse(expression).expect_err(expression).to_string();
            assert!(sentence.contains(": write a") || sentence.contains(": write bytes"));
        }
    }

    #[test]
    fn a_bound_that_is_missed_by_little_is_seen_to_be() {
        let mut cell = cell();
        cell.connects.all_online_ms = Some(2000.4);
        cell.server = Some(Server {
            cpu_ns_per_message: Some(6_004.0),
            ..Server::default()
        });
        for (expression, told) in [
            ("online_s<2s", "2.0004 s"),
            ("server.cpu_per_message<6us", "6.004 µs"),
        ] {
            let threshold = Slo::parse(expression).unwrap().evaluate(&cell);
            assert_eq!((threshold.passed, threshold.actual.as_str()), (false, told));
        }
    }

    #[test]
    fn no_sample_does_not_pass() {
        let threshold = Slo::parse("one_way.p99<1s").unwrap().evaluate(&cell());
        assert!(!threshold.passed);
        assert_eq!(threshold.actual, "no sample");
    }

    #[test]
    fn what_cannot_be_told_is_not_called_a_failure() {
        let threshold = Slo::parse("leaks==0").unwrap().evaluate(&cell());
        assert!(!threshold.passed);
        let told = "threshold leaks==0 cannot be told: it takes a minute of load on as many \
                    connections to tell";
        assert_eq!(threshold.to_string(), told);
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
