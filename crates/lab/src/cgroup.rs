//! Control groups of our own that ration CPU: one for each role of a cell that has a limit.
//!
//! A process writes itself into its group before it becomes the program, so that nothing of it ever
//! runs without the limit. Of the generator, which is this process, only the threads that send are
//! in one. Groups are named after the process and the moment it began, so that those of a lab that
//! was killed are known and removed at the next start.

mod hierarchy;
mod stale;
mod throttling;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::hierarchy::{Hierarchy, Version};
pub use self::throttling::Throttling;
use crate::process::keeper::{self, KeptFolder};

/// What roles may use, in processors; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuLimits {
    /// The servers of a cell together, those behind a proxy too.
    pub server: Option<f64>,
    /// The proxy with all its processes.
    pub proxy: Option<f64>,
    /// The threads of the generator together.
    pub client: Option<f64>,
}

impl CpuLimits {
    /// Reads one; none is `None`, as it is for Docker. The error is a clause.
    pub fn parse(text: &str) -> Result<Option<f64>, String> {
        let said = text.trim();
        if matches!(said, "" | "0") {
            return Ok(None);
        }
        let number = said.parse::<f64>().ok();
        let fitting = number.filter(|it| (PROCESSORS_MIN..=PROCESSORS_MAX).contains(it));
        let wrong = || format!("'{said}' is not a number of processors such as 1.5, at least 0.01");
        fitting.map(Some).ok_or_else(wrong)
    }

    /// That a limit is more than there is, and so is none; a clause.
    pub fn excess(limit: Option<f64>, processors: usize) -> Option<String> {
        let limit = limit.filter(|limit| *limit > processors as f64)?;
        Some(format!(
            "{limit} is more than the {processors} processors there are, which limits nobody: give \
             less, or 0 for no limit"
        ))
    }

    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Makes groups in the hierarchy that has the CPU controller, below the group of this process, so
/// that limits of its own hold as well.
#[derive(Debug, Clone)]
pub(crate) struct CpuController {
    hierarchy: Hierarchy,
}

impl CpuController {
    /// Finds it, removes what dead labs have left there, and makes a group to see that it can. The
    /// error is a sentence.
    pub(crate) fn find() -> Result<Self, String> {
        let hierarchy = Hierarchy::of_this_process().ok_or_else(|| {
            cannot(
                "no control group hierarchy with the CPU controller is mounted",
                "mount one with `mount -t cgroup2 none /sys/fs/cgroup`",
            )
        })?;
        stale::remove(&hierarchy.folder);
        let controller = Self { hierarchy };
        drop(controller.group("trial", 1.0)?);
        Ok(controller)
    }

    /// Makes a group that may use so many processors.
    pub(crate) fn group(&self, role: &str, processors: f64) -> Result<Arc<CpuGroup>, String> {
        let folder = self.hierarchy.folder.join(stale::name(role));
        let told = |error: io::Error| {
            let what = format!(
                "the control group {} cannot be made: {error}",
                folder.display()
            );
            let is_refused = matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            );
            let help = match is_refused {
                true => {
                    "start it as root, in a container with --privileged, or with \
                     `systemd-run --user --scope -p Delegate=yes`"
                }
                false => "start it as root in a group that has the CPU controller",
            };
            cannot(&what, help)
        };
        fs::create_dir(&folder).map_err(&told)?;
        let group = CpuGroup {
            version: self.hierarchy.version,
            kept: Some(keeper::keep_folder(&folder)),
            folder: folder.clone(),
            processors,
        };
        let ready = self.hierarchy.delegate(&folder);
        ready.and_then(|()| group.ration()).map_err(&told)?;
        Ok(Arc::new(group))
    }
}

fn cannot(what: &str, help: impl Display) -> String {
    format!("CPU limits cannot be set: {what}; {help}, or leave the limits out")
}

/// A group. Dropping it removes it, once its processes have ended.
#[derive(Debug)]
pub(crate) struct CpuGroup {
    version: Version,
    folder: PathBuf,
    processors: f64,
    kept: Option<KeptFolder>,
}

impl CpuGroup {
    fn ration(&self) -> io::Result<()> {
        let quota_us = (self.processors * PERIOD_US as f64)
            .round()
            .max(QUOTA_US_MIN);
        let quota_us = quota_us as u64;
        let write = |file: &str, text: String| fs::write(self.folder.join(file), text);
        match self.version {
            Version::One => {
                write("cpu.cfs_period_us", PERIOD_US.to_string())?;
                write("cpu.cfs_quota_us", quota_us.to_string())
            }
            Version::Two => write("cpu.max", format!("{quota_us} {PERIOD_US}")),
        }
    }

    /// What it may use.
    pub(crate) fn processors(&self) -> f64 {
        self.processors
    }

    /// The file that a process writes `0` into to be in it.
    pub(crate) fn process_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The same for a thread.
    pub(crate) fn thread_file(&self) -> PathBuf {
        self.folder.join(match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.threads",
        })
    }

    /// How long it was made to wait so far.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        Throttling::read(&self.folder)
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVAL_WAIT;
        while let Err(error) = fs::remove_dir(&self.folder) {
            if error.kind() == io::ErrorKind::NotFound {
                break;
            }
            if Instant::now() > deadline {
                // The keeper, or the next lab, tries again.
                std::mem::forget(self.kept.take());
                return;
            }
            std::thread::sleep(REMOVAL_PERIOD);
        }
    }
}

/// How long this process, with all that it has started, was made to wait by limits that others
/// have set, of each of its groups.
pub(crate) fn own_throttling() -> Vec<Throttling> {
    let hierarchy = Hierarchy::of_this_process();
    let groups = hierarchy.map_or_else(Vec::new, |it| it.lineage());
    let all = groups.iter().filter_map(|group| Throttling::read(group));
    all.collect()
}

/// A file of a group as its text.
fn text(folder: &Path, file: &str) -> io::Result<String> {
    fs::read_to_string(folder.join(file))
}

/// As Docker has it. Who has used up what it may in a period waits for the next one.
const PERIOD_US: u64 = 100_000;
/// What the kernel can tell apart: a millisecond in each period of 100.
const PROCESSORS_MIN: f64 = 0.01;
const PROCESSORS_MAX: f64 = 8192.0;
/// What the kernel takes at least.
const QUOTA_US_MIN: f64 = 1000.0;
/// Killed processes leave their group when they have been reaped.
const REMOVAL_WAIT: Duration = Duration::from_secs(2);
const REMOVAL_PERIOD: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
