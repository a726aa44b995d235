//! Who subscribes to the channels of `bcast`, of the connections of one worker.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use moonwire_lua::Handler;

use super::scripts::Place;

/// A connection as its service knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Subscriber {
    pub(crate) place: Place,
    pub(crate) handler: Handler,
}

/// Subscriptions in both directions, so that a connection that ends takes all of its own along.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// How often each has subscribed. Invariant: no count is 0, no channel is empty.
    by_channel: HashMap<u64, HashMap<Subscriber, u32>>,
    /// Invariant: each channel of which `by_channel` has the subscriber, once.
    by_handler: HashMap<Handler, Vec<u64>>,
}

impl Subscriptions {
    /// Once more; false if the connection has subscribed to too many channels.
    pub(crate) fn subscribe(&mut self, subscriber: Subscriber, channel: u64) -> bool {
        let subscribers = self.by_channel.get_mut(&channel);
        if let Some(times) = subscribers.and_then(|all| all.get_mut(&subscriber)) {
            *times = times.saturating_add(1);
            return true;
        }
        let channels = self.by_handler.entry(subscriber.handler).or_default();
        if channels.len() >= CHANNELS_MAX {
            return false;
        }
        channels.push(channel);
        let subscribers = self.by_channel.entry(channel).or_default();
        subscribers.insert(subscriber, 1);
        true
    }

    /// Once less.
    pub(crate) fn unsubscribe(&mut self, subscriber: Subscriber, channel: u64) {
        let Some(subscribers) = self.by_channel.get_mut(&channel) else {
            return;
        };
        let Entry::Occupied(mut times) = subscribers.entry(subscriber) else {
            return;
        };
        *times.get_mut() -= 1;
        if *times.get() > 0 {
            return;
        }
        times.remove();
        if subscribers.is_empty() {
            self.by_channel.remove(&channel);
        }
        if let Entry::Occupied(mut channels) = self.by_handler.entry(subscriber.handler) {
            channels.get_mut().retain(|other| *other != channel);
            if channels.get().is_empty() {
                channels.remove();
            }
        }
    }

    /// The connection has gone.
    pub(crate) fn forget(&mut self, subscriber: Subscriber) {
        for channel in self
            .by_handler
            .remove(&subscriber.handler)
            .unwrap_or_default()
        {
            if let Entry::Occupied(mut subscribers) = self.by_channel.entry(channel) {
                subscribers.get_mut().remove(&subscriber);
                if subscribers.get().is_empty() {
                    subscribers.remove();
                }
            }
        }
    }

    /// Whether it has subscribed to anything.
    pub(crate) fn has(&self, subscriber: Subscriber) -> bool {
        self.by_handler.contains_key(&subscriber.handler)
    }

    /// All that subscribe to a channel, each as often as it did.
    pub(crate) fn subscribers(&self, channel: u64) -> Vec<Subscriber> {
        let Some(subscribers) = self.by_channel.get(&channel) else {
            return Vec::new();
        };
        let mut all = Vec::with_capacity(subscribers.len());
        for (subscriber, times) in subscribers {
            all.extend(std::iter::repeat_n(*subscriber, *times as usize));
        }
        all
    }
}

/// Channels of one connection.
const CHANNELS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn subscriber(number: u64) -> Subscriber {
        let place = Place {
            service: 0,
            instance: 0,
        };
        Subscriber {
            place,
            handler: Handler::new(number).unwrap(),
        }
    }

    #[test]
    fn each_gets_as_many_copies_as_it_has_subscriptions() {
        let mut subscriptions = Subscriptions::default();
        let [one, two] = [1, 2].map(subscriber);
        assert!(subscriptions.subscribe(one, 5));
        assert!(subscriptions.subscribe(two, 5));
        assert!(subscriptions.subscribe(two, 5));
        let mut all = subscriptions.subscribers(5);
        all.sort_by_key(|subscriber| subscriber.handler);
        assert_eq!(all, [one, two, two]);
        subscriptions.unsubscribe(two, 5);
        subscriptions.unsubscribe(one, 5);
        subscriptions.unsubscribe(one, 5);
        subscriptions.unsubscribe(one, 6);
        assert_eq!(subscriptions.subscribers(5), [two]);
        assert!(subscriptions.subscribers(6).is_empty());
    }

    #[test]
    fn who_has_gone_leaves_nothing() {
        let mut subscriptions = Subscriptions::default();
        let [one, two] = [1, 2].map(subscriber);
        for channel in 0..10 {
            subscriptions.subscribe(one, channel);
        }
        subscriptions.subscribe(two, 3);
        subscriptions.forget(one);
        subscriptions.unsubscribe(one, 3);
        assert_eq!(subscriptions.subscribers(3), [two]);
        subscriptions.forget(two);
        assert!(subscriptions.by_channel.is_empty() && subscriptions.by_handler.is_empty());
    }

    #[test]
    fn channels_of_one_connection_are_bounded() {
        let mut subscriptions = Subscriptions::default();
        for channel in 0..CHANNELS_MAX as u64 {
            assert!(subscriptions.subscribe(subscriber(1), channel));
        }
        assert!(!subscriptions.subscribe(subscriber(1), CHANNELS_MAX as u64));
        assert!(subscriptions.subscribe(subscriber(1), 0), "once more");
        assert!(subscriptions.subscribe(subscriber(2), CHANNELS_MAX as u64));
    }
}
