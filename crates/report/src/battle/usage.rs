//! What each contestant used under each load: the range of its CPU, and the most memory.

use super::standing::Standing;
use super::{Field, Section};
use crate::cell::Cell;
use crate::curve::sending;
use crate::environment::Server;
use crate::format;
use crate::table::Table;

/// A row for each contestant under each load; `None` where nobody was looked at.
pub(super) fn section(fields: &[Field<'_>], names: &[String], seed: u64) -> Option<Section> {
    let mut cells = fields.iter().flat_map(|field| &field.cells);
    let has_backends = cells.any(|cell| cell.backends.is_some());
    let columns = if has_backends {
        HEADER.len()
    } else {
        OWN_COLUMNS
    };
    let mut table = Table::new(HEADER.into_iter().take(columns));
    for (field, name) in fields.iter().zip(names) {
        for standing in field.standings(seed) {
            let cells: Vec<&Cell> = standing.with_all_rounds().ranked().collect();
            if cells.iter().any(|cell| cell.server.is_some()) {
                let row = row(name, &standing, &cells).into_iter();
                table.row(row.take(columns));
            }
        }
    }
    (!table.is_empty()).then(|| Section {
        title: "what each used".to_owned(),
        table,
        sentences: vec![METHOD.to_owned()],
    })
}

const HEADER: [&str; 8] = [
    "load",
    "contestant",
    "CPU, least",
    "mean",
    "most",
    "memory, most of all rounds",
    "CPU of the servers behind it, most",
    "their memory, most of all rounds",
];
/// Of these, those that are not of servers behind a contestant.
const OWN_COLUMNS: usize = 6;

fn row(load: &str, standing: &Standing<'_>, cells: &[&Cell]) -> [String; 8] {
    let servers = || cells.iter().filter_map(|cell| cell.server.as_ref());
    let backends = || cells.iter().filter_map(|cell| cell.backends.as_ref());
    let ranges = || cells.iter().filter_map(|cell| range(cell));
    [
        load.to_owned(),
        standing.contestant().to_owned(),
        cores(ranges().map(|(least, _)| least).reduce(f64::min)),
        cores(mean(servers())),
        cores(ranges().map(|(_, most)| most).reduce(f64::max)),
        memory(servers()),
        cores(backends().filter_map(|it| it.cpu_most).reduce(f64::max)),
        memory(backends()),
    ]
}

/// The least and the most of a cell; over its whole seconds in files without samples.
fn range(cell: &Cell) -> Option<(f64, f64)> {
    let server = cell.server.as_ref()?;
    server.cpu_least.zip(server.cpu_most).or_else(|| {
        let seconds = || sending(cell).filter_map(|it| it.server_cpu);
        seconds().reduce(f64::min).zip(seconds().reduce(f64::max))
    })
}

/// Of all the time that was looked at.
fn mean<'a>(servers: impl Iterator<Item = &'a Server>) -> Option<f64> {
    let both = servers.filter_map(|it| Some((it.cpu_s?, it.observed_s?)));
    let (cpu_s, observed_s) = both.fold((0.0, 0.0), |(cpu_s, observed_s), (cpu, observed)| {
        (cpu_s + cpu, observed_s + observed)
    });
    (observed_s > 0.0).then(|| cpu_s / observed_s)
}

fn memory<'a>(servers: impl Iterator<Item = &'a Server>) -> String {
    let peak = servers.filter_map(|it| it.rss_peak_bytes).max();
    peak.map_or_else(format::dash, |bytes| format::bytes(bytes as f64))
}

fn cores(cores: Option<f64>) -> String {
    cores.map_or_else(format::dash, format::percent)
}

const METHOD: &str = "CPU is that of one processor, so that two that are busy are 200 %, from the \
    first message to the last reply of all rounds, ranked or not: the least and the most between \
    two looks, 100 ms apart as a rule (of whole seconds in files that have no more). Memory is \
    resident, the most that any of these rounds had; server.memory_peak is the median of what each \
    ranked round had at most.";

#[cfg(test)]
mod tests {
    use super::super::{sections, tests};
    use super::*;
    use crate::interval::Interval;
    use crate::run::{Content, Run};

    fn server(least: Option<f64>, most: Option<f64>, peak_mib: u64) -> Option<Server> {
        Some(Server {
            cpu_s: Some(1.0),
            observed_s: Some(2.0),
            cpu_least: least,
            cpu_most: most,
            rss_peak_bytes: Some(peak_mib << 20),
            ..Server::default()
        })
    }

    fn row_of(run: &Run, contestant: &str) -> Vec<String> {
        let sections = sections(run, &tests::rules());
        let section = sections.iter().find(|it| it.title == "what each used");
        let text = section.unwrap().table.to_markdown();
        let rows = text.lines().map(|line| line.trim_matches('|').split('|'));
        let mut rows = rows.map(|row| row.map(|it| it.trim().to_owned()).collect::<Vec<_>>());
        rows.find(|row| row[1] == contestant).unwrap()
    }

    #[test]
    fn the_range_is_that_of_all_rounds_together() {
        let mut run = tests::run(&[("nginx", 2.0), ("old", 2.0)], 2);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle")
        };
        cells[0].server = server(Some(0.2), Some(0.9), 30);
        cells[0].backends = server(Some(0.1), Some(1.5), 90);
        cells[2].server = server(Some(0.4), Some(1.2), 20);
        // Without samples the seconds tell.
        cells[1].server = server(None, None, 10);
        cells[1].fill_seconds(3, |second| Interval {
            server_cpu: Some([0.5, 0.7, 0.6][second]),
            ..Interval::default()
        });
        let name = "100 connections, ws";
        assert_eq!(
            row_of(&run, "nginx"),
            [
                name, "nginx", "20.0 %", "50.0 %", "120.0 %", "30.0 MiB", "150.0 %", "90.0 MiB"
            ]
        );
        assert_eq!(
            row_of(&run, "old"),
            [
                name, "old", "50.0 %", "50.0 %", "70.0 %", "10.0 MiB", "–", "–"
            ]
        );
    }

    #[test]
    fn who_was_not_looked_at_has_no_table() {
        let run = tests::run(&[("a", 2.0)], 2);
        let sections = sections(&run, &tests::rules());
        assert!(!sections.iter().any(|it| it.title == "what each used"));
    }
}
