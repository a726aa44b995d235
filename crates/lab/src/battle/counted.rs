//! Whether the servers' own counters agree with ours.

use moonwire_load::Workload;
use moonwire_report::{Cell, Counted, Verdict};

use super::BattleSpec;
use super::plan::Bout;

/// Puts what the servers counted into the cell, and says where it differs from what we did.
pub(super) fn compare(cell: &mut Cell, counted: Counted, bout: &Bout, spec: &BattleSpec) {
    // Both counted the same messages only if nobody else sent any, and if all have arrived.
    let is_alone = spec.scenario.warm_up.is_none() && spec.clients.is_empty();
    let is_answered = !matches!(bout.load.settings.workload, Workload::Alternating { .. })
        && bout.load.settings.fan_out.is_none();
    let is_whole = cell.ended_early.is_none()
        && cell.messages.lost == 0
        && cell.connects.disconnected == 0
        && spec.scenario.fault.is_none();
    if !is_alone || !is_answered || !is_whole {
        return;
    }
    if let Some(objection) = objection(cell, counted) {
        cell.assessment.add(Verdict::Suspect, objection);
    }
    if let Some(contest) = &mut cell.contest {
        contest.counted = Some(counted);
    }
}

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
