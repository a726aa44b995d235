//! Seconds whose latency is far above that of the rest of their run, and what happened beside them.
//!
//! What coincides is no cause: it is what was watched and was out of the ordinary within a second.

use std::fmt;

use crate::cell::Cell;
use crate::curve::sending;
use crate::format;
use crate::interval::{Interval, IntervalLatency};
use crate::statistics::ranks::median;

/// One second that stands out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spike {
    /// Its middle.
    pub(crate) at_s: f64,
    /// `p99`, or `max` where only that stands out.
    figure: &'static str,
    us: f64,
    usual_us: f64,
    /// What was out of the ordinary within a second; empty for nothing that was watched.
    pub(crate) beside: Vec<String>,
}

impl fmt::Display for Spike {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = match self.beside.is_empty() {
            true => "nothing that was watched".to_owned(),
            false => self.beside.join(", "),
        };
        write!(
            to,
            "at {:.0} s {} {} (usually {}); beside it: {beside}",
            self.at_s,
            self.figure,
            format::latency(self.us),
            format::latency(self.usual_us)
        )
    }
}

/// All that stand out, in the order of time: the [`SPIKES_MAX`] highest, and how many others.
pub(crate) fn spikes(cell: &Cell) -> (Vec<Spike>, usize) {
    let seconds: Vec<&Interval> = sending(cell).collect();
    let (of_p99, of_max) = (
        Level::of(&seconds, |latency| latency.p99_us),
        Level::of(&seconds, |latency| latency.max_us),
    );
    let (Some(of_p99), Some(of_max)) = (of_p99, of_max) else {
        return (Vec::new(), 0);
    };
    let spike = |index: usize| {
        let latency = seconds[index].response?;
        let (figure, us, level) = match of_p99.is_beyond(latency.p99_us) {
            true => ("p99", latency.p99_us, of_p99),
            false if of_max.is_beyond(latency.max_us) => ("max", latency.max_us, of_max),
            false => return None,
        };
        let spike = Spike {
            at_s: seconds[index].start_s + seconds[index].length_s / 2.0,
            figure,
            us,
            usual_us: level.median_us,
            beside: Vec::new(),
        };
        Some((index, spike))
    };
    let mut found: Vec<(usize, Spike)> = (0..seconds.len()).filter_map(spike).collect();
    found.sort_by(|a, b| (b.1.us / b.1.usual_us).total_cmp(&(a.1.us / a.1.usual_us)));
    let others = found.len().saturating_sub(SPIKES_MAX);
    found.truncate(SPIKES_MAX);
    found.sort_by_key(|(index, _)| *index);
    let told = found.into_iter().map(|(index, spike)| Spike {
        beside: beside(cell, &seconds, index, spike.us - spike.usual_us),
        ..spike
    });
    (told.collect(), others)
}

/// What a figure of latency usually is, and from where on it is not.
#[derive(Clone, Copy)]
struct Level {
    median_us: f64,
    beyond_us: f64,
}

impl Level {
    /// `None` where there are too few seconds to say what is usual.
    fn of(seconds: &[&Interval], figure: fn(&IntervalLatency) -> f64) -> Option<Self> {
        let values = seconds.iter().filter_map(|it| it.response.as_ref());
        // A tail is a matter of factors.
        let mut logs: Vec<f64> = values.map(|it| figure(it).max(LEAST_US).ln()).collect();
        if logs.len() < SECONDS_MIN {
            return None;
        }
        logs.sort_by(f64::total_cmp);
        let middle = median(&logs);
        let mut apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
        apart.sort_by(f64::total_cmp);
        let deviation = median(&apart) * MAD_TO_DEVIATION;
        let median_us = middle.exp();
        let beyond_us = (middle + DEVIATIONS * deviation).exp();
        Some(Self {
            median_us,
            beyond_us: beyond_us
                .max(FACTOR_MIN * median_us)
                .max(median_us + EXCESS_US_MIN),
        })
    }

    fn is_beyond(&self, us: f64) -> bool {
        us > self.beyond_us
    }
}

/// A thing that is looked at beside a spike.
struct Watched {
    value: fn(&Interval) -> Option<f64>,
    /// Less is never out of the ordinary.
    least: f64,
    told: fn(f64) -> String,
}

/// What is out of the ordinary where it is more than [`FACTOR_MIN`] times what it usually is.
const WATCHED: [Watched; 8] = [
    Watched {
        value: |it| it.throttled_ms,
        least: 1.0,
        told: |ms| format!("its CPU limit stopped the server for {}", milliseconds(ms)),
    },
    Watched {
        value: |it| it.gc_pause_max_ms,
        least: 1.0,
        told: |ms| {
            format!(
                "its garbage collector stopped the server for {}",
                milliseconds(ms)
            )
        },
    },
    Watched {
        value: |it| it.stolen_ms,
        // Two ticks of the kernel's clock.
        least: 20.0,
        told: |ms| format!("the host took {} of CPU", milliseconds(ms)),
    },
    Watched {
        value: |it| it.retransmitted_segments.map(|count| count as f64),
        least: 1.0,
        told: |count| format!("TCP segments sent again: {}", whole(count)),
    },
    Watched {
        value: |it| it.listen_overflows.map(|count| count as f64),
        least: 1.0,
        told: |count| format!("a full listen queue turned {} away", whole(count)),
    },
    Watched {
        value: |it| it.involuntary_switches.map(|count| count as f64),
        least: 100.0,
        told: |count| format!("the server was displaced {} times", whole(count)),
    },
    Watched {
        value: |it| Some(it.opened as f64),
        least: 1.0,
        told: |count| format!("connections opened: {}", whole(count)),
    },
    Watched {
        value: |it| Some(it.errors as f64),
        least: 1.0,
        told: |count| format!("errors: {}", whole(count)),
    },
];

/// What was out of the ordinary in the second, the one before and the one after. `excess_us` is
/// how much higher the spike is than usual.
fn beside(cell: &Cell, seconds: &[&Interval], index: usize, excess_us: f64) -> Vec<String> {
    let near = index.saturating_sub(1)..(index + 2).min(seconds.len());
    let highest = |value: &dyn Fn(&Interval) -> Option<f64>| {
        let values = seconds[near.clone()].iter().filter_map(|it| value(it));
        values.reduce(f64::max)
    };
    let mut told = Vec::new();
    let lag_us = highest(&|it| it.send_lag.map(|lag| lag.max_us));
    if let Some(lag_us) = lag_us.filter(|lag_us| *lag_us >= excess_us * OURS_SHARE) {
        let lag = format::latency(lag_us);
        told.push(format!("the generator sent {lag} late, so that it is ours"));
    }
    let allowed = processors(cell);
    let used = highest(&|it| it.server_cpu);
    if let Some(used) = used.filter(|used| *used >= allowed * FULL_SHARE) {
        let share = format::significant(used * 100.0);
        let of = format::significant(allowed * 100.0);
        told.push(format!(
            "the server used {share} % of CPU, of {of} % at most"
        ));
    }
    for watched in &WATCHED {
        let mut all: Vec<f64> = seconds
            .iter()
            .filter_map(|it| (watched.value)(it))
            .collect();
        all.sort_by(f64::total_cmp);
        let Some(found) = highest(&watched.value) else {
            continue;
        };
        if found >= watched.least && found > FACTOR_MIN * median(&all) {
            told.push((watched.told)(found));
        }
    }
    // From the second before the first of these.
    let with_before = &seconds[near.start.saturating_sub(1)..near.end];
    let grown = with_before.windows(2).filter_map(|pair| {
        let (before, after) = (pair[0].server_rss_bytes?, pair[1].server_rss_bytes?);
        let by = after.checked_sub(before)?;
        (by as f64 >= (before as f64 * RSS_JUMP_SHARE).max(RSS_JUMP_BYTES)).then_some(by)
    });
    if let Some(by) = grown.max() {
        let by = format::bytes(by as f64);
        told.push(format!("the server's memory grew by {by}"));
    }
    let lost = ended(with_before);
    let usual = ended(seconds) as f64 / seconds.len() as f64 * with_before.len() as f64;
    if lost as f64 > FACTOR_MIN * usual.max(0.1) {
        told.push(format!("connections ended: {}", format::count(lost)));
    }
    told
}

/// Connections that were up and are no more, after the first of these seconds.
fn ended(seconds: &[&Interval]) -> u64 {
    let pairs = seconds.windows(2);
    pairs
        .map(|pair| (pair[0].connected + pair[1].opened).saturating_sub(pair[1].connected))
        .sum()
}

/// How many the server may use: its limit, those that it is pinned to, or one.
fn processors(cell: &Cell) -> f64 {
    let Some(server) = &cell.server else {
        return 1.0;
    };
    let pinned = core_count(&server.cores).map_or(1.0, |count| count as f64);
    server.cpu_limit.map_or(pinned, |limit| limit.min(pinned))
}

/// Those of a list such as `0,2-3`.
fn core_count(list: &str) -> Option<usize> {
    let count = |part: &str| -> Option<usize> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').map(|part| count(part.trim())).sum()
}

fn milliseconds(ms: f64) -> String {
    format::latency(ms * 1e3)
}

fn whole(count: f64) -> String {
    format::count(count as u64)
}

/// Of one run; more are told by their number.
const SPIKES_MAX: usize = 8;
/// Fewer do not say what is usual.
const SECONDS_MIN: usize = 8;
/// A spike is this many deviations above the median, of the logarithms.
const DEVIATIONS: f64 = 5.0;
/// From a median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_DEVIATION: f64 = 1.4826;
/// And this many times the median,
const FACTOR_MIN: f64 = 3.0;
/// and more than it by a millisecond.
const EXCESS_US_MIN: f64 = 1000.0;
/// A nanosecond.
const LEAST_US: f64 = 0.001;
/// A send lag of this part of a spike made it.
const OURS_SHARE: f64 = 0.5;
/// Of the processors it may use.
const FULL_SHARE: f64 = 0.9;
/// Growth of memory within a second that is told.
const RSS_JUMP_SHARE: f64 = 0.05;
const RSS_JUMP_BYTES: f64 = 1_048_576.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(us: f64) -> Option<IntervalLatency> {
        Some(IntervalLatency {
            count: 1000,
            p99_us: us,
            max_us: us * 2.0,
            ..IntervalLatency::default()
        })
    }

    /// Half a minute at about 2 ms.
    fn cell() -> Cell {
        let second = |at: u32| Interval {
            start_s: f64::from(at),
            length_s: 1.0,
            connected: 100,
            response: latency(2000.0 + f64::from(at * 7919 % 13) * 20.0),
            server_cpu: Some(0.4),
            server_rss_bytes: Some(50 << 20),
            involuntary_switches: Some(40),
            retransmitted_segments: Some(0),
            ..Interval::default()
        };
        let mut cell = Cell {
            intervals: (0..30).map(second).collect(),
            ..Cell::default()
        };
        cell.rate.duration_s = 30.0;
        cell
    }

    fn told(cell: &Cell) -> Vec<String> {
        let (spikes, _) = spikes(cell);
        spikes.iter().map(Spike::to_string).collect()
    }

    #[test]
    fn a_quiet_run_has_no_spike() {
        assert_eq!(spikes(&cell()), (Vec::new(), 0));
        let mut short = cell();
        short.intervals.truncate(7);
        short.intervals[3].response = latency(90_000.0);
        assert_eq!(spikes(&short).0.len(), 0);
        // Three times as much is not far where it is less than a millisecond.
        let mut fast = cell();
        for interval in &mut fast.intervals {
            interval.response = latency(100.0);
        }
        fast.intervals[9].response = latency(450.0);
        assert_eq!(spikes(&fast).0.len(), 0);
    }

    #[test]
    fn a_spike_is_told_with_what_was_out_of_the_ordinary_beside_it() {
        let mut cell = cell();
        cell.intervals[12].response = latency(80_000.0);
        assert_eq!(
            told(&cell),
            ["at 12 s p99 80.0 ms (usually 2.11 ms); beside it: nothing that was watched"]
        );
        cell.intervals[11].involuntary_switches = Some(2310);
        cell.intervals[13].retransmitted_segments = Some(3);
        cell.intervals[12].server_cpu = Some(0.97);
        for (second, ms) in cell
            .intervals
            .iter_mut()
            .zip((0..).map(|at| f64::from(at % 3)))
        {
            second.gc_pause_max_ms = Some(ms);
        }
        cell.intervals[13].gc_pause_max_ms = Some(38.0);
        cell.intervals[12].errors = 2;
        for late in &mut cell.intervals[12..] {
            late.server_rss_bytes = Some(58 << 20);
            late.connected = 90;
        }
        // Two seconds away is not beside it.
        cell.intervals[14].stolen_ms = Some(60.0);
        let expected = [
            "the server used 97.0 % of CPU, of 100 % at most",
            "its garbage collector stopped the server for 38.0 ms",
            "TCP segments sent again: 3",
            "the server was displaced 2,310 times",
            "errors: 2",
            "the server's memory grew by 8.00 MiB",
            "connections ended: 10",
        ];
        assert_eq!(spikes(&cell).0[0].beside, expected);
    }

    #[test]
    fn a_generator_that_is_late_is_said_to_have_made_it() {
        let mut cell = cell();
        cell.intervals[5].response = latency(40_000.0);
        cell.intervals[5].send_lag = latency(15_000.0);
        assert!(told(&cell)[0].contains("the generator sent 30.0 ms late, so that it is ours"));
    }

    #[test]
    fn a_maximum_alone_is_told_and_only_the_highest_are() {
        let mut cell = cell();
        let latency = cell.intervals[20].response.as_mut().unwrap();
        latency.max_us = 70_000.0;
        assert!(told(&cell)[0].starts_with("at 20 s max 70.0 ms (usually 4.24 ms)"));
        for index in 0..10 {
            cell.intervals[index * 3].response = tests::latency(50_000.0);
        }
        let (spikes, others) = spikes(&cell);
        assert_eq!((spikes.len(), others), (SPIKES_MAX, 3));
        assert!(spikes.windows(2).all(|two| two[0].at_s < two[1].at_s));
    }

    #[test]
    fn what_a_server_may_use_is_its_limit_or_its_cores() {
        assert_eq!(core_count("0,2-3"), Some(3));
        assert_eq!(core_count(""), None);
    }
}
