//! What the link counts about itself: one writer (the forwarder), readers at any time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

/// What the link carried, dropped and cost between two readings.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LinkStats {
    /// From the client to the server.
    pub up: DirectionStats,
    /// From the server to the client.
    pub down: DirectionStats,
    /// CPU time of the forwarder's thread, the receiving side's TCP work included (it runs inside
    /// the forwarder's writes). Zero where the kernel does the delaying.
    pub cpu_ns: u64,
    /// Wall time between the two readings.
    pub wall_ns: u64,
}

impl LinkStats {
    /// Packets that did not arrive, for whatever reason, in both directions.
    pub fn dropped_packets(&self) -> u64 {
        self.up.dropped_packets() + self.down.dropped_packets()
    }

    /// Share of the forwarder's work in which the host ran something else, 0 to 1; `None` when it
    /// worked too little to tell.
    pub(crate) fn taken_share(&self) -> Option<f64> {
        let busy_ns = self.up.busy_ns + self.down.busy_ns;
        let taken_ns = self.up.taken_ns + self.down.taken_ns;
        (busy_ns >= BUSY_NS_MIN).then(|| taken_ns as f64 / busy_ns as f64)
    }

    /// Share of one core that the forwarder used.
    pub fn cpu_share(&self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// One direction of the link.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DirectionStats {
    /// Packets delivered. With segmentation offload one packet may carry up to 64 KiB.
    pub packets: u64,
    /// Bytes delivered, IP headers included.
    pub bytes: u64,
    /// Dropped because the line held its bound of bytes.
    pub dropped_queue: u64,
    /// Dropped at random because a loss was asked for.
    pub dropped_loss: u64,
    /// Dropped by the device's own queue before the forwarder could read them.
    pub dropped_device: u64,
    /// Refused by the receiving device.
    pub dropped_write: u64,
    /// Most bytes held at once.
    pub queue_bytes_max: u64,
    /// How much later than asked packets were released: median, nanoseconds.
    pub lateness_p50_ns: u64,
    /// The same, 99th percentile.
    pub lateness_p99_ns: u64,
    /// The same, the latest packet (upper edge of its bucket, at most 12.5 % too large).
    pub lateness_max_ns: u64,
    /// How long packets may have waited in the device before they were read, which comes on top
    /// of the delay: the time since the device was last seen empty, 99th percentile. An upper
    /// bound; it grows when the forwarder cannot keep up.
    pub waited_p99_ns: u64,
    /// The same, the largest.
    pub waited_max_ns: u64,
    /// Time the forwarder spent on packets, one after the other; zero without real-time priority.
    pub busy_ns: u64,
    /// The part of it spent on packets that took longer than one can: the host ran something else.
    pub taken_ns: u64,
}

impl DirectionStats {
    /// Packets of this direction that did not arrive.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped_queue + self.dropped_loss + self.dropped_device + self.dropped_write
    }
}

/// The counters of one direction as the forwarder writes them.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) dropped_queue: AtomicU64,
    pub(crate) dropped_loss: AtomicU64,
    pub(crate) dropped_write: AtomicU64,
    /// Most bytes held since the last `reading(true)`.
    pub(crate) queue_bytes_max: AtomicU64,
    busy_ns: AtomicU64,
    taken_ns: AtomicU64,
    lateness: AtomicHistogram,
    waited: AtomicHistogram,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped_queue: AtomicU64::new(0),
            dropped_loss: AtomicU64::new(0),
            dropped_write: AtomicU64::new(0),
            queue_bytes_max: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            taken_ns: AtomicU64::new(0),
            lateness: AtomicHistogram::new(),
            waited: AtomicHistogram::new(),
        }
    }

    /// Counts a packet that had waited at most `waited_ns` in the device.
    pub(crate) fn read(&self, waited_ns: u64) {
        self.waited.count(waited_ns);
    }

    /// Counts a packet that was released `late_ns` after its release time.
    pub(crate) fn released(&self, bytes: usize, late_ns: u64) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.lateness.count(late_ns);
    }

    /// Counts what one packet took a thread that nothing in this machine interrupts.
    pub(crate) fn worked(&self, passed_ns: u64) {
        self.busy_ns.fetch_add(passed_ns, Relaxed);
        if passed_ns >= PACKET_NS_MAX {
            self.taken_ns.fetch_add(passed_ns, Relaxed);
        }
    }

    /// Notes how many bytes the line holds; returns the mark before.
    pub(crate) fn held(&self, bytes: usize) -> u64 {
        self.queue_bytes_max.fetch_max(bytes as u64, Relaxed)
    }

    /// The counters now. `restart` begins a new high-water mark of the queue.
    pub(crate) fn reading(&self, dropped_device: u64, restart: bool) -> Reading {
        let queue_bytes_max = match restart {
            true => self.queue_bytes_max.swap(0, Relaxed),
            false => self.queue_bytes_max.load(Relaxed),
        };
        Reading {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            dropped_queue: self.dropped_queue.load(Relaxed),
            dropped_loss: self.dropped_loss.load(Relaxed),
            dropped_write: self.dropped_write.load(Relaxed),
            dropped_device,
            queue_bytes_max,
            busy_ns: self.busy_ns.load(Relaxed),
            taken_ns: self.taken_ns.load(Relaxed),
            lateness: self.lateness.counts(),
            waited: self.waited.counts(),
        }
    }
}

/// The counters of one direction at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped_queue: u64,
    pub(crate) dropped_loss: u64,
    pub(crate) dropped_write: u64,
    pub(crate) dropped_device: u64,
    pub(crate) queue_bytes_max: u64,
    pub(crate) busy_ns: u64,
    pub(crate) taken_ns: u64,
    pub(crate) lateness: Vec<u64>,
    pub(crate) waited: Vec<u64>,
}

impl Reading {
    /// What happened between `earlier` and this reading; nothing where a counter went back, as
    /// all do when a device was gone or its counters could not be read.
    pub(crate) fn since(&self, earlier: &Self) -> DirectionStats {
        let lateness = difference(&self.lateness, &earlier.lateness);
        let waited = difference(&self.waited, &earlier.waited);
        DirectionStats {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            dropped_queue: self.dropped_queue.saturating_sub(earlier.dropped_queue),
            dropped_loss: self.dropped_loss.saturating_sub(earlier.dropped_loss),
            dropped_device: self.dropped_device.saturating_sub(earlier.dropped_device),
            dropped_write: self.dropped_write.saturating_sub(earlier.dropped_write),
            queue_bytes_max: self.queue_bytes_max,
            lateness_p50_ns: quantile(&lateness, 0.5),
            lateness_p99_ns: quantile(&lateness, 0.99),
            lateness_max_ns: quantile(&lateness, 1.0),
            waited_p99_ns: quantile(&waited, 0.99),
            waited_max_ns: quantile(&waited, 1.0),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            taken_ns: self.taken_ns.saturating_sub(earlier.taken_ns),
        }
    }
}

/// A packet takes the forwarder some 10 microseconds, a tenth of a millisecond with the interrupts
/// that may come in between.
const PACKET_NS_MAX: u64 = 500_000;
/// Below this, one packet would be a large share.
const BUSY_NS_MIN: u64 = 50_000_000;

/// A moment to measure from: what `Link::mark` returns.
#[derive(Debug, Clone)]
pub struct LinkMark {
    pub(crate) up: Reading,
    pub(crate) down: Reading,
    pub(crate) cpu: Duration,
    pub(crate) at: std::time::Instant,
}

/// A histogram with one writer: log-linear buckets, eight to each power of two.
#[derive(Debug)]
struct AtomicHistogram([AtomicU64; BUCKETS]);

impl AtomicHistogram {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn count(&self, value: u64) {
        self.0[bucket(value)].fetch_add(1, Relaxed);
    }

    fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Relaxed)).collect()
    }
}

/// What was counted between two readings; the earlier one may be of a link that counts nothing.
fn difference(later: &[u64], earlier: &[u64]) -> Vec<u64> {
    let before = earlier.iter().copied().chain(std::iter::repeat(0));
    later
        .iter()
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before))
        .collect()
}

const SUB_BUCKETS: u64 = 8;
const BUCKETS: usize = 62 * SUB_BUCKETS as usize;

fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS {
        return value as usize;
    }
    let octave = u64::from(value.ilog2());
    ((octave - 2) * SUB_BUCKETS + (value >> (octave - 3)) - SUB_BUCKETS) as usize
}

/// The largest value of a bucket.
fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket;
    }
    let octave = bucket / SUB_BUCKETS + 2;
    let within = u128::from(bucket % SUB_BUCKETS + SUB_BUCKETS + 1);
    u64::try_from((within << (octave - 3)) - 1).unwrap_or(u64::MAX)
}

fn quantile(counts: &[u64], quantile: f64) -> u64 {
    let total: u64 = counts.iter().sum();
    let rank = ((total as f64 * quantile).ceil() as u64).max(1);
    let mut seen = 0;
    for (at, count) in counts.iter().enumerate() {
        seen += count;
        if seen >= rank {
            return upper_edge(at);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_in_a_bucket_whose_edge_is_at_most_an_eighth_above() {
        let mut random = fastrand::Rng::with_seed(5);
        let samples = (0..10_000).map(|_| random.u64(..) >> random.u32(0..64));
        for value in samples.chain(0..100).chain([u64::MAX]) {
            let edge = upper_edge(bucket(value));
            assert!(
                edge >= value && edge - value <= value / 8,
                "{value} -> {edge}"
            );
        }
    }

    #[test]
    fn an_interval_counts_only_what_happened_in_it() {
        let counters = Counters::new();
        counters.released(1000, 900_000);
        let mark = counters.reading(3, true);
        counters.read(2_000_000);
        for late_ns in [10_u64, 20, 30, 40_000] {
            counters.released(100, late_ns);
        }
        let stats = counters.reading(5, false).since(&mark);
        assert_eq!(
            (stats.packets, stats.bytes, stats.dropped_device),
            (4, 400, 2)
        );
        assert!(
            (20..=22).contains(&stats.lateness_p50_ns),
            "{}",
            stats.lateness_p50_ns
        );
        assert!((40_000..=45_000).contains(&stats.lateness_max_ns));
        assert!((2_000_000..=2_250_000).contains(&stats.waited_p99_ns));
    }

    #[test]
    fn a_reading_that_failed_counts_as_nothing() {
        let counters = Counters::new();
        counters.released(1000, 900_000);
        counters.read(1000);
        for counter in [
            &counters.dropped_queue,
            &counters.dropped_loss,
            &counters.dropped_write,
        ] {
            counter.fetch_add(1, Relaxed);
        }
        let mark = counters.reading(3, true);
        let stats = Reading::default().since(&mark);
        assert_eq!((stats.packets, stats.bytes), (0, 0));
        assert_eq!(stats.dropped_packets(), 0);
        let restarted = Counters::new().reading(0, false).since(&mark);
        assert_eq!(restarted.lateness_max_ns, 0);
    }

    #[test]
    fn an_empty_interval_has_no_lateness() {
        let counters = Counters::new();
        let mark = counters.reading(0, true);
        assert_eq!(counters.reading(0, false).since(&mark).lateness_max_ns, 0);
    }
}
