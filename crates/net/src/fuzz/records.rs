//! Records of TLS as the input says, some of them changed on their way, in pieces that it cuts.

use crate::tls::{Records, TlsError};

/// A sequence of what a peer seals, and of what happens to the bytes; then the sizes of the pieces.
///
/// What was sealed comes out as it was as long as nothing was changed; after a change nothing comes
/// out that was not sealed. Whatever comes, what is kept stays bounded.
pub fn records(input: &[u8]) {
    let mut script = Script { input };
    let mut peer = Records::counted();
    let (mut wire, mut sealed) = (Vec::new(), Vec::new());
    let mut is_changed = false;
    for _ in 0..script.byte() % STEPS_MAX {
        match script.byte() % 6 {
            0 | 1 => {
                let length = script.length();
                let content: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
                peer.write(&content, &mut wire);
                sealed.extend_from_slice(&content);
            }
            2 => peer.request_key_update(&mut wire),
            3 => {
                // Anything but data, also none behind padding, or what comes out could be that.
                let (kind, length) = (script.byte(), usize::from(script.byte() % 64));
                if kind != DATA && kind != 0 {
                    let content = script.bytes(length);
                    peer.seal_any(kind, content, &mut wire);
                    is_changed = true;
                }
            }
            4 => {
                let place = script.length().checked_rem(wire.len());
                if let Some(byte) = place.and_then(|place| wire.get_mut(place)) {
                    *byte ^= script.byte() | 1;
                    is_changed = true;
                }
            }
            _ => {
                let length = usize::from(script.byte());
                wire.extend_from_slice(script.bytes(length));
                is_changed |= length > 0;
            }
        }
    }
    let told = opened(&wire, &mut script);
    let (plain, error) = (told.0, told.1);
    assert!(
        sealed.starts_with(&plain),
        "what was never sealed was opened"
    );
    if !is_changed {
        assert!(error.is_none(), "{error:?}");
        assert_eq!(plain.len(), sealed.len());
    }
}

/// What comes out of the wire, cut as the script says, until an error.
fn opened(mut wire: &[u8], script: &mut Script<'_>) -> (Vec<u8>, Option<TlsError>) {
    let mut records = Records::counted();
    let mut plain = Vec::new();
    while !wire.is_empty() {
        let length = match script.byte() {
            0 => wire.len(),
            short @ 1..=99 => usize::from(short),
            long => usize::from(long) * 200,
        };
        let (piece, rest) = wire.split_at(length.min(wire.len()));
        wire = rest;
        let mut piece = piece.to_vec();
        let is_in_place = length % 2 == 0;
        match records.open(&mut piece, &mut plain, is_in_place) {
            Ok(in_place) => plain.extend_from_slice(&piece[..in_place]),
            Err(error) => return (plain, Some(error)),
        }
        assert!(records.memory_bytes() < MEMORY_BYTES_MAX);
        let mut answer = Vec::new();
        records.write(b"", &mut answer);
        assert!(answer.len() < ANSWER_BYTES_MAX, "{} B", answer.len());
    }
    (plain, None)
}

/// The input, read from its front; zeros behind its end.
struct Script<'a> {
    input: &'a [u8],
}

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Up to what three records hold.
    fn length(&mut self) -> usize {
        usize::from(self.byte()) * 160 + usize::from(self.byte())
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.input.split_at(length.min(self.input.len()));
        self.input = rest;
        bytes
    }
}

/// The type of records with data.
const DATA: u8 = 23;
const STEPS_MAX: u8 = 32;
/// One record, a handshake message that is not whole, and the layer itself.
const MEMORY_BYTES_MAX: usize = 256 * 1024;
/// An alert, or a new key.
const ANSWER_BYTES_MAX: usize = 64;
