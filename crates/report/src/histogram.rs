//! Latency histograms: HdrHistogram, nanoseconds in, three significant digits, and beside the
//! buckets the exact minimum, maximum and sum, which cost three words and no accuracy.

mod buckets;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de, ser};

use self::buckets::Buckets;

/// A latency distribution in nanoseconds.
///
/// Values above [`Histogram::VALUE_NS_MAX`] are recorded in the last bucket; `max_ns` still gives
/// them exactly. Recording never allocates, so that a worker may do it between two system calls,
/// unless the histogram was [packed](Self::packed) before.
#[derive(Clone)]
pub struct Histogram {
    buckets: Buckets,
    /// Smallest value recorded; `u64::MAX` while empty.
    min_ns: u64,
    /// Largest value recorded; 0 while empty.
    max_ns: u64,
    /// Sum of all values recorded; a `u128` cannot overflow before the counts do.
    sum_ns: u128,
}

/// One run of equal bucket values, as the plots walk them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value that falls into the bucket, nanoseconds.
    pub low_ns: u64,
    /// Largest value that falls into the bucket, nanoseconds.
    pub high_ns: u64,
    /// Values recorded in it, never 0.
    pub count: u64,
}

impl Histogram {
    /// Two hours: longer than any latency a run can wait for.
    pub const VALUE_NS_MAX: u64 = 7_200_000_000_000;

    /// An empty histogram, all of its memory (about 270 KiB) taken at once.
    pub fn new() -> Self {
        Self {
            buckets: Buckets::new(),
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
        }
    }

    /// One with so many values in each bucket, and its exact minimum, maximum and sum.
    pub(crate) fn of_buckets(counts: &[(u64, u64)], exact: Option<(u64, u64, f64)>) -> Self {
        let mut histogram = Self::new();
        for (value_ns, count) in counts {
            histogram.record_n(*value_ns, *count);
        }
        if let Some((min_ns, max_ns, sum_ns)) = exact {
            histogram.min_ns = min_ns;
            histogram.max_ns = max_ns;
            histogram.sum_ns = sum_ns.round() as u128;
        }
        histogram
    }

    /// The same without the memory of buckets that hold nothing, which is most of it: for one that
    /// nothing more is recorded into.
    pub fn packed(&self) -> Self {
        Self {
            buckets: self.buckets.packed(),
            ..*self
        }
    }

    /// Records one latency in nanoseconds.
    pub fn record(&mut self, value_ns: u64) {
        self.record_n(value_ns, 1);
    }

    /// Records the same latency `count` times.
    pub fn record_n(&mut self, value_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.buckets
            .unpacked()
            .saturating_record_n(value_ns.min(Self::VALUE_NS_MAX), count);
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
        self.sum_ns += u128::from(value_ns) * u128::from(count);
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.add(&other.buckets);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// Forgets everything and keeps the memory, for the snapshot of the next second.
    pub fn clear(&mut self) {
        self.buckets.unpacked().reset();
        self.min_ns = u64::MAX;
        self.max_ns = 0;
        self.sum_ns = 0;
    }

    /// Number of values recorded.
    pub fn count(&self) -> u64 {
        self.buckets.total()
    }

    /// True while nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Exact smallest value, `None` while empty.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min_ns)
    }

    /// Exact largest value, `None` while empty.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max_ns)
    }

    /// Exact mean, `None` while empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// Standard deviation, as exact as the buckets; `None` while empty.
    pub fn stddev_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.buckets.stdev())
    }

    /// The value at quantile `quantile` (0 to 1): the smallest recorded value such that at least
    /// that share of all values is not above it. Never outside the exact minimum and maximum.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let value = || {
            self.buckets
                .value_at_quantile(quantile)
                .clamp(self.min_ns, self.max_ns)
        };
        (!self.is_empty()).then(value)
    }

    /// Share of the values that are at or below `value_ns`, 0 to 1; 1 while empty.
    pub fn share_at_or_below(&self, value_ns: u64) -> f64 {
        self.buckets.share_at_or_below(value_ns)
    }

    /// The number of values in buckets that lie wholly or partly above `value_ns`.
    pub fn count_above(&self, value_ns: u64) -> u64 {
        self.above_value(value_ns).map(|bucket| bucket.count).sum()
    }

    /// The buckets that hold something, from the smallest value up.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.buckets.iter()
    }

    /// The buckets above the value at `quantile`: what a tail plot shows.
    pub fn buckets_above(&self, quantile: f64) -> impl Iterator<Item = Bucket> + '_ {
        self.above_value(self.quantile_ns(quantile).unwrap_or(0))
    }

    fn above_value(&self, value_ns: u64) -> impl Iterator<Item = Bucket> + '_ {
        self.buckets()
            .filter(move |bucket| bucket.low_ns > value_ns)
    }

    fn encode(&self) -> Option<Encoded> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(self.buckets.dense().as_ref(), &mut bytes)
            .ok()?;
        Some(Encoded {
            encoding: ENCODING.to_owned(),
            min_ns: self.min_ns(),
            max_ns: self.max_ns(),
            mean_ns: self.mean_ns(),
            base64: STANDARD.encode(bytes),
        })
    }

    fn decode(encoded: &Encoded) -> Result<Self, String> {
        if encoded.encoding != ENCODING {
            return Err(format!(
                "a histogram is encoded as {:?}, expected {ENCODING:?}",
                encoded.encoding
            ));
        }
        let bytes = STANDARD
            .decode(&encoded.base64)
            .map_err(|error| format!("a histogram is not base64: {error}"))?;
        let stored: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("a histogram is not HdrHistogram V2: {error}"))?;
        // Into buckets of our own bounds, so that any two histograms can be merged.
        let mut histogram = Self::new();
        for step in stored.iter_recorded() {
            histogram.record_n(step.value_iterated_to(), step.count_at_value());
        }
        if !histogram.is_empty() {
            histogram.min_ns = stored.lowest_equivalent(histogram.min_ns);
        }
        encoded.check(&stored, &histogram)?;
        histogram.min_ns = encoded.min_ns.unwrap_or(histogram.min_ns);
        histogram.max_ns = encoded.max_ns.unwrap_or(histogram.max_ns);
        if let Some(mean_ns) = encoded.mean_ns {
            histogram.sum_ns = (mean_ns * histogram.count() as f64).round() as u128;
        }
        Ok(histogram.packed())
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    /// The figures only: the buckets are tens of thousands of numbers.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Histogram")
            .field("count", &self.count())
            .field("min_ns", &self.min_ns())
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("max_ns", &self.max_ns())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.min_ns == other.min_ns && self.max_ns == other.max_ns && self.buckets == other.buckets
    }
}

impl Serialize for Histogram {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.encode()
            .ok_or_else(|| ser::Error::custom("a histogram count does not fit the format"))?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::decode(&Encoded::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A histogram as the Run file holds it: other tools read the base64, the rest is exact.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Encoded {
    encoding: String,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    mean_ns: Option<f64>,
    base64: String,
}

impl Encoded {
    /// Refuses exact figures that the buckets contradict: everything computed from a histogram
    /// relies on its minimum, mean and maximum being in this order. `stored` are the buckets as
    /// the file has them, `read` the same values in ours.
    fn check(&self, stored: &hdrhistogram::Histogram<u64>, read: &Histogram) -> Result<(), String> {
        if read.is_empty() {
            let figure = self.min_ns.is_some() || self.max_ns.is_some() || self.mean_ns.is_some();
            return match figure {
                true => Err("a histogram without values states a value".to_owned()),
                false => Ok(()),
            };
        }
        let exact = [
            ("min_ns", self.min_ns, read.min_ns),
            ("max_ns", self.max_ns, read.max_ns),
        ];
        for (name, stated, bucket) in exact {
            // A value beyond the range is in the last bucket, whatever its exact size.
            let within = |ns: u64| stored.equivalent(ns.min(Histogram::VALUE_NS_MAX), bucket);
            if let Some(ns) = stated.filter(|ns| !within(*ns)) {
                return Err(format!(
                    "a histogram states {name} {ns}, but its buckets say {bucket}"
                ));
            }
        }
        let min_ns = self.min_ns.unwrap_or(read.min_ns);
        let max_ns = self.max_ns.unwrap_or(read.max_ns);
        if min_ns > max_ns {
            return Err(format!(
                "a histogram states min_ns {min_ns} above max_ns {max_ns}"
            ));
        }
        // A mean is a rounded quotient: it may miss its bounds by the last digits of an f64.
        let slack_ns = max_ns as f64 * 1e-9 + 1.0;
        let range = min_ns as f64 - slack_ns..=max_ns as f64 + slack_ns;
        match self.mean_ns.filter(|mean_ns| !range.contains(mean_ns)) {
            Some(mean_ns) => Err(format!(
                "a histogram states mean_ns {mean_ns} outside of {min_ns} to {max_ns}"
            )),
            None => Ok(()),
        }
    }
}

/// Three digits: every quantile is within 0.1 % of the value recorded.
const SIGNIFICANT_DIGITS: u8 = 3;
const ENCODING: &str = "hdr-v2-deflate";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    /// Values of every magnitude, not only of the largest.
    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        let value = (0u32..44, any::<u64>()).prop_map(|(bits, value)| value % (1u64 << bits));
        prop::collection::vec(value, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn merging_is_recording_both(a in latencies(), b in latencies()) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both = of(&[a, b].concat());
            prop_assert_eq!(&merged, &both);
            prop_assert_eq!(merged.mean_ns(), both.mean_ns());
        }

        #[test]
        fn a_histogram_survives_its_json(values in latencies()) {
            let histogram = of(&values);
            let json = serde_json::to_string(&histogram).unwrap();
            let read: Histogram = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&read, &histogram);
            let means = (read.mean_ns().unwrap_or(0.0), histogram.mean_ns().unwrap_or(0.0));
            prop_assert!((means.0 - means.1).abs() <= means.1 * 1e-9 + 1.0, "{means:?}");
        }

        #[test]
        fn what_was_packed_says_the_same(
            values in latencies(), more in latencies(), share in 0.0f64..1.0, value in any::<u64>()
        ) {
            let whole = of(&values);
            let mut packed = whole.packed();
            prop_assert_eq!(&packed, &whole);
            prop_assert_eq!(packed.count(), whole.count());
            for share in [0.0, share, 0.5, 0.99, 1.0] {
                prop_assert_eq!(packed.quantile_ns(share), whole.quantile_ns(share), "{}", share);
            }
            prop_assert_eq!(packed.stddev_ns(), whole.stddev_ns());
            prop_assert_eq!(packed.mean_ns(), whole.mean_ns());
            for value in values.iter().chain([&value]) {
                let shares = (packed.share_at_or_below(*value), whole.share_at_or_below(*value));
                prop_assert_eq!(shares.0, shares.1);
            }
            let json = serde_json::to_string(&packed).unwrap();
            prop_assert_eq!(json, serde_json::to_string(&whole).unwrap());
            let (mut one, mut other) = (packed.clone(), whole.clone());
            one.merge(&of(&more));
            other.merge(&of(&more));
            prop_assert_eq!(&one, &other);
            let mut both = of(&more);
            both.merge(&packed);
            prop_assert_eq!(&both, &other);
            packed.clear();
            prop_assert!(packed.is_empty());
        }

        #[test]
        fn quantiles_are_within_a_thousandth(values in latencies(), share in 0.0f64..1.0) {
            prop_assume!(!values.is_empty());
            // What is longer is in the last bucket, whatever it was.
            let limited = values.iter().map(|&value| value.min(Histogram::VALUE_NS_MAX));
            let mut sorted: Vec<u64> = limited.collect();
            sorted.sort_unstable();
            let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
            let exact = sorted[rank - 1] as f64;
            let found = of(&sorted).quantile_ns(share).unwrap() as f64;
            prop_assert!((found - exact).abs() <= exact * 0.001 + 1.0, "{found} for {exact}");
        }
    }

    #[test]
    fn exact_figures_that_contradict_the_buckets_are_refused() {
        let json = serde_json::to_value(of(&[1_000_000, 2_000_000, 3_000_000])).unwrap();
        let one = serde_json::to_value(of(&[1_000_000])).unwrap();
        let empty = serde_json::to_value(Histogram::new()).unwrap();
        let refusals = [
            (
                &json,
                r#"{"min_ns": 9000000, "max_ns": 5}"#,
                "min_ns 9000000",
            ),
            (&json, r#"{"min_ns": 9000000, "max_ns": null}"#, "min_ns"),
            (&json, r#"{"min_ns": null, "max_ns": 5}"#, "max_ns 5"),
            (&json, r#"{"mean_ns": 3000500.0}"#, "mean_ns 3000500"),
            (&json, r#"{"mean_ns": -1.0}"#, "mean_ns -1"),
            (&one, r#"{"min_ns": 1000001}"#, "above max_ns"),
            (&empty, r#"{"max_ns": 5}"#, "without values"),
        ];
        for (json, change, sentence) in refusals {
            let error = read_with(json, change).unwrap_err().to_string();
            assert!(error.contains(sentence), "{change}: {error}");
        }
    }

    #[test]
    fn one_exact_figure_alone_is_enough() {
        let json = serde_json::to_value(of(&[5_000_001, 5_000_002])).unwrap();
        for change in [
            r#"{"min_ns": null, "mean_ns": null}"#,
            r#"{"max_ns": null, "mean_ns": null}"#,
        ] {
            let read = read_with(&json, change).unwrap();
            assert!(read.min_ns() <= read.max_ns(), "{read:?}");
            assert!(read.quantile_ns(0.5).is_some());
        }
    }

    /// A histogram's JSON with some of its members replaced.
    fn read_with(json: &serde_json::Value, change: &str) -> serde_json::Result<Histogram> {
        let mut json = json.clone();
        let change: serde_json::Map<_, _> = serde_json::from_str(change).unwrap();
        json.as_object_mut().unwrap().extend(change);
        serde_json::from_value(json)
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let empty = Histogram::new();
        assert_eq!(
            (empty.min_ns(), empty.quantile_ns(0.5), empty.mean_ns()),
            (None, None, None)
        );
    }

    #[test]
    fn a_value_beyond_the_range_keeps_its_exact_maximum() {
        let histogram = of(&[Histogram::VALUE_NS_MAX * 3]);
        assert_eq!(histogram.count(), 1);
        assert_eq!(histogram.max_ns(), Some(Histogram::VALUE_NS_MAX * 3));
    }

    #[test]
    fn the_tail_is_what_lies_above_the_quantile() {
        let values: Vec<u64> = (1..=1000).map(|value| value * 1_000_000).collect();
        let tail: u64 = of(&values)
            .buckets_above(0.99)
            .map(|bucket| bucket.count)
            .sum();
        assert!((9..=10).contains(&tail), "{tail}");
    }

    #[test]
    fn a_cleared_histogram_starts_over() {
        let mut histogram = of(&[5, 6]);
        histogram.clear();
        assert_eq!(histogram, Histogram::new());
    }
}
