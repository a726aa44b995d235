//! What one thread hands to another worker: a bounded queue and a way to wake its reader.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Letters to one worker. Places are taken before a letter is written, so that a connection is
/// only detached when it is certain that somebody takes it.
#[derive(Debug)]
pub(crate) struct Mailbox<T, W> {
    inner: Mutex<Inner<T>>,
    /// Set once, by the worker, before the server is ready.
    waker: OnceLock<W>,
    places_max: usize,
}

#[derive(Debug)]
struct Inner<T> {
    letters: VecDeque<T>,
    /// Places taken by letters that are here or on their way.
    /// Invariant: places <= places_max; orders take none.
    places: usize,
    /// The reader has gone; nothing is taken any more.
    closed: bool,
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

impl<T, W: Wake> Mailbox<T, W> {
    /// An empty one for at most `places_max` letters.
    pub(crate) fn new(places_max: usize) -> Self {
        let inner = Inner {
            letters: VecDeque::new(),
            places: 0,
            closed: false,
        };
        Self {
            inner: Mutex::new(inner),
            waker: OnceLock::new(),
            places_max,
        }
    }

    /// Says how to wake the reader. Only the first call counts.
    pub(crate) fn set_waker(&self, waker: W) {
        let _ = self.waker.set(waker);
    }

    /// Takes a place for a later [`post`](Self::post); false when all are taken.
    pub(crate) fn reserve(&self) -> bool {
        let mut inner = self.lock();
        let free = !inner.closed && inner.places < self.places_max;
        inner.places += usize::from(free);
        free
    }

    /// Gives a place back without having used it.
    pub(crate) fn release(&self) {
        self.lock().places -= 1;
    }

    /// Puts a letter in its place and wakes the reader; gives it back when the reader has gone.
    pub(crate) fn post(&self, letter: T) -> Result<(), T> {
        self.put(letter)
    }

    /// Puts an order, which needs no place: there are only a few in a server's life.
    pub(crate) fn order(&self, order: T) {
        self.lock().places += 1;
        let _ = self.put(order);
    }

    fn put(&self, letter: T) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.closed {
            inner.places = inner.places.saturating_sub(1);
            return Err(letter);
        }
        inner.letters.push_back(letter);
        drop(inner);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        Ok(())
    }

    /// The next letter.
    pub(crate) fn take(&self) -> Option<T> {
        let mut inner = self.lock();
        let letter = inner.letters.pop_front()?;
        inner.places = inner.places.saturating_sub(1);
        Some(letter)
    }

    /// How many places are taken, by letters that are here or on their way.
    pub(crate) fn depth(&self) -> usize {
        self.lock().places
    }

    /// Takes nothing any more; returns what is still here.
    pub(crate) fn close(&self) -> VecDeque<T> {
        let mut inner = self.lock();
        inner.closed = true;
        std::mem::take(&mut inner.letters)
    }

    /// The state, also after a panic of another holder: no invariant is broken half-way.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Default)]
    struct Woken(Cell<u32>);

    impl Wake for Woken {
        fn wake(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(2);
        mailbox.set_waker(Woken::default());
        assert!(mailbox.reserve() && mailbox.reserve());
        assert!(!mailbox.reserve());
        mailbox.post(1).unwrap();
        assert_eq!(mailbox.depth(), 2);
        assert_eq!(mailbox.take(), Some(1));
        assert_eq!(mailbox.depth(), 1);
        assert!(mailbox.reserve());
        mailbox.release();
        mailbox.release();
        assert!(mailbox.reserve() && mailbox.reserve());
        assert_eq!(mailbox.waker.get().unwrap().0.get(), 1);
    }

    #[test]
    fn an_order_finds_a_way_into_a_full_mailbox() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(1);
        assert!(mailbox.reserve());
        mailbox.order(9);
        assert_eq!(mailbox.take(), Some(9));
        assert_eq!(mailbox.depth(), 1);
        mailbox.post(1).unwrap();
        assert_eq!(mailbox.take(), Some(1));
        assert_eq!(mailbox.depth(), 0);
    }

    #[test]
    fn a_letter_to_one_who_has_gone_comes_back() {
        let mailbox: Mailbox<u8, Woken> = Mailbox::new(1);
        assert!(mailbox.reserve());
        assert!(mailbox.close().is_empty());
        assert_eq!(mailbox.post(7), Err(7));
        assert!(!mailbox.reserve());
    }
}
