//! What all workers recorded, put together second by second.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use moonwire_report::{Interval, IntervalLatency, LatencyBuckets};

use crate::block_records::BlockRecords;
use crate::cpu::ThreadCpu;
use crate::stage_records::StageRecords;
use crate::tally::Tally;
use crate::worker::Finish;

/// The sum of a run while it grows.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) totals: Tally,
    pub(crate) intervals: Vec<Interval>,
    /// Windows looked at, and those in which Little's law did not hold.
    pub(crate) windows: (u64, u64),
    /// Each worker's CPU over its sending phase.
    pub(crate) cpu: Vec<(ThreadCpu, u64)>,
    pub(crate) unsent_waiting: u64,
    pub(crate) unsent_down: u64,
    pub(crate) unsent_ready: u64,
    pub(crate) born_ns: u64,
    /// When sending started; 0 if it never did.
    pub(crate) start_ns: u64,
    pub(crate) sending_end_ns: u64,
    pub(crate) last_sent_ns: u64,
    pub(crate) last_received_ns: u64,
    /// The least and the most messages that one connection sent, where that is known.
    pub(crate) sent_each: Option<(u64, u64)>,
    /// Messages that each listener has heard, where some are published.
    pub(crate) heard: Vec<u64>,
    /// Response times in blocks of time.
    pub(crate) blocks: BlockRecords,
    /// What became of the messages of each stage, where there are stages.
    pub(crate) stages: StageRecords,
    /// When the last worker was left without connections, if all were.
    pub(crate) died_ns: Option<u64>,
    pub(crate) stalled: bool,
    /// Connections that were up when all had been tried.
    pub(crate) online: u64,
    pub(crate) all_online_ns: Option<u64>,
    /// Share of the machine's time that other guests took while sending.
    pub(crate) steal: Option<f64>,
    /// Share of that time in which something waited for a CPU.
    pub(crate) pressure: Option<f64>,
    pub(crate) interrupted: bool,
    /// Why lines of the raw CSV are missing, if its file could not be written.
    pub(crate) csv_error: Option<String>,
    /// What is not in `intervals` yet, by its last second.
    open: BTreeMap<u64, Row>,
    /// First second of each worker that is not reported; [`u64::MAX`] once it has finished.
    reported: Vec<u64>,
    finished: Vec<Finish>,
    /// First second that is not in `intervals`.
    next_second: u64,
}

/// What workers recorded up to the end of one second.
#[derive(Debug, Default)]
struct Row {
    /// First second that is in it: the same, unless a worker was held up.
    first: u64,
    tally: Box<Tally>,
    in_flight: u64,
    /// Both sides of Little's law.
    counted: f64,
    recorded: f64,
    run_ns: u64,
}

impl Records {
    pub(crate) fn new(workers: u32, born_ns: u64) -> Self {
        Self {
            totals: Tally::default(),
            intervals: Vec::new(),
            windows: (0, 0),
            cpu: Vec::new(),
            unsent_waiting: 0,
            unsent_down: 0,
            unsent_ready: 0,
            born_ns,
            start_ns: 0,
            sending_end_ns: 0,
            last_sent_ns: 0,
            last_received_ns: 0,
            sent_each: None,
            heard: Vec::new(),
            blocks: BlockRecords::default(),
            stages: StageRecords::default(),
            died_ns: None,
            stalled: false,
            online: 0,
            all_online_ns: None,
            steal: None,
            pressure: None,
            interrupted: false,
            csv_error: None,
            open: BTreeMap::new(),
            reported: vec![0; workers as usize],
            finished: Vec::new(),
            next_second: 0,
        }
    }

    /// Takes the snapshot of a worker over `seconds`; gives back an empty tally in its place.
    pub(crate) fn take_snapshot(
        &mut self,
        worker: u32,
        seconds: &RangeInclusive<u64>,
        mut tally: Box<Tally>,
        run_ns: u64,
        spare: Option<Box<Tally>>,
    ) -> Box<Tally> {
        self.reported[worker as usize] = seconds.end() + 1;
        self.row(seconds, spare).add(&tally, run_ns);
        tally.clear();
        tally
    }

    /// The row that ends with the last of these seconds, and holds the first.
    fn row(&mut self, seconds: &RangeInclusive<u64>, spare: Option<Box<Tally>>) -> &mut Row {
        let row = self.open.entry(*seconds.end()).or_insert_with(|| Row {
            first: *seconds.start(),
            tally: spare.unwrap_or_default(),
            ..Row::default()
        });
        row.first = row.first.min(*seconds.start());
        row
    }

    /// Closes the seconds that every worker has reported; gives back their tallies, empty. The
    /// last ones are left to [`Records::finish`], which knows how long they are.
    pub(crate) fn close_rows(&mut self) -> VecDeque<Box<Tally>> {
        let complete = self.reported.iter().copied().min().unwrap_or(0);
        let mut empty = VecDeque::new();
        while complete != u64::MAX
            && let Some(end) = self.group_end().filter(|end| *end < complete)
        {
            let mut row = self.take_group(end, &mut empty);
            self.close(end, &row, 1.0);
            row.tally.clear();
            empty.push_back(row.tally);
        }
        empty
    }

    /// Last second of the first open rows that have seconds in common: a worker that was held up
    /// reports several as one, and what cannot be told apart is one interval.
    fn group_end(&self) -> Option<u64> {
        let mut rows = self.open.iter();
        let (&first, _) = rows.next()?;
        Some(rows.fold(
            first,
            |end, (&index, row)| {
                if row.first <= end { index } else { end }
            },
        ))
    }

    /// Takes the rows up to second `end` as one.
    fn take_group(&mut self, end: u64, empty: &mut VecDeque<Box<Tally>>) -> Row {
        let mut whole = self.open.remove(&end).unwrap_or_default();
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() < end) {
            let mut row = entry.remove();
            whole.absorb(&row);
            row.tally.clear();
            empty.push_back(row.tally);
        }
        whole
    }

    /// Takes what a worker left behind.
    pub(crate) fn take_finish(&mut self, worker: u32, mut finish: Finish) {
        self.blocks.merge(std::mem::take(&mut finish.blocks));
        self.stages.merge(std::mem::take(&mut finish.stages));
        self.reported[worker as usize] = u64::MAX;
        self.cpu.extend(finish.cpu);
        self.unsent_waiting += finish.unsent_waiting;
        self.unsent_down += finish.unsent_down;
        self.unsent_ready += finish.unsent_ready;
        self.sending_end_ns = self.sending_end_ns.max(finish.sending_end_ns);
        self.last_sent_ns = self.last_sent_ns.max(finish.last_sent_ns);
        self.last_received_ns = self.last_received_ns.max(finish.last_received_ns);
        self.stalled |= finish.stalled;
        let both = self.sent_each.into_iter().chain(finish.sent_each);
        self.sent_each = both.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        self.heard.extend_from_slice(&finish.heard);
        self.row(&finish.seconds, None).add(&finish.tally, 0);
        self.finished.push(finish);
    }

    /// All workers have finished: closes the last seconds, of which the very last is broken.
    pub(crate) fn finish(&mut self, end_ns: u64) {
        self.close_rows();
        if self.finished.iter().all(|finish| finish.died_ns.is_some()) {
            self.died_ns = self
                .finished
                .iter()
                .filter_map(|finish| finish.died_ns)
                .max();
        }
        let elapsed_s = end_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        while let Some(end) = self.group_end() {
            let row = self.take_group(end, &mut VecDeque::new());
            let length_s = (elapsed_s - end as f64).min(1.0);
            let counters = &row.tally.counters;
            let is_needed = !self.open.is_empty() || counters.sent + counters.received > 0;
            if self.start_ns > 0 && length_s > 0.0 && is_needed {
                self.close(end, &row, length_s);
            } else {
                self.totals.merge(&row.tally);
            }
        }
        self.drop_empty_end();
    }

    /// Drops the seconds after the end of sending in which nothing happened or was awaited.
    fn drop_empty_end(&mut self) {
        let end_s = self.sending_end_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let is_empty = |interval: &mut Interval| {
            let happened = interval.sent + interval.received + interval.errors;
            interval.start_s >= end_s && happened + interval.in_flight == 0
        };
        while self.intervals.pop_if(is_empty).is_some() {}
    }

    /// Workers that have finished.
    pub(crate) fn finished(&self) -> usize {
        self.finished.len()
    }

    fn close(&mut self, index: u64, row: &Row, length_s: f64) {
        self.totals.merge(&row.tally);
        let (more, less) = (row.counted.max(row.recorded), row.counted.min(row.recorded));
        if more > 0.0 {
            let broken = more - less > LITTLE_TOLERANCE * more && more - less > LITTLE_MIN_NS;
            self.windows.0 += 1;
            self.windows.1 += u64::from(broken);
        }
        // A worker that was held up reports several seconds as one.
        let skipped = index.saturating_sub(self.next_second) as f64;
        let mut interval = row.interval(self.next_second as f64, skipped + length_s);
        let counters = &self.totals.counters;
        interval.connected = counters
            .connects_ok
            .saturating_sub(counters.connections_ended);
        self.intervals.push(interval);
        self.next_second = index + 1;
    }
}

impl Row {
    fn add(&mut self, tally: &Tally, run_ns: u64) {
        self.tally.merge(tally);
        let (counted, recorded) = tally.occupancy.both_sides(&tally.service);
        self.counted += counted;
        self.recorded += recorded;
        self.in_flight += tally.occupancy.in_flight();
        self.run_ns += run_ns;
    }

    /// Takes an earlier row in. What is in flight at the end is in the later one.
    fn absorb(&mut self, earlier: &Self) {
        self.first = self.first.min(earlier.first);
        self.tally.merge(&earlier.tally);
        self.counted += earlier.counted;
        self.recorded += earlier.recorded;
        self.run_ns += earlier.run_ns;
    }

    fn interval(&self, start_s: f64, length_s: f64) -> Interval {
        let tally = &self.tally;
        Interval {
            start_s,
            length_s,
            sent: tally.counters.sent,
            received: tally.counters.received,
            errors: tally.errors.values().sum(),
            opened: tally.counters.connects_ok,
            in_flight: self.in_flight,
            response: IntervalLatency::of(&tally.response),
            response_buckets: LatencyBuckets::of(&tally.response),
            service: IntervalLatency::of(&tally.service),
            send_lag: IntervalLatency::of(&tally.send_lag),
            one_way: IntervalLatency::of(&tally.one_way),
            generator_cpu: (self.run_ns > 0).then(|| self.run_ns as f64 / (length_s * 1e9)),
            ..Interval::default()
        }
    }
}

/// How far the two sides of Little's law may be apart.
const LITTLE_TOLERANCE: f64 = 0.05;
/// Differences below one message for a millisecond are rounding.
const LITTLE_MIN_NS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(sent: u64) -> Box<Tally> {
        let mut tally = Box::new(Tally::default());
        tally.counters.sent = sent;
        tally
    }

    fn finish(second: u64, sent: u64, died_ns: Option<u64>) -> Finish {
        Finish {
            tally: tally(sent),
            seconds: second..=second,
            cpu: None,
            unsent_waiting: 0,
            unsent_down: 0,
            unsent_ready: 0,
            sending_end_ns: 0,
            last_sent_ns: 0,
            last_received_ns: 0,
            sent_each: None,
            heard: Vec::new(),
            blocks: BlockRecords::default(),
            stages: StageRecords::default(),
            died_ns,
            stalled: false,
        }
    }

    #[test]
    fn a_second_is_complete_when_every_worker_has_told_it() {
        let mut records = Records::new(2, 0);
        records.start_ns = 1;
        records.take_snapshot(0, &(0..=0), tally(5), 0, None);
        assert!(records.close_rows().is_empty());
        records.take_snapshot(0, &(1..=1), tally(7), 0, None);
        records.take_snapshot(1, &(0..=0), tally(6), 0, None);
        assert_eq!(records.close_rows().len(), 1);
        assert_eq!(records.intervals[0].sent, 11);
        records.take_finish(0, finish(2, 1, None));
        records.take_finish(1, finish(1, 2, Some(9)));
        records.finish(2_500_000_001);
        let sent: Vec<u64> = records
            .intervals
            .iter()
            .map(|interval| interval.sent)
            .collect();
        assert_eq!(sent, [11, 9, 1]);
        assert_eq!(records.intervals[2].length_s, 0.5);
        assert_eq!(records.totals.counters.sent, 21);
        assert_eq!(records.died_ns, None);
    }

    #[test]
    fn a_worker_that_was_held_up_has_one_long_interval() {
        let mut records = Records::new(1, 0);
        records.take_snapshot(0, &(0..=0), tally(1), 0, None);
        records.take_snapshot(0, &(1..=3), tally(1), 0, None);
        records.close_rows();
        let at = |index: usize| {
            let interval: &Interval = &records.intervals[index];
            (interval.start_s, interval.length_s)
        };
        assert_eq!((at(0), at(1)), ((0.0, 1.0), (1.0, 3.0)));
    }

    #[test]
    fn seconds_that_one_worker_reports_as_one_are_one_for_all() {
        let mut records = Records::new(2, 0);
        records.start_ns = 1;
        for (index, sent) in [(0, 1), (1, 10), (2, 20), (3, 2)] {
            records.take_snapshot(0, &(index..=index), tally(sent), 0, None);
        }
        records.take_snapshot(1, &(0..=0), tally(1), 0, None);
        assert_eq!(records.close_rows().len(), 1);
        records.take_snapshot(1, &(1..=2), tally(30), 0, None);
        assert_eq!(records.close_rows().len(), 2);
        records.take_finish(1, finish(3, 2, None));
        records.take_finish(0, finish(4, 0, None));
        records.finish(4_000_000_001);
        let rows: Vec<(f64, f64, u64)> = records
            .intervals
            .iter()
            .map(|interval| (interval.start_s, interval.length_s, interval.sent))
            .collect();
        assert_eq!(rows, [(0.0, 1.0, 2), (1.0, 2.0, 60), (3.0, 1.0, 4)]);
        assert_eq!(records.totals.counters.sent, 66);
    }

    #[test]
    fn a_run_has_no_empty_seconds_after_its_end() {
        let mut records = Records::new(1, 0);
        records.start_ns = 1;
        for (index, sent) in [(0, 0), (1, 5), (2, 0), (3, 0)] {
            records.take_snapshot(0, &(index..=index), tally(sent), 0, None);
        }
        records.take_finish(
            0,
            Finish {
                sending_end_ns: 1_500_000_000,
                ..finish(4, 0, None)
            },
        );
        records.finish(4_000_000_000);
        let sent: Vec<u64> = records.intervals.iter().map(|i| i.sent).collect();
        assert_eq!(sent, [0, 5]);
    }

    #[test]
    fn the_run_died_only_if_every_worker_did() {
        let mut records = Records::new(2, 0);
        records.take_finish(0, finish(0, 0, Some(5)));
        records.take_finish(1, finish(0, 0, Some(9)));
        records.finish(10);
        assert_eq!(records.died_ns, Some(9));
    }
}
