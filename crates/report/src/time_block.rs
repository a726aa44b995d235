//! Response times of one of some equal parts of a run, for the intervals of its percentiles.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::histogram::Histogram;

/// The part of a histogram that was intended in one block of time, without the empty buckets: a
/// battle has thousands of blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeBlock {
    /// Values in nanoseconds, the largest of each bucket, from the smallest up, and how often each
    /// was recorded.
    pub(crate) counts: Vec<(u64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum_ns: f64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
}

impl TimeBlock {
    /// The values of a histogram.
    pub fn of(histogram: &Histogram) -> Self {
        let buckets = histogram.buckets();
        Self {
            counts: buckets.map(|it| (it.high_ns, it.count)).collect(),
            count: histogram.count(),
            sum_ns: histogram.mean_ns().unwrap_or(0.0) * histogram.count() as f64,
            min_ns: histogram.min_ns().unwrap_or(0),
            max_ns: histogram.max_ns().unwrap_or(0),
        }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The histogram that it is part of, with its values alone.
    pub fn histogram(&self) -> Histogram {
        let exact = (self.count > 0).then_some((self.min_ns, self.max_ns, self.sum_ns));
        Histogram::of_buckets(&self.counts, exact)
    }
}

/// As other histograms, which other tools read.
impl Serialize for TimeBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.histogram().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TimeBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Histogram::deserialize(deserializer).map(|histogram| Self::of(&histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_stored_as_the_histogram_it_was_made_of() {
        let mut histogram = Histogram::new();
        for value_ns in [1_000, 1_234_567, 1_234_599, 90_000_000_123] {
            histogram.record(value_ns);
        }
        for histogram in [Histogram::new(), histogram] {
            let block = TimeBlock::of(&histogram);
            let json = serde_json::to_value(&block).unwrap();
            assert_eq!(json, serde_json::to_value(&histogram).unwrap());
            assert_eq!(serde_json::from_value::<TimeBlock>(json).unwrap(), block);
        }
    }
}
