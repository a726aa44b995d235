//! Whether others had the processors that a contestant was to have.
//!
//! Two pieces of evidence must agree. What programs took of the processors, less what is known of
//! the contestant and of the lab, was taken by others; but the kernel counts that in ticks, which
//! can fall in step with the load. What threads waited for a processor is counted exactly; but they
//! wait for each other, too, and each is woken a little late on a machine that is quiet.
//! Interrupts are nobody's: most of them carry the contestant's own packets.

use std::time::Instant;

use moonwire_report::{Cell, Verdict};

use crate::sampling::{ProcessorTimes, Sample, Series};

/// What is known of a cell's processors and of those that may use them.
pub(crate) struct Site<'a> {
    /// Processors of the contestant and of the servers behind it; all of its host if empty.
    pub(crate) cpus: &'a [usize],
    /// The contestant and, if it is a proxy, the servers behind it.
    pub(crate) roles: Vec<&'a Series>,
    /// CPU time per second of the generator, where it is part of the process that looked and has
    /// processors of its own.
    pub(crate) generator_apart: f64,
}

/// Marks a cell whose contestant waited for others while messages were sent.
pub(crate) fn weigh(cell: &mut Cell, site: &Site<'_>, from: Instant, to: Instant) {
    let Some(found) = site.found(from, to) else {
        return;
    };
    if found.others <= OTHERS_MAX || found.waited_s <= WAIT_MAX * found.ran_s {
        return;
    }
    let contest = cell.contest.as_ref();
    let name = contest.map_or("the server", |contest| &contest.contestant);
    let sentence = format!(
        "others had {:.0} % of the processors of {name} (at most {:.0} % allowed): its threads ran \
         for {:.2} s and waited {:.2} s for a processor",
        found.others * 100.0,
        OTHERS_MAX * 100.0,
        found.ran_s,
        found.waited_s
    );
    cell.assessment.add(Verdict::Suspect, sentence);
}

/// What the processors were used for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    /// The share of them that neither the contestant nor the lab had.
    others: f64,
    /// Sums over the contestant's threads.
    ran_s: f64,
    waited_s: f64,
}

impl Site<'_> {
    /// Between the looks at the processors that are nearest to both moments.
    fn found(&self, from: Instant, to: Instant) -> Option<Found> {
        let (first, last) = self.roles.first()?.processor_looks(from, to)?;
        let wall_s = last.at.checked_duration_since(first.at)?.as_secs_f64();
        if wall_s < WALL_MIN_S {
            return None;
        }
        let is_theirs = |times: &&ProcessorTimes| {
            self.cpus.is_empty() || self.cpus.contains(&(times.number as usize))
        };
        let mut taken_s = Vec::new();
        for before in first.processors.iter().filter(is_theirs) {
            let mut later = last.processors.iter();
            let after = later.find(|after| after.number == before.number)?;
            taken_s.push(before.programs_s(after, wall_s));
        }
        let rise_s = |count: fn(&Sample) -> u64| {
            let rises = self.roles.iter();
            let rises = rises.map(|role| role.rise(first.at, last.at, count).unwrap_or(0));
            rises.sum::<u64>() as f64 / 1e9
        };
        let ran_s = rise_s(|sample| sample.cpu_ns);
        let observer_ns = last.observer_cpu_ns.saturating_sub(first.observer_cpu_ns);
        let lab_s = (observer_ns as f64 / 1e9 - self.generator_apart * wall_s).max(0.0);
        let others_s = taken_s.iter().sum::<f64>() - ran_s - lab_s;
        (!taken_s.is_empty()).then(|| Found {
            others: others_s.max(0.0) / wall_s / taken_s.len() as f64,
            ran_s,
            waited_s: rise_s(|sample| sample.waited_ns),
        })
    }
}

/// Ticks of 10 ms tell the share of one processor to 7 % in 2 s and to 3 % in 10 s (two standard
/// deviations), and what a quiet machine does by itself is 1 or 2 %.
const OTHERS_MAX: f64 = 0.1;
/// As long as this share of the time that its threads ran, they may wait: with less, what was
/// measured is the contestant's for the most part.
const WAIT_MAX: f64 = 0.1;
/// Of less time ticks say nothing.
const WALL_MIN_S: f64 = 1.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sampling::tests::sample;

    /// Ten seconds of two processors: a contestant's on the second one, and what others did there.
    fn judged(ran_ms: u64, waited_ms: u64, ticks: u64, idle: u64, lab_ms: u64) -> Vec<String> {
        let start = Instant::now();
        let end = start + Duration::from_secs(10);
        let look = |at, ran_ms: u64, waited_ms: u64, lab_ms: u64, user, idle| Sample {
            waited_ns: waited_ms * 1_000_000,
            observer_cpu_ns: lab_ms * 1_000_000,
            processors: vec![
                ProcessorTimes {
                    user: user * 10,
                    ..ProcessorTimes::default()
                },
                ProcessorTimes {
                    number: 1,
                    user,
                    idle,
                    ..ProcessorTimes::default()
                },
            ],
            ..sample(at, ran_ms * 1_000_000)
        };
        let series = Series(vec![
            look(start, 0, 0, 0, 0, 0),
            look(end, ran_ms, waited_ms, lab_ms, ticks, idle),
        ]);
        let site = Site {
            cpus: &[1],
            roles: vec![&series],
            generator_apart: 0.1,
        };
        let mut cell = Cell::default();
        weigh(&mut cell, &site, start, end);
        cell.assessment.reasons().to_vec()
    }

    #[test]
    fn a_contestant_that_waits_for_others_makes_the_cell_suspect() {
        let expected = "others had 74 % of the processors of the server (at most 10 % allowed): \
                        its threads ran for 1.00 s and waited 2.00 s for a processor";
        assert_eq!(judged(1000, 2000, 840, 160, 0), [expected]);
        // The lab's own are known, but for the generator, which is elsewhere.
        let lab = judged(1000, 2000, 840, 160, 3000);
        assert!(lab[0].starts_with("others had 54 %"), "{lab:?}");
        assert!(judged(1000, 2000, 840, 160, 8000).is_empty());
    }

    #[test]
    fn neither_its_own_work_nor_ticks_alone_speak_against_a_contestant() {
        // Its own threads wait for each other.
        assert!(judged(9800, 50_000, 1000, 0, 0).is_empty());
        // Others ran, and it waited for nobody.
        assert!(judged(1000, 90, 840, 160, 0).is_empty());
        // Ticks fell in step with the load; the time with nothing to do is exact.
        assert!(judged(1000, 300, 840, 890, 0).is_empty());
    }
}
