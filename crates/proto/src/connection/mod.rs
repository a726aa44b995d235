//! One connection after its handshake, in either role.
//!
//! [`Connection`] has three kinds of methods: [`Connection::receive`] for what came from the peer,
//! commands (`send`, `ping`, `close`, ...) from the application, and getters. The first two append
//! bytes for the peer to the caller's `out`. A connection keeps no bytes of the peer but those of
//! an unfinished frame or message, and nothing at all between messages.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod receive;
mod send;

use alloc::boxed::Box;

use crate::close::CloseCode;
use crate::deflate::{DeflateAgreement, DeflateDirection, History, Setting};
use crate::error::ProtocolError;
use crate::frame::HEADER_BYTES_MAX;
use crate::limits::Limits;
use crate::message::{Assembly, ControlAssembly};
use crate::opcode::Opcode;

pub use receive::{PONG_OUT_BYTES_MAX, WORK_PER_CALL};

/// Gives the mask of each frame that a client sends: a new, unpredictable number at each call
/// (RFC 6455, 5.3 and 10.3).
pub type MaskSource = fn() -> u32;

/// The end of a connection that this side is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Masks what it sends.
    Client,
    /// Never masks.
    Server,
}

/// What [`Connection::receive`] did with its input.
#[derive(Debug)]
pub struct Step<'a> {
    /// Bytes taken from the front of the input; the next call wants those after them.
    pub taken: usize,
    /// What it cost, as [`WORK_PER_CALL`] counts it.
    pub work: usize,
    /// What happened, if those bytes ended a message or control frame.
    pub event: Option<Event<'a>>,
}

/// Something the peer did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event<'a> {
    /// A whole message; a text is valid UTF-8.
    Message {
        /// Text or binary.
        opcode: Opcode,
        /// The unmasked payload.
        payload: &'a [u8],
    },
    /// A ping; its pong is already in `out`.
    Ping(&'a [u8]),
    /// A pong, asked for or not.
    Pong(&'a [u8]),
    /// The peer's close frame; if it came first, the answer is already in `out`. Nothing follows.
    Close {
        /// `None` for a close frame without a code (what RFC 6455, 7.1.5 calls 1005).
        code: Option<CloseCode>,
        /// The peer's reason, often empty.
        reason: &'a str,
    },
    /// The peer broke the protocol; the close frame is already in `out`. Nothing follows.
    Failed(ProtocolError),
}

/// The first bytes of a frame: `bytes[..length]` arrived.
#[derive(Clone, Copy, Debug, Default)]
struct PartialHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    length: u8,
}

/// What compression needs of one connection.
#[derive(Debug)]
struct Deflate {
    /// What the peer's next message may refer to.
    received: History,
    /// What our next message may refer to.
    sent: History,
    /// How our messages are compressed.
    setting: Setting,
    /// See [`DeflateAgreement::threshold_bytes`].
    threshold_bytes: usize,
    /// See [`DeflateAgreement::compress_bytes_max`].
    compress_bytes_max: usize,
}

/// The state of one connection after its handshake.
#[derive(Debug)]
pub struct Connection {
    /// See [`Limits::message_bytes_max`].
    message_bytes_max: usize,
    /// `None` for a server, which never masks.
    mask_source: Option<MaskSource>,
    /// The message that is not complete, or that the last call completed: the next one frees it.
    message: Option<Box<Assembly>>,
    /// The control frame that is not complete, or that the last call completed.
    control: Option<Box<ControlAssembly>>,
    /// A client that sends no masks, which the protocol forbids.
    is_unmasked: bool,
    /// How messages are compressed; `None`: they are not.
    deflate: Option<Box<Deflate>>,
    /// The payload of the latest ping, if its pong was put off.
    pong_owed: Option<Box<[u8]>>,
    /// See [`Limits::frames_per_message_max`].
    frames_per_message_max: u32,
    /// The header that is not complete, or that came without a byte of its payload.
    header: PartialHeader,
    /// A close frame was sent; nothing may be sent after it.
    close_sent: bool,
    /// The peer's close frame was received; its further bytes are ignored.
    close_received: bool,
    /// The peer broke the protocol; its further bytes are ignored.
    failed: bool,
}

impl Connection {
    /// The server's end of a connection.
    pub fn server(limits: &Limits) -> Self {
        Self::new(limits, None)
    }

    /// The client's end of a connection, which takes a new mask from `mask_source` for each frame.
    pub fn client(limits: &Limits, mask_source: MaskSource) -> Self {
        Self::new(limits, Some(mask_source))
    }

    /// The same connection, which masks nothing it sends: for tests of servers, which must refuse
    /// that of a client (RFC 6455, 5.1).
    pub fn without_masks(mut self) -> Self {
        self.is_unmasked = true;
        self
    }

    /// The same connection, whose messages may be compressed as was agreed in the handshake.
    pub fn with_deflate(mut self, agreement: &DeflateAgreement) -> Self {
        let (received, sent): (&DeflateDirection, _) = match self.role() {
            Role::Client => (&agreement.server, &agreement.client),
            Role::Server => (&agreement.client, &agreement.server),
        };
        self.deflate = Some(Box::new(Deflate {
            received: History::new(received),
            sent: History::new(sent),
            setting: Setting {
                window_bits: sent.window_bits,
                level: agreement.level,
            },
            threshold_bytes: agreement.threshold_bytes,
            compress_bytes_max: agreement.compress_bytes_max,
        }));
        self
    }

    fn new(limits: &Limits, mask_source: Option<MaskSource>) -> Self {
        Self {
            message_bytes_max: limits.message_bytes_max,
            mask_source,
            message: None,
            control: None,
            deflate: None,
            pong_owed: None,
            frames_per_message_max: limits.frames_per_message_max,
            header: PartialHeader::default(),
            is_unmasked: false,
            close_sent: false,
            close_received: false,
            failed: false,
        }
    }

    /// The end of the connection that this is.
    pub fn role(&self) -> Role {
        match self.mask_source {
            Some(_) => Role::Client,
            None => Role::Server,
        }
    }

    /// Whether the close handshake has begun, on either side, or the peer broke the protocol.
    pub fn is_closing(&self) -> bool {
        self.close_sent || self.close_received || self.failed
    }

    /// Whether a close frame was sent: nothing more can be.
    pub fn close_sent(&self) -> bool {
        self.close_sent
    }

    /// Whether the peer's close frame was received.
    pub fn close_received(&self) -> bool {
        self.close_received
    }

    /// Whether nothing more will be said in either direction: once `out` is sent, a server closes
    /// the socket and a client waits for that (RFC 6455, 7.1.1).
    pub fn is_closed(&self) -> bool {
        self.failed || (self.close_sent && self.close_received)
    }

    /// Bytes that the connection holds in memory beyond itself: of an unfinished message or control
    /// frame, and for compression.
    pub fn memory_bytes(&self) -> usize {
        let message = self.message.as_ref();
        let control = self.control.as_ref();
        let pong = self.pong_owed.as_ref();
        let deflate = self.deflate.as_ref().map_or(0, |deflate| {
            size_of::<Deflate>() + deflate.received.memory_bytes() + deflate.sent.memory_bytes()
        });
        message.map_or(0, |message| message.memory_bytes())
            + control.map_or(0, |control| size_of_val(&**control))
            + pong.map_or(0, |pong| pong.len())
            + deflate
    }

    /// Whether something has begun to come and is not complete: a frame, or a message whose other
    /// frames are still to come.
    pub fn is_unfinished(&self) -> bool {
        let message = self.message.as_ref();
        let control = self.control.as_ref();
        self.header.length > 0
            || message.is_some_and(|message| !message.is_complete())
            || control.is_some_and(|control| !control.is_complete())
    }

    /// Whether anything of the peer is kept beyond the connection itself.
    #[cfg(test)]
    pub(crate) fn keeps_anything(&self) -> bool {
        self.message.is_some() || self.control.is_some() || self.pong_owed.is_some()
    }
}
