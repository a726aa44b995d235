//! Frame headers (RFC 6455, 5.2): decoded with every check that needs nothing but the header, and
//! encoded.

use alloc::vec::Vec;

use crate::error::ProtocolError;
use crate::mask;
use crate::opcode::Opcode;

/// What a frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrameKind {
    /// A further part of the open message.
    Continuation,
    /// A control frame.
    Control(ControlKind),
    /// The first part of a message.
    Data(Opcode),
}

/// What a control frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ControlKind {
    Close,
    Ping,
    Pong,
}

impl ControlKind {
    const fn as_u8(self) -> u8 {
        match self {
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }
}

impl FrameKind {
    const fn as_u8(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Control(control) => control.as_u8(),
            Self::Data(opcode) => opcode.as_u8(),
        }
    }

    #[inline(always)]
    fn from_u8(opcode: u8) -> Result<Self, ProtocolError> {
        match opcode {
            0 => Ok(Self::Continuation),
            1 => Ok(Self::Data(Opcode::Text)),
            2 => Ok(Self::Data(Opcode::Binary)),
            8 => Ok(Self::Control(ControlKind::Close)),
            9 => Ok(Self::Control(ControlKind::Ping)),
            10 => Ok(Self::Control(ControlKind::Pong)),
            reserved => Err(ProtocolError::OpcodeReserved(reserved)),
        }
    }
}

/// A decoded frame header that passed every check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    /// Whether this frame ends its message.
    pub(crate) fin: bool,
    pub(crate) kind: FrameKind,
    /// Whether it begins a compressed message (RFC 7692, 6).
    pub(crate) compressed: bool,
    /// The mask of a client's frame; `None` for a server's.
    pub(crate) mask: Option<[u8; 4]>,
    /// Length of the header itself: 2 to [`HEADER_BYTES_MAX`].
    pub(crate) header_bytes: usize,
    /// Length of the payload: at most 125 for a control frame, within the limit for data.
    pub(crate) payload_bytes: usize,
}

/// What the next frame is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// Whether the peer must mask, as a client must, or must not.
    pub(crate) masked: bool,
    /// The open message so far; `None` between messages.
    pub(crate) open_message: Option<OpenMessage>,
    /// Whether messages may be compressed.
    pub(crate) deflate: bool,
    pub(crate) message_bytes_max: usize,
    pub(crate) frames_per_message_max: u32,
}

/// A message of which frames are still to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMessage {
    /// Payload bytes of its frames so far, as they came.
    pub(crate) wire_bytes: usize,
    /// Frames so far.
    pub(crate) frames: u32,
    /// Whether it is compressed.
    pub(crate) compressed: bool,
}

impl Expectation {
    /// Decodes the header at the front of `bytes`; `None` while it is not complete.
    ///
    /// Each check looks only at the bytes up to the one that it is about, and the checks come in
    /// the order of the bytes: so the result does not depend on how the bytes were split.
    ///
    /// Inlined, with what it calls, where one frame per read is the rule: a third of the cost of a
    /// small message was the way of the header through memory.
    #[inline(always)]
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Option<Header>, ProtocolError> {
        let Some(&first) = bytes.first() else {
            return Ok(None);
        };
        let (fin, compressed, kind) = self.decode_first(first)?;
        let Some(&second) = bytes.get(1) else {
            return Ok(None);
        };
        if (second & MASKED != 0) != self.masked {
            return Err(match self.masked {
                true => ProtocolError::FrameUnmasked,
                false => ProtocolError::FrameMasked,
            });
        }
        let short = second & !MASKED;
        if matches!(kind, FrameKind::Control(_)) && usize::from(short) > CONTROL_BYTES_MAX {
            return Err(ProtocolError::ControlTooLong);
        }
        let Some((payload_bytes, header_bytes)) = decode_length(short, bytes)? else {
            return Ok(None);
        };
        let payload_bytes = self.check_length(kind, compressed, payload_bytes)?;
        if !self.masked {
            return Ok(Some(Header {
                fin,
                kind,
                compressed,
                mask: None,
                header_bytes,
                payload_bytes,
            }));
        }
        let Some(&mask) = bytes.get(header_bytes..).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let header_bytes = header_bytes + size_of_val(&mask);
        Ok(Some(Header {
            fin,
            kind,
            compressed,
            mask: Some(mask),
            header_bytes,
            payload_bytes,
        }))
    }

    #[inline(always)]
    fn decode_first(&self, first: u8) -> Result<(bool, bool, FrameKind), ProtocolError> {
        let reserved = first & RESERVED;
        let compressed = reserved == COMPRESSED && self.deflate;
        if reserved != 0 && !compressed {
            return Err(ProtocolError::ReservedBits);
        }
        let fin = first & FIN != 0;
        let kind = FrameKind::from_u8(first & OPCODE)?;
        if compressed && !matches!(kind, FrameKind::Data(_)) {
            // RFC 7692, 6.1: the bit belongs to the first frame of a message only.
            return Err(ProtocolError::ReservedBits);
        }
        match (kind, self.open_message) {
            (FrameKind::Control(_), _) if !fin => Err(ProtocolError::ControlFragmented),
            (FrameKind::Continuation, None) => Err(ProtocolError::ContinuationUnexpected),
            (FrameKind::Data(_), Some(_)) => Err(ProtocolError::MessageInterleaved),
            (FrameKind::Continuation, Some(open)) if open.frames >= self.frames_per_message_max => {
                Err(ProtocolError::TooManyFragments)
            }
            _ => Ok((fin, compressed, kind)),
        }
    }

    /// Refuses a message that would become too large, before anything of the frame is kept. How
    /// large a compressed one becomes is seen when it is inflated; here it is refused only if it
    /// has more bytes than such a message can need.
    #[inline(always)]
    fn check_length(
        &self,
        kind: FrameKind,
        compressed: bool,
        payload_bytes: u64,
    ) -> Result<usize, ProtocolError> {
        let (before, compressed) = match (kind, self.open_message) {
            (FrameKind::Continuation, Some(open)) => (open.wire_bytes as u64, open.compressed),
            (FrameKind::Control(_) | FrameKind::Continuation | FrameKind::Data(_), _) => {
                (0, compressed)
            }
        };
        let maximum = match compressed {
            true => compressed_bytes_max(self.message_bytes_max),
            false => self.message_bytes_max as u64,
        };
        let actual = before.saturating_add(payload_bytes);
        let limited = !matches!(kind, FrameKind::Control(_));
        match usize::try_from(payload_bytes) {
            Ok(bytes) if actual <= maximum || !limited => Ok(bytes),
            _ => Err(ProtocolError::PayloadTooLarge { actual, maximum }),
        }
    }
}

/// The payload length and the length of the header up to it (RFC 6455, 5.2, "Payload length").
#[inline(always)]
fn decode_length(short: u8, bytes: &[u8]) -> Result<Option<(u64, usize)>, ProtocolError> {
    let extended = bytes.get(2..).unwrap_or_default();
    match short {
        LENGTH_16 => {
            let Some(&length) = extended.first_chunk() else {
                return Ok(None);
            };
            match u16::from_be_bytes(length) {
                0..126 => Err(ProtocolError::LengthNotMinimal),
                length => Ok(Some((u64::from(length), 4))),
            }
        }
        LENGTH_64 => {
            let Some(&length) = extended.first_chunk() else {
                return Ok(None);
            };
            match u64::from_be_bytes(length) {
                0..0x1_0000 => Err(ProtocolError::LengthNotMinimal),
                length if length >> 63 != 0 => Err(ProtocolError::LengthOutOfRange),
                length => Ok(Some((length, 10))),
            }
        }
        length => Ok(Some((u64::from(length), 2))),
    }
}

/// The most bytes that a message of `message_bytes_max` can reasonably be compressed to: what does
/// not become smaller is stored in blocks, with 5 bytes to each, which some compressors make as
/// short as a kilobyte.
fn compressed_bytes_max(message_bytes_max: usize) -> u64 {
    let bytes = message_bytes_max as u64;
    bytes.saturating_add(bytes / 64).saturating_add(1024)
}

/// How a frame begins, apart from its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    pub(crate) kind: FrameKind,
    pub(crate) fin: bool,
    /// See [`Header::compressed`].
    pub(crate) compressed: bool,
}

impl Lead {
    /// Of a frame that is not the first one of a compressed message.
    pub(crate) const fn plain(kind: FrameKind, fin: bool) -> Self {
        Self {
            kind,
            fin,
            compressed: false,
        }
    }
}

/// Appends a whole frame, masked if there is a `mask`.
pub(crate) fn encode(lead: Lead, mask: Option<[u8; 4]>, payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEADER_BYTES_MAX + payload.len());
    encode_header(lead, mask, payload.len(), out);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        mask::apply(mask, out.get_mut(start..).unwrap_or_default());
    }
}

/// Appends the header of a frame whose payload of so many bytes follows.
pub(crate) fn encode_header(
    lead: Lead,
    mask: Option<[u8; 4]>,
    payload_bytes: usize,
    out: &mut Vec<u8>,
) {
    let fin = if lead.fin { FIN } else { 0 };
    let compressed = if lead.compressed { COMPRESSED } else { 0 };
    out.push(lead.kind.as_u8() | fin | compressed);
    let masked = if mask.is_some() { MASKED } else { 0 };
    match payload_bytes {
        length @ 0..126 => out.push(masked | length as u8),
        length @ 126..0x1_0000 => {
            out.push(masked | LENGTH_16);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(masked | LENGTH_64);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    if let Some(mask) = mask {
        out.extend_from_slice(&mask);
    }
}

/// The longest header: two bytes, a 64-bit length and a mask.
pub(crate) const HEADER_BYTES_MAX: usize = 14;
/// The longest payload of a control frame (RFC 6455, 5.5).
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
/// RSV1, which permessage-deflate claims (RFC 7692, 6).
const COMPRESSED: u8 = 0x40;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    /// A server between messages with a limit of 1 MiB.
    const SERVER: Expectation = Expectation {
        masked: true,
        open_message: None,
        deflate: false,
        message_bytes_max: 1 << 20,
        frames_per_message_max: 3,
    };
    /// A client with the same limits.
    const CLIENT: Expectation = Expectation {
        masked: false,
        ..SERVER
    };
    /// The same, inside a message of two frames and 1000 bytes.
    const INSIDE: Expectation = Expectation {
        open_message: Some(OpenMessage {
            wire_bytes: 1000,
            frames: 2,
            compressed: false,
        }),
        ..CLIENT
    };
    /// Between messages that may be compressed.
    const DEFLATE: Expectation = Expectation {
        deflate: true,
        ..CLIENT
    };
    /// Inside a message that is compressed.
    const INFLATING: Expectation = Expectation {
        open_message: Some(OpenMessage {
            wire_bytes: 1000,
            frames: 2,
            compressed: true,
        }),
        ..DEFLATE
    };

    fn encoded(kind: FrameKind, fin: bool, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        encode(Lead::plain(kind, fin), mask, payload, &mut out);
        out
    }

    #[test]
    fn the_vectors_of_rfc_6455_section_5_7() {
        let text = FrameKind::Data(Opcode::Text);
        let mask = Some([0x37, 0xfa, 0x21, 0x3d]);
        let ping = FrameKind::Control(ControlKind::Ping);
        let pong = FrameKind::Control(ControlKind::Pong);
        let binary = FrameKind::Data(Opcode::Binary);
        let hello = b"\x81\x05\x48\x65\x6c\x6c\x6f";
        assert_eq!(encoded(text, true, None, b"Hello"), hello);
        let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
        assert_eq!(encoded(text, true, mask, b"Hello"), masked);
        assert_eq!(encoded(text, false, None, b"Hel"), b"\x01\x03\x48\x65\x6c");
        assert_eq!(
            encoded(FrameKind::Continuation, true, None, b"lo"),
            b"\x80\x02\x6c\x6f"
        );
        assert_eq!(
            encoded(ping, true, None, b"Hello"),
            b"\x89\x05\x48\x65\x6c\x6c\x6f"
        );
        let masked = b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
        assert_eq!(encoded(pong, true, mask, b"Hello"), masked);
        assert_eq!(
            encoded(binary, true, None, &[0; 256])[..4],
            *b"\x82\x7e\x01\x00"
        );
        assert_eq!(
            encoded(binary, true, None, &[0; 65536])[..10],
            *b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"
        );
    }

    #[test]
    fn what_is_encoded_is_decoded_at_every_length_class_and_from_any_prefix() {
        for length in [0, 1, 125, 126, 127, 65535, 65536, 1 << 20] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let kind = FrameKind::Data(Opcode::Binary);
                let bytes = encoded(kind, true, mask, &vec![7; length]);
                let expectation = if mask.is_some() { SERVER } else { CLIENT };
                let header = expectation.decode(&bytes).unwrap().unwrap();
                let header_bytes = bytes.len() - length;
                assert_eq!(
                    header,
                    Header {
                        fin: true,
                        kind,
                        compressed: false,
                        mask,
                        header_bytes,
                        payload_bytes: length
                    }
                );
                for prefix in 0..header_bytes {
                    assert_eq!(expectation.decode(&bytes[..prefix]), Ok(None));
                }
            }
        }
    }

    #[test]
    fn each_breach_is_seen_on_the_first_byte_that_shows_it() {
        use ProtocolError::*;
        let too_large = |actual| PayloadTooLarge {
            actual,
            maximum: 1 << 20,
        };
        #[rustfmt::skip]
        let cases: &[(&[u8], Expectation, ProtocolError)] = &[
            (b"\xc1", SERVER, ReservedBits),
            (b"\xa1", SERVER, ReservedBits),
            (b"\x91", SERVER, ReservedBits),
            (b"\x83", SERVER, OpcodeReserved(3)),
            (b"\x07", SERVER, OpcodeReserved(7)),
            (b"\x8b", SERVER, OpcodeReserved(11)),
            (b"\x8f", SERVER, OpcodeReserved(15)),
            (b"\x08", SERVER, ControlFragmented),
            (b"\x09", SERVER, ControlFragmented),
            (b"\x0a", SERVER, ControlFragmented),
            (b"\x80", SERVER, ContinuationUnexpected),
            (b"\x00", SERVER, ContinuationUnexpected),
            (b"\x81", INSIDE, MessageInterleaved),
            (b"\x02", INSIDE, MessageInterleaved),
            (b"\x81\x05", SERVER, FrameUnmasked),
            (b"\x81\x85", CLIENT, FrameMasked),
            (b"\x88\xfe", SERVER, ControlTooLong),
            (b"\x89\x7e", CLIENT, ControlTooLong),
            (b"\x8a\x7f", CLIENT, ControlTooLong),
            (b"\x82\x7e\x00\x7d", CLIENT, LengthNotMinimal),
            (b"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", CLIENT, LengthNotMinimal),
            (b"\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", CLIENT, LengthOutOfRange),
            (b"\x82\x7f\x00\x00\x00\x00\x00\x10\x00\x01", CLIENT, too_large((1 << 20) + 1)),
            (b"\x82\xff\x00\x00\x00\x00\x00\x10\x00\x01", SERVER, too_large((1 << 20) + 1)),
            (b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", CLIENT, too_large(u64::MAX >> 1)),
            (b"\x80\x7f\x00\x00\x00\x00\x00\x0f\xfc\x19", INSIDE, too_large((1 << 20) + 1)),
            (b"\x80", Expectation { frames_per_message_max: 2, ..INSIDE }, TooManyFragments),
            (b"\xa1", DEFLATE, ReservedBits),
            (b"\xd1", DEFLATE, ReservedBits),
            (b"\xf1", DEFLATE, ReservedBits),
            (b"\xc9", DEFLATE, ReservedBits),
            (b"\xc8", DEFLATE, ReservedBits),
            (b"\xc0", INFLATING, ReservedBits),
            (b"\xc1", INFLATING, MessageInterleaved),
        ];
        for (bytes, expectation, error) in cases {
            assert_eq!(expectation.decode(bytes), Err(*error), "{bytes:x?}");
            let before = &bytes[..bytes.len() - 1];
            assert_eq!(expectation.decode(before), Ok(None), "{before:x?}");
        }
    }

    #[test]
    fn a_message_of_exactly_the_limit_and_control_frames_inside_it_pass() {
        let rest = b"\x80\x7f\x00\x00\x00\x00\x00\x0f\xfc\x18";
        assert_eq!(
            INSIDE.decode(rest).unwrap().unwrap().payload_bytes,
            (1 << 20) - 1000
        );
        let tiny = Expectation {
            message_bytes_max: 10,
            ..INSIDE
        };
        assert_eq!(
            tiny.decode(b"\x89\x7d").unwrap().unwrap().payload_bytes,
            125
        );
    }
}
