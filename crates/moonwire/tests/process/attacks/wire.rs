//! Bytes as an attacker writes them: nothing here checks anything.

use zlib_rs::{Deflate, DeflateFlush};

/// An upgrade with further lines, each ended by CR LF.
pub(crate) fn upgrade(lines: &str) -> Vec<u8> {
    format!(
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{lines}\r\n"
    )
    .into_bytes()
}

/// Frames right behind a good upgrade.
pub(crate) fn open(frames: &[u8]) -> Vec<u8> {
    [&*upgrade(""), frames].concat()
}

/// The same with compression.
pub(crate) fn open_deflate(parameters: &str, frames: &[u8]) -> Vec<u8> {
    let lines = format!("Sec-WebSocket-Extensions: permessage-deflate{parameters}\r\n");
    [&*upgrade(&lines), frames].concat()
}

/// A masked frame with this first byte.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    frame_masked([0x11, 0x22, 0x33, 0x44], first, payload)
}

/// The same with this mask; the length is written as the RFC wants it.
pub(crate) fn frame_masked(mask: [u8; 4], first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..=125 => frame.push(0x80 | short as u8),
        medium @ 126..=0xffff => {
            frame.push(0xfe);
            frame.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            frame.push(0xff);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    let masked = payload.iter().zip(mask.iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}

/// The header of a masked frame that declares a length, with `form` as its second byte.
pub(crate) fn declared(first: u8, form: u8, length: &[u8]) -> Vec<u8> {
    [&[first, 0x80 | form], length, &[1, 2, 3, 4]].concat()
}

/// The payload of a compressed message of `bytes` zeros.
pub(crate) fn bomb(bytes: usize) -> Vec<u8> {
    let mut deflate = Deflate::new(9, false, 15);
    let mut output = vec![0; bytes / 500 + 1000];
    deflate
        .compress(&vec![0; bytes], &mut output, DeflateFlush::SyncFlush)
        .expect("there is room");
    output.truncate(deflate.total_out() as usize - 4);
    output
}
