//! The ledger of one connection: what it holds in memory, and for what.

use super::{Session, Stage};
use crate::tls::Records;

/// Bytes that a connection holds in memory beyond the session itself, by what they are for. What a
/// loop lends to all its connections (buffers to receive and to open records into) is not in it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SessionMemory {
    /// The head of a request as far as it came, and the request that waits for an answer.
    pub handshake: usize,
    /// Received bytes that are kept to be looked at later.
    pub received: usize,
    /// An unfinished message or control frame, with all that belongs to it, and what compression
    /// keeps between messages.
    pub message: usize,
    /// What waits to be written: the whole buffer that is being filled, and the bytes in flight.
    pub write_queue: usize,
    /// The state of TLS, an incomplete record, and what TLS itself has to say. What the library
    /// allocates below its own state, about 1 KiB, is not seen from here.
    pub tls: usize,
}

impl SessionMemory {
    /// The names of the parts, in the order of [`parts`](Self::parts).
    pub const NAMES: [&str; 5] = ["handshake", "received", "message", "write_queue", "tls"];

    /// All parts.
    pub fn parts(&self) -> [usize; Self::NAMES.len()] {
        [
            self.handshake,
            self.received,
            self.message,
            self.write_queue,
            self.tls,
        ]
    }

    /// Their sum.
    pub fn total(&self) -> usize {
        self.handshake + self.received + self.message + self.write_queue + self.tls
    }
}

impl Session {
    /// What it holds in memory now.
    pub fn memory_bytes(&self) -> SessionMemory {
        let (handshake, message) = match &self.stage {
            Stage::Handshake(handshake) => (handshake.memory_bytes(), 0),
            Stage::Open(connection) => (0, connection.memory_bytes()),
        };
        SessionMemory {
            handshake,
            received: self.kept.memory_bytes(),
            message,
            write_queue: self.outbox.capacity() + self.in_flight_bytes,
            tls: self.tls.as_deref().map_or(0, Records::memory_bytes),
        }
    }
}
