//! What a process of ours tells its caller.

use std::process::ExitCode;

/// The exit codes users script against; 98 to 105 follow k6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The work was done; a run may be SUSPECT, its summary says why.
    Success,
    /// No run, or no cell of a bench, can be believed.
    Invalid,
    /// A `--slo` condition was not met.
    ThresholdFailed,
    /// Something the user gave cannot be used: a flag, a file, a configuration.
    BadConfiguration,
    /// A signal ended the run early; its summary was printed.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Invalid => 98,
            Exit::ThresholdFailed => 99,
            Exit::BadConfiguration => 104,
            Exit::Interrupted => 105,
        })
    }
}
