//! Deadlines of many connections, one entry each.
//!
//! Most deadlines move later all the time (every byte received puts off the idle timeout), so an
//! entry is not moved when its deadline is: it fires at the old moment, and the owner, asked then,
//! arms it again. Busy connections therefore cost one look-up per turn and one heap operation per
//! timeout, not one per message.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::time::Time;

/// A heap of moments, at most one live entry per key.
///
/// The order of calls: [`arm`](Self::arm) after anything that may have changed a key's deadline;
/// wait until [`next_deadline`](Self::next_deadline); then take [`expired`](Self::expired) keys
/// until there is none. An expired key may be early: ask its owner for the deadline now, and
/// either act on it or only arm it again.
#[derive(Debug)]
pub struct Timers<K> {
    /// Every live entry, and stale ones of keys that were armed again earlier than before.
    heap: BinaryHeap<Reverse<(Time, K)>>,
    /// The moment of each key's live entry. Invariant: each is in `heap` with the same moment.
    armed: HashMap<K, Time, BuildHasherDefault<KeyHasher>>,
}

impl<K: Copy + Eq + Hash + Ord> Timers<K> {
    /// No deadlines.
    pub fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            armed: HashMap::default(),
        }
    }

    /// Makes sure that `key` fires at `deadline` or earlier. Does nothing when there is no
    /// deadline or the key fires early enough already.
    pub fn arm(&mut self, key: K, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        if self.armed.get(&key).is_some_and(|armed| *armed <= deadline) {
            return;
        }
        self.armed.insert(key, deadline);
        self.heap.push(Reverse((deadline, key)));
    }

    /// Forgets the key.
    pub fn disarm(&mut self, key: K) {
        self.armed.remove(&key);
        // Stale entries leave with their moment; when they are the majority, sooner.
        if self.heap.len() > 2 * self.armed.len() + STALE_ENTRIES_TOLERATED {
            let armed = &self.armed;
            self.heap
                .retain(|Reverse((time, key))| armed.get(key) == Some(time));
        }
    }

    /// The moment of the next entry: the latest time to wait until.
    pub fn next_deadline(&mut self) -> Option<Time> {
        while let Some(Reverse((time, key))) = self.heap.peek() {
            if self.armed.get(key) == Some(time) {
                return Some(*time);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes one key whose moment has come; call until there is none. The key is unarmed then.
    pub fn expired(&mut self, now: Time) -> Option<K> {
        if self.next_deadline()? > now {
            return None;
        }
        let Reverse((_, key)) = self.heap.pop()?;
        self.armed.remove(&key);
        Some(key)
    }

    /// How many keys are armed.
    pub fn len(&self) -> usize {
        self.armed.len()
    }

    /// Whether no key is armed.
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }
}

impl<K: Copy + Eq + Hash + Ord> Default for Timers<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Multiplies by an odd constant. The keys are our own small numbers, no peer chooses them, so
/// the table needs no protection against crafted collisions.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        // The constant is 2^64 divided by the golden ratio: it spreads consecutive numbers.
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes its index from the low bits, which a multiplication mixes least.
        self.0.rotate_left(26)
    }
}

/// Below this many stale entries, rebuilding the heap would cost more than it frees.
const STALE_ENTRIES_TOLERATED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Option<Time> {
        Some(Time::from_nanos(ns))
    }

    fn fired(timers: &mut Timers<u32>, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| timers.expired(Time::from_nanos(now))).collect()
    }

    #[test]
    fn keys_fire_in_the_order_of_their_moments() {
        let mut timers = Timers::new();
        timers.arm(1, at(30));
        timers.arm(2, at(10));
        timers.arm(3, at(20));
        timers.arm(4, None);
        assert_eq!(timers.next_deadline(), at(10));
        assert_eq!(fired(&mut timers, 9), []);
        assert_eq!(fired(&mut timers, 20), [2, 3]);
        assert_eq!(fired(&mut timers, 99), [1]);
        assert!(timers.is_empty());
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn a_later_deadline_leaves_the_entry_where_it_is() {
        let mut timers = Timers::new();
        timers.arm(1, at(10));
        timers.arm(1, at(50));
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(fired(&mut timers, 10), [1]);
        timers.arm(1, at(50));
        assert_eq!(fired(&mut timers, 49), []);
        assert_eq!(fired(&mut timers, 50), [1]);
    }

    #[test]
    fn an_earlier_deadline_fires_once_and_early() {
        let mut timers = Timers::new();
        timers.arm(1, at(50));
        timers.arm(1, at(10));
        assert_eq!(timers.next_deadline(), at(10));
        assert_eq!(fired(&mut timers, 10), [1]);
        assert_eq!(fired(&mut timers, 100), []);
    }

    #[test]
    fn a_forgotten_key_does_not_fire_and_leaves_no_garbage() {
        let mut timers = Timers::new();
        for key in 0..1000 {
            timers.arm(key, at(u64::from(key)));
        }
        for key in 0..1000 {
            timers.disarm(key);
        }
        assert!(timers.heap.len() <= STALE_ENTRIES_TOLERATED);
        assert_eq!(fired(&mut timers, 5000), []);
    }
}
