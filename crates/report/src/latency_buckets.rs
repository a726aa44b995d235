//! The latencies of one second in coarse buckets: what a heat map is made of.
//!
//! The grid is the same for all files and never changes: four buckets for each power of two of
//! nanoseconds, `low = (4 + n % 4) * 2^(n / 4 - 2)` for bucket `n`, so that each is 14 to 25 %
//! wide. A Run file has them as one text of `bucket:count` pairs from the shortest latency up,
//! without those that are empty, such as `"72:3 73:118"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::histogram::Histogram;

/// Counts by bucket. Invariant: in the order of the buckets, each at most once and below
/// [`LatencyBuckets::COUNT`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyBuckets(Vec<(u16, u64)>);

impl LatencyBuckets {
    /// How many buckets there are: those of all latencies that fit into 64 bits.
    pub const COUNT: u16 = 256;

    /// Those of a snapshot histogram.
    pub fn of(histogram: &Histogram) -> Self {
        let mut counts: Vec<(u16, u64)> = Vec::new();
        for fine in histogram.buckets() {
            // The edges of the grid are edges of the finer buckets, too.
            let bucket = bucket(fine.low_ns);
            match counts.last_mut() {
                Some((last, count)) if *last == bucket => *count += fine.count,
                _ => counts.push((bucket, fine.count)),
            }
        }
        Self(counts)
    }

    /// Whether nothing was counted, as in files from before there were buckets.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The buckets that hold something, from the shortest latency up, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.0.iter().copied()
    }

    /// The edges of a bucket in microseconds.
    pub fn edges_us(bucket: u16) -> (f64, f64) {
        let low = |bucket: u16| {
            let (power, part) = (i32::from(bucket / 4), f64::from(bucket % 4));
            (4.0 + part) * 2f64.powi(power - 2) / 1e3
        };
        (low(bucket), low(bucket + 1))
    }

    fn parse(text: &str) -> Option<Self> {
        let pair = |pair: &str| {
            let (bucket, count) = pair.split_once(':')?;
            Some((bucket.parse().ok()?, count.parse().ok()?))
        };
        let pairs: Vec<(u16, u64)> = text.split_whitespace().map(pair).collect::<Option<_>>()?;
        let is_ordered = pairs.windows(2).all(|two| two[0].0 < two[1].0);
        let is_bounded = pairs.last().is_none_or(|(bucket, _)| *bucket < Self::COUNT);
        (is_ordered && is_bounded).then_some(Self(pairs))
    }
}

/// The bucket of a latency. Those below 4 ns share one.
fn bucket(value_ns: u64) -> u16 {
    let value_ns = value_ns.max(4);
    let power = value_ns.ilog2();
    let part = (value_ns >> (power - 2)) & 3;
    // Below 256, as the power is below 64.
    (4 * power) as u16 + part as u16
}

impl Serialize for LatencyBuckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter();
        let pairs = pairs.map(|(bucket, count)| format!("{bucket}:{count}"));
        serializer.serialize_str(&pairs.collect::<Vec<_>>().join(" "))
    }
}

impl<'de> Deserialize<'de> for LatencyBuckets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let expected = "expected pairs such as \"72:3 73:118\" in the order of the buckets";
            de::Error::custom(format!("{text:?} are no buckets of latencies, {expected}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_within_the_edges_of_its_bucket() {
        for value_ns in [4, 5, 7, 8, 1000, 1023, 1024, 1279, 1280, 999_999, 1 << 62] {
            let (low, high) = LatencyBuckets::edges_us(bucket(value_ns));
            let us = value_ns as f64 / 1e3;
            assert!(low <= us && us < high, "{value_ns}: {low} to {high}");
            assert!(high / low <= 1.2501 && high / low > 1.14, "{low} to {high}");
        }
        assert!(bucket(u64::MAX) < LatencyBuckets::COUNT);
    }

    #[test]
    fn buckets_hold_all_of_a_histogram_and_survive_their_text() {
        let mut histogram = Histogram::new();
        for us in 1..=3000u64 {
            histogram.record(us * 1000);
        }
        let buckets = LatencyBuckets::of(&histogram);
        let total: u64 = buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(total, 3000);
        assert!(buckets.iter().count() < 50);
        let text = serde_json::to_string(&buckets).unwrap();
        assert!(text.starts_with("\"39:1 43:1 "), "{text}");
        assert_eq!(
            serde_json::from_str::<LatencyBuckets>(&text).unwrap(),
            buckets
        );
    }

    #[test]
    fn what_is_no_list_of_buckets_is_refused_with_a_sentence() {
        for wrong in ["72", "72:x", "9:1 8:1", "300:1", "5:1 5:2"] {
            let text = serde_json::to_string(wrong).unwrap();
            let error = serde_json::from_str::<LatencyBuckets>(&text).unwrap_err();
            assert!(
                error.to_string().contains("no buckets of latencies"),
                "{error}"
            );
        }
    }
}
