//! What a process is doing, for somebody who waits for it in vain.

use std::fs;

use procfs::process::{ProcState, Process};

use crate::scheduling;

/// Whether it runs or sleeps, and where, with the CPU time that it has used; a clause.
pub(super) fn told(pid: i32) -> String {
    let used_s = scheduling::process_cpu(pid).as_secs_f64();
    let stat = Process::new(pid).and_then(|process| process.stat());
    let state = stat.and_then(|stat| stat.state());
    let doing = match state {
        Ok(ProcState::Running) => "ran".to_owned(),
        Ok(ProcState::Sleeping | ProcState::Idle) => format!("slept{}", place(pid)),
        Ok(ProcState::Waiting) => format!("waited for a device{}", place(pid)),
        Ok(ProcState::Stopped | ProcState::Tracing) => "was stopped by a signal".to_owned(),
        Ok(ProcState::Zombie) => "had ended".to_owned(),
        Ok(state) => format!("was in the state {state:?}"),
        Err(_) => return "its process was gone".to_owned(),
    };
    format!("its process {doing} and had used {used_s:.2} s of CPU time")
}

/// The function of the kernel that it sleeps in, where that is told.
fn place(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    match name.trim() {
        "" | "0" => String::new(),
        name => format!(" in {name}"),
    }
}
