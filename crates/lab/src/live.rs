//! What servers tell of themselves while they are loaded, asked for each second.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use moonwire_report::Cell;

use crate::contestant::{MetricsPage, Told};
use crate::link::LinkEnd;

/// What was told, and when, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveSeries(Vec<(Instant, Told)>);

/// A thread that asks until it is stopped.
#[derive(Debug)]
pub(crate) struct LiveSampler {
    stop: Sender<()>,
    thread: JoinHandle<LiveSeries>,
}

impl LiveSampler {
    /// Asks all of these pages, which are of servers at one end of a link, each second. The first
    /// answer is there before this returns.
    pub(crate) fn start(pages: Vec<MetricsPage>, at: LinkEnd) -> Self {
        let (stop, stopped) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut series = LiveSeries::default();
            if at.enter().is_err() {
                return series;
            }
            series.ask(&pages);
            // Whoever waits for it may be gone.
            let _ = begun.send(());
            let mut next = Instant::now() + PERIOD;
            loop {
                let pause = next.saturating_duration_since(Instant::now());
                let is_last = stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
                series.ask(&pages);
                if is_last {
                    return series;
                }
                next = (next + PERIOD).max(Instant::now());
            }
        });
        let _ = begins.recv();
        Self { stop, thread }
    }

    /// Asks once more and returns all that was told.
    pub(crate) fn stop(self) -> LiveSeries {
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

impl LiveSeries {
    /// What any of them does not tell is not told at all.
    fn ask(&mut self, pages: &[MetricsPage]) {
        let is_full = self.0.len() >= ANSWERS_MAX;
        let mut sum = Told::default();
        for page in pages {
            let Ok(told) = page.ask() else { return };
            sum.received += told.received;
            sum.sent += told.sent;
            sum.connected += told.connected;
        }
        let told = (Instant::now(), sum);
        match self.0.last_mut().filter(|_| is_full) {
            // The sum over all intervals is that of the newest.
            Some(last) => *last = told,
            None => self.0.push(told),
        }
    }

    /// Puts it into the intervals, which count from `origin`. The first of them has all from the
    /// first answer, and the last one all to the last: so their sum is what was counted in all.
    pub(crate) fn add_to(&self, cell: &mut Cell, origin: Instant) {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return;
        };
        if self.0.len() < ANSWERS_MIN {
            return;
        }
        let count = cell.intervals.len();
        for (index, interval) in cell.intervals.iter_mut().enumerate() {
            let after = |seconds: f64| origin + Duration::from_secs_f64(seconds.max(0.0));
            let is_last = index + 1 == count;
            let from = match index {
                0 => first.0,
                _ => after(interval.start_s),
            };
            let end = after(interval.start_s + interval.length_s);
            let to = if is_last { last.0 } else { end };
            let rise =
                |value: fn(&Told) -> u64| self.at(to, value).saturating_sub(self.at(from, value));
            interval.server_received = Some(rise(|told| told.received));
            interval.server_sent = Some(rise(|told| told.sent));
            let connected = self.last_until(end).unwrap_or(&first.1).connected;
            interval.server_connected = Some(connected);
        }
    }

    /// The last answer not after a moment.
    fn last_until(&self, at: Instant) -> Option<&Told> {
        let after = self.0.partition_point(|(moment, _)| *moment <= at);
        self.0[..after].last().map(|(_, told)| told)
    }

    /// A value that counts up, at a moment: between the answers around it, and before the first
    /// and after the last what these say.
    fn at(&self, at: Instant, value: fn(&Told) -> u64) -> u64 {
        let after = self.0.partition_point(|(moment, _)| *moment <= at);
        let before = self.0[after.saturating_sub(1)];
        let Some(next) = self.0.get(after).filter(|_| after > 0) else {
            return value(&before.1);
        };
        let part = (at - before.0).as_secs_f64() / (next.0 - before.0).as_secs_f64();
        let (from, to) = (value(&before.1) as f64, value(&next.1) as f64);
        (from + part * (to - from)).round() as u64
    }
}

const PERIOD: Duration = Duration::from_secs(1);
/// Fewer are no curve.
const ANSWERS_MIN: usize = 3;
/// More than a day.
const ANSWERS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use moonwire_report::Interval;

    use super::*;

    #[test]
    fn intervals_share_what_was_told_so_that_nothing_is_lost() {
        let start = Instant::now();
        let told = |ms: u64, received: u64| {
            let told = Told {
                received,
                sent: received * 4,
                connected: 5,
            };
            (start + Duration::from_millis(ms), told)
        };
        let series = LiveSeries(vec![
            told(0, 7),
            told(1500, 7),
            told(2500, 1007),
            told(3500, 2007),
            told(4600, 2107),
        ]);
        let interval = |second: u32| Interval {
            start_s: f64::from(second),
            length_s: 1.0,
            ..Interval::default()
        };
        let mut cell = Cell {
            intervals: (0..3).map(interval).collect(),
            ..Cell::default()
        };
        series.add_to(&mut cell, start + Duration::from_millis(1000));
        let received: Vec<u64> = cell
            .intervals
            .iter()
            .map(|it| it.server_received.unwrap())
            .collect();
        assert_eq!(received, [500, 1000, 600]);
        assert_eq!(cell.intervals[1].server_sent, Some(4000));
        assert_eq!(cell.intervals[2].server_connected, Some(5));
    }

    #[test]
    fn what_was_told_last_is_known_however_long_it_was_asked() {
        let begun = Instant::now();
        let mut series = LiveSeries(vec![(begun, Told::default()); ANSWERS_MAX]);
        series.ask(&[]);
        assert_eq!(series.0.len(), ANSWERS_MAX);
        assert!(series.0.last().is_some_and(|(moment, _)| *moment > begun));
    }

    #[test]
    fn a_server_that_did_not_answer_has_told_nothing() {
        let mut cell = Cell {
            intervals: vec![Interval::default()],
            ..Cell::default()
        };
        LiveSeries::default().add_to(&mut cell, Instant::now());
        assert_eq!(cell.intervals[0].server_received, None);
    }
}
