//! What TLS costs a contestant: its cells over wss beside those over ws, under the same load.

use super::standing::Standing;
use super::{Field, Section};
use crate::cell::Cell;
use crate::format;
use crate::statistics::ranks::{self, median};
use crate::table::Table;

/// One table for each load that was put on contestants over both schemes.
pub(super) fn sections(fields: &[Field<'_>], seed: u64) -> Vec<Section> {
    let of_both = fields.iter().filter(|field| !field.common().1);
    let tables = of_both.filter_map(|plain| {
        let (parameters, _) = plain.common();
        let secure = fields
            .iter()
            .find(|field| field.common() == (parameters.clone(), true))?;
        let both = [plain.standings(seed), secure.standings(seed)];
        let table = table(&both[0], &both[1]);
        let mut standings = both.iter().flatten();
        let is_of_blocks = standings.any(|it| it.ranked().count() < ROUNDS_MIN);
        let sentences = [METHOD]
            .into_iter()
            .chain(is_of_blocks.then_some(BLOCKS_ONLY));
        (!table.is_empty()).then(|| Section {
            title: format!("{}: wss beside ws", plain.load()),
            table,
            sentences: sentences.map(str::to_owned).collect(),
        })
    });
    tables.collect()
}

fn table(plain: &[Standing<'_>], secure: &[Standing<'_>]) -> Table {
    let mut table = Table::new(["contestant", "", "ws", "wss", "wss beside ws"]);
    let pairs = plain.iter().filter_map(|one| {
        let other = secure
            .iter()
            .find(|it| it.contestant() == one.contestant())?;
        Some((one, other))
    });
    let pairs: Vec<_> = pairs.collect();
    // The intervals of one table hold together.
    let alpha = ALPHA / (pairs.len() * FIGURES.len()).max(1) as f64;
    for (one, other) in pairs {
        // A round is not compared with a part of one.
        let of_blocks = [one, other].map(|it| it.ranked().count() < ROUNDS_MIN);
        let is_of_blocks = of_blocks.contains(&true);
        for figure in FIGURES {
            let values = [one, other].map(|standing| figure.samples(standing, is_of_blocks));
            let [Some(ws), Some(wss)] = [0, 1].map(|side: usize| middle(&values[side])) else {
                continue;
            };
            table.row([
                one.contestant().to_owned(),
                figure.name.to_owned(),
                (figure.quantity)(ws.exp()),
                (figure.quantity)(wss.exp()),
                difference(&values[0], &values[1], alpha, is_of_blocks),
            ]);
        }
    }
    table
}

fn middle(sorted: &[f64]) -> Option<f64> {
    (!sorted.is_empty()).then(|| median(sorted))
}

/// How the logarithms of two samples differ.
fn difference(ws: &[f64], wss: &[f64], alpha: f64, is_of_blocks: bool) -> String {
    let percent = |log: f64| format!("{:+.1} %", log.exp_m1() * 100.0);
    let scope = if is_of_blocks {
        ", within these runs"
    } else {
        ""
    };
    match ranks::shift(ws, wss, alpha) {
        None => "too few rounds and too short ones".to_owned(),
        Some(shift) => {
            let interval = format!("[{}, {}]", percent(shift.low), percent(shift.high));
            let delta = format::delta(shift.cliffs_delta());
            match shift.is_told() {
                true => format!("{} {interval}, {delta}{scope}", percent(shift.estimate)),
                false => format!("cannot be told apart {interval}, {delta}{scope}"),
            }
        }
    }
}

/// A figure of a cell, or of a part of it.
struct Figure {
    name: &'static str,
    of_cell: fn(&Cell) -> Option<f64>,
    /// Over some neighbouring seconds: messages, seconds, processor seconds.
    of_block: fn(&Sums) -> Option<f64>,
    quantity: fn(f64) -> String,
}

const FIGURES: [Figure; 2] = [
    Figure {
        name: "messages per second",
        of_cell: |cell| Some(cell.rate.received_per_s),
        of_block: |sums| Some(sums.received / sums.seconds),
        quantity: |value| format!("{}/s", format::rate(value)),
    },
    Figure {
        name: "CPU per message",
        of_cell: |cell| cell.server.as_ref()?.cpu_ns_per_message,
        of_block: |sums| Some(sums.cpu_s? * 1e9 / sums.received),
        quantity: |value| format::latency(value / 1e3),
    },
];

impl Figure {
    /// The logarithms of its values, in order: of the rounds, or of blocks of time in them.
    fn samples(&self, standing: &Standing<'_>, is_of_blocks: bool) -> Vec<f64> {
        let cells: Vec<&Cell> = standing.ranked().collect();
        let values: Vec<f64> = match is_of_blocks {
            false => cells
                .iter()
                .filter_map(|cell| (self.of_cell)(cell))
                .collect(),
            true => cells
                .iter()
                .flat_map(|cell| blocks(cell))
                .filter_map(|sums| (self.of_block)(&sums))
                .collect(),
        };
        let values = values.into_iter().filter(|it| it.is_finite() && *it > 0.0);
        let mut logs: Vec<f64> = values.map(f64::ln).collect();
        logs.sort_by(f64::total_cmp);
        logs
    }
}

/// What came together in a block of time.
struct Sums {
    received: f64,
    seconds: f64,
    cpu_s: Option<f64>,
}

/// The whole seconds of sending in blocks, each so long that its neighbour tells little of it. The
/// first one, in which caches fill, is left out.
fn blocks(cell: &Cell) -> Vec<Sums> {
    let whole = cell.intervals.iter().filter(|interval| {
        interval.length_s > 0.9
            && interval.start_s + interval.length_s <= cell.rate.duration_s + 0.05
    });
    let whole: Vec<_> = whole.collect();
    let length = (whole.len() / BLOCKS).max(BLOCK_S_MIN);
    let blocks = whole.chunks_exact(length).skip(1);
    let sums = blocks.map(|block| Sums {
        received: block.iter().map(|it| it.received as f64).sum(),
        seconds: block.iter().map(|it| it.length_s).sum(),
        cpu_s: block
            .iter()
            .map(|it| Some(it.server_cpu? * it.length_s))
            .sum(),
    });
    sums.collect()
}

const ALPHA: f64 = 0.05;
/// With fewer there is no interval of 95 %.
const ROUNDS_MIN: usize = 4;
/// As many as tell a percent in half an hour.
const BLOCKS: usize = 30;
const BLOCK_S_MIN: usize = 10;
const METHOD: &str = "The difference is the median over all pairs of a round over wss and one over \
    ws, with the interval of the test of Mann and Whitney, 95 % for all of a table together; with \
    fewer than 4 rounds, of blocks of at least 10 s of them.";
const BLOCKS_ONLY: &str = "With fewer than 4 rounds the interval knows how these runs vary from \
    block to block, and not how another run would differ from them: more rounds would tell.";

#[cfg(test)]
mod tests {
    use super::super::{sections as all, tests};
    use crate::environment::Server;
    use crate::interval::Interval;
    use crate::run::Run;

    fn run(rounds: u64, seconds: usize) -> Run {
        let mut run = tests::run(&[("a", 1.0)], rounds);
        let mut cells = run.cells().to_vec();
        for is_secure in [false, true] {
            for cell in run.cells() {
                let mut cell = cell.clone();
                let price = if is_secure { 1.5 } else { 1.0 };
                let round = cell.contest.as_ref().map_or(0, |contest| contest.round);
                cell.contest.as_mut().unwrap().tls = is_secure;
                cell.rate.received_per_s = (1000.0 + round as f64) / price;
                cell.server = Some(Server {
                    cpu_ns_per_message: Some((10_000.0 + round as f64) * price),
                    ..Server::default()
                });
                cell.fill_seconds(seconds, |index| Interval {
                    received: ((1000 + index % 7) as f64 / price) as u64,
                    server_cpu: Some(0.5),
                    ..Interval::default()
                });
                cells.push(cell);
            }
        }
        cells.drain(..rounds as usize);
        run.content = crate::run::Content::Bench(cells);
        run
    }

    fn text(run: &Run) -> String {
        let sections = all(run, &tests::rules());
        let section = sections
            .iter()
            .find(|it| it.title.ends_with("wss beside ws"));
        section.map_or_else(String::new, |section| {
            section.table.to_text() + &section.sentences.join("\n")
        })
    }

    #[test]
    fn rounds_are_compared_and_blocks_of_time_where_there_are_few() {
        for (run, is_of_blocks) in [(run(5, 3), false), (run(1, 300), true)] {
            let text = text(&run);
            let warning = "and not how another run would differ";
            assert_eq!(text.contains(warning), is_of_blocks, "{text}");
            assert!(
                text.contains("messages per second") && text.contains("-33."),
                "{text}"
            );
            assert!(
                text.contains("CPU per message") && text.contains("+50."),
                "{text}"
            );
        }
        let short = text(&run(1, 8));
        assert!(short.is_empty() || short.contains("too short"), "{short}");
    }

    #[test]
    fn one_scheme_alone_has_no_such_table() {
        assert_eq!(text(&tests::run(&[("a", 1.0)], 5)), "");
    }
}
