//! Pauses of contestants' garbage collectors, as their runtimes tell them while they run.
//!
//! A pause is placed by when its line was read here. All runtimes that are known write theirs at
//! once, so that what lies between is a switch to the thread that reads. With ten that wanted two
//! processors that took 0.7 ms at the median and 19 ms at most, by V8's own stamps.

mod lines;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moonwire_report::{Cell, GcPause, GcPauses};

pub(crate) use self::lines::PauseLines;

/// One pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pause {
    pub(crate) ended: Instant,
    pub(crate) length: Duration,
}

/// Pauses of one or several processes. Invariant: at most [`PAUSES_MAX`] of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pauses {
    kept: Vec<Pause>,
    /// Later ones, which found no room.
    left_out: u64,
}

/// Where the lines of a contestant are looked through. Clones are the same one.
#[derive(Debug, Clone)]
pub struct PauseLog {
    lines: PauseLines,
    told: Arc<Mutex<Pauses>>,
}

impl PauseLog {
    pub(crate) fn new(lines: PauseLines) -> Self {
        Self {
            lines,
            told: Arc::default(),
        }
    }

    /// Takes a line that has just come; false where it tells of no pause.
    pub(crate) fn take(&self, line: &str, come: Instant) -> bool {
        let Some(told) = self.lines.read(line) else {
            return false;
        };
        let mut pauses = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for (before_it_came, length) in told {
            // Only what is older than the machine has no moment.
            let Some(ended) = come.checked_sub(before_it_came) else {
                continue;
            };
            pauses.push(Pause { ended, length });
        }
        true
    }

    /// Hands out all that was told since it was asked last.
    pub(crate) fn drain(&self) -> Pauses {
        std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Pauses {
    pub(crate) fn new(kept: Vec<Pause>, left_out: u64) -> Self {
        let mut pauses = Self {
            left_out,
            ..Self::default()
        };
        kept.into_iter().for_each(|pause| pauses.push(pause));
        pauses
    }

    fn push(&mut self, pause: Pause) {
        match self.kept.len() < PAUSES_MAX {
            true => self.kept.push(pause),
            false => self.left_out += 1,
        }
    }

    /// All that these logs have; `None` where there is no log.
    pub(crate) fn drained(logs: &[PauseLog]) -> Option<Self> {
        let each = logs.iter().map(PauseLog::drain);
        each.reduce(|mut all, more| {
            all.left_out += more.left_out;
            more.kept.into_iter().for_each(|pause| all.push(pause));
            all
        })
    }

    pub(crate) fn into_parts(self) -> (Vec<Pause>, u64) {
        (self.kept, self.left_out)
    }

    /// Puts them into the intervals, which count from `origin`, and sums them up. A pause is in the
    /// interval in which it ended; one that ended in none of them is not of this cell.
    pub(crate) fn add_to(mut self, cell: &mut Cell, origin: Instant) {
        self.kept.sort_by_key(|pause| pause.ended);
        let at = |seconds: f64| origin + Duration::from_secs_f64(seconds.max(0.0));
        let until = |moment: Instant| self.kept.partition_point(|pause| pause.ended < moment);
        let mut of_cell = Vec::new();
        for interval in &mut cell.intervals {
            let from = until(at(interval.start_s));
            let to = until(at(interval.start_s + interval.length_s));
            let within = &self.kept[from..to.max(from)];
            let lengths = || within.iter().map(|pause| pause.length);
            interval.gc_pauses = Some(within.len() as u64);
            interval.gc_pause_ms = Some(milliseconds(lengths().sum()));
            interval.gc_pause_max_ms = Some(milliseconds(lengths().max().unwrap_or_default()));
            of_cell.extend(within.iter().map(|pause| GcPause {
                at_s: pause.ended.saturating_duration_since(origin).as_secs_f64(),
                ms: milliseconds(pause.length),
            }));
        }
        if let Some(server) = &mut cell.server {
            server.gc = Some(GcPauses::of(of_cell, self.left_out));
        }
    }
}

fn milliseconds(length: Duration) -> f64 {
    length.as_nanos() as f64 / 1e6
}

/// Of a contestant's process between two questions: some 16 MB. The first of a load are kept and
/// later ones are counted, so that what is drawn is whole as far as it goes.
pub(crate) const PAUSES_MAX: usize = 500_000;

#[cfg(test)]
mod tests {
    use moonwire_report::{Interval, Server};

    use super::*;

    fn pause(ended: Instant, ms: u64) -> Pause {
        let length = Duration::from_millis(ms);
        Pause { ended, length }
    }

    #[test]
    fn pauses_are_in_the_seconds_in_which_they_ended_and_others_are_not_of_the_cell() {
        let origin = Instant::now() + Duration::from_secs(10);
        let at = |ms: u64| origin + Duration::from_millis(ms);
        let before = origin.checked_sub(Duration::from_millis(1)).unwrap();
        let pauses = [
            pause(at(1500), 4),
            pause(before, 50),
            pause(at(1000), 7),
            pause(at(999), 2),
            pause(at(3000), 60),
        ];
        let second = |second: u32| Interval {
            start_s: f64::from(second),
            length_s: 1.0,
            ..Interval::default()
        };
        let mut cell = Cell {
            intervals: (0..3).map(second).collect(),
            server: Some(Server::default()),
            ..Cell::default()
        };
        Pauses::new(pauses.to_vec(), 0).add_to(&mut cell, origin);
        let figures: Vec<_> = cell
            .intervals
            .iter()
            .map(|it| {
                let ms = [it.gc_pause_ms, it.gc_pause_max_ms];
                (it.gc_pauses.unwrap(), ms.map(Option::unwrap))
            })
            .collect();
        assert_eq!(figures, [(1, [2.0; 2]), (2, [11.0, 7.0]), (0, [0.0; 2])]);
        let gc = cell.server.unwrap().gc.unwrap();
        assert_eq!((gc.count, gc.total_ms, gc.max_ms), (3, 13.0, 7.0));
        assert_eq!(gc.longest[1].at_s, 1.0);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let log = PauseLog::new(PauseLines::Pause);
        let now = Instant::now();
        for _ in 0..PAUSES_MAX + 2 {
            assert!(log.take("gc pause 0.5 ms", now));
        }
        assert!(!log.take("listening on port 5083", now));
        let other = PauseLog::new(PauseLines::Pause);
        other.take("gc pause 0.5 ms", now);
        let (kept, left_out) = Pauses::drained(&[log.clone(), other]).unwrap().into_parts();
        assert_eq!((kept.len(), left_out), (PAUSES_MAX, 3));
        assert!(log.drain().kept.is_empty());
        assert!(Pauses::drained(&[]).is_none());
    }
}
