//! The number by which a service knows a connection.

use moonwire_lua::Handler;

/// Packs worker, place and generation: 8 + 20 + 18 bits, so that the number stays below 2^46
/// (7.0e13 < 1e14: LuaJIT prints it exactly). The generation changes with each connection that is
/// put in a place, so a handler is unique among live connections and names a dead one for
/// the next 262,143 connections in that place.
pub(crate) fn pack(worker: usize, slot: usize, generation: u32) -> Option<Handler> {
    if worker >= WORKERS_MAX || slot >= SLOTS_MAX {
        return None;
    }
    let generation = generation as usize & (GENERATIONS - 1);
    let number = (worker << (SLOT_BITS + GENERATION_BITS)) | (slot << GENERATION_BITS) | generation;
    Handler::new(number as u64)
}

/// The place that a handler names; whether the connection there is still the same one is for the
/// caller to compare.
pub(crate) fn slot(handler: Handler) -> usize {
    (handler.as_u64() as usize >> GENERATION_BITS) & (SLOTS_MAX - 1)
}

/// The worker that a handler names; none of this server has it if a service opened the connection.
pub(crate) fn worker(handler: Handler) -> usize {
    handler.as_u64() as usize >> (SLOT_BITS + GENERATION_BITS)
}

const WORKER_BITS: u32 = 8;
const SLOT_BITS: u32 = 20;
const GENERATION_BITS: u32 = 18;
const GENERATIONS: usize = 1 << GENERATION_BITS;

/// The first handler of connections that services open themselves: no client has it or a later one.
pub(crate) const OUTGOING_FIRST: u64 = 1 << (WORKER_BITS + SLOT_BITS + GENERATION_BITS);

/// Most workers of one server.
pub(crate) const WORKERS_MAX: usize = 1 << WORKER_BITS;
/// Most connections of one worker.
pub(crate) const SLOTS_MAX: usize = 1 << SLOT_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_handler_prints_exactly_in_lua() {
        let largest = pack(WORKERS_MAX - 1, SLOTS_MAX - 1, u32::MAX).unwrap();
        assert!(largest.as_u64() < 100_000_000_000_000);
        assert_eq!(largest.as_u64(), (1 << 46) - 1);
        assert_eq!(slot(largest), SLOTS_MAX - 1);
        assert_eq!(worker(largest), WORKERS_MAX - 1);
        assert!(largest.as_u64() < OUTGOING_FIRST);
        assert!(pack(WORKERS_MAX, 0, 0).is_none() && pack(0, SLOTS_MAX, 0).is_none());
    }

    #[test]
    fn a_place_used_again_has_another_handler() {
        assert_ne!(pack(1, 7, 1), pack(1, 7, 2));
        assert_ne!(pack(0, 7, 1), pack(1, 7, 1));
        assert_eq!(slot(pack(3, 7, 2).unwrap()), 7);
    }
}
