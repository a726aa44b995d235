//! Names of groups, and what labs have left that were killed.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use procfs::process::Process;

/// A name that no other group has: the process, when it began, a number, and the role.
pub(super) fn name(role: &str) -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    let began = i32::try_from(pid).ok().and_then(beginning).unwrap_or(0);
    format!("{PREFIX}.{pid}.{began}.{number}.{role}")
}

/// Removes the groups in `folder` whose lab has ended. One that still has processes stays: they may
/// be of a lab that cannot be seen from here.
pub(super) fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(owner).is_some_and(has_ended) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The process that a group is named after, and when it began.
fn owner(name: &str) -> Option<(i32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('.')?.split('.');
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?.parse::<u64>().ok().map(|_| owner)
}

fn has_ended((pid, began): (i32, u64)) -> bool {
    beginning(pid) != Some(began)
}

/// When a process began, in ticks since the machine did: its id may have been another's before.
fn beginning(pid: i32) -> Option<u64> {
    let stat = Process::new(pid).ok()?.stat().ok()?;
    Some(stat.starttime)
}

const PREFIX: &str = "moonwire";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_labs_that_have_ended_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        child.wait().unwrap();
        let own = name("server");
        let earlier = format!("moonwire.{}.1.0.server", std::process::id());
        let dead = format!("moonwire.{}.77.3.client", child.id());
        let others = ["moonwire", "moonwire.service", "system.slice", own.as_str()];
        for name in others.iter().chain([&dead.as_str(), &earlier.as_str()]) {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove(folder.path());
        let left = fs::read_dir(folder.path()).unwrap().flatten();
        let mut left: Vec<String> = left
            .map(|it| it.file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = others.map(str::to_owned);
        expected.sort();
        assert_eq!(left, expected);
    }
}
