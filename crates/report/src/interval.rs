//! One second of a run: what the plots over time and the comparison of runs are made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::latency_buckets::LatencyBuckets;
use crate::quantiles::microseconds;

/// What happened in one interval, normally a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Interval {
    /// Seconds from the start of the sending phase to the start of this interval.
    pub start_s: f64,
    /// Length in seconds.
    pub length_s: f64,
    /// Messages sent.
    pub sent: u64,
    /// Replies received.
    pub received: u64,
    /// Errors of any kind.
    pub errors: u64,
    /// Handshakes completed; the first interval has those before it, too.
    pub opened: u64,
    /// Connections up at the end of the interval.
    pub connected: u64,
    /// Messages without all their replies at the end of the interval.
    pub in_flight: u64,
    /// Response times of messages completed in the interval; `None` if there were none.
    pub response: Option<IntervalLatency>,
    /// The same in coarse buckets; empty in files from before there were any.
    #[serde(skip_serializing_if = "LatencyBuckets::is_empty")]
    pub response_buckets: LatencyBuckets,
    /// Service times, likewise.
    pub service: Option<IntervalLatency>,
    /// Send lags, likewise.
    pub send_lag: Option<IntervalLatency>,
    /// One-way latencies, likewise; `None` also where they were refused.
    pub one_way: Option<IntervalLatency>,
    /// CPU used by the server, 1.0 is one core; `None` if not sampled.
    pub server_cpu: Option<f64>,
    /// Time for which a limit kept processors from the server, milliseconds; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ms: Option<f64>,
    /// Pauses of the server's garbage collector that ended in the interval; `None` where its
    /// runtime tells none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_pauses: Option<u64>,
    /// All of them together, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_pause_ms: Option<f64>,
    /// The longest of them, milliseconds; 0 where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc_pause_max_ms: Option<f64>,
    /// Resident memory of the server in bytes; `None` if not sampled.
    pub server_rss_bytes: Option<u64>,
    /// The part of its memory that is its own, shared pages by their share (PSS), where it was
    /// looked at within the interval, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_pss_bytes: Option<u64>,
    /// Context switches of the server because a thread waited; `None` if not sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voluntary_switches: Option<u64>,
    /// Those because something else was to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub involuntary_switches: Option<u64>,
    /// TCP segments sent again in the server's network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// Connections that full listen queues turned away there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen_overflows: Option<u64>,
    /// Memory of all TCP sockets of the machine at the end of the interval, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_memory_bytes: Option<u64>,
    /// Processor time that the host gave to other guests (steal), of all processors, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stolen_ms: Option<f64>,
    /// Messages that the server says it received, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_received: Option<u64>,
    /// Messages that it says it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_sent: Option<u64>,
    /// Connections that it says it had at the end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_connected: Option<u64>,
    /// CPU used by the generator, 1.0 is one core; `None` if not sampled.
    pub generator_cpu: Option<f64>,
}

/// The latencies of one interval in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalLatency {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl IntervalLatency {
    /// The figures of a snapshot histogram, `None` if it is empty.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        let quantile_us = |quantile| {
            histogram
                .quantile_ns(quantile)
                .map(|ns| microseconds(ns as f64))
        };
        Some(Self {
            count: histogram.count(),
            mean_us: microseconds(histogram.mean_ns()?),
            p50_us: quantile_us(0.5)?,
            p90_us: quantile_us(0.9)?,
            p99_us: quantile_us(0.99)?,
            max_us: microseconds(histogram.max_ns()? as f64),
        })
    }
}
