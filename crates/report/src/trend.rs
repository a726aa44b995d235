//! Whether a curve stays where it is: how it moves over a run after its first quarter, in which
//! caches fill and connections settle.

use std::fmt;

use crate::format;
use crate::statistics::ranks::median;
use crate::statistics::theil_sen::robust_slope;

/// How a curve moves over the part of a run that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trend {
    /// It cannot have moved by more than [`FLAT_SHARE`], or has not by [`MOVE_SHARE_MIN`].
    Flat(Move),
    /// It has risen or fallen, and not by chance.
    Moves(Move),
    /// It may have moved by more than [`FLAT_SHARE`], and may have not.
    Unclear(Move),
    /// There are too few seconds.
    Short,
    /// Most seconds have 0, of which there is no share.
    Nothing,
}

/// The slope of the logarithm, per second, with its interval of 95 %: what falls by half and by
/// half again never falls by more than all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    per_s: f64,
    low: f64,
    high: f64,
    /// The time it was looked at.
    span_s: f64,
}

impl Trend {
    /// That of a value of each second, in the order of time.
    pub(crate) fn of(points: &[(f64, f64)]) -> Self {
        let counted = &points[points.len() / 4..];
        if counted.len() < SECONDS_MIN {
            return Self::Short;
        }
        let mut values: Vec<f64> = counted.iter().map(|point| point.1).collect();
        values.sort_by(f64::total_cmp);
        let level = median(&values);
        if level <= 0.0 {
            return Self::Nothing;
        }
        let log = |(x, y): &(f64, f64)| (*x, y.max(level * LEVEL_SHARE_MIN).ln());
        let logs: Vec<(f64, f64)> = counted.iter().map(log).collect();
        let Some(slope) = robust_slope(&logs) else {
            return Self::Short;
        };
        let span_s = counted[counted.len() - 1].0 - counted[0].0;
        let found = Move {
            per_s: slope.per_x,
            low: slope.low,
            high: slope.high,
            span_s,
        };
        let is_beyond_chance = found.low > 0.0 || found.high < 0.0;
        let most = found.low.abs().max(found.high.abs()) * span_s;
        let is_worth_telling = found.per_s.abs() * span_s >= MOVE_SHARE_MIN;
        match (is_beyond_chance, is_worth_telling) {
            (true, true) => Self::Moves(found),
            _ if most <= FLAT_SHARE => Self::Flat(found),
            _ => Self::Unclear(found),
        }
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flat(found) => write!(to, "flat ({})", found.told(1.0)),
            Self::Moves(found) if found.per_s > 0.0 => write!(to, "rises by {}", found.told(1.0)),
            Self::Moves(found) => write!(to, "falls by {}", found.told(-1.0)),
            Self::Unclear(found) => write!(to, "cannot be told ({})", found.told(1.0)),
            Self::Short => write!(to, "cannot be told (too short)"),
            Self::Nothing => write!(to, "cannot be told (mostly 0)"),
        }
    }
}

impl Move {
    /// What it comes to in so many seconds at this pace, in per cent.
    fn percent(per_s: f64, over_s: f64) -> f64 {
        (per_s * over_s).exp_m1() * 100.0
    }

    /// `sign` is -1 where a fall is told as a number above 0.
    fn told(&self, sign: f64) -> String {
        // An hour that is made of a minute promises what nobody has seen.
        let (over_s, over) = match self.span_s >= HOUR_TOLD_FROM_S {
            true => (3600.0, "an hour".to_owned()),
            false => (self.span_s, format!("over {:.0} s", self.span_s)),
        };
        let percent = |per_s: f64| format::significant(sign * Self::percent(per_s, over_s) + 0.0);
        let (low, high) = match sign < 0.0 {
            true => (percent(self.high), percent(self.low)),
            false => (percent(self.low), percent(self.high)),
        };
        format!("{} % {over} [{low}, {high}]", percent(self.per_s))
    }
}

/// Of those that count.
const SECONDS_MIN: usize = 20;
/// Within this, nobody would see a slope in a picture.
const FLAT_SHARE: f64 = 0.05;
/// Less than this is not worth a word, however certain it is.
const MOVE_SHARE_MIN: f64 = 0.01;
/// Twenty minutes, which a soak of half an hour leaves.
const HOUR_TOLD_FROM_S: f64 = 1200.0;
/// Of the median: a second without anything has no logarithm.
const LEVEL_SHARE_MIN: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(seconds: u32, value: impl Fn(u32) -> f64) -> Trend {
        let points: Vec<(f64, f64)> = (0..seconds).map(|at| (f64::from(at), value(at))).collect();
        Trend::of(&points)
    }

    fn noise(at: u32) -> f64 {
        f64::from(at * 7919 % 13) - 6.0
    }

    #[test]
    fn a_curve_that_stays_is_flat_and_its_first_quarter_does_not_count() {
        let warms_up = trend(100, |at| {
            1000.0 + noise(at) - if at < 25 { 900.0 } else { 0.0 }
        });
        assert!(matches!(warms_up, Trend::Flat(_)), "{warms_up}");
        let constant = trend(40, |_| 50.0);
        assert_eq!(constant.to_string(), "flat (0.00 % over 29 s [0.00, 0.00])");
    }

    #[test]
    fn one_that_moves_is_told_per_hour_where_it_was_seen_for_long() {
        let rises = trend(3600, |at| 1000.0 + f64::from(at) / 10.0 + noise(at)).to_string();
        // 360 an hour, of 1,225 at the median.
        assert!(rises.starts_with("rises by 34."), "{rises}");
        assert!(rises.contains(" % an hour [32."), "{rises}");
        let falls = trend(100, |at| 1000.0 * 0.96f64.powf(f64::from(at))).to_string();
        assert_eq!(falls, "falls by 95.1 % over 74 s [95.1, 95.1]");
    }

    #[test]
    fn what_is_too_noisy_or_too_short_cannot_be_told() {
        let noisy = trend(40, |at| 100.0 + 10.0 * noise(at));
        assert!(matches!(noisy, Trend::Unclear(_)), "{noisy}");
        assert_eq!(trend(20, |_| 1.0), Trend::Short);
        let nothing = trend(100, |at| f64::from(u8::from(at % 3 == 0)));
        assert_eq!(nothing.to_string(), "cannot be told (mostly 0)");
    }
}
