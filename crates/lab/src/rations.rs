//! What the roles of a measurement may use of the processors, and what a limit did to the
//! generator.

use std::sync::Arc;

use moonwire_load::Phase;
use moonwire_report::{Cell, Verdict};

use crate::cgroup::{self, CpuController, CpuGroup, CpuLimits, Throttling};

/// The limits of a measurement. Each cell has groups of its own.
#[derive(Debug)]
pub(crate) struct Rations {
    limits: CpuLimits,
    /// There is one where there are limits.
    controller: Option<CpuController>,
}

/// A group, where there is a limit; the error is a sentence.
type Made = Result<Option<Arc<CpuGroup>>, String>;

impl Rations {
    /// Sees that groups can be made before anything is started; the error is a sentence.
    pub(crate) fn of(limits: CpuLimits) -> Result<Self, String> {
        let controller = (!limits.is_none()).then(CpuController::find);
        let controller = controller.transpose()?;
        Ok(Self { limits, controller })
    }

    /// For the servers of a cell.
    pub(crate) fn server(&self) -> Made {
        self.group("server", self.limits.server)
    }

    /// For the proxy of a cell.
    pub(crate) fn proxy(&self) -> Made {
        self.group("proxy", self.limits.proxy)
    }

    /// For the generator's threads in a cell.
    pub(crate) fn client(&self) -> Made {
        self.group("client", self.limits.client)
    }

    fn group(&self, role: &str, limit: Option<f64>) -> Made {
        let both = self.controller.as_ref().zip(limit);
        let made = both.map(|(controller, processors)| controller.group(role, processors));
        made.transpose()
    }
}

/// Sees whether the generator had to wait for a limit while messages were sent.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Its own group; without, limits that others have set are looked at.
    group: Option<Arc<CpuGroup>>,
    /// Of each group that the generator is in.
    sending: Option<Vec<Throttling>>,
    closing: Option<Vec<Throttling>>,
}

impl Watch {
    pub(crate) fn new(group: Option<Arc<CpuGroup>>) -> Self {
        Self {
            group,
            sending: None,
            closing: None,
        }
    }

    /// The run is in this phase; only the first time counts.
    pub(crate) fn note(&mut self, phase: Phase) {
        let begun = match phase {
            Phase::Connecting => return,
            Phase::Sending | Phase::Draining => &mut self.sending,
            Phase::Closing => &mut self.closing,
        };
        if begun.is_none() {
            *begun = Some(read(self.group.as_deref()));
        }
    }

    /// Puts what it saw into the cell, and judges it.
    pub(crate) fn add_to(&self, cell: &mut Cell) {
        let now = || read(self.group.as_deref());
        let after = self.closing.clone().unwrap_or_else(now);
        let before = self.sending.clone().unwrap_or_default();
        let throttled_ns = longest_ns(&before, &after).map(|ns| ns as f64);
        cell.generator.cpu_limit = self.group.as_deref().map(CpuGroup::processors);
        let throttled_ms = throttled_ns.map(|ns| ns / 1e6);
        // Without a limit there is nothing to tell.
        let is_limited = cell.generator.cpu_limit.is_some();
        cell.generator.throttled_ms = throttled_ms.filter(|ms| is_limited || *ms > 0.0);
        let Some(throttled_ms) = cell.generator.throttled_ms.filter(|ms| *ms > 0.0) else {
            return;
        };
        let of_whom = match cell.generator.cpu_limit {
            Some(limit) => format!("with {limit} processors it"),
            None => "the control group of this process has a CPU limit, and it".to_owned(),
        };
        let reason = format!(
            "the generator was the limit: {of_whom} had to wait for {throttled_ms:.0} ms while \
             messages were sent (throttling)"
        );
        let share = generator_throttled_share(cell);
        let verdict = match share {
            Some(_) => Verdict::Invalid,
            None => Verdict::Suspect,
        };
        cell.assessment.add(verdict, reason);
    }
}

fn read(group: Option<&CpuGroup>) -> Vec<Throttling> {
    match group {
        Some(group) => group.throttling().into_iter().collect(),
        None => cgroup::own_throttling(),
    }
}

/// The wait of the group that waited longest between two looks at the same groups.
fn longest_ns(before: &[Throttling], after: &[Throttling]) -> Option<u64> {
    let waits = before.iter().zip(after);
    let waits = waits.map(|(one, other)| other.throttled_ns.saturating_sub(one.throttled_ns));
    waits.max()
}

/// The part of the time for which the generator's threads were kept waiting.
pub(crate) fn generator_throttled_share(cell: &Cell) -> Option<f64> {
    let threads = cell.generator.threads.max(1) as f64;
    throttled_share(cell.generator.throttled_ms, cell.rate.duration_s * threads)
}

/// The part of the time for which a role was kept waiting by its limit, where that is more than
/// nothing worth telling.
pub(crate) fn throttled_share(throttled_ms: Option<f64>, time_s: f64) -> Option<f64> {
    let share = throttled_ms? / 1e3 / time_s.max(f64::MIN_POSITIVE);
    (share > THROTTLED_SHARE_MAX).then_some(share)
}

/// Of the time. Less is a pause or two, which the latencies show and the throughput does not.
const THROTTLED_SHARE_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn throttling(throttled_ns: u64) -> Throttling {
        Throttling {
            throttled_ns,
            ..Throttling::default()
        }
    }

    #[test]
    fn the_wait_is_that_of_the_group_that_waited_meanwhile() {
        let before = [throttling(1_000_000), throttling(5)];
        let after = [throttling(1_000_000), throttling(905)];
        assert_eq!(longest_ns(&before, &after), Some(900));
        assert_eq!(longest_ns(&[], &after), None);
    }

    #[test]
    fn the_wait_of_several_threads_is_shared_by_them() {
        let mut cell = Cell::default();
        cell.rate.duration_s = 2.0;
        cell.generator.threads = 4;
        cell.generator.throttled_ms = Some(4000.0);
        assert_eq!(generator_throttled_share(&cell), Some(0.5));
    }
}
