//! Receive buffers that the kernel fills, and how it is told which it may.
#![allow(
    unsafe_code,
    reason = "the kernel writes into this memory, and is told by a ring in it what it may write"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// A few large buffers, into which the kernel puts what it receives one after the other, whosever
/// it is (`IOU_PBUF_RING_INC`, Linux 6.12): a message of 32 bytes takes 32 bytes, so that a
/// thousand of them stay in the cache, and one of 100 KiB is still received at once.
///
/// The bound is what they hold together. At the bound the kernel ends a receive with ENOBUFS; the
/// bytes stay in the socket until the driver has given buffers back and receives again.
pub(super) struct ProvidedBuffers {
    memory: Rc<Memory>,
    buffers: [Buffer; BUFFERS],
    /// What the kernel is told as the end of the ring.
    tail: u16,
}

/// What is known of one buffer.
#[derive(Clone, Copy, Default)]
struct Buffer {
    /// Where the kernel puts the next bytes. Invariant: at most `BUFFER_BYTES`.
    filled: usize,
    /// Parts of it that are lent out.
    lent: usize,
    /// Whether the kernel puts nothing more into it.
    is_used_up: bool,
}

impl ProvidedBuffers {
    /// Makes the buffers, all of them the kernel's. An error if it cannot fill them bit by bit.
    pub(super) fn register(submitter: &Submitter<'_>) -> io::Result<Self> {
        let memory = Rc::new(Memory::new());
        // SAFETY: the memory begins on a page and with the entries, all of them zero, and it stays
        // until `Memory` is dropped, which is after the ring is closed (see `Ring`).
        unsafe {
            submitter.register_buf_ring_with_flags(
                memory.start.as_ptr().addr() as u64,
                BUFFERS as u16,
                GROUP,
                INCREMENTAL,
            )?;
        }
        let mut provided = Self {
            memory,
            buffers: [Buffer::default(); BUFFERS],
            tail: 0,
        };
        for index in 0..BUFFERS {
            provided.provide(index);
        }
        Ok(provided)
    }

    /// What a completion says was received: `length` bytes in the buffer `index`, which the kernel
    /// goes on with if there `is_more`. None for what no kernel says.
    pub(super) fn take(&mut self, index: u16, length: usize, is_more: bool) -> Option<Provided> {
        let buffer = self.buffers.get_mut(usize::from(index))?;
        let offset = buffer.filled;
        let filled = offset.checked_add(length)?;
        if filled > BUFFER_BYTES {
            return None;
        }
        buffer.filled = filled;
        buffer.is_used_up = !is_more;
        buffer.lent += 1;
        Some(Provided {
            memory: Rc::clone(&self.memory),
            index,
            offset,
            length,
        })
    }

    /// Takes a part back; the buffer is the kernel's again once all of it is back.
    pub(super) fn give_back(&mut self, part: Provided) {
        let index = usize::from(part.index);
        drop(part);
        let buffer = &mut self.buffers[index];
        buffer.lent -= 1;
        if buffer.is_used_up && buffer.lent == 0 {
            self.provide(index);
        }
    }

    fn provide(&mut self, index: usize) {
        self.buffers[index] = Buffer::default();
        self.memory.provide(index, self.tail);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Leaves the memory to the kernel for ever.
    pub(super) fn leak(&mut self) {
        std::mem::forget(Rc::clone(&self.memory));
    }
}

/// A part of a buffer that the kernel has filled. It keeps the memory alive; nobody else looks at
/// these bytes as long as it is not given back.
pub(crate) struct Provided {
    memory: Rc<Memory>,
    index: u16,
    /// Invariant: `offset + length <= BUFFER_BYTES`, and no two parts of a buffer overlap.
    offset: usize,
    length: usize,
}

impl Provided {
    fn start(&self) -> NonNull<u8> {
        let start = RING_BYTES + usize::from(self.index) * BUFFER_BYTES + self.offset;
        // SAFETY: index and offset are in the bounds that `take` has checked.
        unsafe { self.memory.start.add(start) }
    }
}

impl Deref for Provided {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `take` has checked the bounds; the memory was zeroed, so it is initialized; the
        // kernel has said that it is done with this part, and no other part overlaps it.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.length) }
    }
}

impl DerefMut for Provided {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and this is the only part with these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.length) }
    }
}

/// The ring of entries and behind it, page by page, the buffers.
struct Memory {
    start: NonNull<u8>,
}

impl Memory {
    fn new() -> Self {
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(LAYOUT) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(LAYOUT)
        };
        Self { start }
    }

    /// Writes the entry of the buffer behind the last one, and lets the kernel see it.
    fn provide(&self, index: usize, tail: u16) {
        let ring = self.start.as_ptr().cast::<BufRingEntry>();
        let place = usize::from(tail) % BUFFERS;
        // SAFETY: the ring has `BUFFERS` entries and the kernel reads none beyond the tail. The
        // tail lies in the first entry, in bytes that `set_addr`, `set_len` and `set_bid` leave
        // alone, and is aligned; the kernel only reads it.
        unsafe {
            let entry = &mut *ring.add(place);
            entry.set_addr(
                self.start
                    .add(RING_BYTES + index * BUFFER_BYTES)
                    .addr()
                    .get() as u64,
            );
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(index as u16);
            let shared_tail = AtomicU16::from_ptr(BufRingEntry::tail(ring).cast_mut());
            shared_tail.store(tail.wrapping_add(1), Ordering::Release);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout and is given back once.
        unsafe { dealloc(self.start.as_ptr(), LAYOUT) };
    }
}

/// The only group of buffers there is.
pub(super) const GROUP: u16 = 0;

/// `IOU_PBUF_RING_INC`: the kernel goes on in a buffer where it stopped.
const INCREMENTAL: u16 = 2;

/// A power of two, as the kernel wants it.
const BUFFERS: usize = 16;

/// As much as one receive gives at most: a message of 64 KiB with its header and the beginning of
/// the next one.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;

/// One page: the entries of 16 bytes each.
const RING_BYTES: usize = 4096;

const LAYOUT: Layout = match Layout::from_size_align(RING_BYTES + BUFFERS * BUFFER_BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a page is a power of two"),
};

const _: () = assert!(BUFFERS.is_power_of_two() && BUFFERS * 16 <= RING_BYTES);
