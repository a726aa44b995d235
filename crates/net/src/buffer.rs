//! Buffers that belong to the loop, not to the connection.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes received from one socket, in a buffer that the driver owns and lends out with a
/// completion. It must be handed back with [`crate::Driver::recycle`] before the next completion
/// is taken; a driver that is not given it back goes on with another one, at the price of memory.
pub struct ReceiveBuffer {
    /// Invariant: never reallocated while lent out, a ring may know its address.
    pub(crate) storage: Box<[u8]>,
    /// How much of `storage` holds received bytes. Invariant: 0 < filled <= storage.len().
    pub(crate) filled: usize,
    /// Which of the driver's buffers this is; only the driver reads it.
    pub(crate) slot: u32,
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[..self.filled]
    }
}

impl DerefMut for ReceiveBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[..self.filled]
    }
}

impl fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBuffer")
            .field("slot", &self.slot)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// Loop-owned scratch space into which sessions open TLS records, or lay out kept bytes. One per
/// loop is enough: it is free again as soon as the [`crate::Input`] made from it is gone.
#[derive(Debug, Default)]
pub struct Plaintext {
    /// What the last call put here; kept between calls only for its capacity.
    pub(crate) bytes: Vec<u8>,
}

impl Plaintext {
    /// Empty scratch space; it grows to what one received buffer holds, and stays so.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The buffers from which outgoing bytes are written: taken by a session when it has something to
/// send and given back when that has been sent, so that idle connections hold none.
///
/// There is one per thread, because a loop is a thread and a buffer must not travel.
pub(crate) struct BufferPool {
    /// Empty buffers with capacity. Invariant: at most `BUFFERS_MAX`, each of at most
    /// `BUFFER_BYTES_MAX`.
    free: Vec<Vec<u8>>,
}

impl BufferPool {
    /// An empty buffer, the most recently used one if there is any, so that it is still cached.
    pub(crate) fn take() -> Vec<u8> {
        POOL.with_borrow_mut(|pool| pool.free.pop())
            .unwrap_or_default()
    }

    /// Keeps the buffer for the next taker; frees it when it is too large or there are enough.
    pub(crate) fn give(mut buffer: Vec<u8>) {
        buffer.clear();
        if buffer.capacity() == 0 || buffer.capacity() > BUFFER_BYTES_MAX {
            return;
        }
        POOL.with_borrow_mut(|pool| {
            if pool.free.len() < BUFFERS_MAX {
                pool.free.push(buffer);
            }
        });
    }
}

thread_local! {
    static POOL: RefCell<BufferPool> = const { RefCell::new(BufferPool { free: Vec::new() }) };
}

/// One buffer for all sockets of a loop, so it stays in the cache. Measured on prototypes: for
/// messages of 64 KiB and more, one large buffer beats a pool of small ones by a fifth.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Most turns flush every connection right after it was answered, so few buffers are out at once;
/// a broadcast takes one per connection, and those beyond this number come from the allocator.
const BUFFERS_MAX: usize = 64;

/// A buffer that grew beyond this (a large message) is freed rather than kept, so that the pool
/// holds at most 64 x 128 KiB = 8 MiB per loop.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_hands_back_what_it_was_given_within_its_bounds() {
        let mut buffer = BufferPool::take();
        buffer.extend_from_slice(b"bytes");
        let address = buffer.as_ptr();
        BufferPool::give(buffer);
        let again = BufferPool::take();
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty());

        BufferPool::give(Vec::with_capacity(BUFFER_BYTES_MAX + 1));
        assert_eq!(BufferPool::take().capacity(), 0);
        for _ in 0..2 * BUFFERS_MAX {
            BufferPool::give(Vec::with_capacity(1));
        }
        assert_eq!(POOL.with_borrow(|pool| pool.free.len()), BUFFERS_MAX);
    }
}
