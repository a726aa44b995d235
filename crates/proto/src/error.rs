//! What a peer can do wrong after the handshake, and what the caller can do wrong when sending.

use core::error::Error;
use core::fmt;

use crate::close::CloseCode;

/// A breach of the protocol or of the limits by the peer. The connection is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProtocolError {
    /// A close code that must not appear on the wire (RFC 6455, 7.4).
    CloseCodeInvalid(u16),
    /// A close frame whose payload is one byte (RFC 6455, 5.5.1).
    ClosePayloadTooShort,
    /// A continuation frame without a message to continue (RFC 6455, 5.4).
    ContinuationUnexpected,
    /// A control frame without FIN (RFC 6455, 5.5).
    ControlFragmented,
    /// A control frame with more than 125 bytes (RFC 6455, 5.5).
    ControlTooLong,
    /// A compressed message that cannot be inflated (RFC 7692, 7.2.2).
    DeflateInvalid,
    /// A masked frame from a server (RFC 6455, 5.1).
    FrameMasked,
    /// An unmasked frame from a client (RFC 6455, 5.1).
    FrameUnmasked,
    /// A payload length in more bytes than it needs (RFC 6455, 5.2).
    LengthNotMinimal,
    /// A 64-bit payload length with its top bit set (RFC 6455, 5.2).
    LengthOutOfRange,
    /// A new message inside a fragmented one (RFC 6455, 5.4).
    MessageInterleaved,
    /// A reserved opcode (RFC 6455, 5.2).
    OpcodeReserved(u8),
    /// A message that would exceed `message_bytes_max`: seen on the header, before anything of the
    /// frame was kept, or, of a compressed one, as soon as it has inflated to more.
    PayloadTooLarge {
        /// Bytes of the message so far, with the declared length of a refused frame.
        actual: u64,
        /// The limit.
        maximum: u64,
    },
    /// A reserved bit without an extension that defines it (RFC 6455, 5.2).
    ReservedBits,
    /// A message in more than `frames_per_message_max` frames.
    TooManyFragments,
    /// Text or a close reason that is not UTF-8 (RFC 6455, 8.1).
    Utf8Invalid,
}

impl ProtocolError {
    /// The code of the close frame that this error is answered with.
    pub const fn close_code(self) -> CloseCode {
        match self {
            Self::CloseCodeInvalid(_)
            | Self::ClosePayloadTooShort
            | Self::ContinuationUnexpected
            | Self::ControlFragmented
            | Self::ControlTooLong
            | Self::FrameMasked
            | Self::FrameUnmasked
            | Self::LengthNotMinimal
            | Self::LengthOutOfRange
            | Self::MessageInterleaved
            | Self::OpcodeReserved(_)
            | Self::ReservedBits => CloseCode::PROTOCOL_ERROR,
            Self::PayloadTooLarge { .. } => CloseCode::MESSAGE_TOO_BIG,
            Self::TooManyFragments => CloseCode::POLICY_VIOLATION,
            Self::DeflateInvalid | Self::Utf8Invalid => CloseCode::INVALID_PAYLOAD,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CloseCodeInvalid(code) => {
                write!(f, "the close code {code} must not be sent")
            }
            Self::ClosePayloadTooShort => f.write_str("a close frame has a payload of one byte"),
            Self::ContinuationUnexpected => {
                f.write_str("a continuation frame has no message to continue")
            }
            Self::ControlFragmented => f.write_str("a control frame is fragmented"),
            Self::ControlTooLong => f.write_str("a control frame has more than 125 bytes"),
            Self::DeflateInvalid => f.write_str("a compressed message cannot be inflated"),
            Self::FrameMasked => f.write_str("a frame of the server is masked"),
            Self::FrameUnmasked => f.write_str("a frame of the client is not masked"),
            Self::LengthNotMinimal => f.write_str("a payload length is not in its shortest form"),
            Self::LengthOutOfRange => f.write_str("a payload length has its top bit set"),
            Self::MessageInterleaved => f.write_str("a message begins inside another"),
            Self::OpcodeReserved(opcode) => write!(f, "the opcode {opcode:#x} is reserved"),
            Self::PayloadTooLarge { actual, maximum } => {
                write!(
                    f,
                    "a message of at least {actual} bytes exceeds the limit of {maximum}"
                )
            }
            Self::ReservedBits => f.write_str("a reserved bit is set without an extension"),
            Self::TooManyFragments => f.write_str("a message has too many fragments"),
            Self::Utf8Invalid => f.write_str("a text is not valid UTF-8"),
        }
    }
}

impl Error for ProtocolError {}

/// Why something could not be sent. Nothing was appended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendError {
    /// A close frame was sent, or the connection failed: nothing may follow it.
    Closed,
    /// A ping or pong with more than 125 bytes (RFC 6455, 5.5).
    ControlTooLong,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the connection is closed for sending",
            Self::ControlTooLong => "a control frame carries at most 125 bytes",
        })
    }
}

impl Error for SendError {}
