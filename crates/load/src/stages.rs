//! A rate that changes over time, as users of k6 know it: `10s:1k,30s:5k` goes to 1,000 messages
//! per second within 10 seconds, and from there to 5,000 within 30.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::quantity;

/// Stages that can run: some time, some messages, and bounds within which all sums are exact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateStages {
    from_per_s: f64,
    stages: Vec<RateStage>,
}

/// One of them: the rate goes in a line from that of the stage before to its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStage {
    /// How long that takes; 0 is a jump.
    pub duration: Duration,
    /// Messages per second at its end, over all connections.
    pub target_per_s: f64,
}

impl RateStages {
    /// Reads `DURATION:RATE`, one or several of them with commas between; the first begins at
    /// `from_per_s`. The error is a clause that says what would be right.
    pub fn parse(text: &str, from_per_s: f64) -> Result<Self, String> {
        let stages: Result<Vec<RateStage>, String> =
            text.split(',').map(RateStage::parse).collect();
        Self::new(from_per_s, stages?)
    }

    fn new(from_per_s: f64, stages: Vec<RateStage>) -> Result<Self, String> {
        let count = stages.len();
        if count > STAGES_MAX {
            return Err(format!("{count} stages are more than {STAGES_MAX}"));
        }
        if let Some(stage) = stages.iter().find(|stage| stage.duration > STAGE_MAX) {
            return Err(format!(
                "the stage '{stage}' is longer than 24h: write several one after the other"
            ));
        }
        let targets = stages.iter().map(|stage| stage.target_per_s);
        let mut rates = std::iter::once(from_per_s).chain(targets);
        let can_be = |rate: f64| rate == 0.0 || (RATE_MIN_PER_S..=RATE_MAX_PER_S).contains(&rate);
        if let Some(rate) = rates.find(|rate| !can_be(*rate)) {
            return Err(format!(
                "{rate} messages per second are not from 0 to {RATE_MAX_PER_S} in thousandths"
            ));
        }
        let stages = Self { from_per_s, stages };
        match stages.billionths() > 0.0 {
            true => Ok(stages),
            false => Err(format!(
                "'{stages}' sends nothing: give a stage that lasts and a rate above 0, such as \
                 10s:1k"
            )),
        }
    }

    /// The rate before the first stage.
    pub fn from_per_s(&self) -> f64 {
        self.from_per_s
    }

    /// The same, where it is not 0.
    pub fn start_per_s(&self) -> Option<f64> {
        (self.from_per_s > 0.0).then_some(self.from_per_s)
    }

    /// The stages in their order.
    pub fn stages(&self) -> &[RateStage] {
        &self.stages
    }

    /// Each stage with the rate that it begins with.
    pub fn with_starts(&self) -> impl Iterator<Item = (f64, RateStage)> + '_ {
        let before = self.stages.iter().map(|stage| stage.target_per_s);
        let starts = std::iter::once(self.from_per_s).chain(before);
        starts.zip(self.stages.iter().copied())
    }

    /// How long all of them take.
    pub fn duration(&self) -> Duration {
        self.stages.iter().map(|stage| stage.duration).sum()
    }

    /// Messages per second over the whole time.
    pub fn mean_per_s(&self) -> f64 {
        self.billionths() / self.duration().as_nanos() as f64
    }

    /// Messages in all, times 10^9: of whole nanoseconds, so that a mean of round numbers is round.
    fn billionths(&self) -> f64 {
        self.with_starts()
            .map(|(from_per_s, stage)| {
                (from_per_s + stage.target_per_s) / 2.0 * stage.duration.as_nanos() as f64
            })
            .sum()
    }
}

impl RateStage {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((duration, target)) = text.split_once(':') else {
            return Err(format!(
                "'{text}' is not a stage: write a duration and the messages per second at its \
                 end, such as 10s:1k"
            ));
        };
        let target_per_s = match quantity::count(target) {
            Ok(0) => 0.0,
            Ok(_) | Err(_) => quantity::rate(target)?,
        };
        Ok(Self {
            duration: quantity::duration(duration)?,
            target_per_s,
        })
    }
}

impl fmt::Display for RateStages {
    /// As it is typed, without the rate that it begins with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, stage) in self.stages.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{stage}")?;
        }
        Ok(())
    }
}

impl Serialize for RateStage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for RateStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length_ns = self.duration.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
        let unit = units
            .iter()
            .find(|(unit_ns, _)| length_ns.is_multiple_of(*unit_ns));
        let (unit_ns, unit) = unit.copied().unwrap_or((1, "ns"));
        write!(f, "{}{unit}:{}", length_ns / unit_ns, self.target_per_s)
    }
}

/// Each has a histogram in each worker, and a line in the tables.
pub(crate) const STAGES_MAX: usize = 32;
/// With the largest rate, the square of a stage in nanoseconds still fits the sums of the schedule.
const STAGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The schedule counts messages in 1000 s.
const RATE_MIN_PER_S: f64 = 1e-3;
/// More than any generator sends.
const RATE_MAX_PER_S: f64 = 1e7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_and_told_again() {
        for (text, told) in [
            ("10s:1k", "10s:1000"),
            ("10s:1k, 0s:5k,500ms:0", "10s:1000,0s:5000,500ms:0"),
            ("1.5s:0.5,2m:3", "1500ms:0.5,120s:3"),
            ("250us:100", "250us:100"),
        ] {
            let stages = RateStages::parse(text, 0.0).unwrap();
            assert_eq!(stages.to_string(), told);
            assert_eq!(RateStages::parse(told, 0.0).unwrap(), stages);
        }
        let stages = RateStages::parse("10s:1k,10s:1k", 0.0).unwrap();
        assert_eq!(stages.duration(), Duration::from_secs(20));
        assert_eq!(stages.mean_per_s(), 750.0);
    }

    #[test]
    fn each_mistake_says_what_would_be_right() {
        let many = vec!["1s:1"; STAGES_MAX + 1].join(",");
        for (text, why) in [
            ("", "such as 10s:1k"),
            ("10s", "such as 10s:1k"),
            ("10s:1k,", "such as 10s:1k"),
            ("ten:1k", "such as 100ms, 10s or 1h"),
            ("10s:fast", "such as 500 or 10k"),
            ("10s:-5", "above 0"),
            ("25h:1", "longer than 24h"),
            ("10s:20m", "are not from 0 to"),
            ("10s:0.0001", "are not from 0 to"),
            ("10s:0", "sends nothing"),
            ("0s:1k", "sends nothing"),
            (many.as_str(), "more than 32"),
        ] {
            let clause = RateStages::parse(text, 0.0).expect_err(text);
            assert!(clause.contains(why), "{text}: {clause}");
        }
    }
}
