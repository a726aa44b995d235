//! One direction of the link as a pure FIFO: packets in, the same packets out later.
//!
//! The caller passes the time in, so every property of the link (never early, in order, the queue
//! bound, loss, rate) is tested without a clock. Packets lie in one ring of bytes and are read
//! from the device straight into it.

use std::collections::VecDeque;

use super::LinkSpec;

/// What became of a packet offered to the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It will come out at its release time.
    Held,
    /// Dropped at random, as the loss of the link asks for.
    Lost,
    /// Dropped because the line already holds its bound of bytes.
    QueueFull,
}

/// A FIFO of packets, each with a release time that never runs backwards.
#[derive(Debug)]
pub(crate) struct DelayLine {
    delay_ns: u64,
    jitter_ns: u64,
    loss: f64,
    rate_bytes_per_s: Option<u64>,
    /// Bound on `held_bytes`; packets in flight count, as in netem's limit.
    queue_bytes_max: usize,
    /// Packets back to back. Invariant: `len == queue_bytes_max + 2 * PACKET_BYTES_MAX`, so that
    /// `slot` always finds a whole free packet (a packet never wraps around the end).
    ring: Box<[u8]>,
    /// Where the next packet will be written. Invariant: `write_at + PACKET_BYTES_MAX <= len`.
    write_at: usize,
    packets: VecDeque<Held>,
    /// Sum of the lengths in `packets`. Invariant: `held_bytes <= queue_bytes_max`.
    held_bytes: usize,
    /// When the bottleneck has sent everything accepted so far.
    wire_free_ns: u64,
    /// The release time of the last packet accepted: later ones never come out before it.
    last_release_ns: u64,
    random: fastrand::Rng,
}

impl DelayLine {
    /// An empty line. `seed` fixes the jitter and the losses.
    pub(crate) fn new(spec: &LinkSpec, seed: u64) -> Self {
        let ring = vec![0_u8; spec.queue_bytes + 2 * PACKET_BYTES_MAX].into_boxed_slice();
        Self {
            delay_ns: nanoseconds(spec.delay),
            jitter_ns: nanoseconds(spec.jitter),
            loss: spec.loss,
            rate_bytes_per_s: spec.rate_bytes_per_s,
            queue_bytes_max: spec.queue_bytes,
            ring,
            write_at: 0,
            packets: VecDeque::new(),
            held_bytes: 0,
            wire_free_ns: 0,
            last_release_ns: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Room for one packet of any size. What is written there counts only after `commit`.
    pub(crate) fn slot(&mut self) -> &mut [u8] {
        if self.packets.is_empty() {
            self.write_at = 0;
        }
        &mut self.ring[self.write_at..self.write_at + PACKET_BYTES_MAX]
    }

    /// Takes the first `length` bytes of the slot as a packet that arrived at `now_ns`.
    pub(crate) fn commit(&mut self, length: usize, now_ns: u64) -> Fate {
        assert!(
            length <= PACKET_BYTES_MAX,
            "a packet is no longer than its slot"
        );
        if self.loss > 0.0 && self.random.f64() < self.loss {
            return Fate::Lost;
        }
        if self.held_bytes + length > self.queue_bytes_max {
            return Fate::QueueFull;
        }
        let release_ns = self.release_time(length, now_ns);
        self.packets.push_back(Held {
            start: self.write_at,
            length,
            release_ns,
        });
        self.held_bytes += length;
        self.last_release_ns = release_ns;
        self.write_at += length;
        if self.write_at + PACKET_BYTES_MAX > self.ring.len() {
            self.write_at = 0;
        }
        Fate::Held
    }

    /// The oldest packet and its release time, if that time has come.
    pub(crate) fn due(&self, now_ns: u64) -> Option<(&[u8], u64)> {
        let front = self
            .packets
            .front()
            .filter(|packet| packet.release_ns <= now_ns)?;
        Some((
            &self.ring[front.start..front.start + front.length],
            front.release_ns,
        ))
    }

    /// Forgets the oldest packet.
    pub(crate) fn pop(&mut self) {
        if let Some(packet) = self.packets.pop_front() {
            self.held_bytes -= packet.length;
        }
    }

    /// When the oldest packet may come out.
    pub(crate) fn next_release_ns(&self) -> Option<u64> {
        self.packets.front().map(|packet| packet.release_ns)
    }

    /// How long a packet that came at `now_ns` would queue for the bottleneck.
    pub(crate) fn backlog_ns(&self, now_ns: u64) -> u64 {
        self.wire_free_ns.saturating_sub(now_ns)
    }

    /// Bytes in the line now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn release_time(&mut self, length: usize, now_ns: u64) -> u64 {
        let mut departure_ns = now_ns;
        if let Some(rate) = self.rate_bytes_per_s {
            let sending_ns = length as u128 * 1_000_000_000 / u128::from(rate.max(1));
            departure_ns = self.wire_free_ns.max(now_ns) + sending_ns as u64;
            self.wire_free_ns = departure_ns;
        }
        let jitter_ns = match self.jitter_ns {
            0 => 0,
            most => self.random.u64(0..=most),
        };
        (departure_ns + self.delay_ns + jitter_ns).max(self.last_release_ns)
    }
}

/// The largest packet a TUN device hands over: an IPv4 packet of 65,535 bytes and the virtio
/// header before it, rounded up.
pub(crate) const PACKET_BYTES_MAX: usize = 66 * 1024;

#[derive(Debug)]
struct Held {
    start: usize,
    length: usize,
    release_ns: u64,
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    fn spec() -> LinkSpec {
        LinkSpec {
            delay: Duration::from_millis(20),
            ..LinkSpec::default()
        }
    }

    fn offer(line: &mut DelayLine, byte: u8, length: usize, now_ns: u64) -> Fate {
        line.slot()[..length].fill(byte);
        line.commit(length, now_ns)
    }

    fn drain(line: &mut DelayLine, now_ns: u64) -> Vec<(u8, usize, u64)> {
        let mut out = Vec::new();
        while let Some((bytes, release_ns)) = line.due(now_ns) {
            assert!(
                bytes.iter().all(|byte| *byte == bytes[0]),
                "packets do not overlap"
            );
            out.push((bytes[0], bytes.len(), release_ns));
            line.pop();
        }
        out
    }

    #[test]
    fn a_packet_comes_out_after_the_delay_and_not_before() {
        let mut line = DelayLine::new(&spec(), 1);
        assert_eq!(offer(&mut line, 7, 100, 5 * MS), Fate::Held);
        assert_eq!(line.next_release_ns(), Some(25 * MS));
        assert!(line.due(25 * MS - 1).is_none());
        assert_eq!(drain(&mut line, 25 * MS), vec![(7, 100, 25 * MS)]);
        assert_eq!(line.held_bytes(), 0);
    }

    #[test]
    fn jitter_only_adds_and_keeps_the_order() {
        let spec = LinkSpec {
            jitter: Duration::from_millis(5),
            ..spec()
        };
        let mut line = DelayLine::new(&spec, 42);
        for n in 0..200_u8 {
            offer(&mut line, n, 64, u64::from(n) * 100_000);
        }
        let out = drain(&mut line, u64::MAX);
        for (n, (byte, _, release_ns)) in out.iter().enumerate() {
            assert_eq!(usize::from(*byte), n, "in order");
            let delayed_ns = release_ns - n as u64 * 100_000;
            assert!(
                (20 * MS..=25 * MS).contains(&delayed_ns),
                "{n}: {delayed_ns}"
            );
        }
        assert!(
            out.iter()
                .any(|(byte, _, at)| at - u64::from(*byte) * 100_000 > 23 * MS)
        );
    }

    #[test]
    fn the_queue_bound_drops_the_newcomer() {
        let spec = LinkSpec {
            queue_bytes: 1000,
            ..spec()
        };
        let mut line = DelayLine::new(&spec, 1);
        assert_eq!(offer(&mut line, 1, 600, 0), Fate::Held);
        assert_eq!(offer(&mut line, 2, 600, 0), Fate::QueueFull);
        assert_eq!(offer(&mut line, 3, 400, 0), Fate::Held);
        assert_eq!(drain(&mut line, 20 * MS).len(), 2);
        assert_eq!(offer(&mut line, 4, 1000, 30 * MS), Fate::Held);
    }

    #[test]
    fn loss_is_as_frequent_as_asked() {
        let spec = LinkSpec {
            loss: 0.01,
            ..spec()
        };
        let mut line = DelayLine::new(&spec, 3);
        let lost = (0..100_000_u64)
            .filter(|n| {
                let fate = offer(&mut line, 0, 64, *n);
                drain(&mut line, u64::MAX);
                fate == Fate::Lost
            })
            .count();
        assert!((850..1150).contains(&lost), "seed 3 lost {lost} of 100,000");
    }

    #[test]
    fn a_rate_spaces_the_packets_of_a_burst() {
        let spec = LinkSpec {
            rate_bytes_per_s: Some(1_000_000),
            ..spec()
        };
        let mut line = DelayLine::new(&spec, 1);
        for _ in 0..3 {
            offer(&mut line, 0, 1000, 0);
        }
        let releases: Vec<u64> = drain(&mut line, u64::MAX).iter().map(|out| out.2).collect();
        assert_eq!(releases, vec![21 * MS, 22 * MS, 23 * MS]);
    }

    #[test]
    fn the_backlog_is_what_a_newcomer_queues_for_the_bottleneck() {
        let mut delayed = DelayLine::new(&spec(), 1);
        offer(&mut delayed, 0, 1000, 0);
        assert_eq!(delayed.backlog_ns(0), 0, "a delay alone is no queue");
        let spec = LinkSpec {
            rate_bytes_per_s: Some(1_000_000),
            ..spec()
        };
        let mut line = DelayLine::new(&spec, 1);
        offer(&mut line, 0, 1000, 0);
        offer(&mut line, 0, 1000, 0);
        assert_eq!(line.backlog_ns(MS / 2), 3 * MS / 2);
        assert_eq!(line.backlog_ns(3 * MS), 0);
    }

    #[test]
    fn the_ring_wraps_many_times_without_mixing_packets() {
        let spec = LinkSpec {
            queue_bytes: 300_000,
            ..spec()
        };
        let mut line = DelayLine::new(&spec, 1);
        let mut random = fastrand::Rng::with_seed(9);
        let (mut offered, mut seen) = (0_u64, 0_u64);
        let mut lengths = VecDeque::new();
        for now_ns in (0..4_000).map(|step| step * MS) {
            for _ in 0..random.usize(0..4) {
                let length = random.usize(1..=PACKET_BYTES_MAX);
                if offer(&mut line, offered as u8, length, now_ns) == Fate::Held {
                    lengths.push_back(length);
                    offered += 1;
                }
            }
            for (byte, length, _) in drain(&mut line, now_ns) {
                assert_eq!(byte, seen as u8);
                assert_eq!(Some(length), lengths.pop_front());
                seen += 1;
            }
        }
        assert!(seen > 500, "{seen} packets went through, 300 KB at a time");
    }
}
