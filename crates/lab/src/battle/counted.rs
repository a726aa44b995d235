//! Whether the servers' own counters agree with ours.

use std::time::{Duration, Instant};

use moonwire_load::{Stop, Workload};
use moonwire_report::{Cell, Counted, Verdict, live_objection};

use super::BattleSpec;
use super::plan::Bout;
use crate::live::LiveSeries;

/// Puts what the servers counted into the cell, and says where it differs from what we did.
pub(super) fn compare(
    cell: &mut Cell,
    counted: Counted,
    warm_up: &WarmUp,
    bout: &Bout,
    spec: &BattleSpec,
) {
    // Both counted the same messages only if nobody else sent any, and if all have arrived.
    let is_whole = is_whole(cell) && spec.scenario.fault.is_none();
    if !spec.clients.is_empty() || !is_answered(bout) || !is_whole {
        return;
    }
    let Some(counted) = warm_up.taken_from(counted) else {
        return;
    };
    if let Some(objection) = objection(cell, counted) {
        cell.assessment.add(Verdict::Suspect, objection);
    }
    if let Some(contest) = &mut cell.contest {
        contest.counted = Some(counted);
    }
}

/// What a load before the measured one did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WarmUp {
    /// There was none.
    None,
    /// All of it has arrived.
    Whole(Counted),
    /// Nobody can tell what the servers saw of it.
    Unknown,
}

impl WarmUp {
    pub(super) fn of(cell: &Cell) -> Self {
        match is_whole(cell) {
            true => Self::Whole(ours(cell)),
            false => Self::Unknown,
        }
    }

    /// What the servers counted since.
    fn taken_from(&self, counted: Counted) -> Option<Counted> {
        match self {
            Self::None => Some(counted),
            Self::Whole(before) => Some(Counted {
                received: counted.received.saturating_sub(before.received),
                sent: counted.sent.saturating_sub(before.sent),
            }),
            Self::Unknown => None,
        }
    }
}

/// Whether the servers are asked what they count while they are loaded: where that is the messages
/// that the generator counts, for long enough to see a curve.
pub(super) fn is_asked(bout: &Bout, spec: &BattleSpec) -> bool {
    let is_long = match bout.load.settings.stop {
        Stop::After(duration) => duration >= ASKED_FROM,
        Stop::Messages(_) | Stop::Schedule => false,
    };
    is_long && is_answered(bout) && spec.scenario.fault.is_none()
}

/// Puts what they told into the cell, and says where it differs from what we did.
pub(super) fn add_live(cell: &mut Cell, live: &LiveSeries, origin: Instant) {
    live.add_to(cell, origin);
    let objection = is_whole(cell).then(|| live_objection(cell)).flatten();
    if let Some(objection) = objection {
        cell.assessment.add(Verdict::Suspect, objection);
    }
}

/// Whether each message has its replies, and nothing but messages is sent.
fn is_answered(bout: &Bout) -> bool {
    !matches!(bout.load.settings.workload, Workload::Alternating { .. })
        && bout.load.settings.fan_out.is_none()
}

/// Whether all that was sent has arrived.
fn is_whole(cell: &Cell) -> bool {
    cell.ended_early.is_none() && cell.messages.lost == 0 && cell.connects.disconnected == 0
}

/// Shorter cells have no course to draw them in.
const ASKED_FROM: Duration = Duration::from_secs(30);

fn objection(cell: &Cell, counted: Counted) -> Option<String> {
    let ours = ours(cell);
    (counted != ours).then(|| {
        format!(
            "the servers counted {} messages and {} replies, and we {} and {}",
            counted.received, counted.sent, ours.received, ours.sent
        )
    })
}

/// What servers should have counted.
fn ours(cell: &Cell) -> Counted {
    Counted {
        received: cell.messages.sent,
        sent: cell.messages.received,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_is_not_counted_where_it_is_known() {
        let counted = Counted {
            received: 130,
            sent: 520,
        };
        let mut before = Cell::default();
        (before.messages.sent, before.messages.received) = (30, 120);
        let rest = Counted {
            received: 100,
            sent: 400,
        };
        assert_eq!(WarmUp::None.taken_from(counted), Some(counted));
        assert_eq!(WarmUp::of(&before).taken_from(counted), Some(rest));
        before.messages.lost = 1;
        assert_eq!(WarmUp::of(&before).taken_from(counted), None);
    }

    #[test]
    fn a_server_that_counted_something_else_is_said() {
        let mut cell = Cell::default();
        (cell.messages.sent, cell.messages.received) = (100, 400);
        let counted = |received, sent| Counted { received, sent };
        assert_eq!(objection(&cell, counted(100, 400)), None);
        assert_eq!(
            objection(&cell, counted(100, 399)).as_deref(),
            Some("the servers counted 100 messages and 399 replies, and we 100 and 400")
        );
        assert!(objection(&cell, counted(101, 400)).is_some());
    }
}
