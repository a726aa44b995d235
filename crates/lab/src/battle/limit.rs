//! What kept a cell from more: the contestant, or something else.
//!
//! A closed loop always runs into something. Figures are the contestant's only where that is the
//! contestant: the generator must have had time left, and of the processors that backends share
//! with a proxy these must not have taken the larger part.

use moonwire_report::{Ceiling, Cell};

use crate::rations::{generator_throttled_share, throttled_share};

/// A cell that came near what the generator does at most is the generator's, unless its servers had
/// less time left than the generator.
pub(super) fn hold_to(ceilings: &[Ceiling], cell: &mut Cell, used: &Use) {
    if used.is_of_servers() {
        return;
    }
    let objection = ceilings.iter().find_map(|ceiling| ceiling.objection(cell));
    if let Some(contest) = &mut cell.contest
        && contest.limit.is_none()
    {
        contest.limit = objection;
    }
}

/// Why the figures are not the contestant's own where a CPU limit of somebody else decided.
pub(super) fn rationed(cell: &Cell) -> Option<String> {
    if let Some(share) = generator_throttled_share(cell) {
        return Some(format!(
            "the generator was the limit: it had used up what it may use of the processors for \
             {:.0} % of the time",
            share * 100.0
        ));
    }
    let backends = cell.backends.as_ref()?;
    let share = throttled_share(backends.throttled_ms, backends.observed_s?)?;
    Some(format!(
        "the backend was the limit: it had used up what it may use of the processors for {:.0} % \
         of the time",
        share * 100.0
    ))
}

/// What was used while messages were sent, in cores.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Use {
    /// The busiest thread of the generator can use one core.
    pub(super) generator: f64,
    pub(super) generator_threads: f64,
    /// What is measured: the proxy, or the servers if there is none.
    pub(super) contestant: f64,
    /// The servers behind a proxy.
    pub(super) backends: f64,
    /// Processors that the contestant and the backends share.
    pub(super) processors: f64,
}

impl Use {
    /// Whether the servers had nothing left of their processors, and the generator had something.
    fn is_of_servers(&self) -> bool {
        let servers = (self.contestant + self.backends) / self.processors.max(1.0);
        let generator = self.generator / self.generator_threads.max(1.0);
        servers >= SERVERS_SHARE_MIN && generator <= GENERATOR_SHARE_MAX
    }

    /// Why the cell's figures are not the contestant's own; `None` where they are.
    pub(super) fn objection(&self) -> Option<String> {
        let of_generator = self.generator / self.generator_threads.max(1.0);
        if of_generator > GENERATOR_SHARE_MAX {
            return Some(format!(
                "the generator was the limit: its threads were busy for {:.0} % of the time",
                of_generator * 100.0
            ));
        }
        let used = self.contestant + self.backends;
        let is_busy = used > BUSY_SHARE * self.processors.max(1.0);
        (is_busy && self.backends > self.contestant).then(|| {
            format!(
                "the backend was the limit: it took {:.0} % of a processor and the proxy {:.0} %",
                self.backends * 100.0,
                self.contestant * 100.0
            )
        })
    }
}

/// Beyond it replies wait for the generator.
const GENERATOR_SHARE_MAX: f64 = 0.95;
/// From this share on processors have nothing left.
const BUSY_SHARE: f64 = 0.9;
/// The same, where it decides whose figures they are.
const SERVERS_SHARE_MIN: f64 = 0.95;

#[cfg(test)]
mod tests {
    use moonwire_report::{Contest, Server};

    use super::*;

    fn used(generator: f64, contestant: f64, backends: f64) -> Use {
        Use {
            generator,
            generator_threads: 1.0,
            contestant,
            backends,
            processors: 1.0,
        }
    }

    #[test]
    fn only_what_the_contestant_limits_is_its_own() {
        assert_eq!(used(0.5, 0.7, 0.25).objection(), None);
        let generator = used(0.97, 0.5, 0.2).objection().unwrap();
        assert!(generator.starts_with("the generator was the limit"));
        let backend = used(0.5, 0.3, 0.68).objection().unwrap();
        assert!(backend.starts_with("the backend was the limit"));
        // Where processors have time left, the backend did not hold anybody up.
        assert_eq!(used(0.5, 0.1, 0.4).objection(), None);
    }

    #[test]
    fn a_ceiling_is_no_objection_where_the_servers_had_less_left() {
        let mut cell = Cell::default();
        cell.rate.received_per_s = 97_000.0;
        cell.contest = Some(Contest::default());
        let ceiling = Ceiling {
            replies_per_s: 100_000.0,
            generator_busy: 0.97,
            ..Ceiling::default()
        };
        let mut limit = |used: Use| {
            cell.contest = Some(Contest::default());
            hold_to(std::slice::from_ref(&ceiling), &mut cell, &used);
            cell.contest.take().and_then(|it| it.limit)
        };
        assert_eq!(limit(used(0.89, 0.97, 0.0)), None);
        assert!(limit(used(0.89, 0.8, 0.0)).is_some());
        assert!(limit(used(0.96, 0.97, 0.0)).is_some());
        // Of two processors one is free.
        let spare = Use {
            processors: 2.0,
            ..used(0.89, 0.97, 0.0)
        };
        assert!(limit(spare).is_some());
    }

    #[test]
    fn who_has_used_up_what_it_may_use_was_the_limit() {
        let mut cell = Cell::default();
        cell.rate.duration_s = 2.0;
        cell.generator.throttled_ms = Some(10.0);
        assert_eq!(rationed(&cell), None);
        cell.backends = Some(Server {
            observed_s: Some(2.0),
            throttled_ms: Some(500.0),
            ..Server::default()
        });
        let backend = rationed(&cell).unwrap();
        assert!(
            backend.starts_with("the backend") && backend.contains("25 %"),
            "{backend}"
        );
        cell.generator.throttled_ms = Some(1200.0);
        let generator = rationed(&cell).unwrap();
        assert!(generator.starts_with("the generator") && generator.contains("60 %"));
        // What is measured may be limited: that is what its limit is for.
        cell.generator.throttled_ms = None;
        cell.server = cell.backends.take();
        assert_eq!(rationed(&cell), None);
    }
}
