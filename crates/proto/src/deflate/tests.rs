//! Compression as the two ends of a connection see it.

mod hostile;
mod messages;
mod negotiation;

use std::vec::Vec;

use crate::deflate::{DeflateAgreement, DeflateDirection, WindowBits};
use crate::{Codec, Connection, Event, Limits, ProtocolError};

/// The same in both directions.
fn agreement(context_takeover: bool, bits: u8) -> DeflateAgreement {
    at_level(6, context_takeover, bits)
}

fn at_level(level: u8, context_takeover: bool, bits: u8) -> DeflateAgreement {
    let direction = DeflateDirection {
        context_takeover,
        window_bits: WindowBits::new(bits).unwrap(),
    };
    DeflateAgreement {
        server: direction,
        client: direction,
        level,
        threshold_bytes: 0,
        compress_bytes_max: usize::MAX,
    }
}

fn limits(message_bytes_max: usize) -> Limits {
    Limits {
        message_bytes_max,
        ..Limits::default()
    }
}

/// A client, which reads unmasked frames.
fn client(agreement: &DeflateAgreement, message_bytes_max: usize) -> Connection {
    Connection::client(&limits(message_bytes_max), || 0x5a5a_5a5a).with_deflate(agreement)
}

fn server(agreement: &DeflateAgreement) -> Connection {
    Connection::server(&limits(1 << 24)).with_deflate(agreement)
}

/// The messages in `bytes`, in reads of `read_bytes`; or what was wrong with them.
fn read(
    connection: &mut Connection,
    bytes: &[u8],
    read_bytes: usize,
    codec: &mut Codec,
) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let (mut messages, mut out) = (Vec::new(), Vec::new());
    for part in bytes.chunks(read_bytes) {
        let mut part = part.to_vec();
        let mut taken = 0;
        loop {
            let step = connection.receive(&mut part[taken..], &mut out, codec);
            taken += step.taken;
            match step.event {
                Some(Event::Message { payload, .. }) => messages.push(payload.to_vec()),
                Some(Event::Failed(error)) => return Err(error),
                Some(Event::Ping(_) | Event::Pong(_)) => {}
                Some(event @ Event::Close { .. }) => panic!("{event:?}"),
                None if step.taken == 0 => break,
                None => {}
            }
        }
    }
    Ok(messages)
}

/// An unmasked frame of less than 64 KiB whose first byte is given.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length => {
            frame.push(126);
            frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}
