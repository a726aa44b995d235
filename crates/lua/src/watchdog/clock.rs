//! The clock of the watchdog: nanoseconds of CLOCK_MONOTONIC. A signal handler may read it.

/// Now.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is there to be written to, and the clock is on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is ever negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
