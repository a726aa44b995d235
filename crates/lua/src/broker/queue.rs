//! A bounded queue between services: many post, many receive, each message goes to one of them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::{StopFlag, lock};
use crate::document::Parcel;

#[derive(Debug)]
pub(crate) struct Queue {
    messages: Mutex<VecDeque<Parcel>>,
    /// A message or a place has come, or somebody has to look whether it must stop.
    changed: Condvar,
    messages_max: usize,
}

/// What came of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posting {
    /// It is in the queue.
    Done,
    /// There was no place for it.
    Full,
    /// There was none until the order to stop came.
    Stopped,
}

impl Queue {
    pub(crate) fn new(messages_max: usize) -> Self {
        Self {
            messages: Mutex::default(),
            changed: Condvar::new(),
            messages_max,
        }
    }

    /// Puts a message at the end, if there is a place.
    pub(crate) fn try_post(&self, message: Parcel) -> Posting {
        let mut messages = lock(&self.messages);
        if messages.len() >= self.messages_max {
            return Posting::Full;
        }
        messages.push_back(message);
        drop(messages);
        self.changed.notify_all();
        Posting::Done
    }

    /// Waits for a place and puts a message at the end.
    pub(crate) fn post(&self, message: Parcel, stop: &StopFlag) -> Posting {
        let mut messages = lock(&self.messages);
        while messages.len() >= self.messages_max {
            if stop.is_set() {
                return Posting::Stopped;
            }
            messages = self.wait(messages);
        }
        messages.push_back(message);
        drop(messages);
        self.changed.notify_all();
        Posting::Done
    }

    /// Takes the first message.
    pub(crate) fn try_receive(&self) -> Option<Parcel> {
        let message = lock(&self.messages).pop_front();
        if message.is_some() {
            self.changed.notify_all();
        }
        message
    }

    /// Waits for a message and takes it; None when the order to stop came first.
    pub(crate) fn receive(&self, stop: &StopFlag) -> Option<Parcel> {
        let mut messages = lock(&self.messages);
        loop {
            if let Some(message) = messages.pop_front() {
                drop(messages);
                self.changed.notify_all();
                return Some(message);
            }
            if stop.is_set() {
                return None;
            }
            messages = self.wait(messages);
        }
    }

    /// Under the lock, so that nobody who has just looked at its flag misses it.
    pub(super) fn wake(&self) {
        drop(lock(&self.messages));
        self.changed.notify_all();
    }

    fn wait<'a>(
        &self,
        messages: MutexGuard<'a, VecDeque<Parcel>>,
    ) -> MutexGuard<'a, VecDeque<Parcel>> {
        self.changed
            .wait(messages)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::super::Broker;
    use super::*;

    fn number(parcel: Option<Parcel>) -> Option<u64> {
        let parcel = parcel?;
        let Parcel::Unsigned(number) = parcel else {
            panic!("{parcel:?} was not posted");
        };
        Some(number)
    }

    #[test]
    fn messages_come_in_order_and_are_bounded() {
        let queue = Queue::new(2);
        assert_eq!(number(queue.try_receive()), None);
        assert_eq!(queue.try_post(Parcel::Unsigned(1)), Posting::Done);
        assert_eq!(queue.try_post(Parcel::Unsigned(2)), Posting::Done);
        assert_eq!(queue.try_post(Parcel::Unsigned(3)), Posting::Full);
        assert_eq!(number(queue.try_receive()), Some(1));
        assert_eq!(number(queue.receive(&StopFlag::default())), Some(2));
    }

    #[test]
    fn who_posts_to_a_full_queue_waits_for_a_place() {
        let queue = Arc::new(Queue::new(1));
        let sender = Arc::clone(&queue);
        let posts = thread::spawn(move || {
            let stop = StopFlag::default();
            (0..1000).all(|n| sender.post(Parcel::Unsigned(n), &stop) == Posting::Done)
        });
        let stop = StopFlag::default();
        for wanted in 0..1000 {
            assert_eq!(number(queue.receive(&stop)), Some(wanted));
        }
        assert!(posts.join().unwrap());
    }

    #[test]
    fn the_order_to_stop_ends_every_wait() {
        let broker = Arc::new(Broker::new(1));
        let (empty, full) = (broker.queue(b"e").unwrap(), broker.queue(b"f").unwrap());
        assert_eq!(full.try_post(Parcel::Null), Posting::Done);
        let stop = StopFlag::default();
        let (receiver, sender) = (stop.clone(), stop.clone());
        let receives = thread::spawn(move || empty.receive(&receiver).is_none());
        let posts = thread::spawn(move || full.post(Parcel::Null, &sender) == Posting::Stopped);
        stop.set();
        broker.wake();
        assert!(receives.join().unwrap());
        assert!(posts.join().unwrap());
    }
}
