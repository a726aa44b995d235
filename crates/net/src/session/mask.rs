//! Masks and keys of clients.

use std::cell::RefCell;

use fastrand::Rng;

/// A random number, for masks and keys of clients (`proto::MaskSource`): from a generator per
/// thread that the operating system seeds, so that a page cannot foresee it (RFC 6455, 10.3).
pub fn random_mask() -> u32 {
    GENERATOR.with_borrow_mut(|generator| generator.u32(..))
}

thread_local! {
    static GENERATOR: RefCell<Rng> = RefCell::new(Rng::with_seed(seed()));
}

fn seed() -> u64 {
    // Before the kernel's pool is ready the call waits; it fails only without the system call,
    // and then the generator's own seed (time and thread) is what there is.
    getrandom::u64().unwrap_or_else(|_| fastrand::u64(..))
}
