//! What waits to be written, by connection and for the whole worker.

use moonwire_net::{Driver, SocketId};
use tracing::warn;

use super::Desk;
use super::connections::Stage;
use crate::stats::Failure;

impl Desk {
    /// The connections to be flushed, if there are any; from now on there are none.
    pub(super) fn take_dirty(&mut self) -> Option<Vec<SocketId>> {
        (!self.dirty.is_empty()).then(|| std::mem::take(&mut self.dirty))
    }

    /// Counts what waits for this connection now.
    pub(super) fn recount(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        let queued = connection.session.write_queue_bytes();
        let before = std::mem::replace(&mut connection.queued_bytes, queued);
        if before == queued {
            return;
        }
        self.queued_bytes = self.queued_bytes - before + queued;
        if let Stage::Open { place, .. } = connection.stage {
            let gauge = &self.stats.services[usize::from(place.service)].write_queue_bytes;
            gauge.sub(before as u64);
            gauge.add(queued as u64);
        }
    }

    /// Brings what waits for all connections back within its bound. What only waits for the end of
    /// the turn is written first; then those go for whom most is waiting. They are told nothing: a
    /// close frame would have to wait behind the rest.
    pub(super) fn relieve(&mut self, driver: &mut impl Driver) {
        let max = self.shared.limits.write_queue_bytes_per_worker_max;
        if self.queued_bytes <= max {
            return;
        }
        self.write_early(driver);
        while self.queued_bytes > max {
            let Some(connection) = self.connections.longest_queue() else {
                return;
            };
            let (socket, stage) = (connection.socket, connection.stage);
            connection.session.abort();
            // What the driver has in flight goes with the socket, at the end of this turn.
            let queued = std::mem::take(&mut connection.queued_bytes);
            self.queued_bytes -= queued;
            if let Stage::Open { place, .. } = stage {
                let gauge = &self.stats.services[usize::from(place.service)].write_queue_bytes;
                gauge.sub(queued as u64);
                self.failed(place, Failure::QueueFull);
            }
            warn!(
                "a connection is cut, for which {queued} bytes waited: the worker holds too many"
            );
            self.mark_dirty(socket);
        }
    }

    /// Flushes open connections before the end of the turn; the others stay in the list.
    fn write_early(&mut self, driver: &mut impl Driver) {
        for socket in self.take_dirty().unwrap_or_default() {
            let Some(connection) = self.connections.of_socket(socket) else {
                continue;
            };
            if connection.session.is_open() {
                connection.is_dirty = false;
                // An open session stays open here.
                let _ = connection.session.flush(driver);
                self.settled(socket);
            } else {
                self.dirty.push(socket);
            }
        }
    }
}
