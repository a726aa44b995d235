//! Processes that do nothing but use a core.

use std::ffi::OsStr;
use std::process::{Child, Stdio};

use anyhow::{Context, Result};

use super::program::{idle, pinned};

/// Spins on one core until it is dropped.
pub(crate) struct Spinner {
    child: Child,
}

#[derive(Clone, Copy)]
pub(crate) enum Priority {
    /// Takes its share from what else runs there.
    Normal,
    /// Gives way to everything: the core does not halt, and that is all.
    Idle,
}

impl Spinner {
    pub(crate) fn start(core: u8, priority: Priority) -> Result<Self> {
        let mut command = match priority {
            Priority::Normal => pinned(Some(core), OsStr::new("sh")),
            Priority::Idle => {
                let mut command = idle(core);
                command.arg("sh");
                command
            }
        };
        command.args(["-c", "while :; do :; done"]);
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { child })
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
