//! Processes and all that descend from them.

use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal};

/// A process, by what nobody else can have: ids come again, ids with a time of start do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    started: u64,
}

/// The processes with these ids and their descendants, as they are at this moment.
pub(crate) fn members(roots: &[i32]) -> Vec<Member> {
    with_descendants(|member| roots.contains(&member.pid))
}

/// These processes, as far as they are there, and their descendants.
pub(crate) fn members_of(roots: &[Member]) -> Vec<Member> {
    with_descendants(|member| roots.contains(member))
}

fn with_descendants(is_root: impl Fn(&Member) -> bool) -> Vec<Member> {
    let mut all: Vec<(Member, i32)> = all_processes()
        .into_iter()
        .flatten()
        .filter_map(|process| {
            let stat = process.ok()?.stat().ok()?;
            let started = stat.starttime;
            let pid = stat.pid;
            Some((Member { pid, started }, stat.ppid))
        })
        .collect();
    let mut found = Vec::new();
    all.retain(|(member, _)| {
        let is_root = is_root(member);
        if is_root {
            found.push(*member);
        }
        !is_root
    });
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|member: &Member| member.pid) {
        next += 1;
        all.retain(|(member, ppid)| {
            if *ppid == parent {
                found.push(*member);
            }
            *ppid != parent
        });
    }
    found
}

/// The ids of [`members`]: what a sampler looks at.
pub(crate) fn pids(roots: &[i32]) -> Vec<i32> {
    members(roots).iter().map(|member| member.pid).collect()
}

/// Whether a process with this id runs; one that has ended and is not reaped does not.
pub(crate) fn is_there(pid: i32) -> bool {
    let stat = Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Kills those that are still there.
pub(crate) fn kill(members: &[Member]) {
    for member in members {
        let stat = Process::new(member.pid).and_then(|process| process.stat());
        let is_there = stat.is_ok_and(|stat| stat.starttime == member.started);
        if let Some(pid) = Pid::from_raw(member.pid).filter(|_| is_there) {
            // It may have ended by itself this moment.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_tree_has_the_grandchildren_and_can_be_killed() {
        // `setsid` leaves the process group; a process group alone would miss it.
        let script = "setsid sh -c 'sleep 600 & wait' & wait";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let root = child.id() as i32;
        let deadline = Instant::now() + Duration::from_secs(20);
        while members(&[root]).len() < 3 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let tree = members(&[root]);
        assert!(tree.len() >= 3, "{tree:?}");
        assert_eq!(tree[0].pid, root);
        assert!(!pids(&[root]).contains(&(std::process::id() as i32)));
        kill(&tree);
        child.wait().unwrap();
        let is_alive = |member: &Member| {
            let stat = Process::new(member.pid).and_then(|process| process.stat());
            stat.is_ok_and(|stat| stat.starttime == member.started && stat.state != 'Z')
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while tree.iter().any(is_alive) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!tree.iter().any(is_alive), "{tree:?}");
    }

    #[test]
    fn roots_are_found_again_and_others_with_their_ids_are_not() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut tree = members(&[child.id() as i32]);
        assert_eq!(members_of(&tree), tree);
        tree[0].started += 1;
        assert_eq!(members_of(&tree), []);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn somebody_else_with_the_same_id_is_left_alone() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let mut tree = members(&[child.id() as i32]);
        tree[0].started += 1;
        kill(&tree);
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
