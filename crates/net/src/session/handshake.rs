//! What a session knows only until it is upgraded.

use moonwire_proto::{Request, RequestReader, Response, ResponseReader};

use super::event::HandshakeTimings;
use crate::time::Time;

/// The way to the 101, boxed because most connections have it behind them.
#[derive(Debug)]
pub(super) enum Handshake {
    Server(ServerHandshake),
    Client(ClientHandshake),
}

impl Handshake {
    /// Bytes that it holds in memory, itself included.
    pub(super) fn memory_bytes(&self) -> usize {
        let held = match self {
            Self::Server(server) => {
                let request = server.request.as_ref().map_or(0, Request::memory_bytes);
                server.reader.memory_bytes() + request
            }
            // Bounded by what this end asks for, and gone with the answer.
            Self::Client(_) => 0,
        };
        size_of::<Self>() + held
    }

    /// Server: whether a request has begun to come and is not whole.
    pub(super) fn has_request_begun(&self) -> bool {
        match self {
            Self::Server(server) => server.request.is_none() && server.reader.has_begun(),
            Self::Client(_) => false,
        }
    }
}

/// A server waits for a request, then for the caller's answer to it.
#[derive(Debug)]
pub(super) struct ServerHandshake {
    pub(super) reader: RequestReader,
    /// The request that is not answered yet.
    pub(super) request: Option<Request>,
}

/// A client waits for the connection, then for TLS, then for the response.
#[derive(Debug)]
pub(super) struct ClientHandshake {
    pub(super) reader: ResponseReader,
    /// The request, until it can be sent.
    pub(super) request: Option<Vec<u8>>,
    /// Whether the frames are to go without a mask.
    pub(super) is_unmasked: bool,
    pub(super) started: Time,
    /// When there was a connection.
    pub(super) connected: Option<Time>,
    /// When the request could be sent: after TLS, or when there was a connection.
    pub(super) secured: Option<Time>,
}

impl ClientHandshake {
    pub(super) fn timings(&self, now: Time, tls: bool) -> HandshakeTimings {
        let connected = self.connected.unwrap_or(now);
        let secured = self.secured.unwrap_or(connected);
        HandshakeTimings {
            tcp: connected - self.started,
            tls: tls.then(|| secured - connected),
            upgrade: now - secured,
        }
    }
}

/// What a client's handshake came to.
pub(super) enum Answer {
    Upgraded(Box<Response>, HandshakeTimings),
    Refused(Box<Response>),
}
