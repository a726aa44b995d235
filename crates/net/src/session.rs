//! One connection: the only place where a socket and a frame meet.
//!
//! Received bytes go from the driver's buffer through TLS, if there is any, to the state machine
//! of `proto`; what is sent is framed into the outbox and leaves in one write per turn. The
//! session never blocks, never reads a clock and owns no buffer while it is idle.

mod codec;
mod deadline;
mod detach;
mod error;
mod event;
mod handshake;
mod kept;
mod limits;
mod mask;
mod memory;
mod receive;
mod round_trip;
mod send;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use moonwire_proto::{
    Acceptance, BuildError, Connection, Request, RequestReader, ResponseReader, UpgradeRequest,
    accept_response,
};

use crate::driver::SocketId;
use crate::time::Time;
use crate::tls::{ClientTls, Records, ServerTls, TlsError, TlsFacts};
use handshake::{ClientHandshake, Handshake, ServerHandshake};
use kept::Kept;
use round_trip::OwnPing;

pub use codec::{compressor_bytes, take_compression_work};
pub use detach::DetachedSession;
pub use error::{SendError, SessionError};
pub use event::{Flushed, HandshakeTimings, SessionEvent};
pub use limits::SessionLimits;
pub use mask::random_mask;
pub use memory::SessionMemory;
pub use receive::Input;

/// One connection, in either role: optional TLS, the upgrade, then messages, then the close.
///
/// The order of calls:
///
/// 1. [`accept_socket`](Self::accept_socket) for `Completion::Accepted`, or
///    [`connect`](Self::connect) after `Driver::connect`, then
///    [`on_connected`](Self::on_connected) for `Completion::Connected`;
/// 2. for each `Completion::Received`: [`open`](Self::open), then [`poll`](Self::poll) until None,
///    answering a request with [`accept`](Self::accept) or [`refuse`](Self::refuse); a request may
///    also be answered later, then [`unread`](Self::unread) and `poll` until None; each time, once
///    there is no event any more, [`settle`](Self::settle);
/// 3. [`send`](Self::send), [`ping`](Self::ping), [`close`](Self::close) whenever it is open;
/// 4. [`on_sent`](Self::on_sent), [`on_end_of_stream`](Self::on_end_of_stream) and
///    [`on_failed`](Self::on_failed) for those completions, and [`on_deadline`](Self::on_deadline)
///    once [`deadline`](Self::deadline) has passed;
/// 5. at the end of a turn, [`flush`](Self::flush) for every session that any of this was done to.
///    It alone writes, pauses, half closes and closes; after [`Flushed::Finished`] the session is
///    to be dropped.
///
/// Each session gives at most one of the events that end it: `Refused`, `Closed` or `Failed`. It
/// gives none when the caller itself ended it, by `refuse`, or by `close` during the handshake.
#[derive(Debug)]
pub struct Session {
    limits: Arc<SessionLimits>,
    tls: Option<Box<Records>>,
    stage: Stage,
    /// Framed bytes that were not handed to the driver yet. Holds no memory while empty.
    outbox: Vec<u8>,
    /// How much of the outbox was sealed and handed to the driver. Invariant: less than its length,
    /// or 0.
    sealed_bytes: usize,
    /// Received plaintext that waits for the answer to the request, for the next owner, or for
    /// the peer to read its answers.
    kept: Kept,
    /// Bytes that the driver has in flight; 0: none.
    in_flight_bytes: usize,
    /// What the peer's host had not taken at the last look, and all that was submitted since. What
    /// the next look finds missing was taken in between.
    untaken_bytes: usize,
    /// When the handshake began; after it, when the peer was last heard, seen taking bytes,
    /// or sent a ping; once `close_by` is set, when closing began.
    heard: Time,
    /// When closing must be over. MAX until it has begun.
    close_by: Time,
    /// When the message that is not complete was seen to have begun; while `is_paused`, how long
    /// before the pause that was. MAX: there is none.
    message_began: Time,
    own_ping: OwnPing,
    socket: SocketId,
    peer: SocketAddr,
    phase: Phase,
    /// Whether this is the client's end.
    is_client: bool,
    /// Whether the driver was told to receive nothing.
    is_paused: bool,
    /// Whether an input was given out to be polled: from `open` or `unread` until `settle`.
    is_read: bool,
    /// Whether the caller has yet to deal with what it polled; see `hold`.
    is_held: bool,
    /// Whether a ping was sent and nothing was heard since.
    is_pinged: bool,
    /// Whether the peer ended its stream.
    is_ended: bool,
    /// Whether to end with RST: there is no use in delivering what is left.
    is_aborted: bool,
}

/// What is spoken on the connection.
#[derive(Debug)]
enum Stage {
    /// HTTP.
    Handshake(Box<Handshake>),
    /// WebSocket.
    Open(Connection),
}

/// How far the end is. It only ever goes forward.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Phase {
    /// The handshake, or messages.
    Active,
    /// This end sent a close frame and waits for the peer's.
    Closing,
    /// The last event was given; what the outbox holds is still to be written.
    Draining,
    /// Everything is written and the end of the stream sent (a client waits for the server's, RFC
    /// 6455, 7.1.1); the peer's end is awaited.
    HalfClosed,
    /// Nothing is to be done but to close the socket.
    Finished,
    /// The socket is closed.
    Gone,
}

impl Session {
    /// The server's end of a connection that was accepted from `peer`. With `tls` it begins with a
    /// TLS handshake.
    pub fn accept_socket(
        socket: SocketId,
        peer: SocketAddr,
        tls: Option<&ServerTls>,
        limits: &Arc<SessionLimits>,
        now: Time,
    ) -> Result<Self, TlsError> {
        let handshake = Handshake::Server(ServerHandshake {
            reader: RequestReader::new(&limits.protocol),
            request: None,
        });
        let tls = tls.map(Records::server).transpose()?;
        Ok(Self::new(socket, peer, tls, handshake, limits, now))
    }

    /// The client's end of a connection that `Driver::connect` has started to `peer`. With `tls`
    /// the server must show a certificate for the given name (a DNS name or an address).
    pub fn connect(
        socket: SocketId,
        peer: SocketAddr,
        tls: Option<(&ClientTls, &str)>,
        request: &UpgradeRequest,
        limits: &Arc<SessionLimits>,
        now: Time,
    ) -> Result<Self, ConnectError> {
        let handshake = Handshake::Client(ClientHandshake {
            reader: ResponseReader::new(request, &limits.protocol),
            request: Some(request.encode().map_err(ConnectError::Request)?),
            is_unmasked: false,
            started: now,
            connected: None,
            secured: None,
        });
        let tls = tls
            .map(|(tls, name)| Records::client(tls, name))
            .transpose();
        let tls = tls.map_err(ConnectError::Tls)?;
        Ok(Self::new(socket, peer, tls, handshake, limits, now))
    }

    /// Client, before the upgrade: nothing is masked, which servers must refuse (RFC 6455, 5.1).
    /// For tests of servers.
    pub fn omit_masks(&mut self) {
        if let Stage::Handshake(handshake) = &mut self.stage
            && let Handshake::Client(client) = handshake.as_mut()
        {
            client.is_unmasked = true;
        }
    }

    fn new(
        socket: SocketId,
        peer: SocketAddr,
        tls: Option<Records>,
        handshake: Handshake,
        limits: &Arc<SessionLimits>,
        now: Time,
    ) -> Self {
        Self {
            limits: Arc::clone(limits),
            tls: tls.map(Box::new),
            is_client: matches!(handshake, Handshake::Client(_)),
            stage: Stage::Handshake(Box::new(handshake)),
            outbox: Vec::new(),
            sealed_bytes: 0,
            kept: Kept::default(),
            in_flight_bytes: 0,
            untaken_bytes: 0,
            heard: now,
            close_by: Time::MAX,
            message_began: Time::MAX,
            own_ping: OwnPing::default(),
            socket,
            peer,
            phase: Phase::Active,
            is_paused: false,
            is_held: false,
            is_read: false,
            is_pinged: false,
            is_ended: false,
            is_aborted: false,
        }
    }

    /// Server: accepts the request that waits for an answer. From then on messages can be sent.
    pub fn accept(&mut self, acceptance: &Acceptance<'_>) -> Result<(), BuildError> {
        let request = self.request().ok_or(BuildError::NotAnUpgrade)?;
        let (response, deflate) = accept_response(request, acceptance)?;
        self.reserve_outbox();
        self.outbox.extend_from_slice(&response);
        let mut connection = Connection::server(&self.limits.protocol);
        if let Some(agreement) = deflate {
            connection = connection.with_deflate(&agreement);
        }
        self.stage = Stage::Open(connection);
        self.own_ping = OwnPing::none_since(self.heard);
        Ok(())
    }

    /// Server: other bounds from here on, once the request says which service it is for. To be
    /// called before [`accept`](Self::accept).
    pub fn set_limits(&mut self, limits: &Arc<SessionLimits>) {
        self.limits = Arc::clone(limits);
    }

    /// Server: answers the request with a whole response instead (`proto::refusal` makes one), and
    /// ends the connection. No event follows.
    pub fn refuse(&mut self, response: &[u8]) {
        if self.phase == Phase::Active {
            self.reserve_outbox();
            self.outbox.extend_from_slice(response);
            self.kept = Kept::default();
            self.phase = Phase::Draining;
        }
    }

    /// Client: the connect has ended. With a connection the handshake begins: flush.
    pub fn on_connected(&mut self, result: io::Result<()>, now: Time) -> Option<SessionEvent<'_>> {
        if self.phase > Phase::Closing {
            return None;
        }
        if let Err(error) = result {
            return Some(self.fail(SessionError::Connect(error)));
        }
        if let Stage::Handshake(handshake) = &mut self.stage
            && let Handshake::Client(client) = &mut **handshake
        {
            client.connected = Some(now);
        }
        self.begin_upgrade(now);
        None
    }

    /// The peer ended its stream. If something is unread the event comes after that, from `poll`.
    pub fn on_end_of_stream(&mut self, now: Time) -> Option<SessionEvent<'_>> {
        let has_unread = self.can_keep() && (self.is_held || !self.kept.rest().is_empty());
        self.is_ended = true;
        match self.phase {
            // What was received before comes first; then `poll` gives the event.
            Phase::Active | Phase::Closing if has_unread => None,
            Phase::Active | Phase::Closing => {
                self.heard = now;
                Some(self.fail(SessionError::EndOfStream))
            }
            // What is left is still written; flush closes then.
            Phase::Draining => None,
            Phase::HalfClosed => {
                self.phase = Phase::Finished;
                None
            }
            Phase::Finished | Phase::Gone => None,
        }
    }

    /// The connection died.
    pub fn on_failed(&mut self, error: io::Error) -> Option<SessionEvent<'_>> {
        let was_over = self.phase > Phase::Closing;
        let event = self.fail(SessionError::Transport(error));
        (!was_over).then_some(event)
    }

    /// The socket it is on.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Server: the request that waits for an answer.
    pub fn request(&self) -> Option<&Request> {
        let Stage::Handshake(handshake) = &self.stage else {
            return None;
        };
        match &**handshake {
            Handshake::Server(server) if self.phase == Phase::Active => server.request.as_ref(),
            Handshake::Server(_) | Handshake::Client(_) => None,
        }
    }

    /// Whether TLS is still to agree on keys: what is received then takes far longer to be opened
    /// than anything that follows.
    pub fn is_securing(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// What TLS agreed on with the peer; `None` without TLS or before its handshake is over.
    pub fn tls_facts(&self) -> Option<TlsFacts> {
        self.tls.as_ref()?.facts()
    }

    /// Whether messages can be sent.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Active && matches!(self.stage, Stage::Open(_))
    }

    /// Whether its end has begun: nothing can be sent any more, and soon `flush` gives
    /// [`Flushed::Finished`].
    pub fn is_closing(&self) -> bool {
        self.phase > Phase::Active
    }

    /// Bytes of the buffers that hold what waits to be written. A buffer in flight counts whole
    /// until its last byte is written: this is memory that is held, not what the peer lacks.
    pub fn write_queue_bytes(&self) -> usize {
        self.outbox.len() - self.sealed_bytes + self.in_flight_bytes
    }

    /// Ends at once, with nothing more to be written; the event that says why.
    fn fail(&mut self, error: SessionError) -> SessionEvent<'static> {
        self.phase = self.phase.max(Phase::Finished);
        self.release();
        SessionEvent::Failed(error)
    }

    /// Gives up the bytes that nobody will want.
    fn release(&mut self) {
        self.empty_outbox();
        self.kept = Kept::default();
    }

    /// Queues the upgrade request as soon as there is a connection, and TLS if it is wanted.
    fn begin_upgrade(&mut self, now: Time) {
        if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            return;
        }
        let Stage::Handshake(handshake) = &mut self.stage else {
            return;
        };
        if let Handshake::Client(client) = &mut **handshake
            && client.connected.is_some()
            && let Some(request) = client.request.take()
        {
            client.secured = Some(now);
            self.reserve_outbox();
            self.outbox.extend_from_slice(&request);
        }
    }
}

/// Why a client's session cannot even begin.
#[derive(Debug)]
pub enum ConnectError {
    /// The request has something that no request may have.
    Request(BuildError),
    /// The server's name cannot be checked.
    Tls(TlsError),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

#[cfg(test)]
mod tests;
