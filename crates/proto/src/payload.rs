//! The payload of a message as it arrives.

use alloc::vec::Vec;

/// Bytes in pieces that are never moved while more come: to move 8 MiB takes several milliseconds,
/// in which nobody else is served. Beyond what came, at most one piece is held.
/// [`join`](Self::join) makes one slice of it.
#[derive(Debug, Default)]
pub(crate) struct Payload {
    /// The pieces before the newest, in order. All are full but for what was carried on.
    earlier: Vec<Vec<u8>>,
    /// Their bytes.
    earlier_bytes: usize,
    /// At most [`PIECE_BYTES`]; all of it, once it is joined.
    newest: Vec<u8>,
    /// Whether it must be UTF-8.
    is_text: bool,
    /// Of a text: so many bytes at the end of `newest` were not found to be valid. After a check it
    /// is the beginning of a character, at most 3 bytes.
    unchecked_bytes: usize,
    /// Whether it cannot become a valid text any more.
    is_invalid: bool,
}

impl Payload {
    pub(crate) fn new(is_text: bool) -> Self {
        Self {
            is_text,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.earlier_bytes + self.newest.len()
    }

    /// Appends, and makes room for no more than `bytes_max` in all.
    pub(crate) fn extend(&mut self, mut bytes: &[u8], bytes_max: usize) {
        while !bytes.is_empty() {
            let room = self.reserve(bytes.len(), bytes_max);
            let (part, rest) = bytes.split_at(room);
            self.newest.extend_from_slice(part);
            self.unchecked_bytes += room;
            bytes = rest;
        }
    }

    /// Lets `write` fill up to `bytes` more, at least one, and keeps as many as it says.
    pub(crate) fn write<T>(
        &mut self,
        bytes: usize,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> (usize, T),
    ) -> T {
        let mut bytes = bytes;
        if self.newest.capacity() >= MOVED_BYTES_MAX {
            // It may be far from its end, and is not moved to make room for what may never come.
            if self.newest.len() == self.newest.capacity() {
                self.turn_over();
            } else {
                bytes = bytes.min(self.newest.capacity() - self.newest.len());
            }
        }
        let room = self.reserve(bytes, bytes_max);
        let start = self.newest.len();
        self.newest.resize(start + room, 0);
        let (written, result) = write(self.newest.get_mut(start..).unwrap_or_default());
        self.newest.truncate(start + written);
        self.unchecked_bytes += written;
        result
    }

    /// Whether it is, or can still become, a text if it must be one (RFC 6455, 8.1).
    pub(crate) fn is_valid(&mut self, is_complete: bool) -> bool {
        self.check();
        let is_cut = self.is_text && is_complete && self.unchecked_bytes > 0;
        !self.is_invalid && !is_cut
    }

    /// Makes one piece of all.
    pub(crate) fn join(&mut self) {
        if self.earlier.is_empty() {
            return;
        }
        let mut whole = Vec::with_capacity(self.len());
        for piece in self.earlier.drain(..) {
            whole.extend_from_slice(&piece);
        }
        whole.extend_from_slice(&self.newest);
        self.newest = whole;
        self.earlier = Vec::new();
        self.earlier_bytes = 0;
    }

    /// All of it. It is joined.
    pub(crate) fn bytes(&self) -> &[u8] {
        debug_assert!(self.earlier.is_empty(), "it is joined");
        &self.newest
    }

    /// Up to [`MOVED_BYTES_MAX`] of those that came last, in two parts.
    pub(crate) fn last(&self, bytes: usize) -> [&[u8]; 2] {
        debug_assert!(
            bytes <= MOVED_BYTES_MAX,
            "no piece but the newest holds less"
        );
        let before = self.earlier.last().map_or(&[][..], Vec::as_slice);
        let newest = tail(&self.newest, bytes);
        [tail(before, bytes - newest.len()), newest]
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pieces: usize = self.earlier.iter().map(Vec::capacity).sum();
        let list = self.earlier.capacity() * size_of::<Vec<u8>>();
        pieces + list + self.newest.capacity()
    }

    /// Makes room for up to `bytes` in the newest piece; returns for how many.
    fn reserve(&mut self, bytes: usize, bytes_max: usize) -> usize {
        if self.newest.len() >= PIECE_BYTES {
            self.turn_over();
        }
        let room = bytes.min(PIECE_BYTES - self.newest.len());
        let (length, capacity) = (self.newest.len() + room, self.newest.capacity());
        if capacity < length {
            let grown = match self.earlier.is_empty() {
                true => (2 * capacity).min(PIECE_BYTES),
                false => self.len().min(PIECE_BYTES),
            };
            let possible = bytes_max.saturating_sub(self.earlier_bytes);
            let wanted = grown.min(possible).max(length);
            self.newest.reserve_exact(wanted - self.newest.len());
        }
        room
    }

    /// Begins another piece, with the character that has begun in this one.
    fn turn_over(&mut self) {
        self.check();
        let carried = match self.is_text && !self.is_invalid {
            true => tail(&self.newest, self.unchecked_bytes).to_vec(),
            false => Vec::new(),
        };
        self.newest.truncate(self.newest.len() - carried.len());
        self.earlier_bytes += self.newest.len();
        let full = core::mem::replace(&mut self.newest, carried);
        self.earlier.push(full);
    }

    /// Looks at what came since the last check.
    fn check(&mut self) {
        if !self.is_text || self.is_invalid {
            return;
        }
        match simdutf8::compat::from_utf8(tail(&self.newest, self.unchecked_bytes)) {
            Ok(_) => self.unchecked_bytes = 0,
            Err(error) if error.error_len().is_none() => {
                self.unchecked_bytes -= error.valid_up_to();
            }
            Err(_) => self.is_invalid = true,
        }
    }
}

fn tail(bytes: &[u8], length: usize) -> &[u8] {
    let start = bytes.len().saturating_sub(length);
    bytes.get(start..).unwrap_or_default()
}

/// What a piece holds at most. A heap has such blocks at hand.
const PIECE_BYTES: usize = 256 * 1024;

/// What is inflated is moved as it grows as long as a piece holds less: to move 128 KiB takes a
/// tenth of a millisecond, most of it for pages that are touched for the first time. No less than a
/// window of compression, which is never in more than two pieces then.
const MOVED_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(place: usize) -> u8 {
        (place % 251) as u8
    }

    #[test]
    fn it_is_the_same_however_it_came() {
        const LENGTH: usize = 3 * PIECE_BYTES + 12_345;
        let whole: Vec<u8> = (0..LENGTH).map(byte).collect();
        for step in [LENGTH, 1000, PIECE_BYTES, 70_000] {
            let mut payload = Payload::new(false);
            for part in whole.chunks(step) {
                payload.extend(part, LENGTH);
                assert!(payload.memory_bytes() <= 2 * payload.len() + 200);
                assert!(payload.memory_bytes() <= payload.len() + PIECE_BYTES + 200);
            }
            assert_eq!(payload.len(), LENGTH);
            assert!(payload.memory_bytes() <= LENGTH + 200);
            let [before, newest] = payload.last(32_768);
            assert_eq!([before, newest].concat(), whole[LENGTH - 32_768..]);
            payload.join();
            assert!(payload.is_valid(true));
            assert_eq!(payload.bytes(), whole);
            assert_eq!(payload.memory_bytes(), LENGTH);
        }
    }

    #[test]
    fn many_parts_cost_linear_time() {
        let mut payload = Payload::new(false);
        let mut moves = 0;
        for _ in 0..10_000 {
            let before = payload.memory_bytes();
            payload.extend(&[0; 10], 1 << 20);
            moves += u32::from(payload.memory_bytes() != before);
        }
        assert!(moves < 20, "{moves} reallocations");
    }

    #[test]
    fn room_to_write_is_within_a_piece() {
        let mut payload = Payload::new(false);
        while payload.len() < 2 * PIECE_BYTES + 100 {
            let room = payload.write(1000, usize::MAX, |room| {
                room.fill(7);
                (room.len() - room.len() / 2, room.len())
            });
            assert!((1..=1000).contains(&room), "{room}");
        }
        payload.join();
        assert!(payload.bytes().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_inflated_is_not_moved_once_it_is_long() {
        never_moves(Payload::new(false), byte);
        // A character that has begun goes on in the next piece.
        never_moves(Payload::new(true), |place| "€".as_bytes()[place % 3]);
    }

    fn never_moves(mut payload: Payload, byte: fn(usize) -> u8) {
        let mut before: Vec<*const u8> = Vec::new();
        while payload.len() < 2 * PIECE_BYTES {
            let start = payload.len();
            payload.write(5000, usize::MAX, |room| {
                for (place, to) in room.iter_mut().enumerate() {
                    *to = byte(start + place);
                }
                (room.len(), ())
            });
            assert!(payload.is_valid(false));
            let pieces = payload.earlier.iter().chain([&payload.newest]);
            let long = pieces.filter(|piece| piece.capacity() >= MOVED_BYTES_MAX);
            let places: Vec<*const u8> = long.map(|piece| piece.as_ptr()).collect();
            assert!(places.starts_with(&before));
            assert!(payload.memory_bytes() <= 2 * payload.len() + 5000 + 500);
            let window: usize = payload.last(32_768).iter().map(|part| part.len()).sum();
            assert_eq!(window, payload.len().min(32_768));
            before = places;
        }
    }

    #[test]
    fn a_small_one_takes_little_and_none_more_than_it_may_become() {
        let mut payload = Payload::new(false);
        for _ in 0..100 {
            payload.extend(&[0; 10], 1000);
        }
        assert_eq!(payload.memory_bytes(), 1000);
    }

    /// Characters of all lengths, which begin anywhere in a read and in a piece.
    #[test]
    fn a_text_is_checked_across_its_pieces() {
        let text = "aκ€😀".repeat(100_000);
        for (step, shift) in [(4099, 0), (4099, 1), (PIECE_BYTES, 2), (usize::MAX, 3)] {
            for damaged in [
                None,
                Some(PIECE_BYTES - 1),
                Some(PIECE_BYTES),
                Some(700_001),
            ] {
                let mut bytes = [&b"aaa"[..shift], text.as_bytes()].concat();
                if let Some(at) = damaged {
                    bytes[at] = 0xff;
                }
                let mut payload = Payload::new(true);
                let refused = bytes.chunks(step.min(bytes.len())).position(|part| {
                    payload.extend(part, 1 << 20);
                    !payload.is_valid(false)
                });
                assert_eq!(refused, damaged.map(|at| at / step));
                payload.join();
                let is_whole = payload.is_valid(true) && payload.bytes() == bytes;
                assert_eq!(is_whole, damaged.is_none());
            }
        }
        let mut cut = Payload::new(true);
        cut.extend("€".as_bytes().get(..2).unwrap(), 100);
        assert!(cut.is_valid(false) && !cut.is_valid(true));
    }
}
