//! The clock of the watchdog: nanoseconds of CLOCK_MONOTONIC. A signal handler may read it.

/// Now.
pub(super) fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Now or up to [`TICK_NS`] ago, in a third of the time that [`now`] takes.
pub(super) fn coarse() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is there to be written to, and both clocks are on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    // Neither is ever negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The slowest tick that Linux is built with, 100 a second.
pub(super) const TICK_NS: u64 = 10_000_000;
