//! Bytes that no honest client sends, drawn by chance.

use fastrand::Rng;

use crate::attacks::wire::frame_masked;

/// A name for the failure message, and what to send on a fresh connection.
pub(super) fn draw(rng: &mut Rng) -> (&'static str, Vec<u8>) {
    let (name, make) = KINDS[rng.usize(..KINDS.len())];
    (name, make(rng))
}

/// A request that is as it should be.
pub(super) fn handshake(target: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Version: 13\r\n\r\n"
    )
}

type Kind = (&'static str, fn(&mut Rng) -> Vec<u8>);

const KINDS: &[Kind] = &[
    ("random bytes", |rng| bytes(rng, 4096)),
    ("a truncated handshake", |rng| {
        let whole = handshake("/echo");
        whole.as_bytes()[..rng.usize(..whole.len())].to_vec()
    }),
    ("a handshake with a flipped byte", |rng| {
        let mut whole = handshake("/echo").into_bytes();
        let at = rng.usize(..whole.len());
        whole[at] ^= rng.u8(1..);
        whole
    }),
    ("a wrong line", |rng| {
        let (right, wrong) = WRONG_LINES[rng.usize(..WRONG_LINES.len())];
        let request = handshake("/echo");
        assert!(request.contains(right), "{right}");
        request.replace(right, wrong).into_bytes()
    }),
    ("a head without end", |rng| {
        let line = format!("X-Filler: {}\r\n", "a".repeat(rng.usize(1..500)));
        format!("GET /echo HTTP/1.1\r\n{}", line.repeat(rng.usize(60..400))).into_bytes()
    }),
    ("an unknown path", |_| {
        handshake("/../../etc/passwd").into_bytes()
    }),
    ("a plain request", |_| {
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()
    }),
    ("a TLS hello", |rng| {
        [b"\x16\x03\x01\x02\x00\x01", bytes(rng, 600).as_slice()].concat()
    }),
    ("random frames", |rng| open(&bytes(rng, 2048))),
    ("a frame without a mask", |_| open(b"\x81\x05hello")),
    ("reserved bits", |rng| {
        let bits = rng.u8(1..8) << 4;
        open(&frame(rng, 0x81 | bits, b"hello"))
    }),
    ("an unknown opcode", |rng| {
        let codes = [3, 4, 5, 6, 7, 0xb, 0xc, 0xd, 0xe, 0xf];
        let code = codes[rng.usize(..codes.len())];
        open(&frame(rng, 0x80 | code, b"hello"))
    }),
    ("a long control frame", |rng| {
        open(&frame(rng, 0x89, &[7; 126]))
    }),
    ("a fragmented ping", |rng| open(&frame(rng, 0x09, b"hello"))),
    ("a continuation of nothing", |rng| {
        open(&frame(rng, 0x80, b"hello"))
    }),
    ("a message inside a message", |rng| {
        open(&[frame(rng, 0x01, b"hel"), frame(rng, 0x81, b"lo")].concat())
    }),
    ("text that is not UTF-8", |rng| {
        let texts: [&[u8]; 4] = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"];
        let text = texts[rng.usize(..texts.len())];
        open(&frame(rng, 0x81, text))
    }),
    ("a length beyond all limits", |rng| {
        let length = rng.u64(1 << 32..);
        open(
            &[
                b"\x82\xff".as_slice(),
                &length.to_be_bytes(),
                &[1, 2, 3, 4, 5],
            ]
            .concat(),
        )
    }),
    ("a length in too many bytes", |_| {
        open(b"\x82\xfe\x00\x05\x01\x02\x03\x04hello")
    }),
    ("a close of one byte", |rng| {
        open(&frame(rng, 0x88, b"\x03"))
    }),
    ("a close with a code for nobody", |rng| {
        let codes: [u16; 7] = [0, 999, 1004, 1005, 1006, 1015, 5000];
        let code = codes[rng.usize(..codes.len())];
        open(&frame(rng, 0x88, &code.to_be_bytes()))
    }),
    ("frames after a close", |rng| {
        let close = frame(rng, 0x88, &1000_u16.to_be_bytes());
        open(&[close, frame(rng, 0x81, b"still there?")].concat())
    }),
    ("many small fragments", |rng| {
        let first = frame(rng, 0x01, b"");
        open(&[first, frame(rng, 0x00, b"a").repeat(rng.usize(1..2000))].concat())
    }),
    ("a flood of pings", |rng| {
        open(&frame(rng, 0x89, b"flood").repeat(rng.usize(1..500)))
    }),
    ("a truncated message", |rng| {
        let size = rng.usize(1..70_000);
        let mut whole = frame(rng, 0x82, &vec![9; size]);
        whole.truncate(rng.usize(..whole.len()));
        open(&whole)
    }),
];

/// Lines of the handshake with what to put in their place.
const WRONG_LINES: &[(&str, &str)] = &[
    ("GET ", "POST "),
    ("GET ", "GET  "),
    ("HTTP/1.1", "HTTP/1.0"),
    ("HTTP/1.1", "HTTP/9.9"),
    ("/echo", ""),
    ("/echo", "/echo\u{0}"),
    ("Host: localhost\r\n", ""),
    ("Host: localhost", "Host : localhost"),
    ("Upgrade: websocket\r\n", ""),
    ("Upgrade: websocket", "Upgrade: h2c"),
    ("Connection: Upgrade", "Connection: close"),
    ("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
    ("dGhlIHNhbXBsZSBub25jZQ==", "!!!!!!!!!!!!!!!!!!!!!!=="),
    ("Version: 13", "Version: 8"),
    (
        "Version: 13\r\n",
        "Version: 13\r\nContent-Length: 18446744073709551616\r\n",
    ),
    (
        "Version: 13\r\n",
        "Version: 13\r\nTransfer-Encoding: chunked\r\n",
    ),
    (
        "Version: 13\r\n",
        "Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ),
    ("\r\n", "\n"),
];

/// Frames right behind a good handshake, in the same bytes.
fn open(frames: &[u8]) -> Vec<u8> {
    [handshake("/echo").as_bytes(), frames].concat()
}

/// A masked frame with this first byte.
fn frame(rng: &mut Rng, first: u8, payload: &[u8]) -> Vec<u8> {
    frame_masked(rng.u32(..).to_be_bytes(), first, payload)
}

fn bytes(rng: &mut Rng, length_max: usize) -> Vec<u8> {
    let length = rng.usize(1..=length_max);
    (0..length).map(|_| rng.u8(..)).collect()
}
