//! How a connection ends badly, and why something could not be sent.

use std::error::Error;
use std::fmt;
use std::io;

use moonwire_proto::{ProtocolError, RequestError, ResponseError};

use crate::tls::TlsError;

/// Why a connection is over, other than by a close handshake.
#[derive(Debug)]
pub enum SessionError {
    /// The peer did not end the close handshake in time.
    CloseTimeout,
    /// There was no connection (client).
    Connect(io::Error),
    /// The peer ended the stream without a close frame (what RFC 6455, 7.1.5 calls 1006).
    EndOfStream,
    /// The handshake was not over in time.
    HandshakeTimeout,
    /// The peer's unfinished message would take more memory than a connection may hold; it was sent
    /// 1008.
    MemoryExceeded,
    /// A message that had begun was not complete in time; the peer was sent 1008.
    MessageTimeout,
    /// More bytes followed the request than are kept while it is not answered (server).
    PipelinedTooMuch,
    /// The peer broke RFC 6455; it was sent the close code of the error.
    Protocol(ProtocolError),
    /// The peer did not answer a ping in time.
    PongTimeout,
    /// The request is invalid; it was answered with the status of the error (server).
    Request(RequestError),
    /// The response is neither a valid upgrade nor a refusal (client).
    Response(ResponseError),
    /// TLS failed; the peer was sent an alert.
    Tls(TlsError),
    /// The connection died.
    Transport(io::Error),
    /// The peer took nothing of what waits for it for so long that it counts as gone.
    WriteStalled,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CloseTimeout => f.write_str("the peer did not answer the close in time"),
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::EndOfStream => f.write_str("the peer ended the stream without a close frame"),
            Self::HandshakeTimeout => f.write_str("the handshake took too long"),
            Self::MemoryExceeded => {
                f.write_str("the peer's message takes more memory than a connection may hold")
            }
            Self::MessageTimeout => f.write_str("a message took too long to arrive"),
            Self::PipelinedTooMuch => {
                f.write_str("the peer sent too much before its request was answered")
            }
            Self::Protocol(error) => error.fmt(f),
            Self::PongTimeout => f.write_str("the peer did not answer a ping in time"),
            Self::Request(error) => error.fmt(f),
            Self::Response(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Transport(error) => write!(f, "the connection died: {error}"),
            Self::WriteStalled => f.write_str("the peer does not take what is sent to it"),
        }
    }
}

impl Error for SessionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) | Self::Transport(error) => Some(error),
            Self::Protocol(error) => Some(error),
            Self::Request(error) => Some(error),
            Self::Response(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::CloseTimeout
            | Self::EndOfStream
            | Self::HandshakeTimeout
            | Self::MemoryExceeded
            | Self::MessageTimeout
            | Self::PipelinedTooMuch
            | Self::PongTimeout
            | Self::WriteStalled => None,
        }
    }
}

/// Why something was not queued. Nothing of it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendError {
    /// A ping with more than 125 bytes (RFC 6455, 5.5).
    ControlTooLong,
    /// The handshake is not over, or a close frame was sent, or the connection is over.
    NotOpen,
    /// `write_queue_bytes_max` bytes wait already. The caller decides: drop the message, or close
    /// with 1013.
    QueueFull,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlTooLong => "a control frame carries at most 125 bytes",
            Self::NotOpen => "the connection is not open for sending",
            Self::QueueFull => "too many bytes wait to be written already",
        })
    }
}

impl Error for SendError {}

impl From<moonwire_proto::SendError> for SendError {
    fn from(error: moonwire_proto::SendError) -> Self {
        match error {
            moonwire_proto::SendError::Closed => Self::NotOpen,
            moonwire_proto::SendError::ControlTooLong => Self::ControlTooLong,
        }
    }
}
