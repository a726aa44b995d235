//! The report of each cell by itself, as that of a load run: what the tables of all of them leave
//! out.

use std::collections::BTreeMap;

use crate::cell::Cell;
use crate::format;
use crate::groups::clients;
use crate::markdown::markdown;
use crate::run::{Content, Run};
use crate::sentences;
use crate::summary::{Style, summary};

/// The folder of each cell of a run of several, and its report as Markdown; none of a load run,
/// which is its own.
pub(crate) fn cell_reports(run: &Run) -> impl Iterator<Item = (String, String)> + '_ {
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    let cells = run.cells().iter().filter(|_| run.is_bench());
    cells.map(move |cell| {
        let name = folder_name(cell);
        let times = taken.entry(name.clone()).or_default();
        *times += 1;
        // A search may try the same load twice.
        let folder = match times {
            1 => name,
            _ => format!("{name}_{times}"),
        };
        (folder, report(run, cell))
    })
}

fn folder_name(cell: &Cell) -> String {
    match &cell.contest {
        Some(contest) => contest.folder_name(&cell.parameters),
        None => cell.parameters.key(),
    }
}

/// The tables, and below them what a terminal would have shown.
fn report(run: &Run, cell: &Cell) -> String {
    let contest = cell.contest.as_ref();
    let whose = contest.map_or_else(String::new, |it| {
        format!("{}, round {}, ", it.name(), it.round)
    });
    let alone = Run {
        name: format!("{}: {whose}{}", sentences::title(run), clients(cell)),
        environment: run.environment.clone(),
        content: Content::Load(Box::new(cell.clone())),
        ..Run::default()
    };
    let console = summary(&alone, Style::default());
    let console = format::fenced("text", console.trim_end_matches('\n'));
    format!("{}{CELL_REPORT_MARK}{console}", markdown(&alone))
}

/// What each of them has in it, and no other file.
pub(crate) const CELL_REPORT_MARK: &str = "\n## On a terminal\n\n";

#[cfg(test)]
mod tests {
    use super::super::battle::tests;
    use super::*;
    use crate::sample;
    use crate::verdict::Verdict;

    #[test]
    fn each_cell_of_a_bench_is_reported_as_a_load_run() {
        let bench = sample::bench(3, 100);
        let reports: Vec<(String, String)> = cell_reports(&bench).collect();
        let folders: Vec<&str> = reports.iter().map(|(folder, _)| folder.as_str()).collect();
        let folder = |clients: u64| format!("c{clients}_b1_n3_w1000_s1024_r4_l20ms");
        assert_eq!(folders, [1000, 3000, 5000, 10_000].map(folder));
        let report = &reports[3].1;
        let start = "# bench of amplify, 20 ms link: 10,000 clients\n\n**SUSPECT**:\n\n- send lag";
        assert!(report.starts_with(start), "{report}");
        for part in [
            "```sh\nmoonwire bench ",
            "**Percentile ladder",
            "- connections: 10,000 ok",
            "- kernel: 6.1.0",
            "## On a terminal\n\n```text\nSUSPECT: send lag",
            "\nResponse time distribution\n",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
        assert!(!report.contains("3,000 clients"), "of one cell: {report}");
        assert!(report.ends_with("```\n"), "{report}");
        // A load run has its own report and needs no other.
        let load = Run {
            content: Content::Load(Box::default()),
            ..Run::default()
        };
        assert_eq!(cell_reports(&load).count(), 0);
    }

    #[test]
    fn cells_of_a_battle_have_folders_of_their_own() {
        let mut run = tests::run(&[("moonwire/native", 2.0), ("none", 1.0)], 2);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle")
        };
        cells.push(cells[0].clone());
        cells[1]
            .assessment
            .add(Verdict::Invalid, "a text\n````\n of others");
        let reports: Vec<(String, String)> = cell_reports(&run).collect();
        let folders: Vec<&str> = reports.iter().map(|(folder, _)| folder.as_str()).collect();
        assert_eq!(
            folders,
            [
                "moonwire_native_ws_c100_s0_r0_round1",
                "none_ws_c100_s0_r0_round1",
                "moonwire_native_ws_c100_s0_r0_round2",
                "none_ws_c100_s0_r0_round2",
                "moonwire_native_ws_c100_s0_r0_round1_2",
            ]
        );
        let report = &reports[1].1;
        assert!(report.starts_with("# bench: none, ws, round 1, 100 clients\n"));
        assert!(!report.contains("who is ahead"), "{report}");
        assert!(report.contains("\n`````text\n"), "{report}");
    }
}
