//! What one thread hands to another worker: a bounded queue and a way to wake its reader.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Letters to one worker. Places are taken before a letter is written, so that a connection is
/// only detached when it is certain that somebody takes it.
#[derive(Debug)]
pub(crate) struct Mailbox<T, W> {
    inner: Mutex<Inner<T>>,
    /// Set once, by the worker, before the server is ready.
    waker: OnceLock<W>,
    /// A letter was taken, or no more are.
    taken: Condvar,
    places_max: usize,
    /// With so many bytes in letters that are here, no more places are given.
    bytes_max: usize,
}

#[derive(Debug)]
struct Inner<T> {
    /// Each with the bytes that it holds in memory.
    letters: VecDeque<(T, usize)>,
    load: MailboxLoad,
    /// The reader has gone; nothing is taken any more.
    closed: bool,
}

/// What is in a mailbox.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct MailboxLoad {
    /// Places taken by letters that are here or on their way.
    /// Invariant: at most `places_max`, and one for each order.
    pub(crate) places: usize,
    /// Bytes in memory of the letters that are here.
    pub(crate) bytes: usize,
}

/// Wakes the reader of a mailbox.
pub(crate) trait Wake {
    /// Ends its wait, now or the next one.
    fn wake(&self);
}

impl Wake for moonwire_net::Waker {
    fn wake(&self) {
        Self::wake(self);
    }
}

impl Wake for std::thread::Thread {
    fn wake(&self) {
        self.unpark();
    }
}

impl<T, W: Wake> Mailbox<T, W> {
    /// An empty one for at most `places_max` letters, and about `bytes_max` bytes in them: a letter
    /// that was given a place may exceed it.
    pub(crate) fn new(places_max: usize, bytes_max: usize) -> Self {
        let inner = Inner {
            letters: VecDeque::new(),
            load: MailboxLoad::default(),
            closed: false,
        };
        Self {
            inner: Mutex::new(inner),
            waker: OnceLock::new(),
            taken: Condvar::new(),
            places_max,
            bytes_max,
        }
    }

    /// Says how to wake the reader, and wakes it if something is here already. Only the first call
    /// counts.
    pub(crate) fn set_waker(&self, waker: W) {
        let inner = self.lock();
        if self.waker.set(waker).is_ok() && !inner.letters.is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Takes a place for a later [`post`](Self::post); false when all are taken, or too many bytes
    /// are here.
    pub(crate) fn reserve(&self) -> bool {
        self.take_place(&mut self.lock())
    }

    /// The same, waiting for a place; false when the reader has gone or `give_up` says so, which is
    /// asked every 50 ms. Not for workers, which must not wait for each other.
    pub(crate) fn reserve_waiting(&self, give_up: impl Fn() -> bool) -> bool {
        let mut inner = self.lock();
        while !self.take_place(&mut inner) {
            if inner.closed || give_up() {
                return false;
            }
            let waited = self.taken.wait_timeout(inner, GIVE_UP_EVERY);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn take_place(&self, inner: &mut Inner<T>) -> bool {
        let free = !inner.closed && self.has_room(inner.load, 1);
        inner.load.places += usize::from(free);
        free
    }

    /// Gives a place back without having used it.
    pub(crate) fn release(&self) {
        self.lock().load.places -= 1;
    }

    /// Puts a letter that holds `bytes` in memory in its place and wakes the reader, which reads to
    /// the end or wakes itself; gives it back
    /// when the reader has gone.
    pub(crate) fn post(&self, letter: T, bytes: usize) -> Result<(), T> {
        self.put(letter, bytes)
    }

    /// Puts an order, which needs no place: there are only a few in a server's life.
    pub(crate) fn order(&self, order: T) {
        self.lock().load.places += 1;
        let _ = self.put(order, 0);
    }

    fn put(&self, letter: T, bytes: usize) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.closed {
            inner.load.places = inner.load.places.saturating_sub(1);
            return Err(letter);
        }
        // A reader takes all letters, or wakes itself for the others.
        let is_first = inner.letters.is_empty();
        inner.letters.push_back((letter, bytes));
        inner.load.bytes += bytes;
        drop(inner);
        if is_first {
            self.wake();
        }
        Ok(())
    }

    /// The next letter.
    pub(crate) fn take(&self) -> Option<T> {
        let mut inner = self.lock();
        let (letter, bytes) = inner.letters.pop_front()?;
        inner.load.places = inner.load.places.saturating_sub(1);
        inner.load.bytes -= bytes;
        drop(inner);
        self.taken.notify_one();
        Some(letter)
    }

    /// Whether there is a place, and room for a byte.
    pub(crate) fn has_place(&self) -> bool {
        let inner = self.lock();
        !inner.closed && self.has_room(inner.load, 1)
    }

    /// Whether less than half of the places and of the bytes are taken.
    pub(crate) fn is_half_empty(&self) -> bool {
        self.has_room(self.lock().load, 2)
    }

    /// Whether the load is below this part of the bounds.
    fn has_room(&self, load: MailboxLoad, part: usize) -> bool {
        load.places < self.places_max.div_ceil(part) && load.bytes < self.bytes_max.div_ceil(part)
    }

    /// What is here or on its way.
    pub(crate) fn load(&self) -> MailboxLoad {
        self.lock().load
    }

    /// Takes nothing any more; returns what is still here.
    pub(crate) fn close(&self) -> impl Iterator<Item = T> {
        let mut inner = self.lock();
        inner.closed = true;
        inner.load.bytes = 0;
        let letters = std::mem::take(&mut inner.letters);
        drop(inner);
        self.taken.notify_all();
        letters.into_iter().map(|(letter, _)| letter)
    }

    /// Takes nothing any more, drops what is here, and wakes the reader, which has lost who writes
    /// to it.
    pub(crate) fn abandon(&self) {
        drop(self.close());
        self.wake();
    }

    /// Whether it takes nothing any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The state, also after a panic of another holder: no invariant is broken half-way.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often who waits for a place looks whether it still should.
const GIVE_UP_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(2, 100);
        mailbox.set_waker(Woken::default());
        assert!(mailbox.reserve() && mailbox.reserve());
        assert!(!mailbox.reserve());
        mailbox.post(1, 10).unwrap();
        let load = |places, bytes| MailboxLoad { places, bytes };
        assert_eq!(mailbox.load(), load(2, 10));
        assert_eq!(mailbox.take(), Some(1));
        assert_eq!(mailbox.load(), load(1, 0));
        assert!(mailbox.reserve());
        mailbox.release();
        mailbox.release();
        assert!(mailbox.reserve() && mailbox.reserve());
        assert_eq!(mailbox.waker.get().unwrap().0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn bytes_are_bounded_and_come_back() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(100, 100);
        assert!(mailbox.reserve());
        mailbox.post(1, 99).unwrap();
        assert!(mailbox.reserve(), "there is room for a byte");
        mailbox.post(2, 50).unwrap();
        assert!(!mailbox.reserve());
        assert_eq!(mailbox.take(), Some(1));
        assert!(mailbox.reserve());
    }

    #[test]
    fn who_waits_for_a_place_gets_it_or_gives_up() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(1, 100);
        assert!(mailbox.reserve_waiting(|| true), "it need not wait");
        assert!(!mailbox.reserve_waiting(|| true));
        mailbox.post(1, 1).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| mailbox.reserve_waiting(|| false));
            assert_eq!(mailbox.take(), Some(1));
            assert!(waits.join().unwrap());
            let waits = scope.spawn(|| mailbox.reserve_waiting(|| false));
            drop(mailbox.close());
            assert!(!waits.join().unwrap());
        });
    }

    #[test]
    fn an_order_finds_a_way_into_a_full_mailbox() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(1, 1);
        assert!(mailbox.reserve());
        mailbox.order(9);
        assert_eq!(mailbox.take(), Some(9));
        assert_eq!(mailbox.load().places, 1);
        mailbox.post(1, 1).unwrap();
        assert_eq!(mailbox.take(), Some(1));
        assert_eq!(mailbox.load(), MailboxLoad::default());
    }

    #[test]
    fn a_letter_to_one_who_has_gone_comes_back() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(1, 1);
        assert!(mailbox.reserve());
        assert_eq!(mailbox.close().count(), 0);
        assert_eq!(mailbox.post(7, 1), Err(7));
        assert!(!mailbox.reserve());
    }
}
