//! What was measured.

use std::time::Duration;

/// Counts and latencies.
#[derive(Default)]
pub struct Figures {
    pub sent: u64,
    received: u64,
    latencies_us: Vec<f64>,
}

impl Figures {
    /// A message has all its replies.
    pub fn note(&mut self, latency: Duration) {
        self.received += 1;
        self.latencies_us.push(latency.as_secs_f64() * 1e6);
    }

    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.latencies_us.extend(other.latencies_us);
    }

    /// One line, as the lab reads it.
    pub fn to_json(mut self) -> String {
        self.latencies_us.sort_by(f64::total_cmp);
        let of = |share: f64| {
            let rank = (share * self.latencies_us.len() as f64).ceil() as usize;
            self.latencies_us
                .get(rank.max(1) - 1)
                .copied()
                .unwrap_or(0.0)
        };
        let count = self.latencies_us.len().max(1) as f64;
        let mean = self.latencies_us.iter().sum::<f64>() / count;
        let (sent, received) = (self.sent, self.received);
        let lost = sent - received;
        let counts = format!(r#""sent":{sent},"received":{received},"lost":{lost}"#);
        let (p50, p90, p99, max) = (of(0.5), of(0.9), of(0.99), of(1.0));
        let tail = format!(r#""p90":{p90},"p99":{p99},"max":{max}"#);
        let latency = format!(r#"{{"p50":{p50},{tail},"mean":{mean}}}"#);
        format!(r#"{{{counts},"latency_from":"sent","latency_us":{latency}}}"#)
    }
}
