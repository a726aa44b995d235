//! Messages to all subscribers of a channel: from a callback or from another thread to every
//! worker, and there to a part of the subscribers in each turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use moonwire_lua::{Handler, Opcode};
use moonwire_net::Driver;

use super::scripts::Place;
use super::subscriptions::Subscriber;
use super::{Desk, Worker};
use crate::stats::Failure;

/// A message to all subscribers of a channel, on its way to one worker.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) channel: u64,
    pub(crate) payload: Arc<[u8]>,
}

/// Broadcasts that are being sent, one after the other, so that each subscriber gets them in order.
#[derive(Debug, Default)]
pub(super) struct Fanouts {
    pending: VecDeque<Fanout>,
    /// Bytes of their payloads and of their lists.
    bytes: usize,
    /// The number of the next one.
    next: u64,
    /// Those who were sent all before this number ahead of the others, while something is pending.
    ahead: HashMap<Subscriber, u64>,
}

#[derive(Debug)]
struct Fanout {
    /// They are counted.
    number: u64,
    payload: Arc<[u8]>,
    /// Those who subscribed when it was sent, without those who have it.
    subscribers: Vec<Subscriber>,
    bytes: usize,
}

impl Fanouts {
    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds one at the end, unless too much waits already.
    fn push(&mut self, payload: Arc<[u8]>, subscribers: Vec<Subscriber>) -> bool {
        let bytes = payload.len() + size_of_val(&subscribers[..]);
        if self.bytes + bytes > FANOUT_BYTES_MAX && !self.pending.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.pending.push_back(Fanout {
            number: self.next,
            payload,
            subscribers,
            bytes,
        });
        self.next += 1;
        true
    }

    /// The next one to be sent to somebody, and to whom.
    fn next(&mut self) -> Option<(Arc<[u8]>, Subscriber)> {
        loop {
            let Some(fanout) = self.pending.front_mut() else {
                self.ahead.clear();
                return None;
            };
            if let Some(subscriber) = fanout.subscribers.pop() {
                if self.ahead.get(&subscriber) > Some(&fanout.number) {
                    continue;
                }
                return Some((Arc::clone(&fanout.payload), subscriber));
            }
            self.bytes -= fanout.bytes;
            self.pending.pop_front();
        }
    }

    /// All that is still to be sent to this subscriber, who is passed over later.
    fn take_for(&mut self, subscriber: Subscriber) -> Vec<Arc<[u8]>> {
        let from = self.ahead.get(&subscriber).copied().unwrap_or(0);
        let mut payloads = Vec::new();
        for fanout in self.pending.iter().filter(|it| it.number >= from) {
            let times = fanout.subscribers.iter().filter(|it| **it == subscriber);
            payloads.extend(times.map(|_| Arc::clone(&fanout.payload)));
        }
        if !payloads.is_empty() {
            self.ahead.insert(subscriber, self.next);
        }
        payloads
    }
}

impl Desk {
    /// Sends a message of an instance here to all subscribers of a channel, on every worker.
    pub(super) fn broadcast(&mut self, place: Place, channel: u64, payload: &[u8]) {
        let payload: Arc<[u8]> = payload.into();
        let shared = Arc::clone(&self.shared);
        for (worker, mailbox) in shared.broadcasts.iter().enumerate() {
            if worker == self.worker {
                continue;
            }
            let broadcast = Broadcast {
                channel,
                payload: Arc::clone(&payload),
            };
            // A worker never waits for another, which may wait for it.
            if !mailbox.reserve() || mailbox.post(broadcast, payload.len()).is_err() {
                self.failed(place, Failure::BroadcastDropped);
            }
        }
        self.fan_out(channel, payload);
    }

    /// Sends what was broadcast before and has not got to this connection yet, because something
    /// else for it follows.
    pub(super) fn catch_up(&mut self, place: Place, handler: Handler, driver: &mut impl Driver) {
        let subscriber = Subscriber { place, handler };
        if self.fanouts.is_empty() || !self.subscriptions.has(subscriber) {
            return;
        }
        for payload in self.fanouts.take_for(subscriber) {
            self.send(place, handler, Opcode::Binary, &payload, 0, driver);
        }
    }

    /// Sends a message to the subscribers on this worker, from the next turn on.
    fn fan_out(&mut self, channel: u64, payload: Arc<[u8]>) {
        let subscribers = self.subscriptions.subscribers(channel);
        let Some(first) = subscribers.first().copied() else {
            return;
        };
        if !self.fanouts.push(payload, subscribers) {
            self.failed(first.place, Failure::BroadcastDropped);
        }
    }
}

impl<D: Driver> Worker<D> {
    /// Broadcasts of other threads, at most a few in one turn; the rest wakes the next turn.
    pub(super) fn read_broadcasts(&mut self) {
        let shared = Arc::clone(&self.desk.shared);
        let mailbox = &shared.broadcasts[self.desk.worker];
        for _ in 0..BROADCASTS_PER_TURN_MAX {
            let Some(broadcast) = mailbox.take() else {
                return;
            };
            self.desk.fan_out(broadcast.channel, broadcast.payload);
        }
        self.driver.waker().wake();
    }

    /// Goes on with the broadcasts, for a bounded part of the turn.
    pub(super) fn send_fanouts(&mut self) {
        for _ in 0..SENDS_PER_TURN_MAX {
            let Some((payload, subscriber)) = self.desk.fanouts.next() else {
                return;
            };
            let Subscriber { place, handler } = subscriber;
            // It may have gone since.
            if self.desk.connections.of_handler(handler, place).is_some() {
                let driver = &mut self.driver;
                self.desk
                    .send(place, handler, Opcode::Binary, &payload, 0, driver);
            }
        }
    }
}

/// Payloads and lists of subscribers that wait to be sent on one worker; what is broadcast beyond
/// it is dropped there, and counted.
const FANOUT_BYTES_MAX: usize = 64 << 20;

/// Subscribers that get a message in one turn: each takes some microseconds, most of them the
/// kernel's, and everybody else waits for so long.
const SENDS_PER_TURN_MAX: usize = 128;

/// Broadcasts that are taken from others in one turn.
const BROADCASTS_PER_TURN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use moonwire_lua::Handler;

    use super::*;

    fn subscriber(number: u64) -> Subscriber {
        Subscriber {
            place: Place {
                service: 0,
                instance: 0,
            },
            handler: Handler::new(number).unwrap(),
        }
    }

    #[test]
    fn broadcasts_go_out_one_after_the_other() {
        let mut fanouts = Fanouts::default();
        assert!(fanouts.push([1].into(), vec![subscriber(1), subscriber(2)]));
        assert!(fanouts.push([2].into(), vec![subscriber(1)]));
        let order: Vec<_> = std::iter::from_fn(|| fanouts.next())
            .map(|(payload, to)| (payload[0], to.handler.as_u64()))
            .collect();
        assert_eq!(order, [(1, 2), (1, 1), (2, 1)]);
        assert!(fanouts.is_empty());
        assert_eq!(fanouts.bytes, 0);
    }

    #[test]
    fn what_waits_is_bounded_but_one_always_goes() {
        let mut fanouts = Fanouts::default();
        let large: Arc<[u8]> = vec![0; FANOUT_BYTES_MAX].into();
        assert!(fanouts.push(Arc::clone(&large), vec![subscriber(1)]));
        assert!(!fanouts.push([1].into(), vec![subscriber(1)]));
        assert!(fanouts.next().is_some());
        assert!(fanouts.next().is_none());
        assert!(fanouts.push([1].into(), vec![subscriber(1)]));
    }
}
