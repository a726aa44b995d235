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
/// The kernel has as few of them at a time as it can do with, and of the others it is given the one
/// that was used last: what is written over is still in the cache, and buffers that were never
/// needed take no memory. Where they do not suffice for what comes within a turn, the kernel ends a
/// receive with ENOBUFS, and from then on it has twice as many, up to all of them; of large
/// messages only as many as the cache holds, since to receive again is little beside them. The
/// bytes stay in the socket until the driver has given buffers back and receives again.
pub(super) struct ProvidedBuffers {
    memory: Rc<Memory>,
    buffers: [Buffer; BUFFERS],
    /// Neither the kernel's nor lent out, the one that was used last at the end.
    spare: Vec<usize>,
    /// How many the kernel has, and is to have.
    offered: usize,
    wanted: usize,
    /// Whether a buffer was used up since it grew: only then is that too little, too.
    is_ripe: bool,
    /// What was received in the present turn, and in how many parts.
    received_bytes: usize,
    parts: usize,
    /// The mean of a part in the last turn that had any.
    part_bytes: usize,
    /// Buffers used up since there were too few.
    used_up: usize,
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
            spare: (0..BUFFERS).rev().collect(),
            offered: 0,
            wanted: BUFFERS_MIN,
            is_ripe: true,
            received_bytes: 0,
            parts: 0,
            part_bytes: 1,
            used_up: 0,
            tail: 0,
        };
        provided.offer();
        Ok(provided)
    }

    /// A turn begins.
    pub(super) fn begin_turn(&mut self) {
        if let Some(mean) = self.received_bytes.checked_div(self.parts) {
            self.part_bytes = mean.max(1);
        }
        (self.received_bytes, self.parts) = (0, 0);
    }

    /// For how many receives the buffers of a turn suffice, if they are as those before.
    pub(super) fn receives_per_turn(&self) -> usize {
        (self.wanted * BUFFER_BYTES / self.part_bytes).max(1)
    }

    /// The kernel had none left: it is to have twice as many.
    pub(super) fn grow(&mut self) {
        self.used_up = 0;
        if std::mem::take(&mut self.is_ripe) {
            let most = match self.part_bytes {
                LARGE_PART_BYTES.. => BUFFERS_IN_CACHE,
                _ => BUFFERS,
            };
            self.wanted = self.wanted.max((2 * self.wanted).min(most));
            self.offer();
        }
    }

    /// What a completion says was received: `length` bytes in the buffer `index`, which the kernel
    /// goes on with if there `is_more`. None for what no kernel says.
    pub(super) fn take(&mut self, index: u16, length: usize, is_more: bool) -> Option<Provided> {
        if length == 0 {
            // It goes on where it was, whatever is said of it.
            return None;
        }
        let buffer = self.buffers.get_mut(usize::from(index))?;
        let offset = buffer.filled;
        let filled = offset.checked_add(length)?;
        if filled > BUFFER_BYTES {
            return None;
        }
        self.received_bytes += length;
        self.parts += 1;
        buffer.filled = filled;
        buffer.is_used_up = !is_more;
        buffer.lent += 1;
        if !is_more {
            self.take_note_of_end();
        }
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
            self.spare.push(index);
            self.offer();
        }
    }

    /// The kernel has used one up, and goes on with another.
    fn take_note_of_end(&mut self) {
        self.offered = self.offered.saturating_sub(1);
        self.used_up += 1;
        self.is_ripe = true;
        if self.used_up == ENOUGH_FOR && self.wanted > BUFFERS_MIN {
            self.used_up = 0;
            self.wanted -= 1;
        }
        self.offer();
    }

    /// Gives the kernel what it is to have, as far as there is any.
    fn offer(&mut self) {
        while self.offered < self.wanted
            && let Some(index) = self.spare.pop()
        {
            self.buffers[index] = Buffer::default();
            self.memory.provide(index, self.tail);
            self.tail = self.tail.wrapping_add(1);
            self.offered += 1;
        }
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

/// 512 KiB.
const BUFFERS_IN_CACHE: usize = 4;

/// From here on a call to receive again is little beside what it brings.
const LARGE_PART_BYTES: usize = 16 * 1024;

/// One to be filled, and one to go on with.
const BUFFERS_MIN: usize = 2;

/// So many used up without a want of any, and the kernel is given one less: seldom, since to find
/// out that it was one too few costs a turn.
const ENOUGH_FOR: usize = 1024;

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
