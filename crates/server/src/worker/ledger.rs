//! What connections hold in memory, one by one and for the whole worker.

use moonwire_net::{Driver, SessionMemory, SocketId};
use tracing::warn;

use super::Desk;
use super::connections::Stage;
use crate::stats::{Failure, HandshakeFailure, WorkerStats};

/// The sums over all connections of a worker, as far as they were counted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Invariant: the sum of what the connections' `held` say.
    total_bytes: usize,
    /// The most that `total_bytes` ever was.
    peak_bytes: usize,
}

impl Ledger {
    /// A connection holds something else than before.
    fn change(&mut self, before: &SessionMemory, now: &SessionMemory, stats: &WorkerStats) {
        self.total_bytes = self.total_bytes - before.total() + now.total();
        let parts = before.parts().into_iter().zip(now.parts());
        for (gauge, (before, now)) in stats.memory_bytes.iter().zip(parts) {
            if before != now {
                gauge.sub(before as u64);
                gauge.add(now as u64);
            }
        }
        if self.total_bytes > self.peak_bytes {
            self.peak_bytes = self.total_bytes;
            stats.memory_peak_bytes.set(self.peak_bytes as u64);
        }
    }

    /// All that is counted.
    #[cfg(test)]
    pub(super) fn total_bytes(&self) -> usize {
        self.total_bytes
    }
}

impl Desk {
    /// The connections to be flushed, if there are any; from now on there are none.
    pub(super) fn take_dirty(&mut self) -> Option<Vec<SocketId>> {
        (!self.dirty.is_empty()).then(|| std::mem::take(&mut self.dirty))
    }

    /// Counts what this connection holds now.
    pub(super) fn recount(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        let now = connection.session.memory_bytes();
        if connection.held != now {
            self.enter(socket, now);
        }
    }

    /// Forgets what this connection held.
    pub(super) fn strike_off(&mut self, socket: SocketId) {
        self.enter(socket, SessionMemory::default());
    }

    fn enter(&mut self, socket: SocketId, now: SessionMemory) {
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        let before = std::mem::replace(&mut connection.held, now);
        self.ledger.change(&before, &now, &self.stats);
        if let Stage::Open { place, .. } = connection.stage
            && before.write_queue != now.write_queue
        {
            let gauge = &self.stats.services[usize::from(place.service)].write_queue_bytes;
            gauge.sub(before.write_queue as u64);
            gauge.add(now.write_queue as u64);
        }
    }

    /// Brings what all connections hold back within its bound. What only waits for the end of the
    /// turn is written first; then those go that hold most, until there is some room again: looking
    /// for them takes a while, and must not be done for each read. They are told nothing: a close
    /// frame would have to wait behind the rest.
    pub(super) fn relieve(&mut self, driver: &mut impl Driver) {
        let max = self.shared.limits.memory_bytes_per_worker_max;
        if self.ledger.total_bytes <= max {
            return;
        }
        self.write_early(driver);
        if self.ledger.total_bytes <= max {
            return;
        }
        let (mut cut, before) = (0, self.ledger.total_bytes);
        for (_, socket) in self.connections.largest_first() {
            if self.ledger.total_bytes <= max - max / RELIEF {
                break;
            }
            self.cut_off(socket);
            cut += 1;
        }
        let freed = before - self.ledger.total_bytes;
        warn!("the worker holds too much: {cut} connections are cut, which held {freed} bytes");
    }

    /// Ends a connection that holds too much, at once.
    fn cut_off(&mut self, socket: SocketId) {
        // What the driver has in flight goes with the socket, at the end of this turn.
        self.strike_off(socket);
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        connection.session.abort();
        match connection.stage {
            Stage::Open { place, .. } => self.failed(place, Failure::Memory),
            Stage::Handshake => {
                self.connections.change(socket, Stage::Over);
                self.stats.handshake_failed(HandshakeFailure::CrowdedOut);
            }
            Stage::Leaving { .. } | Stage::Over => {}
        }
        self.mark_dirty(socket);
    }

    /// Flushes open connections before the end of the turn; the others stay in the list.
    fn write_early(&mut self, driver: &mut impl Driver) {
        for socket in self.take_dirty().unwrap_or_default() {
            let Some(connection) = self.connections.of_socket(socket) else {
                continue;
            };
            if connection.session.is_open() {
                connection.is_dirty = false;
                connection.was_sent_to = false;
                // An open session stays open here.
                let _ = connection.session.flush(driver);
                self.settled(socket);
            } else {
                self.dirty.push(socket);
            }
        }
    }
}

/// Beyond the bound, one part in so many of it is freed.
const RELIEF: usize = 16;
