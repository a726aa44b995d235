//! The connections that an instance has met and that have not gone.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Names one connection to a service, unique among live connections of its instance.
///
/// Lua sees a number. LuaJIT prints numbers with 14 significant digits, so a handler is below 1e14:
/// `tostring(handler)` is then exact, and services use it as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handler(u64);

impl Handler {
    /// The largest handler.
    pub const MAX: Self = Self(99_999_999_999_999);

    /// The handler with this number, if it is not above [`Handler::MAX`].
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number, at most [`Handler::MAX`].
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// As Lua sees it. Exact, because every handler is below 2^53.
    pub(crate) const fn to_number(self) -> f64 {
        self.0 as f64
    }

    /// The handler that a service passed, if it can be one.
    pub(crate) fn from_number(number: f64) -> Option<Self> {
        let fits = (0.0..=Self::MAX.to_number()).contains(&number) && number.fract() == 0.0;
        fits.then_some(Self(number as u64))
    }
}

/// The set of handlers that may be sent to.
///
/// A service learns a handler from `onMessage` only, so the set fills there and the server need not
/// announce connections; it empties at `onDisconnect`, which the server calls for every connection.
#[derive(Default)]
pub(crate) struct Live {
    handlers: HashSet<u64, BuildHasherDefault<HandlerHasher>>,
    /// The handler of the last event: most answers go to it. Invariant: in `handlers` if `Some`.
    last: Option<Handler>,
}

impl Live {
    pub(crate) fn insert(&mut self, handler: Handler) {
        if self.last != Some(handler) {
            self.handlers.insert(handler.0);
            self.last = Some(handler);
        }
    }

    pub(crate) fn remove(&mut self, handler: Handler) {
        self.handlers.remove(&handler.0);
        self.last = self.last.filter(|&last| last != handler);
    }

    pub(crate) fn contains(&self, handler: Handler) -> bool {
        self.last == Some(handler) || self.handlers.contains(&handler.0)
    }
}

/// One multiplication: handlers come from the server, not from a peer who could make them collide.
#[derive(Default)]
struct HandlerHasher(u64);

impl Hasher for HandlerHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The set takes its bucket from the low bits and its tag from the high ones: rotate, so
        // that both come from well mixed bits.
        self.0 = number.wrapping_mul(GOLDEN).rotate_left(32);
    }
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_stop_below_the_fourteenth_digit() {
        assert_eq!(Handler::new(0).map(Handler::as_u64), Some(0));
        assert!(Handler::new(99_999_999_999_999).is_some());
        assert!(Handler::new(100_000_000_000_000).is_none());
        assert_eq!(Handler::from_number(7.0), Handler::new(7));
        for bad in [-1.0, 1.5, 1e14, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Handler::from_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_handler_lives_from_its_first_message_to_its_disconnect() {
        let mut live = Live::default();
        let [one, two] = [1, 2].map(|n| Handler::new(n).unwrap());
        assert!(!live.contains(one));
        live.insert(one);
        live.insert(two);
        live.insert(two);
        assert!(live.contains(one) && live.contains(two));
        live.remove(two);
        assert!(live.contains(one) && !live.contains(two));
    }
}
