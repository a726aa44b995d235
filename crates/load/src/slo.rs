//! Thresholds on a result, in the grammar that users of k6 know: `p(99)<5ms`, `lost==0`.
//!
//! An expression is a metric, a comparison and a number: `[LATENCY.]STATISTIC OP DURATION` or
//! `COUNTER OP NUMBER`. A latency without a unit is in milliseconds, as in k6; a latency without
//! a name is the response time.

use std::fmt;

use moonwire_report::{Cell, METRICS, Metric, Threshold};
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
            Metric::Figure(_) => parse_count(value),
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
            (Metric::Figure(_), Some(count)) => format!("{}", (count * 1000.0).round() / 1000.0),
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
