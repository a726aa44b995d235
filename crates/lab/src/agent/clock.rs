//! The difference of two hosts' clocks, from exchanges of four times (as NTP has them).
//!
//! A request that was sent at one time of ours has arrived at one of theirs, and not before; an
//! answer that left at one time of theirs was here at one of ours, and not after. So the true
//! difference lies within half a round trip of the middle, however the way is shared between both
//! directions.

use moonwire_report::ClockOffset;

/// The four times of an exchange, nanoseconds of the clock they were read from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    /// By our clock.
    pub(super) sent_ns: i64,
    /// By theirs.
    pub(super) arrived_ns: i64,
    /// By theirs.
    pub(super) left_ns: i64,
    /// By ours.
    pub(super) received_ns: i64,
}

/// What a series of exchanges says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Their clock less ours.
    pub(crate) offset_ns: i64,
    /// The true one differs by no more.
    pub(crate) bound_ns: u64,
    /// Of the exchange that it comes from, the time at the other end left out.
    pub(crate) round_trip_ns: u64,
}

impl Exchange {
    fn estimate(&self) -> Option<Estimate> {
        let there = self.arrived_ns.checked_sub(self.sent_ns)?;
        let back = self.left_ns.checked_sub(self.received_ns)?;
        // Negative only where a clock was set meanwhile.
        let round_trip_ns = u64::try_from(there.checked_sub(back)?).ok()?;
        Some(Estimate {
            offset_ns: there.checked_add(back)?.div_euclid(2),
            bound_ns: round_trip_ns.div_ceil(2),
            round_trip_ns,
        })
    }
}

impl Estimate {
    /// That of the smallest round trip: what delayed the others says nothing of the clocks.
    pub(super) fn of(exchanges: &[Exchange]) -> Option<Self> {
        let estimates = exchanges.iter().filter_map(Exchange::estimate);
        estimates.min_by_key(|estimate| estimate.round_trip_ns)
    }

    /// What is known before any other estimate.
    pub(crate) fn alone(self) -> ClockOffset {
        self.until(self)
    }

    /// How far off the first estimate is at most until the second was made, if the clocks drift
    /// one way or not at all between them.
    pub(crate) fn until(self, after: Self) -> ClockOffset {
        let drift_ns = after.offset_ns.saturating_sub(self.offset_ns);
        let at_the_end_ns = drift_ns.unsigned_abs().saturating_add(after.bound_ns);
        ClockOffset {
            offset_ns: self.offset_ns,
            bound_ns: self.bound_ns.max(at_the_end_ns),
            drift_ns,
            round_trip_min_ns: self.round_trip_ns.min(after.round_trip_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange whose ways take so long, with clocks that differ by `offset_ns`.
    fn exchange(
        sent_ns: i64,
        there_ns: i64,
        held_ns: i64,
        back_ns: i64,
        offset_ns: i64,
    ) -> Exchange {
        let arrived_ns = sent_ns + there_ns + offset_ns;
        Exchange {
            sent_ns,
            arrived_ns,
            left_ns: arrived_ns + held_ns,
            received_ns: sent_ns + there_ns + held_ns + back_ns,
        }
    }

    fn is_within(estimate: ClockOffset, true_ns: i64) -> bool {
        estimate.offset_ns.abs_diff(true_ns) <= estimate.bound_ns
    }

    #[test]
    fn equal_ways_give_the_difference_itself() {
        let one = exchange(1_000_000, 40_000, 5_000_000, 40_000, -7_000_000_000);
        let estimate = Estimate::of(&[one]).unwrap();
        assert_eq!(estimate.offset_ns, -7_000_000_000);
        assert_eq!(
            (estimate.bound_ns, estimate.round_trip_ns),
            (40_000, 80_000)
        );
    }

    #[test]
    fn the_true_difference_is_within_the_bound_however_the_ways_differ() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut largest_share = 0.0_f64;
        for _ in 0..2000 {
            let true_ns = random.i64(-1 << 60..1 << 60);
            let exchanges: Vec<Exchange> = (0..random.usize(1..9))
                .map(|_| {
                    let mut way_ns = || {
                        let most = 1 << random.u32(1..30);
                        random.i64(0..most)
                    };
                    let (there_ns, held_ns, back_ns) = (way_ns(), way_ns(), way_ns());
                    exchange(1 << 40, there_ns, held_ns, back_ns, true_ns)
                })
                .collect();
            let estimate = Estimate::of(&exchanges).unwrap();
            assert!(is_within(estimate.alone(), true_ns), "{exchanges:?}");
            let off_ns = estimate.offset_ns.abs_diff(true_ns) as f64;
            largest_share = largest_share.max(off_ns / estimate.bound_ns.max(1) as f64);
        }
        // A bound that is never nearly reached would be too careful to be of use.
        assert!(largest_share > 0.99, "{largest_share}");
    }

    #[test]
    fn the_smallest_round_trip_wins() {
        let quick = exchange(0, 10_000, 0, 12_000, 5_000);
        let slow = exchange(0, 900_000, 0, 10_000, 5_000);
        let estimate = Estimate::of(&[slow, quick, slow]).unwrap();
        assert_eq!(estimate.round_trip_ns, 22_000);
        assert_eq!(estimate.offset_ns, 4_000);
    }

    #[test]
    fn an_exchange_in_which_a_clock_was_set_says_nothing() {
        let set_back = Exchange {
            received_ns: -50,
            ..exchange(0, 10, 10, 10, 0)
        };
        assert_eq!(Estimate::of(&[set_back]), None);
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn drift_widens_the_bound_until_it_holds_all_the_time() {
        let before = Estimate::of(&[exchange(0, 30_000, 0, 10_000, 1_000)]).unwrap();
        let after = Estimate::of(&[exchange(0, 5_000, 0, 35_000, 41_000)]).unwrap();
        let over = before.until(after);
        for true_ns in (1_000..=41_000).step_by(1_000) {
            assert!(is_within(over, true_ns), "{over:?} {true_ns}");
        }
        assert_eq!(over.drift_ns, after.offset_ns - before.offset_ns);
        assert!(over.bound_ns > before.bound_ns && over.round_trip_min_ns == 40_000);
        assert_eq!(before.until(before).bound_ns, before.bound_ns);
    }
}
