//! Compressed messages under any bytes in any reads, and what we compress.

use alloc::string::String;
use alloc::vec::Vec;

use flate2::{Decompress, FlushDecompress, Status};

use super::inflation::TAIL;
use super::{Codec, DeflateAgreement, DeflateDirection, WindowBits};
use crate::connection::Role;
use crate::frame::{self, ControlKind, FrameKind, Lead};
use crate::fuzz::{End, Input, MASK, Reads, Story, Told};
use crate::limits::Limits;
use crate::opcode::Opcode;

/// Compressed messages: choices of what this end is and what was agreed, sizes of reads, then
/// frames as they come, or the payloads of frames, or messages that are to cross unharmed.
pub fn deflate(input: &[u8]) {
    let mut input = Input::new(input);
    let choice = input.byte();
    let agreement = agreement(choice, input.byte(), input.byte());
    let reads = input.reads();
    let end = End {
        role: if choice & CLIENT == 0 {
            Role::Server
        } else {
            Role::Client
        },
        limits: Limits {
            message_bytes_max: 5000,
            frames_per_message_max: 5,
            ..Limits::default()
        },
        deflate: Some(&agreement),
        echoes: choice & ECHOES != 0,
        closes_after: None,
    };
    match choice & SHAPES {
        FRAMES => {
            end.hears(input.rest(), reads);
        }
        PAYLOADS => {
            end.hears(&framed(input, end.role), reads);
        }
        _ => cross(input, &end, &agreement, reads),
    }
}

/// Any parameters, and any level.
fn agreement(choice: u8, bits: u8, effort: u8) -> DeflateAgreement {
    let direction = |takeover: u8, bits: u8| DeflateDirection {
        context_takeover: choice & takeover != 0,
        window_bits: WindowBits::new(8 + (bits & 7)).expect("8 to 15"),
    };
    DeflateAgreement {
        server: direction(SERVER_TAKEOVER, bits),
        client: direction(CLIENT_TAKEOVER, bits >> 4),
        level: 1 + effort % 9,
        threshold_bytes: usize::from(effort >> 4),
        compress_bytes_max: usize::MAX,
    }
}

/// Frames whose headers are in order, but for what the input says of each: how it begins, its
/// length, its payload.
fn framed(mut input: Input<'_>, listener: Role) -> Vec<u8> {
    let mask = (listener == Role::Server).then_some(MASK.to_ne_bytes());
    let mut bytes = Vec::new();
    while !input.is_empty() {
        let shape = input.byte();
        let length = input.byte();
        let kind = match shape & 7 {
            0 | 1 => FrameKind::Data(Opcode::Text),
            2..=4 => FrameKind::Data(Opcode::Binary),
            5 => FrameKind::Control(ControlKind::Ping),
            _ => FrameKind::Continuation,
        };
        let length = match kind {
            FrameKind::Control(_) => length & 0x3f,
            FrameKind::Data(_) | FrameKind::Continuation => length,
        };
        let lead = Lead {
            kind,
            fin: shape & 8 == 0,
            compressed: shape & 16 == 0 && matches!(kind, FrameKind::Data(_)),
        };
        frame::encode(lead, mask, input.bytes(length.into()), &mut bytes);
    }
    bytes
}

/// A message that is sent: opcode, payload, sizes of its fragments.
struct Sent {
    opcode: Opcode,
    payload: Vec<u8>,
    fragment_bytes: usize,
}

/// Each is made of pieces: a few bytes of the input, over and over, or noise, or what was sent
/// before about as far back as a window reaches. So windows are filled, left behind and referred to
/// across.
fn messages(mut input: Input<'_>, window_bytes: usize, bytes_max: usize) -> Vec<Sent> {
    let mut left = bytes_max;
    let mut messages = Vec::new();
    let mut history = Vec::new();
    while !input.is_empty() && left > 0 {
        let start = history.len();
        let mut shape = 1;
        while shape & 1 != 0 && !input.is_empty() {
            shape = input.byte();
            let (length, times) = (input.byte(), input.byte());
            let before = history.len();
            match (length, times) {
                (0, 0..128) => history.extend(noise(times, window_bytes.min(left) / 2)),
                (0, 128..) => {
                    let distance =
                        (window_bytes + 191).saturating_sub(2 * usize::from(times - 128));
                    let from = before.saturating_sub(distance);
                    history.extend_from_within(from..before.min(from + 32));
                }
                _ => {
                    let piece = input.bytes(length.into());
                    let times = (1 + usize::from(times)).min(1 + left / piece.len().max(1));
                    history.extend_from_slice(&piece.repeat(times));
                }
            }
            left = left.saturating_sub(history.len() - before + 1);
        }
        let payload = history.get(start..).unwrap_or_default().to_vec();
        let fragment_bytes = match shape >> 1 {
            0 => usize::MAX,
            bytes => 16 * usize::from(bytes),
        };
        let opcode = match core::str::from_utf8(&payload) {
            Ok(_) => Opcode::Text,
            Err(_) => Opcode::Binary,
        };
        messages.push(Sent {
            opcode,
            payload,
            fragment_bytes,
        });
    }
    messages
}

/// Characters of which few come twice in a row, another series for each seed. They are of 64 kinds,
/// so that they get shorter and are not stored as they are.
fn noise(seed: u8, bytes: usize) -> impl Iterator<Item = u8> {
    let mut state = (u32::from(seed) + 1).wrapping_mul(0x9E37_79B9);
    core::iter::repeat_with(move || {
        // Xorshift (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        b'0' + state.to_be_bytes()[0] % 64
    })
    .take(bytes)
}

/// What the other end sends is heard as it was meant, and a plain inflater with the agreed window
/// finds the same in it.
fn cross(input: Input<'_>, end: &End<'_>, agreement: &DeflateAgreement, reads: Reads<'_>) {
    let (sender, direction) = match end.role {
        Role::Client => (Role::Server, agreement.server),
        Role::Server => (Role::Client, agreement.client),
    };
    // More than a window, and little more: zlib is slow when each comparison is traced.
    let window_bytes = direction.window_bits.window_bytes();
    let bytes_max = (2 * window_bytes + 1000).min(window_bytes + 4000);
    let limits = Limits {
        // The last piece may exceed it.
        message_bytes_max: 2 * bytes_max,
        frames_per_message_max: u32::MAX,
        ..Limits::default()
    };
    let (sender, listener) = (
        End {
            role: sender,
            limits,
            ..*end
        },
        End { limits, ..*end },
    );
    let mut connection = sender.connection();
    let mut plain = PlainInflater::new(&direction);
    let (mut wire, mut codec) = (Vec::new(), Codec::new());
    let messages = messages(input, window_bytes, bytes_max);
    for message in &messages {
        let start = wire.len();
        let Sent {
            opcode,
            payload,
            fragment_bytes,
        } = message;
        connection
            .send_fragmented(*opcode, payload, *fragment_bytes, &mut wire, &mut codec)
            .expect("it is open");
        let sent = wire.get(start..).unwrap_or_default();
        if let Some(compressed) = compressed_payload(sent, sender.role) {
            plain.check(&compressed, payload);
        }
    }
    let expected = messages.into_iter().map(|message| {
        let payload = message.payload;
        match message.opcode {
            Opcode::Text => Told::Text(String::from_utf8(payload).expect("it was looked at")),
            Opcode::Binary => Told::Binary(payload),
        }
    });
    let expected: Vec<Told> = expected.collect();
    let Story { told, .. } = listener.hears(&wire, reads);
    assert!(told == expected, "a message did not cross unharmed");
}

/// The payload of a message in frames without faults, if it is compressed.
fn compressed_payload(mut frames: &[u8], sender: Role) -> Option<Vec<u8>> {
    let is_compressed = frames.first()? & 0x40 != 0;
    let mut payload = Vec::new();
    while let [_, length, rest @ ..] = frames {
        let (length, rest) = match length & 0x7f {
            126 => {
                let (length, rest) = rest.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(*length)), rest)
            }
            127 => {
                let (length, rest) = rest.split_first_chunk()?;
                (usize::try_from(u64::from_be_bytes(*length)).ok()?, rest)
            }
            length => (usize::from(length), rest),
        };
        let mask: &[u8] = match sender {
            Role::Client => &MASK.to_ne_bytes(),
            Role::Server => &[],
        };
        let rest = rest.get(mask.len()..)?;
        let (part, rest) = rest.split_at_checked(length)?;
        let mask = mask.iter().cycle().chain(core::iter::repeat(&0));
        payload.extend(part.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        frames = rest;
    }
    is_compressed.then_some(payload)
}

/// An inflater that goes on from message to message, as most implementations have it. It has the
/// window that was agreed on and no more: that of zlib-rs has 32 KiB whatever it is told.
struct PlainInflater {
    inflater: Decompress,
    context_takeover: bool,
}

impl PlainInflater {
    fn new(direction: &DeflateDirection) -> Self {
        // zlib has no window of 256 bytes; what refers to nothing needs none.
        let window_bits = direction.window_bits.get().max(9);
        Self {
            inflater: Decompress::new_with_window_bits(false, window_bits),
            context_takeover: direction.context_takeover,
        }
    }

    fn check(&mut self, compressed: &[u8], expected: &[u8]) {
        if !self.context_takeover {
            self.inflater.reset(false);
        }
        let compressed = [compressed, &TAIL].concat();
        let mut rest = compressed.as_slice();
        let mut payload = Vec::new();
        loop {
            // Small, because what is in here can be referred to besides the window.
            let mut room = [0; 16];
            let (taken, written) = (self.inflater.total_in(), self.inflater.total_out());
            let status = self
                .inflater
                .decompress(rest, &mut room, FlushDecompress::None);
            let taken = (self.inflater.total_in() - taken) as usize;
            let written = (self.inflater.total_out() - written) as usize;
            rest = rest.get(taken..).unwrap_or_default();
            payload.extend_from_slice(room.get(..written).unwrap_or_default());
            assert!(
                matches!(status, Ok(Status::Ok | Status::BufError)),
                "a plain inflater finds no message: {status:?}"
            );
            if taken == 0 && written == 0 {
                break;
            }
        }
        assert!(
            payload == expected,
            "a plain inflater finds another message"
        );
    }
}

/// Choices: what the rest of the input is.
const SHAPES: u8 = 3;
const FRAMES: u8 = 0;
const PAYLOADS: u8 = 1;
/// This end is the client.
const CLIENT: u8 = 4;
/// Messages are sent back.
const ECHOES: u8 = 8;
const SERVER_TAKEOVER: u8 = 16;
const CLIENT_TAKEOVER: u8 = 32;
