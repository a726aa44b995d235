//! Whether what was measured needs more and more memory: the verdict of a soak.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::format;
use crate::interval::Interval;
use crate::statistics::theil_sen::{RobustSlope, robust_slope};

/// How the resident memory of what was measured went on, after a first part that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// What it is told for.
    pub per: Per,
    /// Bytes for each of these, the median of all pairs of seconds.
    pub bytes: f64,
    /// Lower end of its interval of 95 %.
    pub bytes_low: f64,
    /// Upper end of its interval of 95 %.
    pub bytes_high: f64,
    /// What that comes to over the part that counts, bytes.
    pub rise_bytes: f64,
    /// What to make of it.
    pub verdict: GrowthVerdict,
}

/// What growth is told for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// A message that was sent.
    Message,
    /// A connection that was made, where they come and go.
    Connection,
    /// A second, where nothing is sent.
    Second,
}

/// What to make of the growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrowthVerdict {
    /// None that could be told, or less than [`RISE_BYTES_MIN`].
    Flat,
    /// Some, and less for each message or connection than what these could leave behind.
    Grows,
    /// As if each message or connection left something behind.
    Leaks,
}

impl Growth {
    /// What the seconds of a cell say; `None` where memory was not looked at or for too short, or
    /// connections were still being added.
    pub fn of(cell: &Cell) -> Option<Self> {
        let intervals = counted(cell);
        if are_more_and_more(intervals) {
            return None;
        }
        let total = |count: fn(&Interval) -> u64| -> u64 { intervals.iter().map(count).sum() };
        let (sent, opened) = (total(|it| it.sent), total(|it| it.opened));
        let per = match (sent, opened) {
            (0, 0) => Per::Second,
            (sent, opened) if opened * CHURN_MESSAGES_MAX > sent => Per::Connection,
            _ => Per::Message,
        };
        let points = points(intervals, per);
        if points.len() < SECONDS_MIN {
            return None;
        }
        let slope = robust_slope(&points)?;
        let (first, last) = (points.first()?, points.last()?);
        let rise_bytes = slope.per_x * (last.0 - first.0);
        let mut growth = Self {
            per,
            bytes: slope.per_x,
            bytes_low: slope.low,
            bytes_high: slope.high,
            rise_bytes,
            verdict: GrowthVerdict::Flat,
        };
        // What comes to an end is a cache that fills: a leak goes on in the second half.
        let (early, late) = points.split_at(points.len() / 2);
        let goes_on = |half| robust_slope(half).is_some_and(|it: RobustSlope| it.low > 0.0);
        if slope.low > 0.0 && rise_bytes >= RISE_BYTES_MIN && goes_on(early) && goes_on(late) {
            growth.verdict = match slope.low > per.left_bytes_min() {
                true => GrowthVerdict::Leaks,
                false => GrowthVerdict::Grows,
            };
        }
        Some(growth)
    }
}

impl Per {
    /// The least that could be left behind by each.
    fn left_bytes_min(self) -> f64 {
        match self {
            // Half of the smallest block that allocators give.
            Self::Message => 4.0,
            // Nobody keeps a connection in less than a cache line.
            Self::Connection => 64.0,
            Self::Second => 0.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Connection => "connection",
            Self::Second => "second",
        }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.per.name();
        let told = format!(
            "{} [{}, {}] B a {name}",
            format::rate(self.bytes),
            format::rate(self.bytes_low),
            format::rate(self.bytes_high)
        );
        match self.verdict {
            GrowthVerdict::Flat => write!(f, "flat: {told}"),
            GrowthVerdict::Grows => write!(
                f,
                "grows by {told}, {} in all: less than any {name} could leave behind",
                format::bytes(self.rise_bytes)
            ),
            GrowthVerdict::Leaks => write!(
                f,
                "LEAKS: it grows by {told}, {} in all, and goes on",
                format::bytes(self.rise_bytes)
            ),
        }
    }
}

/// The seconds that count: those of the sending phase without its first quarter, in which caches
/// fill.
fn counted(cell: &Cell) -> &[Interval] {
    let all = cell.intervals.as_slice();
    let end = all.iter().rposition(|it| it.sent > 0 || it.connected > 0);
    let whole = &all[..end.map_or(0, |last| last + 1)];
    &whole[whole.len() / 4..]
}

/// Whether connections are still being added: what they need is no leak.
fn are_more_and_more(intervals: &[Interval]) -> bool {
    let (first, last) = (intervals.first(), intervals.last());
    let both = first.zip(last).map(|(a, b)| (a.connected, b.connected));
    both.is_some_and(|(first, last)| last as f64 > first as f64 * CONNECTED_GROWTH_MAX)
}

/// Memory over what has happened until then.
fn points(intervals: &[Interval], per: Per) -> Vec<(f64, f64)> {
    let mut x = 0.0;
    let point = |interval: &Interval| {
        x += match per {
            Per::Message => interval.sent as f64,
            Per::Connection => interval.opened as f64,
            Per::Second => interval.length_s,
        };
        interval.server_rss_bytes.map(|bytes| (x, bytes as f64))
    };
    intervals.iter().filter_map(point).collect()
}

/// Of those that count: a shorter run says nothing about a leak.
const SECONDS_MIN: usize = 45;
/// Of a load, with the quarter that does not count.
pub(crate) const LOAD_SECONDS_MIN: u64 = SECONDS_MIN as u64 * 4 / 3;
/// A few that come back after a loss are no ramp.
const CONNECTED_GROWTH_MAX: f64 = 1.05;
/// Less is a few pages here and there, whatever its cause.
const RISE_BYTES_MIN: f64 = 1_048_576.0;
/// With fewer messages for each connection than this, growth is told for connections.
const CHURN_MESSAGES_MAX: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes with 5,000 messages a second and memory as `rss` says, in bytes.
    fn growth(rss: impl Fn(u64) -> u64) -> Growth {
        let interval = |second: u64| Interval {
            start_s: second as f64,
            length_s: 1.0,
            sent: 5000,
            connected: 100,
            server_rss_bytes: Some(20_000_000 + rss(second) / 4096 * 4096),
            ..Interval::default()
        };
        let cell = Cell {
            intervals: (0..600).map(interval).collect(),
            ..Cell::default()
        };
        Growth::of(&cell).unwrap()
    }

    #[test]
    fn sixteen_bytes_a_message_are_a_leak() {
        let found = growth(|second| second * 5000 * 16 + second * 7919 % 300_000);
        assert_eq!(found.verdict, GrowthVerdict::Leaks, "{found}");
        assert!((found.bytes - 16.0).abs() < 1.0, "{found}");
        // An allocator that asks for a mebibyte at a time.
        let stairs = growth(|second| (second * 5000 * 16) >> 20 << 20);
        assert_eq!(stairs.verdict, GrowthVerdict::Leaks, "{stairs}");
    }

    #[test]
    fn a_cache_that_fills_and_a_noisy_server_do_not_leak() {
        let fills = growth(|second| second.min(200) * 5000 * 16);
        assert_eq!(fills.verdict, GrowthVerdict::Flat, "{fills}");
        let noisy = growth(|second| second * 7919 % 997 * 4096);
        assert_eq!(noisy.verdict, GrowthVerdict::Flat, "{noisy}");
        let slow = growth(|second| second * 5000);
        assert_eq!(slow.verdict, GrowthVerdict::Grows, "{slow}");
        assert!(slow.to_string().contains("less than any message"), "{slow}");
    }

    #[test]
    fn connections_that_come_and_go_are_what_it_is_told_for() {
        let interval = |second: u64| Interval {
            length_s: 1.0,
            sent: 1000,
            opened: 1000,
            connected: 10,
            server_rss_bytes: Some(second * 200_000),
            ..Interval::default()
        };
        let cell = Cell {
            intervals: (0..100).map(interval).collect(),
            ..Cell::default()
        };
        let found = Growth::of(&cell).unwrap();
        assert_eq!(
            (found.per, found.verdict),
            (Per::Connection, GrowthVerdict::Leaks)
        );
        assert!(
            found.to_string().contains("200 [200, 200] B a connection"),
            "{found}"
        );
    }

    #[test]
    fn connections_that_are_added_are_no_leak() {
        let interval = |second: u64| Interval {
            length_s: 1.0,
            sent: 1000,
            opened: 100,
            connected: second * 100,
            server_rss_bytes: Some(second * 200_000),
            ..Interval::default()
        };
        let cell = Cell {
            intervals: (0..100).map(interval).collect(),
            ..Cell::default()
        };
        assert_eq!(Growth::of(&cell), None);
    }

    #[test]
    fn a_short_run_says_nothing() {
        assert_eq!(Growth::of(&Cell::default()), None);
        let interval = |second: u64| Interval {
            length_s: 1.0,
            sent: 1000,
            server_rss_bytes: Some(second * 1_000_000),
            ..Interval::default()
        };
        let intervals = (0..50).map(interval).collect();
        let short = Cell {
            intervals,
            ..Cell::default()
        };
        assert_eq!(Growth::of(&short), None);
    }
}
