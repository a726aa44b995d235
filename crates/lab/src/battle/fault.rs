//! A contestant that is killed in the middle of a load and started again.

use std::sync::mpsc::{Receiver, RecvTimeoutError};

use super::stack::{Stack, Watcher};
use crate::agent::Role;
use crate::sampling::Series;
use crate::scenario::Fault;

/// What was seen of the contestant before and after, and why it is not there any more, if it did
/// not come back.
pub(super) struct Aftermath {
    pub(super) series: Series,
    pub(super) objection: Option<String>,
}

/// Kills what is measured some time after `load` has told that messages are due, starts it again,
/// and looks at it until `load` is dropped: the end of the run, which can come at any time.
pub(super) fn inflict(
    fault: Fault,
    stack: &mut Stack,
    sampler: Watcher,
    load: &Receiver<()>,
) -> Aftermath {
    let is_over = |timeout| load.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
    if load.recv().is_err() || is_over(fault.after) {
        let objection = "the run ended before the contestant was to be killed".to_owned();
        return Aftermath {
            series: sampler.stop(),
            objection: Some(objection),
        };
    }
    let before = sampler.stop();
    stack.kill_measured();
    // Where the load ends meanwhile, the contestant is started all the same: who stops it later
    // finds it in either case.
    let _ = is_over(fault.down_for);
    if let Err(error) = stack.start_measured_again() {
        let objection = format!("it was killed and could not be started again: {error}");
        let _ = load.recv();
        return Aftermath {
            series: before,
            objection: Some(objection),
        };
    }
    let after = stack.watch(Role::Measured);
    let _ = load.recv();
    Aftermath {
        series: before.followed_by(after.stop()),
        objection: None,
    }
}
