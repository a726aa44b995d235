//! A cell that the host disturbed is measured again, within bounds, and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moonwire_report::{Cell, Verdict};

use super::cell::{self, Site};
use super::plan::CellPlan;
use super::{BenchError, BenchEvent, BenchObserver, Place};

/// How many cells may still be measured again.
#[derive(Debug)]
pub(super) struct Attempts {
    left: u32,
}

impl Attempts {
    pub(super) fn new(repeats: u32) -> Self {
        Self { left: repeats }
    }

    /// Measures a cell, again when the host was in the way; gives the best attempt.
    pub(super) fn measure(
        &mut self,
        site: &Site<'_>,
        plan: &CellPlan,
        place: &Place,
        stop: &Arc<AtomicBool>,
        observer: &mut (dyn BenchObserver + Send),
    ) -> Result<Cell, BenchError> {
        let mut cells = Vec::new();
        loop {
            let place = place.attempt(cells.len());
            let cell = cell::run(site, plan, &place, stop, observer)?;
            let again = is_disturbed(&cell)
                && cells.len() < REPEATS_PER_CELL
                && self.left > 0
                && !stop.load(Ordering::Relaxed);
            cells.push(cell);
            if !again {
                return Ok(best(cells));
            }
            self.left -= 1;
            observer.on_event(&BenchEvent::CellDisturbed {
                place: &place,
                cell: &cells[cells.len() - 1],
            });
        }
    }
}

/// Whether a cell may owe its verdict to the host. What speaks of the server, losses above all, is
/// never measured away.
fn is_disturbed(cell: &Cell) -> bool {
    let messages = &cell.messages;
    let taken = cell.generator.cpu_taken.unwrap_or(0.0);
    taken > TAKEN_MAX
        && cell.assessment.verdict() != Verdict::Valid
        && cell.ended_early.is_none()
        && cell.errors.is_empty()
        && messages.lost + messages.duplicate + messages.corrupt + messages.reordered == 0
}

/// The attempt with the best verdict, among equals the least disturbed one.
fn best(cells: Vec<Cell>) -> Cell {
    let taken = |cell: &Cell| cell.generator.cpu_taken.unwrap_or(0.0);
    let rank = |cell: &Cell| match cell.assessment.verdict() {
        Verdict::Valid => 0,
        Verdict::Suspect => 1,
        Verdict::Invalid => 2,
    };
    let described: Vec<String> = cells
        .iter()
        .map(|cell| {
            let share = taken(cell) * 100.0;
            format!("{} at {share:.1} %", cell.assessment.verdict())
        })
        .collect();
    let chosen = cells
        .into_iter()
        .enumerate()
        .min_by(|(_, one), (_, other)| {
            let order = rank(one).cmp(&rank(other));
            order.then(taken(one).total_cmp(&taken(other)))
        });
    let (index, mut cell) = chosen.expect("the loop measures at least once");
    if described.len() > 1 {
        let remark = format!(
            "measured {} times because the host took idle processors away more than {} % of the \
             time ({}); this is attempt {}",
            described.len(),
            TAKEN_MAX * 100.0,
            described.join(", "),
            index + 1
        );
        cell.assessment.add(Verdict::Valid, remark);
    }
    cell
}

/// One message in a hundred falls into what the host took: it can make a p99.
const TAKEN_MAX: f64 = 0.01;
/// More would make a long bench of a host that is busy all day.
const REPEATS_PER_CELL: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(verdict: Verdict, taken: f64) -> Cell {
        let mut cell = Cell::default();
        cell.generator.cpu_taken = Some(taken);
        if verdict != Verdict::Valid {
            cell.assessment.add(verdict, "late");
        }
        cell
    }

    #[test]
    fn only_a_cell_that_the_host_disturbed_is_measured_again() {
        assert!(is_disturbed(&cell(Verdict::Invalid, 0.02)));
        assert!(is_disturbed(&cell(Verdict::Suspect, 0.02)));
        assert!(!is_disturbed(&cell(Verdict::Valid, 0.02)));
        assert!(!is_disturbed(&cell(Verdict::Invalid, 0.009)));
        assert!(!is_disturbed(&Cell {
            generator: Default::default(),
            ..cell(Verdict::Invalid, 0.02)
        }));
        let mut lossy = cell(Verdict::Suspect, 0.02);
        lossy.messages.lost = 1;
        assert!(!is_disturbed(&lossy));
    }

    #[test]
    fn the_best_attempt_is_kept_and_the_others_are_named() {
        let kept = best(vec![
            cell(Verdict::Invalid, 0.02),
            cell(Verdict::Suspect, 0.05),
            cell(Verdict::Suspect, 0.03),
        ]);
        assert_eq!(kept.generator.cpu_taken, Some(0.03));
        assert_eq!(kept.assessment.verdict(), Verdict::Suspect);
        let reasons = kept.assessment.reasons();
        let remark = reasons.last().map(ToString::to_string).unwrap_or_default();
        assert!(
            remark.ends_with(
                "(INVALID at 2.0 %, SUSPECT at 5.0 %, SUSPECT at 3.0 %); this is attempt 3"
            ),
            "{remark}"
        );
        assert!(
            best(vec![cell(Verdict::Valid, 0.0)])
                .assessment
                .reasons()
                .is_empty()
        );
    }
}
