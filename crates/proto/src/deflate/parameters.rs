//! What two ends agreed on.

use core::fmt;

/// The base-2 logarithm of the size of an LZ77 window: 8 to 15 (RFC 7692, 7.1.2).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct WindowBits(u8);

impl WindowBits {
    /// 256 bytes.
    pub const MIN: Self = Self(8);
    /// 32 KiB.
    pub const MAX: Self = Self(15);

    /// A number of bits, if it is one that the protocol has.
    pub const fn new(bits: u8) -> Option<Self> {
        match bits {
            8..=15 => Some(Self(bits)),
            _ => None,
        }
    }

    /// The number of bits: 8 to 15.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Bytes of the window: 256 to 32,768.
    pub const fn window_bytes(self) -> usize {
        1 << self.0
    }
}

impl fmt::Display for WindowBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How the messages in one direction are compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeflateDirection {
    /// Whether a message may refer to the ones before it (RFC 7692, 7.1.1).
    pub context_takeover: bool,
    /// The largest window that the sender uses.
    pub window_bits: WindowBits,
}

/// What a request and its response agreed on (RFC 7692, 7.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeflateAgreement {
    /// Of what the server sends.
    pub server: DeflateDirection,
    /// Of what the client sends.
    pub client: DeflateDirection,
    /// How hard this end compresses: 1 (fastest) to 9, as in zlib.
    pub level: u8,
    /// Messages shorter than this are sent as they are.
    pub threshold_bytes: usize,
    /// Messages longer than this are sent as they are, too.
    pub compress_bytes_max: usize,
}
