//! The summary of a histogram: the figures a reader asks for, in microseconds.

use schemars::JsonSchema;
use serde::Serialize;

use crate::histogram::Histogram;

/// The figures of one latency in microseconds, to the nanosecond. All but `count` are `None`
/// when nothing was recorded: an empty set has no mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Exact minimum.
    pub min_us: Option<f64>,
    /// Exact mean.
    pub mean_us: Option<f64>,
    /// Standard deviation.
    pub stddev_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 66th percentile.
    pub p66_us: Option<f64>,
    /// 75th percentile.
    pub p75_us: Option<f64>,
    /// 80th percentile.
    pub p80_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 98th percentile.
    pub p98_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p99_9_us: Option<f64>,
    /// 99.99th percentile.
    pub p99_99_us: Option<f64>,
    /// Exact maximum.
    pub max_us: Option<f64>,
}

impl Quantiles {
    /// The figures of `histogram`.
    pub fn of(histogram: &Histogram) -> Self {
        let quantile = |quantile| {
            histogram
                .quantile_ns(quantile)
                .map(|ns| microseconds(ns as f64))
        };
        Self {
            count: histogram.count(),
            min_us: histogram.min_ns().map(|ns| microseconds(ns as f64)),
            mean_us: histogram.mean_ns().map(microseconds),
            stddev_us: histogram.stddev_ns().map(microseconds),
            p50_us: quantile(0.50),
            p66_us: quantile(0.66),
            p75_us: quantile(0.75),
            p80_us: quantile(0.80),
            p90_us: quantile(0.90),
            p95_us: quantile(0.95),
            p98_us: quantile(0.98),
            p99_us: quantile(0.99),
            p99_9_us: quantile(0.999),
            p99_99_us: quantile(0.9999),
            max_us: histogram.max_ns().map(|ns| microseconds(ns as f64)),
        }
    }
}

/// Nanoseconds as microseconds, rounded to the nanosecond.
pub(crate) fn microseconds(ns: f64) -> f64 {
    ns.round() / 1000.0
}
