//! Workers that start their instances in step: a service may depend on any before it, whichever
//! workers those are on.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use moonwire_lua::StopFlag;

/// How far the workers are.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// By step: how many have come to it.
    arrived: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl Steps {
    /// Waits until all workers have come to this step, which each does once, step by step; false
    /// if the order to stop came first.
    pub(crate) fn wait(&self, step: usize, workers: usize, stop: &StopFlag) -> bool {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        if arrived.len() <= step {
            arrived.resize(step + 1, 0);
        }
        arrived[step] += 1;
        self.changed.notify_all();
        while arrived[step] < workers {
            if stop.is_set() {
                return false;
            }
            let waited = self.changed.wait_timeout(arrived, LOOK_EVERY);
            arrived = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// How often one that waits looks whether the start has failed elsewhere.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_a_step_ahead() {
        let (steps, stop) = (Steps::default(), StopFlag::default());
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for step in 0..50 {
                        assert!(steps.wait(step, 3, &stop));
                        done.lock().unwrap().push(step);
                    }
                });
            }
        });
        let done = done.into_inner().unwrap();
        for (index, step) in done.iter().enumerate() {
            let finished = done[..index].iter().filter(|other| **other < *step).count();
            assert_eq!(finished, 3 * step, "step {step} at {index}");
        }
    }

    #[test]
    fn the_order_to_stop_ends_the_wait() {
        let (steps, stop) = (Steps::default(), StopFlag::default());
        stop.set();
        assert!(!steps.wait(0, 2, &stop));
    }
}
