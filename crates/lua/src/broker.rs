//! What the services of one server share: the channels of `bcast` and the queues of `mqr`.

mod queue;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use queue::{Posting, Queue};

/// The channels and the queues of one server, for all threads. Who subscribes to a channel is known
/// to the workers, which own the connections; here is only which channels there are.
#[derive(Debug)]
pub struct Broker {
    channels: Mutex<HashSet<u64>>,
    queues: Mutex<HashMap<Box<[u8]>, Arc<Queue>>>,
    /// Messages that each queue takes.
    queue_messages_max: usize,
}

impl Broker {
    /// Without channels and queues. A queue takes `queue_messages_max` messages.
    pub fn new(queue_messages_max: usize) -> Self {
        Self {
            channels: Mutex::default(),
            queues: Mutex::default(),
            queue_messages_max,
        }
    }

    /// Makes a channel, or finds it; false if there are too many.
    pub(crate) fn create_channel(&self, channel: u64) -> bool {
        let mut channels = lock(&self.channels);
        if channels.len() >= CHANNELS_MAX && !channels.contains(&channel) {
            return false;
        }
        channels.insert(channel);
        true
    }

    pub(crate) fn has_channel(&self, channel: u64) -> bool {
        lock(&self.channels).contains(&channel)
    }

    /// Makes a queue, or finds it; None if there are too many.
    pub(crate) fn queue(&self, name: &[u8]) -> Option<Arc<Queue>> {
        let mut queues = lock(&self.queues);
        if let Some(queue) = queues.get(name) {
            return Some(Arc::clone(queue));
        }
        if queues.len() >= QUEUES_MAX {
            return None;
        }
        let queue = Arc::new(Queue::new(self.queue_messages_max));
        queues.insert(name.into(), Arc::clone(&queue));
        Some(queue)
    }

    /// Lets everybody who waits at a queue look whether it must stop.
    pub fn wake(&self) {
        let queues: Vec<_> = lock(&self.queues).values().cloned().collect();
        for queue in queues {
            queue.wake();
        }
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new(QUEUE_MESSAGES)
    }
}

/// The order to an instance to end; for any thread.
#[derive(Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Gives the order. Whoever waits in a call has to be woken, too ([`Broker::wake`]).
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was given.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl fmt::Debug for StopFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StopFlag({})", self.is_set())
    }
}

/// No call of ours can panic half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages of a queue where nothing else is configured.
pub const QUEUE_MESSAGES: usize = 65_536;

/// Names of channels and of queues live as long as the server: a service that makes one for each
/// client would fill its memory.
const CHANNELS_MAX: usize = 65_536;
const QUEUES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_made_once_and_bounded() {
        let broker = Broker::default();
        assert!(!broker.has_channel(5));
        for channel in 0..CHANNELS_MAX as u64 {
            assert!(broker.create_channel(channel));
        }
        assert!(broker.create_channel(5), "it is there");
        assert!(!broker.create_channel(CHANNELS_MAX as u64));
        assert!(!broker.has_channel(CHANNELS_MAX as u64));
    }

    #[test]
    fn a_name_is_one_queue_and_names_are_bounded() {
        let broker = Broker::default();
        let first = broker.queue(b"a").unwrap();
        assert!(Arc::ptr_eq(&first, &broker.queue(b"a").unwrap()));
        for number in 1..QUEUES_MAX {
            broker.queue(number.to_string().as_bytes()).unwrap();
        }
        assert!(broker.queue(b"one more").is_none());
        assert!(broker.queue(b"a").is_some());
    }
}
