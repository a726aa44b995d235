//! How long the pings of connections took, where services on any thread can read it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moonwire_lua::{Handler, RoundTrip};

use crate::handler;

/// One word for each place of a worker's table, in chunks that are there once a connection in them
/// was measured. A word is written by its worker alone.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    workers: Vec<Chunks>,
}

type Chunks = Box<[OnceLock<Box<[AtomicU64]>>]>;

/// What a word says: whose it is, as far as there is room for that, and what was measured.
#[derive(Clone, Copy)]
struct Entry {
    generation: u64,
    last_us: u64,
    /// Never 0 of what was measured.
    smoothed_us: u64,
}

impl RoundTrips {
    /// Nothing is known.
    pub(crate) fn new(workers: usize) -> Self {
        let chunks = || {
            std::iter::repeat_with(OnceLock::new)
                .take(handler::SLOTS_MAX / CHUNK_PLACES)
                .collect()
        };
        Self {
            workers: std::iter::repeat_with(chunks).take(workers).collect(),
        }
    }

    /// A ping of this connection took so long; by its worker only.
    pub(crate) fn note(&self, handler: Handler, took: Duration) {
        let Some(chunk) = self.chunk(handler) else {
            return;
        };
        let chunk = chunk.get_or_init(|| (0..CHUNK_PLACES).map(|_| AtomicU64::new(0)).collect());
        let word = &chunk[handler::slot(handler) % CHUNK_PLACES];
        let last_us = took.as_micros().clamp(1, u128::from(US_MAX)) as u64;
        let generation = generation(handler);
        let before = Entry::unpack(word.load(Ordering::Relaxed));
        let smoothed_us = match before.filter(|entry| entry.generation == generation) {
            // RFC 6298, 2.3: alpha is 1/8.
            Some(before) => (7 * before.smoothed_us + last_us + 4) / 8,
            None => last_us,
        };
        let entry = Entry {
            generation,
            last_us,
            smoothed_us,
        };
        word.store(entry.pack(), Ordering::Relaxed);
    }

    /// This connection is gone; by its worker only.
    pub(crate) fn forget(&self, handler: Handler) {
        if let Some(chunk) = self.chunk(handler).and_then(OnceLock::get) {
            chunk[handler::slot(handler) % CHUNK_PLACES].store(0, Ordering::Relaxed);
        }
    }

    fn chunk(&self, handler: Handler) -> Option<&OnceLock<Box<[AtomicU64]>>> {
        let chunks = self.workers.get(handler::worker(handler))?;
        chunks.get(handler::slot(handler) / CHUNK_PLACES)
    }
}

impl moonwire_lua::RoundTrips for RoundTrips {
    fn round_trip(&self, handler: Handler) -> Option<RoundTrip> {
        let chunk = self.chunk(handler)?.get()?;
        let word = chunk[handler::slot(handler) % CHUNK_PLACES].load(Ordering::Relaxed);
        let entry = Entry::unpack(word).filter(|entry| entry.generation == generation(handler))?;
        Some(RoundTrip {
            last_us: entry.last_us as u32,
            smoothed_us: entry.smoothed_us as u32,
        })
    }
}

impl Entry {
    fn pack(self) -> u64 {
        self.generation << (2 * US_BITS) | self.last_us << US_BITS | self.smoothed_us
    }

    fn unpack(word: u64) -> Option<Self> {
        let smoothed_us = word & US_MAX;
        (smoothed_us > 0).then_some(Self {
            generation: word >> (2 * US_BITS),
            last_us: word >> US_BITS & US_MAX,
            smoothed_us,
        })
    }
}

/// As much of it as a word has room for.
fn generation(handler: Handler) -> u64 {
    handler.as_u64() & ((1 << GENERATION_BITS) - 1)
}

/// A chunk has 32 KiB.
const CHUNK_PLACES: usize = 4096;
/// Up to 134 s; what takes longer counts as that.
const US_BITS: u32 = 27;
const US_MAX: u64 = (1 << US_BITS) - 1;
const GENERATION_BITS: u32 = u64::BITS - 2 * US_BITS;

#[cfg(test)]
mod tests {
    use moonwire_lua::RoundTrips as _;

    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn trip(last_us: u32, smoothed_us: u32) -> Option<RoundTrip> {
        Some(RoundTrip {
            last_us,
            smoothed_us,
        })
    }

    #[test]
    fn the_first_counts_whole_and_later_ones_an_eighth() {
        let trips = RoundTrips::new(2);
        let handler = handler::pack(1, 5000, 7).unwrap();
        assert_eq!(trips.round_trip(handler), None);
        trips.note(handler, us(800));
        assert_eq!(trips.round_trip(handler), trip(800, 800));
        trips.note(handler, us(1600));
        assert_eq!(trips.round_trip(handler), trip(1600, 900));
        trips.note(handler, us(100));
        assert_eq!(trips.round_trip(handler), trip(100, 800));
        trips.forget(handler);
        assert_eq!(trips.round_trip(handler), None);
    }

    #[test]
    fn a_later_connection_in_the_same_place_begins_anew() {
        let trips = RoundTrips::new(1);
        let [before, after] = [7, 8].map(|generation| handler::pack(0, 3, generation).unwrap());
        trips.note(before, us(800));
        assert_eq!(trips.round_trip(after), None);
        trips.note(after, us(80));
        assert_eq!(trips.round_trip(after), trip(80, 80));
        assert_eq!(trips.round_trip(before), None);
    }

    #[test]
    fn what_is_too_long_or_too_short_is_cut() {
        let trips = RoundTrips::new(1);
        let handler = handler::pack(0, handler::SLOTS_MAX - 1, u32::MAX).unwrap();
        trips.note(handler, Duration::from_secs(3600));
        let most = US_MAX as u32;
        assert_eq!(trips.round_trip(handler), trip(most, most));
        trips.forget(handler);
        trips.note(handler, Duration::ZERO);
        assert_eq!(trips.round_trip(handler), trip(1, 1));
        let stranger = Handler::new(handler::OUTGOING_FIRST).unwrap();
        trips.note(stranger, us(1));
        assert_eq!(trips.round_trip(stranger), None);
    }
}
