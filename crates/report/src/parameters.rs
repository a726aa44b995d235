//! What tells the cells of a sweep apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stage;

/// What a sweep varies. `None` where the scenario has no such thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Parameters {
    /// Connections.
    pub clients: u64,
    /// Messages per batch.
    pub batch: Option<u64>,
    /// Milliseconds between batches.
    pub wait_ms: Option<f64>,
    /// Time over which the clients' first batches are spread, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stagger_ms: Option<f64>,
    /// Payload size in bytes.
    #[serde(rename = "message_size")]
    pub message_bytes: u64,
    /// Batches per client.
    pub batches: Option<u64>,
    /// Replies expected per message.
    pub replies: u64,
    /// Total messages per second asked for; those before the first stage, where there are stages.
    pub rate_per_s: Option<f64>,
    /// How that rate changes over time, as typed: `10s:1000,30s:5000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<String>,
    /// Most messages in flight per connection.
    pub in_flight: Option<u64>,
    /// Messages of one connection before it closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_connection: Option<u64>,
    /// Most connections open at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_max: Option<u64>,
    /// From a reply to the next message of its connection, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_ms: Option<f64>,
    /// Connections that publish what all of them hear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publishers: Option<u64>,
    /// Connections among them that do not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<u64>,
    /// Handshakes in flight at once, where they are varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_concurrency: Option<u64>,
    /// What follows a lost connection, where it is varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnect: Option<String>,
    /// Delay of the link per direction, milliseconds.
    pub link_delay_ms: Option<f64>,
    /// Jitter of the link per direction, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_jitter_ms: Option<f64>,
    /// Share of packets that the link was to drop, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_loss: Option<f64>,
    /// Bottleneck of the link per direction, bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_rate_bit_per_s: Option<u64>,
    /// Bytes that the link was to hold at most per direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_queue_bytes: Option<u64>,
}

/// Who sets the pace of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// A rate or an interval, which waits for nobody.
    Open,
    /// The replies.
    Closed,
    /// Nobody: there are no messages.
    Idle,
}

impl Parameters {
    /// Who sets the pace.
    pub(crate) fn kind(&self) -> Loop {
        let is_open = self.rate_per_s.is_some() || self.stages.is_some() || self.wait_ms.is_some();
        match (is_open, self.in_flight) {
            (true, _) => Loop::Open,
            (false, Some(_)) => Loop::Closed,
            (false, None) => Loop::Idle,
        }
    }

    /// Whether the clients send within a part of the wait only.
    pub(crate) fn is_bunched(&self) -> bool {
        self.stagger_ms.is_some() && self.stagger_ms != self.wait_ms
    }

    /// A name for files and tables that holds every parameter: `c1000_b1_n20_w1000_s1024_r4`.
    pub fn key(&self) -> String {
        let mut key = format!("c{}", self.clients);
        let mut part = |letter: &str, value: Option<f64>, unit: &str| {
            if let Some(value) = value {
                key.push_str(&format!("_{letter}{value}{unit}"));
            }
        };
        let count = |value: u64| Some(value as f64);
        part("b", self.batch.and_then(count), "");
        part("n", self.batches.and_then(count), "");
        part("w", self.wait_ms, "");
        // Spread over the whole wait is what is meant when nothing is said.
        part("g", self.stagger_ms.filter(|_| self.is_bunched()), "");
        part("q", self.rate_per_s, "");
        if let Some(stages) = &self.stages {
            key.push_str(&stage::key(stages));
        }
        let mut part = |letter: &str, value: Option<f64>, unit: &str| {
            if let Some(value) = value {
                key.push_str(&format!("_{letter}{value}{unit}"));
            }
        };
        part("p", self.in_flight.and_then(count), "");
        part("m", self.messages_per_connection.and_then(count), "");
        part("o", self.open_max.and_then(count), "");
        part("t", self.think_ms, "");
        part("pub", self.publishers.and_then(count), "");
        part("silent", self.silent.and_then(count), "");
        part("h", self.connect_concurrency.and_then(count), "");
        part("s", count(self.message_bytes), "");
        part("r", count(self.replies), "");
        part("l", self.link_delay_ms, "ms");
        part("j", self.link_jitter_ms, "ms");
        part("loss", self.link_loss, "");
        part("rate", self.link_rate_bit_per_s.and_then(count), "");
        part("queue", self.link_queue_bytes.and_then(count), "");
        if let Some(reconnect) = &self.reconnect {
            let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '.';
            key.push('_');
            key.extend(
                reconnect
                    .chars()
                    .map(|c| if is_plain(&c) { c } else { '-' }),
            );
        }
        key
    }
}
