//! What the kernel says about the CPU the generator got, and did not get.

use std::fs;

/// CPU of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadCpu {
    /// Time it ran.
    pub(crate) run_ns: u64,
    /// Time it could have run but waited for a CPU.
    pub(crate) wait_ns: u64,
}

impl ThreadCpu {
    /// Of the calling thread; `None` where the kernel does not keep it.
    pub(crate) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        Some(Self {
            run_ns: numbers.next()?.ok()?,
            wait_ns: numbers.next()?.ok()?,
        })
    }
}

/// CPU of the whole machine since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineCpu {
    /// Time in which something waited for a CPU (pressure stall information).
    stalled_us: Option<u64>,
    /// Time taken by other guests of the host, and all time, in ticks.
    steal: Option<(u64, u64)>,
}

impl MachineCpu {
    /// What the kernel says now.
    pub(crate) fn read() -> Self {
        Self {
            stalled_us: fs::read_to_string("/proc/pressure/cpu")
                .ok()
                .and_then(|text| parse_pressure(&text)),
            steal: fs::read_to_string("/proc/stat")
                .ok()
                .and_then(|text| parse_steal(&text)),
        }
    }

    /// Share of the time since `earlier` in which something waited for a CPU, 0 to 1.
    pub(crate) fn pressure_since(self, earlier: Self, elapsed_ns: u64) -> Option<f64> {
        let stalled_us = self.stalled_us?.saturating_sub(earlier.stalled_us?);
        (elapsed_ns > 0).then(|| (stalled_us as f64 * 1000.0 / elapsed_ns as f64).min(1.0))
    }

    /// Share of the machine's time since `earlier` that other guests took, 0 to 1.
    pub(crate) fn steal_since(self, earlier: Self) -> Option<f64> {
        let ((steal, all), (steal_before, all_before)) = (self.steal?, earlier.steal?);
        let elapsed = all.checked_sub(all_before).filter(|&ticks| ticks > 0)?;
        Some(steal.saturating_sub(steal_before) as f64 / elapsed as f64)
    }
}

fn parse_pressure(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

fn parse_steal(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is in user already.
    let all = ticks.get(..STEAL_FIELD + 1)?.iter().sum();
    Some((ticks[STEAL_FIELD], all))
}

/// Eighth number of the line.
const STEAL_FIELD: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let thread = ThreadCpu::parse("1000 20 3\n").unwrap();
        assert_eq!(
            thread,
            ThreadCpu {
                run_ns: 1000,
                wait_ns: 20
            }
        );
        assert_eq!(
            thread
                .since(ThreadCpu {
                    run_ns: 400,
                    wait_ns: 20
                })
                .run_ns,
            600
        );
        assert_eq!(ThreadCpu::parse(""), None);
        let pressure = "some avg10=0.00 avg60=1.00 avg300=0.00 total=123\nfull total=9\n";
        assert_eq!(parse_pressure(pressure), Some(123));
        assert_eq!(
            parse_steal("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"),
            Some((8, 36))
        );
        assert_eq!(parse_steal("cpu  1 2\n"), None);
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let before = MachineCpu {
            stalled_us: Some(100),
            steal: Some((10, 1000)),
        };
        let after = MachineCpu {
            stalled_us: Some(600),
            steal: Some((20, 1200)),
        };
        assert_eq!(after.pressure_since(before, 1_000_000), Some(0.5));
        assert_eq!(after.steal_since(before), Some(0.05));
        assert_eq!(MachineCpu::default().steal_since(before), None);
    }
}
