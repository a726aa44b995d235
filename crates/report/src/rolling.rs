//! The mean of the last seconds: what a curve of single seconds hides behind its noise.

use crate::interval::IntervalLatency;

/// For each interval, with its start and its length in seconds, the mean over all messages of it
/// and of those before it that began less than [`WINDOW_S`] before its end; `None` where there are
/// none.
pub(crate) fn rolling_means(intervals: &[(f64, f64, Option<IntervalLatency>)]) -> Vec<Option<f64>> {
    let mut first = 0;
    let mean = |(index, (start_s, length_s, _)): (usize, &(f64, f64, _))| {
        let from_s = start_s + length_s - WINDOW_S;
        // A second that is not exactly one long belongs to one window more or less.
        while intervals[first].0 < from_s - SLACK_S {
            first += 1;
        }
        let within = intervals[first..=index].iter();
        let told = within.filter_map(|(_, _, latency)| *latency);
        let (count, sum_us) = told.fold((0, 0.0), |(count, sum_us), latency| {
            let own_us = latency.mean_us * latency.count as f64;
            (count + latency.count, sum_us + own_us)
        });
        (count > 0).then(|| sum_us / count as f64)
    };
    intervals.iter().enumerate().map(mean).collect()
}

/// What such a curve is called.
pub(crate) fn rolling_label() -> String {
    format!("rolling mean, {WINDOW_S} s")
}

/// Long enough to be smooth, and short enough that a minute has some of it.
pub(crate) const WINDOW_S: f64 = 10.0;
const SLACK_S: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn second(count: u64, mean_us: f64) -> Option<IntervalLatency> {
        Some(IntervalLatency {
            count,
            mean_us,
            ..IntervalLatency::default()
        })
    }

    #[test]
    fn the_last_ten_seconds_count_by_their_messages() {
        let mut intervals: Vec<_> = (0..25)
            .map(|at| (f64::from(at), 1.0, second(10, 100.0)))
            .collect();
        intervals[12].2 = second(90, 1000.0);
        let means = rolling_means(&intervals);
        assert_eq!(means[11], Some(100.0));
        // Nine seconds of 10 messages, and one of 90.
        assert_eq!(means[12], Some(550.0));
        assert_eq!(means[21], Some(550.0), "the tenth second from its own");
        assert_eq!(means[22], Some(100.0));
    }

    #[test]
    fn a_short_run_has_what_there_is_and_a_gap_only_where_there_is_nothing() {
        let mut intervals = vec![
            (0.0, 1.0, None),
            (1.0, 1.0, second(1, 5.0)),
            (2.0, 1.0, None),
        ];
        assert_eq!(rolling_means(&intervals), [None, Some(5.0), Some(5.0)]);
        intervals.push((30.0, 1.0, None));
        assert_eq!(rolling_means(&intervals)[3], None);
        assert!(rolling_means(&[]).is_empty());
    }
}
