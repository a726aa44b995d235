//! What the machine's processors are busy with, all programs together.

use std::fs;
use std::time::{Duration, Instant};

use moonwire_report::Processor;
use serde::{Deserialize, Serialize};

use super::Sample;
use crate::scheduling;

/// Time of one processor since the machine started, in ticks of 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessorTimes {
    /// The kernel's number of it.
    pub number: u64,
    /// In programs.
    pub user: u64,
    /// In programs of low priority.
    pub low_priority: u64,
    /// In the kernel.
    pub system: u64,
    /// With nothing to do, or waiting for a disk.
    pub idle: u64,
    /// In interrupts, soft and hard.
    pub softirq: u64,
    /// Taken by the host.
    pub steal: u64,
}

impl ProcessorTimes {
    /// Of all processors, the first `PROCESSORS_MAX` of them.
    pub(super) fn now() -> Vec<Self> {
        fs::read_to_string("/proc/stat").map_or_else(|_| Vec::new(), |text| parse(&text))
    }

    /// What it did until `later`; `None` where no time passed.
    pub(super) fn until(&self, later: &Self) -> Option<Processor> {
        let passed = |of: fn(&Self) -> u64| of(later).saturating_sub(of(self)) as f64;
        let all = [
            passed(|it| it.user),
            passed(|it| it.system),
            passed(|it| it.softirq),
            passed(|it| it.steal),
            passed(|it| it.low_priority),
        ];
        let time = all.iter().sum::<f64>() + passed(|it| it.idle);
        let [user, system, softirq, steal, low_priority] = all.map(|it| it / time);
        (time > 0.0).then_some(Processor {
            number: self.number,
            user,
            system,
            softirq,
            steal,
            low_priority,
        })
    }

    /// Seconds that programs had of it until `later`, which was `wall_s` after it. Ticks count what
    /// runs at their moment, and a load may keep their time; a processor with nothing to do is
    /// clocked where it halts without ticks. What both say is so.
    pub(crate) fn programs_s(&self, later: &Self, wall_s: f64) -> f64 {
        let per_second = procfs::ticks_per_second().max(1) as f64;
        let passed_s =
            |of: fn(&Self) -> u64| of(later).saturating_sub(of(self)) as f64 / per_second;
        let told = passed_s(|it| it.user + it.low_priority + it.system);
        let left = wall_s - passed_s(|it| it.idle + it.softirq + it.steal);
        told.min(left).max(0.0)
    }
}

/// Decides which samples have a look at them.
#[derive(Debug, Default)]
pub(super) struct ProcessorWatch {
    looked: Option<Instant>,
}

impl ProcessorWatch {
    /// Adds one if the last is long enough ago, or if there `must` be one.
    pub(super) fn add_to(&mut self, sample: &mut Sample, must: bool) {
        let is_recent = |at: Instant| sample.at.saturating_duration_since(at) < PERIOD;
        if must || !self.looked.is_some_and(is_recent) {
            sample.processors = ProcessorTimes::now();
            let own = std::process::id() as i32;
            sample.observer_cpu_ns = scheduling::process_cpu(own).as_nanos() as u64;
            self.looked = Some(sample.at);
        }
    }
}

/// Reads the lines of `/proc/stat` that are of one processor each.
fn parse(text: &str) -> Vec<ProcessorTimes> {
    let processors = text.lines().filter_map(|line| {
        let (name, times) = line.split_once(' ')?;
        let number = name.strip_prefix("cpu")?.parse().ok()?;
        let times: Vec<u64> = times
            .split_whitespace()
            .map_while(|it| it.parse().ok())
            .collect();
        // What a guest of this machine used is in user time, too.
        let [
            user,
            low_priority,
            system,
            idle,
            disk,
            irq,
            softirq,
            steal,
            ..,
        ] = times[..]
        else {
            return None;
        };
        Some(ProcessorTimes {
            number,
            user,
            low_priority,
            system,
            idle: idle + disk,
            softirq: irq + softirq,
            steal,
        })
    });
    processors.take(PROCESSORS_MAX).collect()
}

/// The kernel counts in ticks of 10 ms: 2 % of this.
const PERIOD: Duration = Duration::from_millis(500);
/// A series holds 112 bytes for each of them in each second.
const PROCESSORS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_and_compared() {
        let before = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 10 1 9 30 0 0\nintr 5\n";
        let after = "cpu0 160 10 70 880 10 2 18 50 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nctxt 7\n";
        let (before, after) = (parse(before), parse(after));
        assert_eq!((before.len(), after.len()), (1, 2));
        assert_eq!((after[1].number, after[1].idle), (1, 9));
        let expected = Processor {
            number: 0,
            user: 0.3,
            system: 0.1,
            softirq: 0.05,
            steal: 0.1,
            low_priority: 0.05,
        };
        assert_eq!(before[0].until(&after[0]), Some(expected));
        assert_eq!(before[0].until(&before[0]), None);
    }

    #[test]
    fn this_machine_has_processors() {
        assert!(!ProcessorTimes::now().is_empty());
    }
}
