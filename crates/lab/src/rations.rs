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
    sending: Option<Throttling>,
    closing: Option<Throttling>,
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
            *begun = read(self.group.as_deref());
        }
    }

    /// Puts what it saw into the cell, and judges it.
    pub(crate) fn add_to(&self, cell: &mut Cell) {
        let after = self.closing.or_else(|| read(self.group.as_deref()));
        let throttled_ns = self.sending.zip(after).map(|(before, after)| {
            let passed_ns = after.throttled_ns.saturating_sub(before.throttled_ns);
            passed_ns as f64
        });
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
        let share = throttled_share(cell.generator.throttled_ms, cell.rate.duration_s);
        let verdict = match share {
            Some(_) => Verdict::Invalid,
            None => Verdict::Suspect,
        };
        cell.assessment.add(verdict, reason);
    }
}

fn read(group: Option<&CpuGroup>) -> Option<Throttling> {
    match group {
        Some(group) => group.throttling(),
        None => cgroup::own_throttling(),
    }
}

/// The part of the time for which a role was kept waiting by its limit, where that is more than
/// nothing worth telling.
pub(crate) fn throttled_share(throttled_ms: Option<f64>, time_s: f64) -> Option<f64> {
    let share = throttled_ms? / 1e3 / time_s.max(f64::MIN_POSITIVE);
    (share > THROTTLED_SHARE_MAX).then_some(share)
}

/// Of the time. Less is a pause or two, which the latencies show and the throughput does not.
const THROTTLED_SHARE_MAX: f64 = 0.01;
