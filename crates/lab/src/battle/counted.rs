//! Whether the servers' own counters agree with ours.

use std::time::{Duration, Instant};

use moonwire_load::{Stop, Workload};
use moonwire_report::{Cell, Counted, Verdict, live_objection};

use super::BattleSpec;
use super::plan::Bout;
use crate::live::LiveSeries;

/// Puts what the servers counted into the cell, and says where it differs from what we did.
pub(super) fn compare(cell: &mut Cell, counted: Counted, bout: &Bout, spec: &BattleSpec) {
    // Both counted the same messages only if nobody else sent any, and if all have arrived.
    let is_alone = spec.scenario.warm_up.is_none() && spec.clients.is_empty();
    let is_whole = is_whole(cell) && spec.scenario.fault.is_none();
    if !is_alone || !is_answered(bout) || !is_whole {
        return;
    }
    if let Some(objection) = objection(cell, counted) {
        cell.assessment.add(Verdict::Suspect, objection);
    }
    if let Some(contest) = &mut cell.contest {
        contest.counted = Some(counted);
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
    let ours = Counted {
        received: cell.messages.sent,
        sent: cell.messages.received,
    };
    (counted != ours).then(|| {
        format!(
            "the servers counted {} messages and {} replies, and we {} and {}",
            counted.received, counted.sent, ours.received, ours.sent
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
