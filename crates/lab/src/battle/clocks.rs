//! What one-way latencies between two hosts are worth.

use std::time::Duration;

use moonwire_report::{Cell, ClockOffset, OneWay};

use crate::agent::Estimate;

/// Says how far the one-way latencies of a cell may be off, or leaves them out where that is too
/// much. They were corrected by what was known `before`.
pub(super) fn settle(
    cell: &mut Cell,
    before: Estimate,
    after: Result<Option<Estimate>, String>,
    bound: Duration,
) {
    let OneWay::Measured { clock, .. } = &mut cell.latency.one_way else {
        return;
    };
    let known = match after {
        Ok(Some(after)) => before.until(after),
        Ok(None) => return,
        Err(sentence) => {
            let reason = format!("the clocks could not be compared after the load: {sentence}");
            return refuse(cell, before.alone(), reason);
        }
    };
    *clock = Some(known);
    let allowed_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    if known.bound_ns > allowed_ns {
        let us = |ns: u64| ns as f64 / 1e3;
        let reason = format!(
            "the clocks of both hosts are known to within {:.1} us only, and 'one_way_bound' is \
             {:.1} us",
            us(known.bound_ns),
            us(allowed_ns)
        );
        refuse(cell, known, reason);
    }
}

/// Takes them out of the cell, and out of each of its seconds.
fn refuse(cell: &mut Cell, clock: ClockOffset, reason: String) {
    cell.latency.one_way = OneWay::Refused {
        reason,
        clock: Some(clock),
    };
    for interval in &mut cell.intervals {
        interval.one_way = None;
    }
}

#[cfg(test)]
mod tests {
    use moonwire_report::{Histogram, Interval, IntervalLatency};

    use super::*;

    const BOUND: Duration = Duration::from_micros(500);

    fn cell() -> Cell {
        let mut histogram = Histogram::new();
        histogram.record(700_000);
        let interval = Interval {
            one_way: Some(IntervalLatency::default()),
            ..Interval::default()
        };
        let mut cell = Cell {
            intervals: vec![interval],
            ..Cell::default()
        };
        cell.latency.one_way = OneWay::Measured {
            histogram,
            resolution_us: 1,
            clock: None,
        };
        cell
    }

    fn estimate(offset_us: i64, bound_us: u64) -> Estimate {
        Estimate {
            offset_ns: offset_us * 1000,
            bound_ns: bound_us * 1000,
            round_trip_ns: bound_us * 2000,
        }
    }

    #[test]
    fn the_bound_of_both_estimates_is_told() {
        let mut cell = cell();
        settle(
            &mut cell,
            estimate(-900, 100),
            Ok(Some(estimate(-700, 200))),
            BOUND,
        );
        let clock = cell.latency.one_way.clock().unwrap();
        assert_eq!((clock.offset_ns, clock.bound_ns), (-900_000, 400_000));
        assert!(cell.latency.one_way.histogram().is_some());
        assert!(cell.intervals[0].one_way.is_some());
    }

    #[test]
    fn what_is_known_too_badly_is_refused_with_its_bound() {
        let mut cell = cell();
        settle(
            &mut cell,
            estimate(0, 100),
            Ok(Some(estimate(301, 200))),
            BOUND,
        );
        let refusal = cell.latency.one_way.refusal().unwrap();
        assert!(
            refusal.contains("501.0 us only, and 'one_way_bound' is 500.0 us"),
            "{refusal}"
        );
        assert_eq!(cell.latency.one_way.clock().unwrap().bound_ns, 501_000);
        assert!(cell.intervals[0].one_way.is_none());
    }

    #[test]
    fn clocks_that_cannot_be_compared_again_are_not_known() {
        let mut cell = cell();
        settle(
            &mut cell,
            estimate(0, 100),
            Err("the agent is lost".to_owned()),
            BOUND,
        );
        assert!(
            cell.latency
                .one_way
                .refusal()
                .unwrap()
                .ends_with("the agent is lost")
        );
        // An echo has no such latency, whatever the clocks are.
        let mut echo = Cell::default();
        settle(
            &mut echo,
            estimate(0, 100),
            Ok(Some(estimate(0, 100))),
            BOUND,
        );
        assert_eq!(echo, Cell::default());
    }
}
