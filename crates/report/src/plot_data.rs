//! Histograms turned into the points of a picture, once for SVG and for the page.

use crate::cell::Cell;
use crate::groups;
use crate::histogram::Histogram;
use crate::tables::Pick;

/// One bar of a distribution on a logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bin {
    /// Lower edge in microseconds.
    pub(crate) low_us: f64,
    /// Upper edge in microseconds.
    pub(crate) high_us: f64,
    /// Values between the edges.
    pub(crate) count: u64,
}

/// `count` bins of equal width on a logarithmic axis from the smallest to the largest value, or
/// over `range_us`. Every value is in exactly one bin; those outside the range in the first or
/// last.
pub(crate) fn log_bins(
    histogram: &Histogram,
    range_us: Option<(f64, f64)>,
    count: usize,
) -> Vec<Bin> {
    let (Some(min_ns), Some(max_ns)) = (histogram.min_ns(), histogram.max_ns()) else {
        return Vec::new();
    };
    let own_range = || (min_ns.max(1) as f64 / 1e3, max_ns.max(1) as f64 / 1e3);
    let (low_us, high_us) = range_us.unwrap_or_else(own_range);
    if high_us <= low_us {
        return vec![Bin {
            low_us,
            high_us,
            count: histogram.count(),
        }];
    }
    let (low, width) = (low_us.ln(), (high_us / low_us).ln() / count as f64);
    let edge = |index: usize| (low + width * index as f64).exp();
    let mut bins: Vec<Bin> = (0..count)
        .map(|index| Bin {
            low_us: edge(index),
            high_us: edge(index + 1),
            count: 0,
        })
        .collect();
    for bucket in histogram.buckets() {
        let middle_us = (bucket.low_ns.midpoint(bucket.high_ns)).max(1) as f64 / 1e3;
        let index = ((middle_us.ln() - low) / width).max(0.0) as usize;
        bins[index.min(count - 1)].count += bucket.count;
    }
    bins
}

/// The values above `quantile`, over a range of their own: from the value at `quantile` to a little
/// beyond the largest. At most `count` bins, and none when nothing is above.
pub(crate) fn tail_bins(
    histogram: &Histogram,
    quantile: f64,
    count: usize,
) -> Option<((f64, f64), Vec<Bin>)> {
    let low_us = histogram.quantile_ns(quantile)?.max(1) as f64 / 1e3;
    let high_us = histogram.max_ns()?.max(1) as f64 / 1e3;
    let margin = (high_us / low_us).powf(TAIL_MARGIN).max(TAIL_MARGIN_MIN);
    let range_us = (low_us, high_us * margin);
    let mut tail = Histogram::new();
    for bucket in histogram.buckets_above(quantile) {
        tail.record_n(bucket.low_ns.midpoint(bucket.high_ns), bucket.count);
    }
    // Bins narrower than the buckets would make a comb of them.
    let told_apart = (range_us.1 / range_us.0).ln() / BIN_WIDTH_MIN;
    let count = count.min(told_apart as usize).max(1);
    Some((range_us, log_bins(&tail, Some(range_us), count)))
}

/// The values of one latency at quantiles that are evenly spaced on an axis of `1 / (1 - q)`, as
/// HdrHistogram plots them: pairs of `1 / (1 - q)` and microseconds.
pub(crate) fn percentile_curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let Some(max_ns) = histogram.max_ns() else {
        return Vec::new();
    };
    let last = histogram.count().max(2) as f64;
    let mut points = Vec::new();
    for step in 0.. {
        let x = 10f64.powf(f64::from(step) / POINTS_PER_DECADE);
        if x >= last {
            break;
        }
        // Up to the largest value all is the second largest, which would end in an upright line.
        if points
            .last()
            .is_some_and(|point: &(f64, f64)| point.0 > last / 2.0)
        {
            break;
        }
        if let Some(ns) = histogram.quantile_ns(1.0 - 1.0 / x) {
            points.push((x, ns as f64 / 1e3));
        }
    }
    points.push((last, max_ns as f64 / 1e3));
    points
}

/// What to know of curves of few samples; `None` where all have many.
pub(crate) fn curve_end(counts: impl Iterator<Item = u64>) -> Option<String> {
    let fewest = counts.filter(|count| *count > 0).min()?;
    (fewest < FEW_SAMPLES).then(|| {
        let percentile = (1e4 * (1.0 - 1.0 / fewest as f64)).floor() / 100.0;
        let samples = groups::plural(fewest, "sample", "s");
        format!("a curve ends where its samples do: {samples} tell nothing beyond p{percentile}")
    })
}

/// The smallest and the largest value of any cell, in microseconds.
pub(crate) fn value_range(cells: &[&Cell], pick: Pick) -> Option<(f64, f64)> {
    let histograms = || cells.iter().filter_map(|cell| pick.of(cell));
    let low_ns = histograms().filter_map(Histogram::min_ns).min()?;
    let high_ns = histograms().filter_map(Histogram::max_ns).max()?;
    Some((
        low_ns.max(1) as f64 / 1e3 * 0.97,
        high_ns.max(2) as f64 / 1e3 * 1.03,
    ))
}

/// With more of them, curves end where nobody looks.
const FEW_SAMPLES: u64 = 1000;
/// Fine enough that a step between two points is not seen.
const POINTS_PER_DECADE: f64 = 40.0;
/// Room above the largest value, as a share of the axis and at least as a factor.
const TAIL_MARGIN: f64 = 0.03;
const TAIL_MARGIN_MIN: f64 = 1.0005;
/// Two buckets of a histogram of three digits, as a logarithm.
const BIN_WIDTH_MIN: f64 = 0.002;

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp() -> Histogram {
        let mut histogram = Histogram::new();
        for us in 1..=10_000u64 {
            histogram.record(us * 1000);
        }
        histogram
    }

    #[test]
    fn every_value_is_in_one_bin() {
        for range in [None, Some((100.0, 1000.0)), Some((0.5, 50_000.0))] {
            let bins = log_bins(&ramp(), range, 30);
            assert_eq!(
                bins.iter().map(|bin| bin.count).sum::<u64>(),
                10_000,
                "{range:?}"
            );
        }
        assert!(log_bins(&Histogram::new(), None, 30).is_empty());
    }

    #[test]
    fn the_tail_holds_the_share_above_its_quantile() {
        let (range, bins) = tail_bins(&ramp(), 0.9, 20).unwrap();
        let above: u64 = bins.iter().map(|bin| bin.count).sum();
        assert!((8990.0..9020.0).contains(&range.0), "{range:?}");
        assert!((10_000.0..10_100.0).contains(&range.1), "{range:?}");
        assert!((990..=1000).contains(&above), "{above}");
    }

    #[test]
    fn a_short_tail_is_no_comb_and_an_empty_one_has_an_axis() {
        let mut histogram = Histogram::new();
        for us in 40_000..41_500u64 {
            histogram.record(us * 1000);
        }
        let (_, bins) = tail_bins(&histogram, 0.5, 90).unwrap();
        assert!((5..15).contains(&bins.len()), "{}", bins.len());
        assert!(bins[..bins.len() - 1].iter().all(|bin| bin.count > 0));
        let mut constant = Histogram::new();
        constant.record_n(40_000_000, 100);
        let (range, bins) = tail_bins(&constant, 0.9, 90).unwrap();
        assert!(range.0 < range.1 && bins.is_empty());
        assert!(tail_bins(&Histogram::new(), 0.9, 90).is_none());
    }

    #[test]
    fn a_curve_of_few_samples_ends_where_they_do_and_not_in_an_upright_line() {
        let mut few = Histogram::new();
        for us in 1..=20u64 {
            few.record(us * us * 1000);
        }
        let curve = percentile_curve(&few);
        let [.., before, last] = curve.as_slice() else {
            panic!("a curve of points")
        };
        assert_eq!(*last, (20.0, 400.0));
        assert!(before.0 < 12.0, "{before:?}");
        assert!((355.0..365.0).contains(&before.1), "{before:?}");
        let told = curve_end([20, 0, 5000].into_iter()).unwrap();
        assert!(
            told.ends_with("20 samples tell nothing beyond p95"),
            "{told}"
        );
        assert_eq!(curve_end([1000].into_iter()), None);
    }

    #[test]
    fn the_curve_starts_at_the_minimum_and_ends_at_the_maximum() {
        let curve = percentile_curve(&ramp());
        assert_eq!(curve.first(), Some(&(1.0, 1.0)));
        assert_eq!(curve.last(), Some(&(10_000.0, 10_000.0)));
        assert!(curve.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }
}
