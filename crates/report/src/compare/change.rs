//! One metric of a comparison, and what is said of its change.

use serde::Serialize;

use crate::format;

/// One metric of one cell, in one run or two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the metric.
    pub metric: &'static str,
    /// Value in the first run, in the unit of the metric.
    pub a: Option<f64>,
    /// Value in the second run.
    pub b: Option<f64>,
    /// `b / a - 1`, where both are known and `a` is not 0.
    pub relative: Option<f64>,
    /// Half the width of the interval of 95 % of `relative`; `None` where it cannot be judged.
    pub margin: Option<f64>,
    /// The difference in standard deviations of the values per second (Cohen's d).
    pub cohens_d: Option<f64>,
    /// Probability of so large a difference without a cause; `None` where it cannot be judged.
    pub p_value: Option<f64>,
    #[serde(skip)]
    pub(super) unit: Unit,
    #[serde(skip)]
    pub(super) better: Better,
    /// Whether the seconds that are tested went the way of the whole, beyond its interval: one bad
    /// second moves a maximum one way while all others go the other.
    #[serde(skip)]
    pub(super) is_backed: bool,
    /// Standard errors of the interval values.
    pub(super) errors: [Option<f64>; 2],
    /// Below this probability of chance it is called a change.
    #[serde(skip)]
    pub(super) level: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Latency,
    PerSecond,
    Count,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
}

impl Change {
    /// True if the difference is unlikely to be chance.
    pub fn is_significant(&self) -> bool {
        self.is_backed && self.p_value.is_some_and(|p| p < self.level)
    }

    /// Whether B has more of what nobody should have, by more than the share `bound`: messages are
    /// not lost by chance.
    pub(super) fn has_more_faults(&self, bound: f64) -> bool {
        let is_fault = self.unit == Unit::Count && self.better == Better::Less;
        let both = self.a.zip(self.b).filter(|_| is_fault);
        both.is_some_and(|(a, b)| b > a * (1.0 + bound))
    }

    /// True if it is significant and for the worse.
    pub fn is_regression(&self) -> bool {
        let worse = |relative: f64| match self.better {
            Better::Less => relative > 0.0,
            Better::More => relative < 0.0,
        };
        self.is_significant() && self.relative.is_some_and(worse)
    }

    /// The relative change with its interval.
    pub(super) fn relation(&self) -> String {
        match (self.relative, self.margin) {
            (None, _) => format::dash(),
            (Some(relative), None) => signed_percent(relative),
            (Some(relative), Some(margin)) => format!(
                "{} [{}, {}]",
                signed_percent(relative),
                signed_percent(relative - margin),
                signed_percent(relative + margin)
            ),
        }
    }

    pub(super) fn judgement(&self) -> &'static str {
        match (self.p_value, self.is_significant(), self.is_regression()) {
            (None, _, _) => "",
            (Some(_), false, _) => "not told",
            (Some(_), true, true) => "worse",
            (Some(_), true, false) => "better",
        }
    }

    pub(super) fn quantity(&self, value: Option<f64>, side: usize) -> String {
        let Some(value) = value else {
            return format::dash();
        };
        let print = |value: f64| match self.unit {
            Unit::Latency => format::latency(value),
            Unit::PerSecond => format!("{}/s", format::rate(value)),
            Unit::Count => format::count(value as u64),
            Unit::Bytes => format::bytes(value),
        };
        match self.errors[side] {
            Some(error) if error > 0.0 => format!("{} ± {}", print(value), print(error)),
            Some(_) | None => print(value),
        }
    }
}

pub(super) fn signed_percent(relative: f64) -> String {
    format!("{:+.1} %", relative * 100.0)
}

/// A change is called one below this probability of it being chance: with some fifteen metrics a
/// cell, 0.05 would call one in most comparisons.
pub(super) const SIGNIFICANCE: f64 = 0.001;
