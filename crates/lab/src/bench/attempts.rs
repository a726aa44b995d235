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
            let place = Place {
                attempt: cells.len(),
                ..place.clone()
            };
            let mut cell = cell::run(site, plan, &place, stop, observer)?;
            weigh_host(&mut cell);
            let stopped = stop.load(Ordering::Relaxed);
            if stopped && !cells.is_empty() {
                // A fragment says less than what it would replace.
                return Ok(best(cells));
            }
            let again =
                !stopped && is_disturbed(&cell) && cells.len() < REPEATS_PER_CELL && self.left > 0;
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

/// The generator may have been in time and the server not.
fn weigh_host(cell: &mut Cell) {
    if let Some(taken) = cell
        .generator
        .cpu_taken
        .filter(|taken| *taken > TAKEN_SUSPECT)
    {
        let reason = format!(
            "the host took processors away {:.1} % of the time, at most {:.0} % are allowed",
            taken * 100.0,
            TAKEN_SUSPECT * 100.0
        );
        cell.assessment.add(Verdict::Suspect, reason);
    }
}

/// Whether a cell may owe its verdict to the host.
fn is_disturbed(cell: &Cell) -> bool {
    cell.generator
        .cpu_taken
        .is_some_and(|taken| taken > TAKEN_MAX)
        && cell.assessment.verdict() != Verdict::Valid
        && !is_faulty(cell)
}

/// Whether something speaks of the server: that is never measured away.
fn is_faulty(cell: &Cell) -> bool {
    let messages = &cell.messages;
    cell.ended_early.is_some()
        || !cell.errors.is_empty()
        || messages.lost + messages.duplicate + messages.corrupt + messages.reordered > 0
}

/// The last attempt if it found a fault, which ends the attempts; else the one with the best
/// verdict, among equals the least disturbed one.
fn best(mut cells: Vec<Cell>) -> Cell {
    let described: Vec<String> = cells.iter().map(described).collect();
    let index = match cells.iter().position(is_faulty) {
        Some(faulty) => faulty,
        None => (0..cells.len())
            .min_by(|&one, &other| rank(&cells[one]).total_cmp(&rank(&cells[other])))
            .expect("the loop measures at least once"),
    };
    let mut cell = cells.swap_remove(index);
    if described.len() > 1 {
        let remark = format!(
            "measured {} times because the host took processors away more than {} % of the \
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

/// Smaller is better: the verdict, then the share that the host took.
fn rank(cell: &Cell) -> f64 {
    let verdict = match cell.assessment.verdict() {
        Verdict::Valid => 0.0,
        Verdict::Suspect => 2.0,
        Verdict::Invalid => 4.0,
    };
    // Without any idle time the machine was as busy as can be.
    verdict + cell.generator.cpu_taken.unwrap_or(1.0)
}

fn described(cell: &Cell) -> String {
    let verdict = cell.assessment.verdict();
    match cell.generator.cpu_taken {
        Some(taken) => format!("{verdict} at {:.1} %", taken * 100.0),
        None => format!("{verdict} without idle time"),
    }
}

/// One message in a hundred makes a p99, and each needs a processor five times: of the generator,
/// the link, the server, and of both again for its reply.
const TAKEN_MAX: f64 = 0.002;
/// With five uses for each message that is one in twenty, and the p99 is the host's.
const TAKEN_SUSPECT: f64 = 0.01;
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
        assert!(!is_disturbed(&cell(Verdict::Invalid, 0.0019)));
        assert!(!is_disturbed(&Cell {
            generator: Default::default(),
            ..cell(Verdict::Invalid, 0.02)
        }));
        let mut lossy = cell(Verdict::Suspect, 0.02);
        lossy.messages.lost = 1;
        assert!(!is_disturbed(&lossy));
    }

    #[test]
    fn a_cell_that_the_host_took_too_much_of_is_not_valid() {
        for (taken, verdict) in [(0.0101, Verdict::Suspect), (0.01, Verdict::Valid)] {
            let mut cell = cell(Verdict::Valid, taken);
            weigh_host(&mut cell);
            assert_eq!(cell.assessment.verdict(), verdict, "{taken}");
            assert_eq!(is_disturbed(&cell), verdict == Verdict::Suspect);
        }
    }

    #[test]
    fn a_fault_found_by_a_repeat_is_not_measured_away() {
        let mut lossy = cell(Verdict::Suspect, 0.09);
        lossy.messages.lost = 300;
        let kept = best(vec![cell(Verdict::Suspect, 0.02), lossy]);
        assert_eq!(kept.messages.lost, 300);
    }

    #[test]
    fn an_attempt_without_idle_time_is_the_least_wanted_of_its_verdict() {
        let mut busy = cell(Verdict::Suspect, 0.0);
        busy.generator.cpu_taken = None;
        let kept = best(vec![busy, cell(Verdict::Suspect, 0.3)]);
        assert_eq!(kept.generator.cpu_taken, Some(0.3));
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
