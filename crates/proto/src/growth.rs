//! How the payload of a message grows as it arrives.
//!
//! A large one must not be copied often: moving 8 MiB takes several milliseconds, in which nobody
//! else is served. So it grows by a larger factor the larger it is. What it has not used yet is
//! address space, not memory: an allocator takes that much from the system, which gives pages when
//! they are written.

use alloc::vec::Vec;

/// Makes room for `bytes` in all, and some more, but not for more than `bytes_max`.
pub(crate) fn reserve(payload: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    let capacity = payload.capacity();
    if capacity < bytes {
        let factor = if capacity < LARGE_BYTES { 2 } else { 8 };
        let grown = capacity.saturating_mul(factor);
        // Not to be moved once more for the last bytes.
        let is_near = grown >= bytes_max / 2;
        let wanted = if is_near { bytes_max } else { grown }.max(bytes);
        payload.reserve_exact(wanted - payload.len());
    }
}

/// Bytes that it holds in memory.
pub(crate) fn memory_bytes(payload: &Vec<u8>) -> usize {
    payload.capacity().min(LARGE_BYTES.max(payload.len()))
}

/// From here on an allocator gives pages that nobody has used.
const LARGE_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds so many bytes piece by piece; returns how many were moved at most at a time.
    fn grow(payload: &mut Vec<u8>, bytes: usize, bytes_max: usize) -> usize {
        let mut moved = 0;
        while payload.len() < bytes {
            let length = (payload.len() + 1000).min(bytes);
            let (before, used) = (payload.capacity(), payload.len());
            reserve(payload, length, bytes_max);
            if payload.capacity() > before {
                moved = moved.max(used);
            }
            payload.resize(length, 7);
            let slack = payload.len().max(LARGE_BYTES);
            assert!(memory_bytes(payload) <= slack.min(2 * payload.len() + 1000));
        }
        moved
    }

    #[test]
    fn what_is_large_is_moved_seldom_and_what_is_small_takes_little() {
        const MAX: usize = (16 << 20) + 1;
        let mut payload = Vec::new();
        assert!(grow(&mut payload, MAX, MAX) <= 4 << 20);
        assert_eq!(payload.capacity(), MAX);
        let mut payload = Vec::new();
        grow(&mut payload, 1000, 3000);
        assert!(payload.capacity() <= 3000);
    }
}
