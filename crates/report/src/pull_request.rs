//! A run in some twenty lines of Markdown, as a comment on a pull request: the verdict first, then
//! the metric that decides, and the rest folded.

use crate::battle;
use crate::capacity;
use crate::cell::Cell;
use crate::format;
use crate::groups::{Group, clients, titled};
use crate::metric::{Latency, Metric, Statistic};
use crate::objections;
use crate::run::Run;
use crate::sentences;
use crate::table::Table;
use crate::tables;

/// The text for a run of any kind.
pub fn pull_request(run: &Run) -> String {
    let mut text = format!(
        "**{}: {}**\n",
        format::in_markdown(&sentences::title(run)),
        run.verdict()
    );
    for reason in shown(&objections::reasons(run)) {
        text.push_str(&format!("- {reason}\n"));
    }
    for threshold in shown(&objections::failed_thresholds(run)) {
        text.push_str(&format!("- {threshold}\n"));
    }
    for sentence in battle::winners(run) {
        let sentence = format::in_markdown(&sentence);
        text.push_str(&format!("- {sentence}\n"));
    }
    // Of a search: what its figures are not, such as the limit where all loads passed.
    for sentence in shown(&capacity::found(run).sentences) {
        text.push_str(&format!("- {sentence}\n"));
    }
    text.push_str(&format!("\n{}", figures(run).to_markdown()));
    text + &run_details(run)
}

/// What is folded below such a text: where a run took place, and how.
pub fn run_details(run: &Run) -> String {
    let line = format::command_line(&run.environment.command_line);
    let environment = sentences::environment(&run.environment);
    // One line, because the kernel settings alone are more than all the rest.
    let environment: Vec<String> = environment
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    format!(
        "\n<details><summary>Command and environment</summary>\n\n{}\n{}\n\n</details>\n",
        format::fenced("sh", &line),
        // Versions name the home pages of their projects, which would become links.
        format::escaped(&environment.join("; ").replace("https://", ""))
    )
}

/// The first few as Markdown, and how many more there are.
pub(crate) fn shown(lines: &[String]) -> Vec<String> {
    let first = lines.iter().take(LINES_MAX);
    let mut shown: Vec<String> = first.map(|line| format::in_markdown(line)).collect();
    let more = lines.len().saturating_sub(LINES_MAX);
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown
}

fn figures(run: &Run) -> Table {
    if let Some(table) = battle::primary_table(run) {
        return table;
    }
    let mut table = Table::new(["", "verdict", "sent/s", "p50", "p99", "p99.9", "lost"]);
    let groups = Group::all(run);
    let cells = groups.iter().flat_map(|group| &group.cells);
    for cell in cells.take(ROWS_MAX) {
        let [p50, p99, p99_9] = percentiles(cell);
        let name = match groups.len() {
            1 => clients(cell),
            _ => format!("{}, {}", clients(cell), titled(cell)),
        };
        table.row([
            name,
            cell.assessment.verdict().to_string(),
            format::rate(cell.rate.sent_per_s),
            p50,
            p99,
            p99_9,
            format::count(cell.messages.lost),
        ]);
    }
    table
}

/// The p50, p99 and p99.9 of the response, with their intervals where there are any.
fn percentiles(cell: &Cell) -> [String; 3] {
    let all = [0.5, 0.99, 0.999].map(Statistic::Quantile);
    let mut found = tables::response_estimates(cell, &all).into_iter().flatten();
    all.map(|statistic| {
        let metric = Metric::Latency(Latency::Response, statistic);
        let told = |(value, bounds)| metric.estimate(value, bounds);
        found.next().map_or_else(format::dash, told)
    })
}

/// Lines of one kind.
const LINES_MAX: usize = 3;
/// Rows of the table.
pub(crate) const ROWS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Content;
    use crate::sample;
    use crate::time_block::TimeBlock;
    use crate::verdict::Verdict;

    fn seen(text: &str) -> usize {
        let (seen, _) = text.split_once("<details>").unwrap();
        seen.lines().count()
    }

    #[test]
    fn a_battle_is_told_in_twenty_lines_with_its_winner() {
        let mut run = battle::tests::run(&[("a", 2.0), ("b", 2.4), ("none", 1.0)], 8);
        run.environment = sample::bench(1, 1000).environment;
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for (place, cell) in cells.iter_mut().take(9).enumerate() {
            let reasons = ["of one kind".to_owned(), format!("of kind {place}x")];
            for reason in reasons {
                cell.assessment.add(Verdict::Suspect, reason);
            }
        }
        let text = pull_request(&run);
        assert!(seen(&text) <= 20, "{text}");
        assert!(text.starts_with("**bench: SUSPECT**") || text.contains("SUSPECT**"));
        assert!(text.contains("- 9 cells (SUSPECT), the first"), "{text}");
        assert!(text.contains("and 7 more"), "{text}");
        assert!(text.contains("a has the lowest response p50"), "{text}");
        assert!(
            text.contains("| winner") || text.contains("winner |"),
            "{text}"
        );
        assert!(text.contains("["), "an interval: {text}");
        for part in ["seed: 42", "CPU: AMD EPYC", "kernel: ", "```sh\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("http"), "{text}");
    }

    #[test]
    fn a_name_is_no_markup() {
        let mut run = battle::tests::run(&[("a", 2.0)], 1);
        run.name = "*evil* <img> of\n[a](http://b)".to_owned();
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        cells[0].assessment.add(Verdict::Invalid, "<b> | `x`");
        let text = pull_request(&run);
        let title = r"**\*evil\* \<img> of [a]\(http://b): INVALID**";
        assert!(text.starts_with(&format!("{title}\n")), "{text}");
        assert!(text.contains(r"\<b> \| \`x\`"), "{text}");
        let all = crate::markdown::markdown(&run);
        assert!(all.starts_with(r"# \*evil\* \<img> of [a]\("), "{all}");
    }

    #[test]
    fn loads_that_differ_by_their_rate_have_it_in_their_names() {
        let mut run = battle::tests::run(&[("a", 2.0), ("b", 2.4)], 8);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        let mut faster = cells.clone();
        for cell in cells.iter_mut() {
            cell.parameters.rate_per_s = Some(500.0);
        }
        for cell in &mut faster {
            cell.parameters.rate_per_s = Some(3000.0);
        }
        cells.extend(faster);
        let text = pull_request(&run);
        let (seen, _) = text.split_once("<details>").unwrap();
        for rate in ["500 messages/s", "3,000 messages/s"] {
            // A sentence, and a row for each contestant.
            assert_eq!(seen.matches(rate).count(), 3, "{text}");
        }
    }

    #[test]
    fn percentiles_of_one_run_have_intervals_where_it_has_blocks() {
        let mut cell = sample::cell(100, 1.0, 10, 1);
        let text = |cell: &Cell| {
            pull_request(&Run {
                content: Content::Load(Box::new(cell.clone())),
                ..Run::default()
            })
        };
        assert!(!text(&cell).contains('['));
        let block = TimeBlock::of(&cell.latency.response);
        cell.blocks = vec![block; 10];
        let text = text(&cell);
        let row = text.lines().find(|line| line.contains("100 clients"));
        let row = row.unwrap();
        // p50 and p99; above p99.9 there are too few samples.
        assert!(
            row.contains("ms [") && row.matches('[').count() >= 2,
            "{text}"
        );
    }

    #[test]
    fn a_bench_and_a_load_have_their_latencies() {
        let text = pull_request(&sample::bench(3, 500));
        assert!(
            text.contains("p99.9") && text.contains("10,000 clients"),
            "{text}"
        );
        assert!(seen(&text) <= 20, "{text}");
        let run = Run {
            content: Content::Load(Box::default()),
            ..Run::default()
        };
        assert!(pull_request(&run).contains("| 0 clients |"));
    }
}
