//! What speaks against the cells of a run, told once for all that have it in common: a battle has
//! hundreds of cells, and what disturbs one of them mostly disturbs many.

use std::cmp::Reverse;

use crate::format;
use crate::run::Run;
use crate::verdict::Verdict;

/// The reasons of the verdict, the worst first and of these the most frequent. Of a contest, one
/// sentence for all cells with the same reason but for its figures.
pub(crate) fn reasons(run: &Run) -> Vec<String> {
    if !is_contest(run) {
        return run.verdict_reasons();
    }
    let mut kinds = Vec::new();
    for (cell, name) in run.named_cells() {
        let verdict = cell.assessment.verdict();
        for reason in cell.assessment.reasons() {
            count(&mut kinds, verdict, &name, reason);
        }
    }
    // Of equal ones the first remains first.
    kinds.sort_by_key(|it| Reverse((it.verdict, it.cells)));
    let told = kinds.iter().map(|it| {
        let Kind { verdict, first, .. } = it;
        match it.cells {
            1 => format!("{} ({verdict}): {}", it.name, first),
            cells => {
                let cells = format::count(cells);
                format!("{cells} cells ({verdict}), the first {}: {first}", it.name)
            }
        }
    });
    told.collect()
}

/// Thresholds that were not kept, in the same way.
pub(crate) fn failed_thresholds(run: &Run) -> Vec<String> {
    if !is_contest(run) {
        return run.failed_thresholds();
    }
    let mut kinds = Vec::new();
    for (cell, name) in run.named_cells() {
        for failed in run.failed_thresholds_of(cell) {
            count(&mut kinds, Verdict::Valid, &name, &failed);
        }
    }
    let told = kinds.iter().map(|it| match it.cells {
        1 => format!("{}: {}", it.name, it.first),
        cells => {
            let cells = format::count(cells);
            format!("{cells} cells, the first {}: {}", it.name, it.first)
        }
    });
    told.collect()
}

/// Reasons that differ in figures only.
struct Kind {
    verdict: Verdict,
    words: String,
    cells: u64,
    /// The first cell that has it.
    name: String,
    /// What was said of that.
    first: String,
}

fn count(kinds: &mut Vec<Kind>, verdict: Verdict, name: &str, reason: &str) {
    let words = words(reason);
    let mut known = kinds.iter_mut();
    match known.find(|it| it.verdict == verdict && it.words == words) {
        Some(kind) => kind.cells += 1,
        None => kinds.push(Kind {
            verdict,
            words,
            cells: 1,
            name: name.to_owned(),
            first: reason.to_owned(),
        }),
    }
}

/// A sentence without its figures and their units.
fn words(sentence: &str) -> String {
    let mut words = Vec::new();
    let mut follows_figure = false;
    for word in sentence.split_whitespace() {
        let bare = word.trim_matches(|letter: char| ",;:()[]".contains(letter));
        let figure = bare.trim_end_matches('%').replace(',', "");
        let is_figure = figure.parse::<f64>().is_ok();
        let is_unit = follows_figure && UNITS.contains(&bare);
        if !(is_figure || is_unit) {
            words.push(word);
        }
        follows_figure = is_figure;
    }
    words.join(" ")
}

fn is_contest(run: &Run) -> bool {
    run.cells().iter().any(|cell| cell.contest.is_some())
}

/// As `format` writes them.
const UNITS: [&str; 10] = ["ns", "µs", "ms", "s", "min", "B", "KiB", "MiB", "GiB", "%"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battle::tests;
    use crate::environment::Threshold;
    use crate::run::Content;
    use crate::sample;

    fn battle() -> Run {
        tests::run(&[("a", 2.0), ("b", 2.4)], 4)
    }

    fn with_cells(change: impl Fn(usize, &mut crate::cell::Cell)) -> Run {
        let mut run = battle();
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle")
        };
        for (index, cell) in cells.iter_mut().enumerate() {
            change(index, cell);
        }
        run
    }

    #[test]
    fn reasons_that_differ_in_figures_are_told_once() {
        let run = with_cells(|index, cell| match index {
            0 => cell.assessment.add(Verdict::Suspect, "1.5 s late"),
            1..=4 => {
                let reason = format!("p99 of its lag is {index}.2 ms (at most 1 ms, {index} %)");
                cell.assessment.add(Verdict::Invalid, reason);
            }
            5 => cell.assessment.add(
                Verdict::Invalid,
                "p99 of its lag is 900 µs (at most 1 ms, 3 %)",
            ),
            6 => cell.assessment.add(
                Verdict::Invalid,
                "p50 of its lag is 1 ms (at most 1 ms, 3 %)",
            ),
            _ => {}
        });
        let name = |index: usize| {
            let contest = run.cells()[index].contest.as_ref().unwrap();
            format!("{}, ws, round {}", contest.contestant, contest.round)
        };
        assert_eq!(
            reasons(&run),
            [
                format!(
                    "5 cells (INVALID), the first {}: p99 of its lag is 1.2 ms (at most 1 ms, 1 %)",
                    name(1)
                ),
                format!(
                    "{} (INVALID): p50 of its lag is 1 ms (at most 1 ms, 3 %)",
                    name(6)
                ),
                format!("{} (SUSPECT): 1.5 s late", name(0)),
            ]
        );
    }

    #[test]
    fn thresholds_are_told_once_each() {
        let run = with_cells(|index, cell| {
            let threshold = |expression: &str| Threshold {
                expression: expression.to_owned(),
                actual: index.to_string(),
                passed: index == 0,
            };
            cell.thresholds = vec![threshold("lost==0"), threshold("leaks==0")];
        });
        let contest = run.cells()[1].contest.as_ref().unwrap();
        let first = format!("{}, ws, round {}", contest.contestant, contest.round);
        let told =
            |what: &str| format!("7 cells, the first {first}: threshold {what}==0 failed, found 1");
        assert_eq!(failed_thresholds(&run), [told("lost"), told("leaks")]);
    }

    #[test]
    fn a_sweep_names_each_of_its_few_cells() {
        let run = sample::bench(5, 200);
        assert_eq!(reasons(&run), run.verdict_reasons());
        assert_eq!(failed_thresholds(&run), run.failed_thresholds());
    }
}
