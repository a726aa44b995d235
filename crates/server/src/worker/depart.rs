//! The ends of connections, and of the worker.

use std::time::Duration;

use moonwire_lua::{Effects, Handler};
use moonwire_net::{Driver, Session, SessionError, SocketId};
use moonwire_proto::{CloseCode, RequestError};
use tracing::debug;

use super::connections::{Connection, Stage};
use super::scripts::{Place, Scripts};
use super::subscriptions::Subscriber;
use super::{Desk, Phase, Worker};
use crate::stats::{Failure, HandshakeFailure};

impl Desk {
    /// The letters to this worker.
    pub(super) fn mailbox(
        &self,
    ) -> &crate::mailbox::Mailbox<crate::event::Letter, moonwire_net::Waker> {
        &self.shared.mailboxes[self.worker]
    }

    /// Takes a connection in.
    pub(super) fn insert(&mut self, socket: SocketId, session: Session, stage: Stage) {
        self.connections.insert(socket, session, stage);
        self.stats.sockets.add(1);
        self.mark_dirty(socket);
    }

    /// Has the connection flushed at the end of this turn. One that leaves keeps what it has to
    /// say for the other worker.
    pub(super) fn mark_dirty(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        if !connection.is_dirty && !matches!(connection.stage, Stage::Leaving { .. }) {
            connection.is_dirty = true;
            self.dirty.push(socket);
        }
    }

    /// After a flush: the gauge of its queue, its next deadline, and whether it goes on with what
    /// was received before.
    pub(super) fn settled(&mut self, socket: SocketId) {
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        let deadline = connection.session.deadline();
        let session = &connection.session;
        let goes_on = session.has_unread() && !session.is_full() && !connection.is_held();
        if goes_on && !std::mem::replace(&mut connection.is_unread, true) {
            self.unread.push_back(socket);
        }
        self.recount(socket);
        self.timers.arm(socket, deadline);
    }

    /// The connection is over, in order or by an error. The service is told if it knew of it, and
    /// never again.
    pub(super) fn depart(
        &mut self,
        socket: SocketId,
        error: Option<&SessionError>,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
    ) {
        match self.connections.change(socket, Stage::Over) {
            None | Some(Stage::Over) => {}
            Some(Stage::Handshake) => {
                let reason = error.map_or(HandshakeFailure::Gone, handshake_failure);
                self.stats.handshake_failed(reason);
            }
            Some(Stage::Leaving { worker, .. }) => {
                self.shared.mailboxes[worker].release();
                let reason = error.map_or(HandshakeFailure::Gone, handshake_failure);
                self.stats.handshake_failed(reason);
                self.mark_dirty(socket);
            }
            Some(Stage::Open { place, handler, .. }) => {
                self.leave_service(socket, place, handler);
                if let Some(error) = error {
                    self.failed(place, failure(error));
                    debug!(handler = handler.as_u64(), "a connection ended: {error}");
                }
                let reaction = scripts.disconnect(place, handler, effects);
                self.apply(place, effects, driver);
                self.react(place, handler, reaction, driver);
            }
        }
    }

    /// A connection is none of the service's any more.
    pub(super) fn leave_service(&mut self, socket: SocketId, place: Place, handler: Handler) {
        self.subscriptions.forget(Subscriber { place, handler });
        // Still waiting, but no longer for a connection of the service.
        let connection = self.connections.of_socket(socket);
        let queued = connection.map_or(0, |connection| connection.held.write_queue);
        self.shared.round_trips.forget(handler);
        let service = &self.stats.services[usize::from(place.service)];
        service.connected.sub(1);
        service.write_queue_bytes.sub(queued as u64);
    }

    /// Forgets the connection of a socket that is closed or has left.
    pub(super) fn forget(&mut self, socket: SocketId) -> Option<Box<Connection>> {
        self.strike_off(socket);
        let connection = self.connections.remove(socket)?;
        self.timers.disarm(socket);
        self.stats.sockets.sub(1);
        Some(connection)
    }
}

impl Connection {
    /// Holds it up if its next message would find no place; returns where it has to wait for one.
    pub(super) fn wait_for_place(&mut self, scripts: &Scripts) -> Option<Place> {
        let place = self.stage.listener()?;
        let waits = scripts.is_full(place) && self.session.can_keep() && !self.session.is_held();
        waits.then(|| {
            self.session.hold();
            place
        })
    }

    /// Whether it waits for a callback on another thread, whose messages still count.
    pub(super) fn is_held(&self) -> bool {
        self.session.is_held() && self.stage.listener().is_some()
    }

    /// Begins the close handshake, if there was one to open the connection.
    pub(super) fn close(&mut self, code: CloseCode, reason: &str) {
        if let Stage::Open { is_closing, .. } = &mut self.stage {
            *is_closing = true;
            self.session.close(code, reason);
        }
    }
}

impl<D: Driver> Worker<D> {
    /// The session is over and its socket is closed.
    pub(super) fn finished(&mut self, socket: SocketId) {
        self.desk.depart(
            socket,
            None,
            &mut self.scripts,
            &mut self.effects,
            &mut self.driver,
        );
        self.gone(socket);
    }

    /// A socket is closed: its source may have another connection.
    fn gone(&mut self, socket: SocketId) {
        if let Some(connection) = self.desk.forget(socket) {
            self.release_source(connection.session.peer());
        }
    }

    /// Accepts no more and tells everybody that the server goes away (1001). Those whose request
    /// is not answered yet are told 503 where they can be.
    pub(super) fn stop(&mut self) {
        if self.phase != Phase::Serving {
            return;
        }
        for listener in self.listeners.drain(..) {
            self.driver.stop_listening(listener);
        }
        let patience = self.desk.shared.limits.drain_timeout.max(LAST_WRITE);
        let until = self.driver.now() + patience;
        self.phase = Phase::Draining { until };
        for socket in self.desk.connections.sockets() {
            let Some(connection) = self.desk.connections.of_socket(socket) else {
                continue;
            };
            match connection.stage {
                Stage::Open { .. } => {
                    connection.close(CloseCode::GOING_AWAY, "the server stops");
                    self.desk.mark_dirty(socket);
                }
                Stage::Handshake => {
                    connection.session.close(CloseCode::GOING_AWAY, "");
                    self.desk.connections.change(socket, Stage::Over);
                    self.desk.stats.handshake_failed(HandshakeFailure::Stopping);
                    self.desk.mark_dirty(socket);
                }
                Stage::Leaving { .. } | Stage::Over => {}
            }
        }
    }

    /// Cuts who is still there, and is done. Who has been sent everything is closed: a reset could
    /// take the close frame away before it is read.
    pub(super) fn cut(&mut self) {
        for socket in self.desk.connections.sockets() {
            let connection = self.desk.connections.of_socket(socket);
            let is_told =
                connection.is_some_and(|connection| connection.session.write_queue_bytes() == 0);
            let timeout = SessionError::CloseTimeout;
            self.desk.depart(
                socket,
                Some(&timeout),
                &mut self.scripts,
                &mut self.effects,
                &mut self.driver,
            );
            if is_told {
                self.driver.close(socket);
            } else {
                self.driver.abort(socket);
            }
            self.gone(socket);
        }
        self.phase = Phase::Done;
    }
}

/// What a failed handshake counts as.
fn handshake_failure(error: &SessionError) -> HandshakeFailure {
    match error {
        SessionError::Request(RequestError::WebSocketVersionUnknown) => {
            HandshakeFailure::UpgradeRequired
        }
        SessionError::Request(_) | SessionError::PipelinedTooMuch => HandshakeFailure::BadRequest,
        SessionError::HandshakeTimeout => HandshakeFailure::Timeout,
        SessionError::Tls(_) => HandshakeFailure::Tls,
        // No handshake is closed; what is left of one at the end of the server is cut.
        SessionError::CloseTimeout => HandshakeFailure::Stopping,
        SessionError::Connect(_)
        | SessionError::EndOfStream
        | SessionError::MemoryExceeded
        | SessionError::MessageTimeout
        | SessionError::PongTimeout
        | SessionError::Protocol(_)
        | SessionError::Response(_)
        | SessionError::Transport(_)
        | SessionError::WriteStalled => HandshakeFailure::Gone,
    }
}

/// What a failed connection counts as.
fn failure(error: &SessionError) -> Failure {
    match error {
        SessionError::Protocol(error) => Failure::of_close_code(error.close_code()),
        SessionError::MemoryExceeded => Failure::Memory,
        SessionError::CloseTimeout
        | SessionError::PongTimeout
        | SessionError::HandshakeTimeout
        | SessionError::MessageTimeout
        | SessionError::WriteStalled => Failure::Timeout,
        SessionError::Connect(_)
        | SessionError::EndOfStream
        | SessionError::PipelinedTooMuch
        | SessionError::Request(_)
        | SessionError::Response(_)
        | SessionError::Tls(_)
        | SessionError::Transport(_) => Failure::Lost,
    }
}

/// What everybody is told last is written by the next call of a driver that collects its writes.
const LAST_WRITE: Duration = Duration::from_millis(1);
