//! Ends what children have started, when this process is killed and cannot do it itself.
//!
//! The kernel kills the children with us, but not theirs: workers of a proxy would live on. A shell
//! is told which process groups there are, and which control groups. Its input ends with this
//! process, and then it kills those that are left and removes their control groups.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::Pid;

/// A process group that dies with this process at the latest. Dropping it means that it is over.
#[derive(Debug)]
pub(super) struct Kept(Pid);

/// Has the group of `leader` killed if this process ends before it.
pub(super) fn keep(leader: Pid) -> Kept {
    tell("add", leader.as_raw_nonzero());
    Kept(leader)
}

impl Drop for Kept {
    fn drop(&mut self) {
        tell("remove", self.0.as_raw_nonzero());
    }
}

/// The folder of a control group that is removed after this process at the latest. Dropping it
/// means that it is gone.
#[derive(Debug)]
pub(crate) struct KeptFolder(PathBuf);

/// Has the control group removed if this process ends before it is.
pub(crate) fn keep_folder(folder: &Path) -> KeptFolder {
    tell("made", folder.display());
    KeptFolder(folder.to_owned())
}

impl Drop for KeptFolder {
    fn drop(&mut self) {
        tell("gone", self.0.display());
    }
}

fn tell(verb: &str, what: impl Display) {
    // Without a shell the children alone die with us.
    let Some(keeper) = KEEPER.get_or_init(start) else {
        return;
    };
    let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = writeln!(keeper, "{verb} {what}");
}

static KEEPER: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();

fn start() -> Option<Mutex<ChildStdin>> {
    let mut keeper = Command::new("sh")
        .args(["-c", SCRIPT])
        // What interrupts us is not for it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    keeper.stdin.take().map(Mutex::new)
}

const SCRIPT: &str = "groups=' ' folders=' '
while read -r verb what; do
    case $verb in
        add) groups=\"$groups$what \" ;;
        remove) groups=\"${groups%% $what *} ${groups#* $what }\" ;;
        made) folders=\"$folders$what \" ;;
        gone) folders=\"${folders%% $what *} ${folders#* $what }\" ;;
    esac
done
for group in $groups; do kill -s KILL -- \"-$group\"; done
for folder in $folders; do
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        rmdir \"$folder\" && break
        test -d \"$folder\" || break
        for file in tasks cgroup.threads; do
            test -e \"$folder/$file\" && for task in $(cat \"$folder/$file\"); do
                kill -s KILL \"$task\"
            done
        done
        sleep 0.2
    done
done";

#[cfg(test)]
mod tests {
    use std::process::Child;
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper() -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).process_group(0);
        command.spawn().unwrap()
    }

    /// The end of a child, within what a busy machine takes.
    fn has_ended(child: &mut Child) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn folders_that_are_not_gone_are_removed_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["moonwire.1.2.0.server", "moonwire.1.2.1.client", "kept"];
        let folders = folders.map(|name| place.path().join(name));
        let keeper = start().unwrap();
        {
            let mut input = keeper.lock().unwrap();
            for folder in &folders {
                std::fs::create_dir(folder).unwrap();
                writeln!(input, "made {}", folder.display()).unwrap();
            }
            writeln!(input, "gone {}", folders[2].display()).unwrap();
        }
        drop(keeper);
        let deadline = Instant::now() + Duration::from_secs(20);
        while folders[1].exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(folders.map(|it| it.exists()), [false, false, true]);
    }

    #[test]
    fn what_was_not_removed_is_killed_at_the_end() {
        let mut groups = [sleeper(), sleeper(), sleeper()];
        let keeper = start().unwrap();
        {
            let mut input = keeper.lock().unwrap();
            for group in &groups {
                writeln!(input, "add {}", group.id()).unwrap();
            }
            writeln!(input, "remove {}", groups[1].id()).unwrap();
        }
        drop(keeper);
        assert!(has_ended(&mut groups[0]) && has_ended(&mut groups[2]));
        assert!(groups[1].try_wait().unwrap().is_none());
        let spared = Pid::from_child(&groups[1]);
        rustix::process::kill_process_group(spared, rustix::process::Signal::KILL).unwrap();
        assert!(has_ended(&mut groups[1]));
    }
}
