//! How much of the machine somebody else used meanwhile.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// CPU time in clock ticks since boot, at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// Of all cores, idle or not.
    total: u64,
    /// Of all processes, and what a hypervisor took.
    busy: u64,
    /// Of the server and of our children that have ended.
    ours: u64,
}

impl Moment {
    /// Now; `server` is the folder of a running server in `/proc`.
    pub(crate) fn now(server: &Path) -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let (total, busy) = machine(&stat).context("/proc/stat has no line of the cpu")?;
        let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("{path:?}"));
        let server = times(&read(&server.join("stat"))?).context("stat of the server")?;
        let xtask = times(&read(Path::new("/proc/self/stat"))?).context("our own stat")?;
        // Fields of /proc/PID/stat: own time, then that of children which were waited for.
        Ok(Self {
            total,
            busy,
            ours: server.own + xtask.own + xtask.children,
        })
    }

    /// The share of the machine that others used since `before`.
    pub(crate) fn outside_since(self, before: Self) -> f64 {
        let ours = self.ours.saturating_sub(before.ours);
        let busy = self.busy.saturating_sub(before.busy);
        let total = self.total.saturating_sub(before.total).max(1);
        busy.saturating_sub(ours) as f64 / total as f64
    }
}

/// CPU time of a process in seconds; `proc` is its folder in `/proc`.
pub(crate) fn cpu_s(proc: &Path) -> Result<f64> {
    let stat = std::fs::read_to_string(proc.join("stat")).context("the server is gone")?;
    let ticks = times(&stat).context("stat of the server")?.own;
    Ok(ticks as f64 / TICKS_PER_S)
}

/// CPU time in clock ticks since boot, at one moment: all of it, and what a hypervisor took. That
/// is all it took only while something always wants to run.
#[derive(Clone, Copy)]
pub(crate) struct HostMoment {
    total: u64,
    stolen: u64,
}

impl HostMoment {
    pub(crate) fn now() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let ticks = ticks(&stat).context("/proc/stat has no line of the cpu")?;
        Ok(Self {
            total: ticks.iter().sum(),
            stolen: ticks[7],
        })
    }

    /// The share of the machine that was taken since `before`.
    pub(crate) fn stolen_since(self, before: Self) -> f64 {
        let stolen = self.stolen.saturating_sub(before.stolen);
        stolen as f64 / self.total.saturating_sub(before.total).max(1) as f64
    }
}

/// Waits until others leave the machine alone for a while; not for ever.
pub(crate) fn wait_for_quiet(server: &Path, outside_max: f64) -> Result<()> {
    for _ in 0..QUIET_WINDOWS_MAX {
        let before = Moment::now(server)?;
        thread::sleep(QUIET_WINDOW);
        if Moment::now(server)?.outside_since(before) <= outside_max {
            break;
        }
    }
    Ok(())
}

/// Waits until the host takes no more than this share while something spins, or until `end`.
pub(crate) fn wait_for_quiet_host(stolen_max: f64, end: Instant) -> Result<()> {
    while Instant::now() < end {
        let before = HostMoment::now()?;
        thread::sleep(QUIET_WINDOW);
        if HostMoment::now()?.stolen_since(before) <= stolen_max {
            break;
        }
    }
    Ok(())
}

struct Times {
    own: u64,
    children: u64,
}

/// Total and busy ticks of `cpu  user nice system idle iowait irq softirq steal ...`; interrupts
/// are left out, since most of them are our own traffic.
fn machine(stat: &str) -> Option<(u64, u64)> {
    let ticks = ticks(stat)?;
    let busy = ticks[0] + ticks[1] + ticks[2] + ticks[7];
    Some((ticks.iter().sum(), busy))
}

/// `user nice system idle iowait irq softirq steal` of all cores.
fn ticks(stat: &str) -> Option<[u64; 8]> {
    let numbers = stat.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<u64> = numbers.map_while(|t| t.parse().ok()).collect();
    ticks.get(..8)?.try_into().ok()
}

/// The name in parentheses may hold spaces: count from behind it.
fn times(stat: &str) -> Option<Times> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let tick = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Times {
        own: tick(11)? + tick(12)?,
        children: tick(13)? + tick(14)?,
    })
}

/// The kernel counts in hundredths for programs, whatever it uses itself (USER_HZ).
const TICKS_PER_S: f64 = 100.0;
const QUIET_WINDOW: Duration = Duration::from_secs(2);
/// Five minutes in all.
const QUIET_WINDOWS_MAX: usize = 150;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        assert_eq!(
            machine("cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 9\n"),
            Some((255, 135))
        );
        assert_eq!(machine("intr 1 2\n"), None);
        let stat = "7 (a b) c) S 1 1 1 0 -1 4194304 97 0 0 0 10 20 30 40 20 0 1 0";
        let times = times(stat).unwrap();
        assert_eq!((times.own, times.children), (30, 70));
    }

    #[test]
    fn others_are_what_is_left() {
        let before = Moment {
            total: 1000,
            busy: 500,
            ours: 100,
        };
        let after = Moment {
            total: 2000,
            busy: 1100,
            ours: 600,
        };
        assert!((after.outside_since(before) - 0.1).abs() < 1e-9);
    }
}
