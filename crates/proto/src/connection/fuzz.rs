//! A connection under any bytes in any reads; the input chooses both.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use super::Role;
use crate::close::CloseCode;
use crate::deflate::Codec;
use crate::error::ProtocolError;
use crate::frame::{self, ControlKind, FrameKind, Lead};
use crate::fuzz::{End, Input, Reads, Story, Told};
use crate::limits::Limits;
use crate::opcode::Opcode;

/// Frames and messages: a choice of what this end is and does, sizes of reads, and what its peer
/// sends.
pub fn frames(input: &[u8]) {
    let mut input = Input::new(input);
    let choice = input.byte();
    let reads = input.reads();
    let message_bytes_max = match choice & LARGE {
        0 => 500,
        // 64-bit lengths are within it.
        _ => 70_000,
    };
    let end = End {
        limits: Limits {
            message_bytes_max,
            frames_per_message_max: 5,
            ..Limits::default()
        },
        echoes: choice & ECHOES != 0,
        closes_after: usize::from(choice >> CLOSES_SHIFT & 3).checked_sub(1),
        ..end(role(choice))
    };
    end.hears(input.rest(), reads);
}

/// Close frames: a choice of what this end is and did, sizes of reads, the payload of the peer's
/// close frame behind its length, and what the peer sends after it.
pub fn close(input: &[u8]) {
    let mut input = Input::new(input);
    let choice = input.byte();
    let reads = input.reads();
    let length = input.byte() & 0x7f;
    let payload = input.bytes(usize::from(length).min(frame::CONTROL_BYTES_MAX));
    let rest = input.rest();
    close_is_heard(choice, reads, payload, rest);
    close_is_said(role(choice), payload, rest);
}

/// The peer's close frame is told as it is, or as the breach that it is, and answered once.
fn close_is_heard(choice: u8, reads: Reads<'_>, payload: &[u8], rest: &[u8]) {
    let end = End {
        // Before anything is heard, or never.
        closes_after: (choice & CLOSES != 0).then_some(0),
        ..end(role(choice))
    };
    let mask = (end.role == Role::Server).then_some([choice; 4]);
    let mut bytes = Vec::new();
    if choice & WITHIN_MESSAGE != 0 {
        let lead = Lead::plain(FrameKind::Data(Opcode::Binary), false);
        frame::encode(lead, mask, b"begun", &mut bytes);
    }
    frame::encode(CLOSE, mask, payload, &mut bytes);
    bytes.extend_from_slice(rest);
    let Story { told, out } = end.hears(&bytes, reads);

    let expected = meaning(payload);
    assert_eq!(told, core::slice::from_ref(&expected));
    let code = match (&expected, end.closes_after) {
        (_, Some(_)) => Some(CloseCode::GOING_AWAY.as_u16()),
        (Told::Close(code, _), None) => *code,
        (Told::Failed(ProtocolError::Utf8Invalid), None) => Some(1007),
        _ => Some(1002),
    };
    // The peer, which has closed, hears that close frame and nothing else.
    let peer = End {
        closes_after: Some(0),
        ..self::end(opposite(end.role))
    };
    let Story { told, .. } = peer.hears(&out, reads);
    assert_eq!(told, [Told::Close(code, String::new())]);
}

/// What a close frame with this payload is (RFC 6455, 5.5.1 and 7.4).
fn meaning(payload: &[u8]) -> Told {
    let [high, low, reason @ ..] = payload else {
        return match payload {
            [] => Told::Close(None, String::new()),
            _ => Told::Failed(ProtocolError::ClosePayloadTooShort),
        };
    };
    let code = u16::from_be_bytes([*high, *low]);
    let is_registered = (1000..=1014).contains(&code) && !(1004..=1006).contains(&code);
    if !is_registered && !(3000..=4999).contains(&code) {
        return Told::Failed(ProtocolError::CloseCodeInvalid(code));
    }
    match str::from_utf8(reason) {
        Ok(reason) => Told::Close(Some(code), reason.into()),
        Err(_) => Told::Failed(ProtocolError::Utf8Invalid),
    }
}

/// A close of ours with any reason is heard with as much of it as fits.
fn close_is_said(role: Role, code: &[u8], reason: &[u8]) {
    let number = u16::from_be_bytes(code.first_chunk().copied().unwrap_or_default());
    let code = CloseCode::new(number).unwrap_or(CloseCode::NORMAL);
    let reason = String::from_utf8_lossy(reason);
    let (mut connection, mut out) = (end(role).connection(), Vec::new());
    let closed = connection.close(code, &reason, &mut out);
    closed.expect("a new connection is open");
    let again = connection.send(Opcode::Text, b"", &mut out, &mut Codec::new());
    assert!(again.is_err(), "something is sent after a close");
    let Story { told, .. } = end(opposite(role)).hears(&out, Reads::ONE);
    let [Told::Close(Some(heard), said)] = told.as_slice() else {
        panic!("{told:?} was heard");
    };
    let is_all = said.len() == reason.len() || said.len() > REASON_BYTES_MAX - 4;
    assert!(
        *heard == code.as_u16() && reason.starts_with(said) && is_all,
        "{heard} {said:?}"
    );
}

/// An end that only listens.
fn end(role: Role) -> End<'static> {
    End {
        role,
        limits: Limits::default(),
        deflate: None,
        echoes: false,
        closes_after: None,
    }
}

fn role(choice: u8) -> Role {
    match choice & 1 {
        0 => Role::Server,
        _ => Role::Client,
    }
}

fn opposite(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

/// Choices of `frames`: messages are sent back.
const ECHOES: u8 = 2;
/// Of two bits: when this end closes, if it does.
const CLOSES_SHIFT: u32 = 2;
/// Large messages are allowed.
const LARGE: u8 = 16;

/// Choices of `close`: this end closes first.
const CLOSES: u8 = 2;
/// The peer closes within a message.
const WITHIN_MESSAGE: u8 = 4;

const CLOSE: Lead = Lead {
    kind: FrameKind::Control(ControlKind::Close),
    fin: true,
    compressed: false,
};

/// What fits into a close frame besides the code.
const REASON_BYTES_MAX: usize = frame::CONTROL_BYTES_MAX - 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Half noise, half frames with noise in them: noise alone never gets past a header.
    fn input(seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let choice = random.u8(..32);
        let sizes = random.u8(..30);
        let mut input = std::vec![choice, sizes];
        input.extend((0..sizes).map(|_| random.u8(..20)));
        for _ in 0..random.usize(1..8) {
            let mut payload: Vec<u8> = (0..random.usize(..150))
                .map(|_| random.u8(b' '..))
                .collect();
            if random.bool() {
                payload.iter_mut().for_each(|byte| *byte &= 0x7f);
            }
            let mask = (choice & 1 == 0).then(|| random.u32(..).to_ne_bytes());
            let kind = [FrameKind::Data(Opcode::Text), FrameKind::Continuation][random.usize(..2)];
            let start = input.len();
            frame::encode(Lead::plain(kind, random.bool()), mask, &payload, &mut input);
            // Any opcode, mostly the good ones.
            if random.u8(..3) == 0 {
                input[start] = (input[start] & 0x80) | random.u8(..11);
            }
            if random.u8(..10) == 0 {
                let place = random.usize(start..input.len());
                input[place] = random.u8(..);
            }
        }
        input
    }

    #[test]
    fn seeds() {
        for seed in 0..2000 {
            let input = input(seed);
            std::panic::catch_unwind(|| frames(&input)).unwrap_or_else(|_| panic!("seed {seed}"));
        }
    }
}
