//! The buckets of a histogram: all of them while it is recorded, and afterwards those alone that
//! hold something. A battle has thousands of histograms, and one of all buckets takes 270 KiB.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::{Bucket, Histogram, SIGNIFICANT_DIGITS};

type Dense = hdrhistogram::Histogram<u64>;

#[derive(Clone)]
pub(super) enum Buckets {
    /// Recording into it never allocates.
    Dense(Dense),
    /// The largest value of each bucket from the smallest up, and how many values are in it; and
    /// how many there are.
    Sparse {
        counts: Box<[(u64, u64)]>,
        total: u64,
    },
}

/// Knows the edges of all buckets, and holds nothing.
static SCALE: LazyLock<Dense> = LazyLock::new(empty);

fn empty() -> Dense {
    Dense::new_with_bounds(1, Histogram::VALUE_NS_MAX, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that HdrHistogram accepts")
}

impl Buckets {
    pub(super) fn new() -> Self {
        Self::Dense(empty())
    }

    /// Without those that hold nothing.
    pub(super) fn packed(&self) -> Self {
        let counts = self.iter().map(|bucket| (bucket.high_ns, bucket.count));
        Self::Sparse {
            counts: counts.collect(),
            total: self.total(),
        }
    }

    /// All of them, to record into.
    pub(super) fn unpacked(&mut self) -> &mut Dense {
        if let Self::Sparse { .. } = self {
            *self = Self::Dense(self.dense().into_owned());
        }
        match self {
            Self::Dense(dense) => dense,
            Self::Sparse { .. } => unreachable!("it was unpacked above"),
        }
    }

    /// All of them, as other programs know them.
    pub(super) fn dense(&self) -> Cow<'_, Dense> {
        match self {
            Self::Dense(dense) => Cow::Borrowed(dense),
            Self::Sparse { counts, .. } => {
                let mut dense = empty();
                for (value, count) in counts {
                    dense.saturating_record_n(*value, *count);
                }
                Cow::Owned(dense)
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let dense = self.unpacked();
        match other {
            Self::Dense(other) => dense
                .add(other)
                .expect("every histogram of a run has the same bounds"),
            Self::Sparse { counts, .. } => {
                for (value, count) in counts {
                    dense.saturating_record_n(*value, *count);
                }
            }
        }
    }

    pub(super) fn total(&self) -> u64 {
        match self {
            Self::Dense(dense) => dense.len(),
            Self::Sparse { total, .. } => *total,
        }
    }

    /// Those that hold something, from the smallest value up.
    pub(super) fn iter(&self) -> impl Iterator<Item = Bucket> + '_ {
        let (dense, sparse) = match self {
            Self::Dense(dense) => (Some(dense), None),
            Self::Sparse { counts, .. } => (None, Some(counts)),
        };
        let dense = dense.into_iter().flat_map(Dense::iter_recorded);
        let dense = dense.map(|step| (step.value_iterated_to(), step.count_at_value()));
        let sparse = sparse.into_iter().flatten().copied();
        dense.chain(sparse).map(|(value, count)| Bucket {
            low_ns: SCALE.lowest_equivalent(value),
            high_ns: SCALE.highest_equivalent(value),
            count,
        })
    }

    pub(super) fn value_at_quantile(&self, quantile: f64) -> u64 {
        let Self::Sparse { total, .. } = self else {
            return self.dense().value_at_quantile(quantile);
        };
        let wanted = ((quantile.clamp(0.0, 1.0) * *total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = self.iter().find(|bucket| {
            seen += bucket.count;
            seen >= wanted
        });
        reached.map_or(0, |bucket| match quantile {
            0.0 => bucket.low_ns,
            _ => bucket.high_ns,
        })
    }

    /// Share of the values in buckets up to that of `value`; 1 while empty.
    pub(super) fn share_at_or_below(&self, value: u64) -> f64 {
        let Self::Sparse { total: all, .. } = self else {
            return self.dense().quantile_below(value);
        };
        if *all == 0 {
            return 1.0;
        }
        let low = self.iter().take_while(|bucket| bucket.low_ns <= value);
        low.map(|bucket| bucket.count).sum::<u64>() as f64 / *all as f64
    }

    pub(super) fn stdev(&self) -> f64 {
        if self.total() == 0 {
            return 0.0;
        }
        let total = self.total() as f64;
        let middles = || {
            self.iter().map(|bucket| {
                let middle = SCALE.median_equivalent(bucket.low_ns) as f64;
                (middle, bucket.count as f64)
            })
        };
        let mean = middles().map(|(middle, count)| middle * count).sum::<f64>() / total;
        let squares = middles().map(|(middle, count)| (middle - mean).powi(2) * count);
        (squares.sum::<f64>() / total).sqrt()
    }
}

impl PartialEq for Buckets {
    fn eq(&self, other: &Self) -> bool {
        self.total() == other.total() && self.iter().eq(other.iter())
    }
}
