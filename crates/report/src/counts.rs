//! The counters of a cell: messages, bytes, rates, connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of the messages. A message expects `replies` replies; `received` counts replies,
/// and `lost = sent x replies - distinct replies`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Messages {
    /// Messages handed to a socket.
    pub sent: u64,
    /// Replies that arrived, duplicates included.
    pub received: u64,
    /// Replies that never arrived before the drain ended.
    pub lost: u64,
    /// Replies that arrived more often than expected.
    pub duplicate: u64,
    /// Replies that overtook an earlier one of the same connection.
    pub reordered: u64,
    /// Replies whose content is not what the server was sent.
    pub corrupt: u64,
    /// Messages due that could not be handed over at once because the socket or its queue was
    /// full; they were sent later, and that wait is part of the response time.
    pub backpressured: u64,
    /// Messages that were due and never sent, because the run or the connection ended first.
    pub unsent: u64,
    /// Messages nobody asked for.
    pub unexpected: u64,
}

/// Bytes on the wire above TCP: handshakes, frame headers and TLS records included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Bytes {
    /// Bytes sent to the server.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}

/// Rates over the sending phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rate {
    /// Messages per second the scenario asked for; `None` in a closed loop.
    pub target_per_s: Option<f64>,
    /// Messages per second sent.
    pub sent_per_s: f64,
    /// Replies per second received.
    pub received_per_s: f64,
    /// Messages per second of the connection that sent the least of all that were up; `None` where
    /// each sends a set number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_each_per_s: Option<f64>,
    /// Of the one that sent the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_each_per_s: Option<f64>,
    /// Length of the sending phase in seconds.
    pub duration_s: f64,
}

/// The connections of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Connects {
    /// Connections that completed their handshake.
    pub ok: u64,
    /// Connections given up.
    pub failed: u64,
    /// Attempts made again after a failure.
    pub retried: u64,
    /// Connections made again after they had been up.
    pub reconnected: u64,
    /// Connections that were lost before this end wanted it.
    pub disconnected: u64,
    /// Those that agreed on compression, each time they were made; `None` if it was not offered.
    pub compressed: Option<u64>,
    /// Milliseconds from the first attempt until every connection was up; `None` if never.
    pub all_online_ms: Option<f64>,
}
