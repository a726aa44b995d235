//! The tables of `payload-doubling`: the six columns of the benchmark of LAppS, and what a reader
//! needs to believe them.
//!
//! Rates are the median over the rounds, latencies those of all rounds together. A megabit is
//! 10^6 bits of payload, one way; frames, TLS and TCP are not counted.

use crate::cell::Cell;
use crate::contest::Contest;
use crate::format;
use crate::histogram::Histogram;
use crate::quantiles::microseconds;
use crate::run::Run;
use crate::table::Table;
use crate::verdict::Verdict;

/// A heading with its table.
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) table: Table,
}

/// Whether the run is one of the lab, whose cells these tables are for.
pub(crate) fn is_contest(run: &Run) -> bool {
    run.cells().iter().any(|cell| cell.contest.is_some())
}

/// What was measured, in a sentence or two.
pub(crate) fn method(run: &Run) -> &'static str {
    match is_legacy(run) {
        true => {
            "legacy: 2 in flight, mean payload 512 B, nominal sizes are not on the wire. Each \
             connection has a text of 1024 B and an empty binary message on their way, as the \
             published benchmark of LAppS had; do not compare these rows with true payloads."
        }
        false => {
            "One message in flight per client, each with its whole payload on the wire and \
             verified when it comes back. All clients of a row send from the same moment to the \
             same moment."
        }
    }
}

/// What the columns count.
pub(crate) const UNITS: &str = "Rates are the median over the rounds, latencies those of all \
    rounds together. A megabit is 10^6 bits of payload one way; the last throughput is both ways. \
    CPU is the server's, user and system, for each round trip. A rate with a * is of a cell that \
    is SUSPECT or INVALID, with its reasons below.";

/// All contestants side by side, then each of them with every column.
pub(crate) fn sections(run: &Run) -> Vec<Section> {
    let entries = Entry::all(run);
    let mut sections = vec![Section {
        title: "Total round trips per second".to_owned(),
        table: side_by_side(&entries),
    }];
    sections.extend(entries.iter().map(|entry| Section {
        title: entry.title(),
        table: columns(entry, is_legacy(run)),
    }));
    sections
}

fn is_legacy(run: &Run) -> bool {
    let nominal = |cell: &Cell| cell.contest.as_ref()?.nominal_bytes;
    run.cells().iter().any(|cell| nominal(cell).is_some())
}

/// One contestant with one number of connections: its rows.
struct Entry<'a> {
    contest: &'a Contest,
    rows: Vec<Row<'a>>,
}

/// The cells of one size, one for each round.
struct Row<'a> {
    /// As the first column shows it: on the wire, or nominal in the legacy mode.
    size: u64,
    cells: Vec<&'a Cell>,
}

impl<'a> Entry<'a> {
    /// Those of a run in the order of their first cells.
    fn all(run: &'a Run) -> Vec<Self> {
        let mut entries: Vec<Self> = Vec::new();
        for cell in run.cells() {
            let Some(contest) = &cell.contest else {
                continue;
            };
            let known = entries.iter();
            let at = match known
                .map(|it| it.contest)
                .position(|it| is_same(it, contest))
            {
                Some(at) => at,
                None => {
                    entries.push(Self {
                        contest,
                        rows: Vec::new(),
                    });
                    entries.len() - 1
                }
            };
            entries[at].add(cell);
        }
        entries
    }

    fn add(&mut self, cell: &'a Cell) {
        let nominal = cell.contest.as_ref().and_then(|it| it.nominal_bytes);
        let size = nominal.unwrap_or(cell.parameters.message_bytes);
        match self.rows.iter_mut().find(|row| row.size == size) {
            Some(row) => row.cells.push(cell),
            None => self.rows.push(Row {
                size,
                cells: vec![cell],
            }),
        }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.contest.name(), self.contest.connections)
    }

    fn title(&self) -> String {
        let mut ciphers: Vec<&str> = Vec::new();
        for cell in self.rows.iter().flat_map(|row| &row.cells) {
            ciphers.extend(cell.ciphers.keys().map(String::as_str));
        }
        ciphers.sort_unstable();
        ciphers.dedup();
        let ciphers = match ciphers.is_empty() {
            true => String::new(),
            false => format!(", {}", ciphers.join(" and ")),
        };
        format!("{} clients{ciphers}", self.name())
    }
}

fn is_same(one: &Contest, other: &Contest) -> bool {
    let identity = |it: &Contest| (it.contestant.clone(), it.tls, it.connections);
    identity(one) == identity(other)
}

impl Row<'_> {
    /// Those in which there was something to measure: a server that did not start says nothing of
    /// its rate.
    fn measured(&self) -> impl Iterator<Item = &Cell> {
        let cells = self.cells.iter().copied();
        cells.filter(|cell| cell.connects.ok > 0)
    }

    fn rate(&self) -> Option<f64> {
        median(self.measured().map(|cell| cell.rate.received_per_s))
    }

    fn rate_per_client(&self) -> Option<f64> {
        let each = |cell: &Cell| cell.rate.received_per_s / cell.connects.ok as f64;
        median(self.measured().map(each))
    }

    /// Bytes of payload of a message, on average.
    fn payload_bytes(&self) -> f64 {
        let bytes = |cell: &Cell| cell.parameters.message_bytes as f64;
        self.measured().next().map_or(0.0, bytes)
    }

    fn verdict(&self) -> Verdict {
        let verdicts = self.cells.iter().map(|cell| cell.assessment.verdict());
        verdicts.max().unwrap_or_default()
    }

    fn latency(&self, quantile: f64) -> String {
        let mut all = Histogram::new();
        for cell in &self.cells {
            all.merge(&cell.latency.response);
        }
        let us = all.quantile_ns(quantile).map(|ns| microseconds(ns as f64));
        format::latency_or_dash(us)
    }

    fn cpu(&self) -> String {
        let per_message = |cell: &&Cell| cell.server.as_ref()?.cpu_ns_per_message;
        let ns = median(self.cells.iter().filter_map(per_message));
        format::latency_or_dash(ns.map(microseconds))
    }

    /// The fewest connections of any round.
    fn connected(&self) -> u64 {
        let connected = self.cells.iter().map(|cell| cell.connects.ok);
        connected.min().unwrap_or(0)
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

fn side_by_side(entries: &[Entry<'_>]) -> Table {
    let header = std::iter::once("payload, bytes".to_owned());
    let mut table = Table::new(header.chain(entries.iter().map(Entry::name)));
    let mut sizes: Vec<u64> = Vec::new();
    for row in entries.iter().flat_map(|entry| &entry.rows) {
        if !sizes.contains(&row.size) {
            sizes.push(row.size);
        }
    }
    for size in sizes {
        let rate = |entry: &Entry<'_>| {
            let row = entry.rows.iter().find(|row| row.size == size);
            row.map_or_else(format::dash, |row| {
                let mark = if row.verdict() == Verdict::Valid {
                    ""
                } else {
                    "*"
                };
                row.rate()
                    .map_or_else(format::dash, |rate| format!("{}{mark}", format::rate(rate)))
            })
        };
        let rates: Vec<String> = entries.iter().map(rate).collect();
        table.row(std::iter::once(format::count(size)).chain(rates));
    }
    table
}

fn columns(entry: &Entry<'_>, legacy: bool) -> Table {
    let size = if legacy {
        "nominal payload, bytes"
    } else {
        "payload, bytes"
    };
    let mut table = Table::new([
        size,
        "round trips/s",
        "per client",
        "Mbit/s",
        "Gbit/s",
        "both ways, Gbit/s",
        "p50",
        "p99",
        "p99.9",
        "CPU",
        "clients",
        "connected",
        "verdict",
    ]);
    for row in &entry.rows {
        let megabits = row
            .rate()
            .map(|rate| rate * row.payload_bytes() * 8.0 / 1e6);
        let clients = entry.contest.connections;
        let or_dash = |figure: Option<f64>, format: fn(f64) -> String| {
            figure.map_or_else(format::dash, format)
        };
        table.row([
            format::count(row.size),
            or_dash(row.rate(), format::rate),
            or_dash(row.rate_per_client(), format::rate),
            or_dash(megabits, format::rate),
            or_dash(megabits, |one_way| format!("{:.3}", one_way / 1e3)),
            or_dash(megabits, |one_way| format!("{:.3}", 2.0 * one_way / 1e3)),
            row.latency(0.5),
            row.latency(0.99),
            row.latency(0.999),
            row.cpu(),
            format::count(clients),
            format::count(row.connected()),
            row.verdict().to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Content;

    fn cell(contestant: &str, round: u64, size: u64, rate: f64) -> Cell {
        let mut cell = Cell::default();
        cell.parameters.clients = 120;
        cell.parameters.message_bytes = size;
        cell.contest = Some(Contest {
            contestant: contestant.to_owned(),
            connections: 120,
            tls: true,
            round,
            ..Contest::default()
        });
        cell.connects.ok = 100;
        cell.ciphers = [("TLS13_AES_128_GCM_SHA256".to_owned(), 100)].into();
        cell.rate.received_per_s = rate;
        cell.latency.response.record(2_000_000);
        cell
    }

    fn run(cells: Vec<Cell>) -> Run {
        Run {
            content: Content::Bench(cells),
            ..Run::default()
        }
    }

    fn text(run: &Run) -> String {
        let sections = sections(run);
        let texts = sections
            .iter()
            .map(|section| format!("{}\n{}", section.title, section.table.to_text()));
        texts.collect()
    }

    #[test]
    fn the_six_columns_count_what_was_on_the_wire() {
        let cells = vec![
            cell("a", 1, 1000, 10_000.0),
            cell("b", 1, 1000, 500.0),
            cell("a", 2, 1000, 30_000.0),
        ];
        let text = text(&run(cells));
        let row = text
            .lines()
            .skip_while(|line| !line.starts_with("a, wss, 120 clients, TLS13_AES"))
            .nth(2)
            .unwrap();
        let fields: Vec<&str> = row.split_whitespace().collect();
        // 20,000 a second are the median, 100 of 120 clients came up, 160 Mbit/s each way.
        let expected = ["1,000", "20,000", "200", "160", "0.160", "0.320"];
        assert_eq!(fields[..6], expected, "{text}");
        assert_eq!(
            fields[fields.len() - 3..],
            ["120", "100", "VALID"],
            "{text}"
        );
    }

    #[test]
    fn a_round_without_a_server_does_not_count() {
        let missing = |round| {
            let mut cell = cell("a", round, 1000, 0.0);
            cell.connects.ok = 0;
            cell.assessment.add(Verdict::Invalid, "it did not start");
            cell
        };
        let row = |cells| {
            let text = text(&run(cells));
            let row = text.lines().last().unwrap();
            let fields: Vec<String> = row.split_whitespace().map(str::to_owned).collect();
            fields
        };
        let fields = row(vec![missing(1), cell("a", 2, 1000, 10_000.0)]);
        assert_eq!(fields[..4], ["1,000", "10,000", "100", "80.0"]);
        assert_eq!(fields[fields.len() - 2..], ["0", "INVALID"]);
        let fields = row(vec![missing(1), missing(2)]);
        assert_eq!(fields[1..6], ["–"; 5]);
    }

    #[test]
    fn contestants_stand_side_by_side_and_a_doubted_rate_is_marked() {
        let mut doubted = cell("b", 1, 1024, 500.0);
        doubted.assessment.add(Verdict::Suspect, "late");
        let cells = vec![cell("a", 1, 1024, 1000.0), doubted];
        let text = text(&run(cells));
        let lines: Vec<&str> = text.lines().collect();
        let header: Vec<&str> = lines[1].split("  ").map(str::trim).collect();
        assert_eq!(
            header[1..],
            ["payload, bytes", "a, wss, 120", "b, wss, 120"]
        );
        assert!(
            lines[2].ends_with("500*") && lines[2].contains("1,000 "),
            "{text}"
        );
    }

    #[test]
    fn the_legacy_mode_says_what_it_is_and_counts_512_bytes() {
        let mut legacy = cell("a", 1, 512, 1000.0);
        legacy.contest.as_mut().unwrap().nominal_bytes = Some(262_144);
        let run = run(vec![legacy]);
        assert!(method(&run).starts_with(
            "legacy: 2 in flight, mean payload 512 B, nominal sizes are not on the wire"
        ));
        let text = text(&run);
        assert!(text.contains("nominal payload, bytes"), "{text}");
        let row = text.lines().last().unwrap();
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(fields[..4], ["262,144", "1,000", "10.0", "4.10"], "{text}");
    }

    #[test]
    fn a_contest_survives_its_file() {
        let run = run(vec![cell("a/b", 1, 1024, 1000.0)]);
        let json: serde_json::Value = serde_json::from_str(&run.to_json()).unwrap();
        let written = &json["cells"][0];
        assert_eq!(written["contestant"], "a/b");
        assert_eq!(written["connections"], 120);
        assert_eq!(written["tls"], true);
        assert_eq!(written["round"], 1);
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }
}
