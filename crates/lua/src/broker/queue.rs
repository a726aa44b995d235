//! A bounded queue between services: many post, many receive, each message goes to one of them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::{StopFlag, lock};
use crate::document::Parcel;

#[derive(Debug)]
pub(crate) struct Queue {
    messages: Mutex<Messages>,
    /// A message or a place has come, or somebody has to look whether it must stop.
    changed: Condvar,
    messages_max: usize,
}

/// The messages in a queue, first the one that is taken next.
#[derive(Debug, Default)]
struct Messages {
    waiting: VecDeque<Waiting>,
    /// The sum of theirs.
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    parcel: Parcel,
    bytes: usize,
}

impl Waiting {
    /// To be called without the lock: it looks at the whole message.
    fn new(parcel: Parcel) -> Self {
        let bytes = parcel.bytes();
        Self { parcel, bytes }
    }
}

impl Messages {
    fn push(&mut self, message: Waiting) {
        self.bytes += message.bytes;
        self.waiting.push_back(message);
    }

    fn pop(&mut self) -> Option<Parcel> {
        let Waiting { parcel, bytes } = self.waiting.pop_front()?;
        self.bytes -= bytes;
        Some(parcel)
    }
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
        let message = Waiting::new(message);
        let mut messages = lock(&self.messages);
        if !self.has_place(&messages, message.bytes) {
            return Posting::Full;
        }
        messages.push(message);
        drop(messages);
        self.changed.notify_all();
        Posting::Done
    }

    /// Waits for a place and puts a message at the end.
    pub(crate) fn post(&self, message: Parcel, stop: &StopFlag) -> Posting {
        let message = Waiting::new(message);
        let mut messages = lock(&self.messages);
        while !self.has_place(&messages, message.bytes) {
            if stop.is_set() {
                return Posting::Stopped;
            }
            messages = self.wait(messages);
        }
        messages.push(message);
        drop(messages);
        self.changed.notify_all();
        Posting::Done
    }

    /// Whether one more message of so many bytes may come. An empty queue takes any: it would never
    /// have a place for a larger one.
    fn has_place(&self, messages: &Messages, bytes: usize) -> bool {
        let count = messages.waiting.len();
        let fits = messages.bytes.saturating_add(bytes) <= BYTES_MAX;
        count < self.messages_max && (fits || count == 0)
    }

    /// Takes the first message.
    pub(crate) fn try_receive(&self) -> Option<Parcel> {
        let message = lock(&self.messages).pop();
        if message.is_some() {
            self.changed.notify_all();
        }
        message
    }

    /// Waits for a message and takes it; None when the order to stop came first.
    pub(crate) fn receive(&self, stop: &StopFlag) -> Option<Parcel> {
        let mut messages = lock(&self.messages);
        loop {
            if let Some(message) = messages.pop() {
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

    fn wait<'a>(&self, messages: MutexGuard<'a, Messages>) -> MutexGuard<'a, Messages> {
        self.changed
            .wait(messages)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What the messages of a queue may hold in memory: they belong to no service that has a bound.
const BYTES_MAX: usize = 64 * 1024 * 1024;

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
    fn bytes_are_bounded_and_an_empty_queue_takes_any_message() {
        let text = |bytes: usize| Parcel::Text(vec![b'x'; bytes].into());
        let queue = Queue::new(1000);
        assert_eq!(queue.try_post(text(BYTES_MAX / 2)), Posting::Done);
        assert_eq!(queue.try_post(text(BYTES_MAX / 2)), Posting::Full);
        let array = Parcel::Array(vec![text(BYTES_MAX / 4), text(BYTES_MAX / 4)]);
        assert_eq!(queue.try_post(array), Posting::Full);
        let object = Parcel::Object(vec![(b"key".as_slice().into(), text(BYTES_MAX / 2))]);
        assert_eq!(queue.try_post(object), Posting::Full);
        assert_eq!(queue.try_post(Parcel::Null), Posting::Done);
        assert!(queue.try_receive().is_some() && queue.try_receive().is_some());
        assert_eq!(queue.try_post(text(2 * BYTES_MAX)), Posting::Done);
        assert_eq!(queue.try_post(Parcel::Null), Posting::Full);
        assert!(queue.try_receive().is_some());
        assert_eq!(queue.try_post(text(BYTES_MAX / 2)), Posting::Done);
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
