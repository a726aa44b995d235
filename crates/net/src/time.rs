//! The monotonic clock as a value.
//!
//! Nothing in this crate reads a clock behind the caller's back: a driver says what time it is
//! ([`crate::Driver::now`]), and everything else is handed a [`Time`], so that the simulated
//! world can have its own.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on CLOCK_MONOTONIC, in nanoseconds; in the simulated world, nanoseconds since its
/// beginning. Moments of different clocks must not be compared.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

impl Time {
    /// The end of time: later than every deadline.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `ns` nanoseconds after the clock's beginning.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Reads CLOCK_MONOTONIC, for callers that have no driver at hand.
    pub fn monotonic() -> Self {
        let reading = clock_gettime(ClockId::Monotonic);
        // The monotonic clock counts from boot, so both parts are never negative.
        Self(reading.tv_sec as u64 * NANOS_PER_SECOND + reading.tv_nsec as u64)
    }

    /// Nanoseconds since the clock's beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long `earlier` lies before `self`; zero when it does not.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::MAX`], so that an absurd timeout means "never".
    fn add(self, duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// Saturates at zero, like [`Time::saturating_since`].
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / NANOS_PER_SECOND,
            self.0 % NANOS_PER_SECOND
        )
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let time = Time::from_nanos(5);
        assert_eq!(time + Duration::from_nanos(7), Time::from_nanos(12));
        assert_eq!(time + Duration::MAX, Time::MAX);
        assert_eq!(Time::from_nanos(12) - time, Duration::from_nanos(7));
        assert_eq!(time - Time::from_nanos(12), Duration::ZERO);
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = Time::monotonic();
        assert!(first > Time::default());
        assert!(Time::monotonic() >= first);
    }
}
