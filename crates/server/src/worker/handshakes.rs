//! The handshakes of one worker that are not over: how many there may be, and what happens beyond.

use std::collections::VecDeque;
use std::time::Duration;

use moonwire_net::{Driver, SocketId, Time};

use super::connections::{Connections, Stage};
use super::{Desk, Worker};
use crate::stats::HandshakeFailure;

/// Handshakes in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// When each was accepted. Those that are over are still in it for a while; at most as many as
    /// are not, and `OVER_TOLERATED`.
    queue: VecDeque<(Time, SocketId)>,
    /// Whether no connections are accepted until there is room.
    is_full: bool,
}

impl Handshakes {
    /// A handshake begins.
    fn begin(&mut self, socket: SocketId, now: Time, connections: &mut Connections) {
        self.queue.push_back((now, socket));
        if self.queue.len() > 2 * connections.handshakes() + OVER_TOLERATED {
            self.queue.retain(|(_, socket)| is_on(connections, *socket));
        }
    }

    /// The one that began first, of those that are not over.
    fn oldest(&mut self, connections: &mut Connections) -> Option<(Time, SocketId)> {
        while let Some(oldest) = self.queue.front() {
            if is_on(connections, oldest.1) {
                return Some(*oldest);
            }
            self.queue.pop_front();
        }
        None
    }
}

fn is_on(connections: &mut Connections, socket: SocketId) -> bool {
    let connection = connections.of_socket(socket);
    connection.is_some_and(|connection| connection.stage == Stage::Handshake)
}

impl Desk {
    /// A connection was accepted and taken in.
    pub(super) fn handshake_began(&mut self, socket: SocketId, now: Time) {
        self.handshakes.begin(socket, now, &mut self.connections);
    }

    /// Whether there are so many sockets that further ones are reset.
    pub(super) fn is_full(&self) -> bool {
        self.connections.len() >= self.shared.limits.sockets_per_worker_max()
    }

    fn has_room(&self) -> bool {
        self.connections.handshakes() < self.shared.limits.handshakes_per_worker_max
    }

    /// When the oldest handshake may be ended for another one.
    fn room_from(&mut self) -> Option<Time> {
        let (began, _) = self.handshakes.oldest(&mut self.connections)?;
        Some(began + UNDISTURBED)
    }

    /// Before a further handshake begins: where there are too many, the oldest ends, if it has had
    /// its time.
    pub(super) fn make_room(&mut self, now: Time) {
        if self.has_room() || self.room_from().is_none_or(|from| from > now) {
            return;
        }
        let Some((_, socket)) = self.handshakes.oldest(&mut self.connections) else {
            return;
        };
        self.connections.change(socket, Stage::Over);
        self.stats.handshake_failed(HandshakeFailure::CrowdedOut);
        if let Some(connection) = self.connections.of_socket(socket) {
            // It is counted already.
            let _ = connection.session.end_handshake();
        }
        self.mark_dirty(socket);
    }

    /// Until when no connections are accepted, if nothing else happens.
    pub(super) fn full_until(&mut self) -> Option<Time> {
        if !self.handshakes.is_full {
            return None;
        }
        self.room_from()
    }
}

impl<D: Driver> Worker<D> {
    /// Accepts connections as long as there is room for their handshakes, or can be; otherwise they
    /// wait where the kernel keeps them.
    pub(super) fn regulate_accepting(&mut self, now: Time) {
        let desk = &mut self.desk;
        desk.stats
            .handshakes
            .set(desk.connections.handshakes() as u64);
        let is_full = !desk.has_room() && desk.room_from().is_none_or(|from| from > now);
        if is_full == desk.handshakes.is_full {
            return;
        }
        desk.handshakes.is_full = is_full;
        desk.stats.accept_pauses.add(u64::from(is_full));
        for listener in &self.listeners {
            if is_full {
                self.driver.pause_accept(*listener);
            } else {
                self.driver.resume_accept(*listener);
            }
        }
    }
}

/// So long a handshake is not ended for the sake of another one: several round trips of a far
/// client.
const UNDISTURBED: Duration = Duration::from_secs(1);

/// Below this many entries, looking for those that are over would cost more than they do.
const OVER_TOLERATED: usize = 64;
