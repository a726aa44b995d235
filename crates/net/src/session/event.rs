//! What a session tells its caller.

use std::time::Duration;

use moonwire_proto::{CloseCode, Opcode, Request, Response};

use super::error::SessionError;

/// Something that happened on a connection. After `Refused`, `Closed` or `Failed` there is no
/// further event; the caller goes on flushing until [`crate::Flushed::Finished`].
#[derive(Debug)]
pub enum SessionEvent<'a> {
    /// Server: a request, to be answered with `accept` or `refuse`, at once or later.
    Request(&'a Request),
    /// Client: the server accepted.
    Upgraded {
        /// Its response, for the subprotocol and header fields.
        response: Box<Response>,
        /// What the way here took.
        timings: HandshakeTimings,
    },
    /// Client: the server answered, but not with an upgrade.
    Refused {
        /// Its status.
        status: u16,
        /// The response, with the first bytes of its body.
        response: Box<Response>,
    },
    /// A message. One that is not compressed may also come after this end sent its close frame.
    Message {
        /// Text, which is valid UTF-8, or binary.
        opcode: Opcode,
        /// The payload; it lives in the loop's buffer, so copy what is to be kept.
        payload: &'a [u8],
    },
    /// Much of the input was looked at without another event: poll again, now, or, for the sake of
    /// other connections, later, with the input kept until then.
    More,
    /// A ping; its answer is queued already.
    Ping(&'a [u8]),
    /// A pong, asked for or not.
    Pong {
        /// What it carries.
        payload: &'a [u8],
        /// How long the answer took, if this is one to a ping that the session has sent by itself.
        round_trip: Option<Duration>,
    },
    /// The close handshake is done.
    Closed {
        /// The peer's code; None if its close frame had none (1005).
        code: Option<CloseCode>,
        /// The peer's reason, often empty.
        reason: &'a str,
        /// Whether this end began it.
        local: bool,
    },
    /// The connection is over for another reason.
    Failed(SessionError),
}

/// How long the parts of a client's handshake took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HandshakeTimings {
    /// From the connect to the connection.
    pub tcp: Duration,
    /// From the connection to the end of the TLS handshake; None without TLS.
    pub tls: Option<Duration>,
    /// From then to the complete response.
    pub upgrade: Duration,
}

/// Whether a session goes on after [`crate::Session::flush`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Flushed {
    /// It does.
    Open,
    /// It is over, its socket is closed: drop it and forget the socket's id.
    Finished,
}
