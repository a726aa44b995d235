//! Buffers that belong to the loop, not to the connection.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::uring::Provided;

/// Bytes received from one socket, in a buffer that the driver owns and lends out with a
/// completion. It must be handed back with [`crate::Driver::recycle`] before the next completion
/// is taken; a driver that is not given it back goes on with another one, at the price of memory.
pub struct ReceiveBuffer {
    pub(crate) storage: Storage,
}

/// Where received bytes are.
pub(crate) enum Storage {
    /// The first `filled` of a buffer that a driver read into. Invariant: 0 < filled <= its length.
    Owned { bytes: Box<[u8]>, filled: usize },
    /// A part of a buffer that the kernel writes to, behind it.
    Provided(Provided),
}

impl ReceiveBuffer {
    /// Of the first `filled` bytes.
    pub(crate) fn owned(bytes: Box<[u8]>, filled: usize) -> Self {
        Self {
            storage: Storage::Owned { bytes, filled },
        }
    }
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Owned { bytes, filled } => &bytes[..*filled],
            Storage::Provided(part) => part,
        }
    }
}

impl DerefMut for ReceiveBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Owned { bytes, filled } => &mut bytes[..*filled],
            Storage::Provided(part) => part,
        }
    }
}

impl fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBuffer")
            .field("bytes", &self.len())
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

/// How much the pool of a thread keeps: the buffers from which its sessions send, for the next one
/// that has something to say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SpareBuffers {
    /// Most buffers that are kept; those beyond come from the allocator and go back to it. Most
    /// turns flush every connection right after it was answered, so few are out at once; a
    /// broadcast takes one per connection.
    pub buffers_max: usize,
    /// A buffer that grew beyond this (a large message) is freed rather than kept.
    pub buffer_bytes_max: usize,
}

impl SpareBuffers {
    /// 64 x 128 KiB: at most 8 MiB per thread.
    const DEFAULT: Self = Self {
        buffers_max: 64,
        buffer_bytes_max: 128 * 1024,
    };

    /// From now on this is how much the calling thread keeps.
    pub fn keep_on_this_thread(self) {
        POOL.with_borrow_mut(|pool| pool.kept = self);
    }
}

impl Default for SpareBuffers {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bytes in memory of the buffers that the calling thread keeps.
pub fn spare_buffer_bytes() -> usize {
    POOL.with_borrow(|pool| pool.free_bytes)
}

/// The buffers from which outgoing bytes are written: taken by a session when it has something to
/// send and given back when that has been sent, so that idle connections hold none.
///
/// There is one per thread, because a loop is a thread and a buffer must not travel.
pub(crate) struct BufferPool {
    /// Empty buffers with capacity. Invariant: at most `buffers_max`, each of at most
    /// `buffer_bytes_max`, of what was to be kept when it came.
    free: Vec<Vec<u8>>,
    /// Invariant: the sum of their capacities.
    free_bytes: usize,
    kept: SpareBuffers,
}

impl BufferPool {
    /// An empty buffer, the most recently used one if there is any, so that it is still cached.
    pub(crate) fn take() -> Vec<u8> {
        let taken = POOL.with_borrow_mut(|pool| {
            let buffer = pool.free.pop()?;
            pool.free_bytes -= buffer.capacity();
            Some(buffer)
        });
        taken.unwrap_or_default()
    }

    /// Keeps the buffer for the next taker; frees it when it is too large or there are enough.
    pub(crate) fn give(mut buffer: Vec<u8>) {
        buffer.clear();
        if buffer.capacity() == 0 {
            return;
        }
        POOL.with_borrow_mut(|pool| {
            if pool.free.len() < pool.kept.buffers_max
                && buffer.capacity() <= pool.kept.buffer_bytes_max
            {
                pool.free_bytes += buffer.capacity();
                pool.free.push(buffer);
            }
        });
    }
}

thread_local! {
    static POOL: RefCell<BufferPool> = const {
        RefCell::new(BufferPool {
            free: Vec::new(),
            free_bytes: 0,
            kept: SpareBuffers::DEFAULT,
        })
    };
}

/// One buffer for all sockets of a loop, so it stays in the cache. Measured on prototypes: for
/// messages of 64 KiB and more, one large buffer beats a pool of small ones by a fifth.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

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

        // More than a thread keeps by itself, and as much.
        let SpareBuffers {
            buffers_max,
            buffer_bytes_max,
        } = SpareBuffers::default();
        assert_eq!((buffers_max, buffer_bytes_max), (64, 131_072));
        for kept in [
            SpareBuffers::default(),
            SpareBuffers {
                buffers_max: 1,
                buffer_bytes_max: 1000,
            },
            SpareBuffers {
                buffers_max: 0,
                ..SpareBuffers::default()
            },
        ] {
            kept.keep_on_this_thread();
            for _ in 0..=kept.buffers_max {
                BufferPool::give(Vec::with_capacity(kept.buffer_bytes_max + 1));
                assert_eq!(spare_buffer_bytes(), 0);
            }
            for _ in 0..=kept.buffers_max {
                BufferPool::give(Vec::with_capacity(kept.buffer_bytes_max));
            }
            let all = kept.buffers_max * kept.buffer_bytes_max;
            assert_eq!(spare_buffer_bytes(), all);
            for _ in 0..kept.buffers_max {
                assert_eq!(BufferPool::take().capacity(), kept.buffer_bytes_max);
            }
            assert_eq!(
                (BufferPool::take().capacity(), spare_buffer_bytes()),
                (0, 0)
            );
        }
    }
}
