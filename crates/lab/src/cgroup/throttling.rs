//! What a limit did: the time for which work had to wait because of it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::text;

/// Counters of a group since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Periods in which something ran.
    pub periods: u64,
    /// Those among them in which the limit was reached.
    pub throttled_periods: u64,
    /// Time for which processors could not be used, nanoseconds; that of several processors is
    /// added up.
    pub throttled_ns: u64,
}

impl Throttling {
    /// Of a group; `None` where it has none.
    pub(super) fn read(group: &Path) -> Option<Self> {
        Self::parse(&text(group, "cpu.stat").ok()?)
    }

    /// Reads `cpu.stat` of either version: the first has nanoseconds and the second microseconds.
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = lines.find(|(key, _)| *key == name)?;
            value.trim().parse::<u64>().ok()
        };
        let microseconds = || value("throttled_usec").map(|us| us.saturating_mul(1000));
        Some(Self {
            periods: value("nr_periods")?,
            throttled_periods: value("nr_throttled")?,
            throttled_ns: value("throttled_time").or_else(microseconds)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let expected = Throttling {
            periods: 11,
            throttled_periods: 10,
            throttled_ns: 677_000,
        };
        let first = "nr_periods 11\nnr_throttled 10\nthrottled_time 677000\nnr_bursts 0\n";
        assert_eq!(Throttling::parse(first), Some(expected));
        let second = "usage_usec 5\nnr_periods 11\nnr_throttled 10\nthrottled_usec 677\n";
        assert_eq!(Throttling::parse(second), Some(expected));
        // The root has no limit and counts nothing.
        assert_eq!(Throttling::parse("usage_usec 5\nuser_usec 3\n"), None);
    }
}
