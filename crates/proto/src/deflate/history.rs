//! What of earlier messages the next one may refer to.

use alloc::vec::Vec;

use super::parameters::DeflateDirection;

/// A history that needs more than one part of this many of its window takes the whole of it.
const WHOLE_WINDOW_FROM: usize = 8;

/// The last bytes of the messages of one direction, at most a window of them; always empty without
/// context takeover.
#[derive(Debug)]
pub(crate) struct History {
    /// Invariant: at most `bytes_max`, the newest byte last.
    bytes: Vec<u8>,
    /// The size of the window; 0 without context takeover.
    bytes_max: usize,
}

impl History {
    pub(crate) fn new(direction: &DeflateDirection) -> Self {
        let bytes_max = match direction.context_takeover {
            true => direction.window_bits.window_bytes(),
            false => 0,
        };
        Self {
            bytes: Vec::new(),
            bytes_max,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes note of a whole compressed message, in the clear.
    pub(crate) fn append(&mut self, message: &[u8]) {
        let newest = message.len().saturating_sub(self.bytes_max);
        let newest = message.get(newest..).unwrap_or_default();
        let surplus = (self.bytes.len() + newest.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..surplus.min(self.bytes.len()));
        let missing = newest
            .len()
            .saturating_sub(self.bytes.capacity() - self.bytes.len());
        if missing > 0 {
            let wanted = self.capacity_for(self.bytes.len() + newest.len());
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(newest);
    }

    /// Doubled up to a part of the window, and from there the whole of it: each step to a larger
    /// block leaves a hole behind that the windows of other connections fill only in part.
    fn capacity_for(&self, length: usize) -> usize {
        let doubled = (2 * self.bytes.capacity()).max(length);
        match doubled <= self.bytes_max / WHOLE_WINDOW_FROM {
            true => doubled,
            false => self.bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deflate::WindowBits;

    fn history(context_takeover: bool) -> History {
        History::new(&DeflateDirection {
            context_takeover,
            window_bits: WindowBits::MIN,
        })
    }

    #[test]
    fn the_newest_bytes_of_one_window_are_kept() {
        let mut history = history(true);
        let bytes: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
        let mut end = 0;
        for length in [0, 1, 100, 155, 1, 3, 256, 257, 40] {
            history.append(&bytes[end..end + length]);
            end += length;
            let start = end.saturating_sub(256);
            assert_eq!(history.bytes(), &bytes[start..end]);
            assert!(history.memory_bytes() <= 256);
        }
    }

    #[test]
    fn without_takeover_nothing_is_kept() {
        let mut history = history(false);
        history.append(&[7; 1000]);
        assert!(history.bytes().is_empty());
        assert_eq!(history.memory_bytes(), 0);
    }
}
