//! Starting the child: everything between fork and exec.
#![allow(
    unsafe_code,
    reason = "CommandExt::pre_exec is unsafe: it runs between fork and exec"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, Rlimit, Signal};

use super::ChildSpec;
use crate::scheduling;

/// Starts the program in a process group of its own, on its processors, with as many descriptors
/// as it may have, and tied to the life of the calling thread.
pub(super) fn spawn(spec: &ChildSpec) -> io::Result<Child> {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let cpus = scheduling::cpu_set(&spec.cpus);
    let group = spec.group.as_deref().map(open_group).transpose()?;
    let parent = rustix::process::getpid();
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            // The parent died before the line above took effect.
            return Err(rustix::io::Errno::SRCH.into());
        }
        if let Some(group) = &group {
            // Whoever writes it is meant.
            rustix::io::write(group, b"0")?;
        }
        if let Some(cpus) = &cpus {
            rustix::thread::sched_setaffinity(None, cpus)?;
        }
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        rustix::process::setrlimit(Resource::Nofile, raised)?;
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

/// Before the fork, where a mistake can be told.
fn open_group(file: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().write(true).open(file);
    opened.map_err(|error| {
        let place = file.display();
        io::Error::new(error.kind(), format!("the control group {place}: {error}"))
    })
}
