//! The tables that several outputs share.

use std::collections::BTreeMap;

use crate::cell::Cell;
use crate::format::{self, dash, latency_or_dash, milliseconds_or_dash};
use crate::groups::{Group, clients};
use crate::histogram::Histogram;
use crate::interval::{Interval, IntervalLatency};
use crate::metric::{Latency, Statistic};
use crate::quantiles::{Quantiles, microseconds};
use crate::stage::Stage;
use crate::statistics::pool::{Estimate, Pool};
use crate::table::Table;

/// One row a kind of latency, with everything recorded about it.
pub(crate) fn latency_table(cell: &Cell) -> Table {
    let mut table = Table::new([
        "", "mean", "stddev", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max", "count",
    ]);
    for (name, histogram) in latencies(cell) {
        table.row(latency_row(name, histogram));
    }
    table
}

/// The ladder of all latencies, the handshake and the response among them, as thor printed them.
pub(crate) fn ladder_table(cell: &Cell) -> Table {
    let mut table = Table::new(std::iter::once("").chain(LADDER));
    for (name, histogram) in latencies(cell) {
        let found = Quantiles::of(histogram);
        let values = [
            found.min_us,
            found.mean_us,
            found.stddev_us,
            found.p50_us,
            found.p66_us,
            found.p75_us,
            found.p80_us,
            found.p90_us,
            found.p95_us,
            found.p98_us,
            found.p99_us,
            found.max_us,
        ];
        table.row(std::iter::once(name.to_owned()).chain(values.map(latency_or_dash)));
    }
    table
}

/// Tables of a cell behind that of its latencies, with their headings: those that have rows.
pub(crate) fn further(cell: &Cell) -> impl Iterator<Item = (&'static str, Table)> {
    let tables = [
        (BOUNDS_TITLE, bounds_table(cell)),
        (STAGES_TITLE, stage_table(cell)),
    ];
    tables.into_iter().filter(|(_, table)| !table.is_empty())
}

/// The mean and the percentiles of the response with their intervals; empty where the run has too
/// few blocks of time to tell.
fn bounds_table(cell: &Cell) -> Table {
    let mut table = Table::new(["response", "value", "from", "to"]);
    let shares = [0.5, 0.66, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999];
    let quantiles = shares.map(Statistic::Quantile);
    let all: Vec<Statistic> = std::iter::once(Statistic::Mean).chain(quantiles).collect();
    for (statistic, estimate) in all.iter().zip(response_estimates(cell, &all)) {
        if let Some((value_ns, Some(bounds))) = estimate {
            let figures = [value_ns, bounds.low, bounds.high];
            let figures = figures.map(|ns| format::latency(microseconds(ns)));
            table.row(std::iter::once(statistic.to_string()).chain(figures));
        }
    }
    table
}

/// Statistics of the response of one run, with intervals where it has enough blocks of time.
pub(crate) fn response_estimates(cell: &Cell, all: &[Statistic]) -> Vec<Option<Estimate>> {
    let blocks = cell.blocks_of(Latency::Response);
    let rounds: Vec<_> = blocks.into_iter().collect();
    let pool = Pool::new(&rounds);
    let estimates = all.iter().map(|it| pool.estimate(*it, BOOTSTRAP_SEED));
    estimates.collect()
}

/// The latencies of a cell that have samples, with the names a reader sees.
pub(crate) fn latencies(cell: &Cell) -> Vec<(&'static str, &Histogram)> {
    let latency = &cell.latency;
    let handshake = &cell.handshake;
    let one_way_name = if latency.one_way.resolution_us() == Some(1000) {
        "one-way (1 ms)"
    } else {
        "one-way"
    };
    let mut all = vec![("response", &latency.response)];
    if cell.parameters.replies > 1 {
        all.push(("first reply", &latency.first_reply));
    }
    all.extend([
        ("service", &latency.service),
        ("send lag", &latency.send_lag),
    ]);
    all.push(("slot wait", &latency.slot_wait));
    all.extend(
        latency
            .one_way
            .histogram()
            .map(|histogram| (one_way_name, histogram)),
    );
    if cell.parameters.replies > 1 {
        // With one reply it is the service time.
        all.push(("round trip, seed", &latency.round_trip_seed));
    }
    all.extend([
        ("handshake response", &handshake.response),
        ("handshake", &handshake.total),
        ("  TCP", &handshake.tcp),
        ("  TLS", &handshake.tls),
        ("  upgrade", &handshake.upgrade),
        ("recovery", &cell.recovery.time),
    ]);
    if let Some(fan_out) = &cell.fan_out {
        all.extend([
            ("delivery", &fan_out.delivery),
            ("  first receiver", &fan_out.first_receiver),
            ("  median receiver", &fan_out.median_receiver),
            ("  last receiver", &fan_out.last_receiver),
        ]);
    }
    all.retain(|(_, histogram)| !histogram.is_empty());
    all
}

/// Latencies of a group in milliseconds, one column per client count, as in the tables of
/// uwebsocket-benchmark.
pub(crate) fn client_table(group: &Group<'_>, pick: Pick) -> Table {
    let mut table = client_header(group);
    let found: Vec<Quantiles> = group
        .cells
        .iter()
        .map(|cell| pick.of(cell).map(Quantiles::of).unwrap_or_default())
        .collect();
    let mut row = |name: &str, figure: fn(&Quantiles) -> Option<f64>| {
        let values = found
            .iter()
            .map(|quantiles| milliseconds_or_dash(figure(quantiles)));
        table.row(std::iter::once(format!("{name} (ms)")).chain(values));
    };
    row("mean", |found| found.mean_us);
    row("max", |found| found.max_us);
    row("min", |found| found.min_us);
    row("p50", |found| found.p50_us);
    row("p90", |found| found.p90_us);
    row("p99", |found| found.p99_us);
    row("p99.9", |found| found.p99_9_us);
    table
}

/// The counters of a group, one column per client count.
pub(crate) fn counter_table(group: &Group<'_>) -> Table {
    let mut table = client_header(group);
    let mut row = |name: &str, figure: &dyn Fn(&Cell) -> String| {
        let values = group.cells.iter().map(|cell| figure(cell));
        table.row(std::iter::once(name.to_owned()).chain(values));
    };
    row("verdict", &|cell| cell.assessment.verdict().to_string());
    row("messages sent", &|cell| format::count(cell.messages.sent));
    row("replies received", &|cell| {
        format::count(cell.messages.received)
    });
    row("lost", &|cell| format::count(cell.messages.lost));
    row("duplicate, reordered, corrupt", &|cell| {
        let messages = cell.messages;
        format!(
            "{}, {}, {}",
            messages.duplicate, messages.reordered, messages.corrupt
        )
    });
    row("errors", &|cell| format::count(cell.errors.values().sum()));
    row("sent per second", &|cell| {
        format::rate(cell.rate.sent_per_s)
    });
    row("all online after", &|cell| {
        latency_or_dash(cell.connects.all_online_ms.map(|ms| ms * 1e3))
    });
    row("send lag p99", &|cell| {
        latency_or_dash(Quantiles::of(&cell.latency.send_lag).p99_us)
    });
    row("server CPU per message", &|cell| {
        let server = cell.server.as_ref();
        latency_or_dash(
            server
                .and_then(|server| server.cpu_ns_per_message)
                .map(|ns| ns / 1e3),
        )
    });
    row("server memory at the end", &|cell| {
        let server = cell.server.as_ref();
        let rss_bytes = server.and_then(|server| server.rss_bytes);
        rss_bytes.map_or_else(dash, |bytes| format::bytes(bytes as f64))
    });
    table
}

/// One row a stage; empty where the rate does not change.
fn stage_table(cell: &Cell) -> Table {
    let header = ["stage", "messages/s"];
    let mut table = Table::new(header.into_iter().chain(STAGE_FIGURES));
    for (index, stage) in cell.stages.iter().enumerate() {
        if stage.length_s > 0.0 {
            let row = [stage_name(index, stage), stage_rate(stage)];
            let figures = stage_figures(stage, 1);
            table.row(row.into_iter().chain(figures));
        }
    }
    table
}

/// The number of a stage and its length.
pub(crate) fn stage_name(index: usize, stage: &Stage) -> String {
    let length = format::round_number(&format::latency(stage.length_s * 1e6));
    format!("{}: {length}", index + 1)
}

/// The rate that was asked for in a stage.
pub(crate) fn stage_rate(stage: &Stage) -> String {
    let (from, to) = (stage.from_per_s, stage.target_per_s);
    match from == to {
        true => format::rate(to),
        false => format!("{} to {}", format::rate(from), format::rate(to)),
    }
}

/// What became of its messages in so many rounds together, as [`STAGE_FIGURES`] names it.
pub(crate) fn stage_figures(stage: &Stage, rounds: usize) -> [String; 9] {
    let found = Quantiles::of(&stage.response);
    let count = |value: Option<u64>| value.map_or_else(dash, format::count);
    let sent_per_s = stage.sent_per_s().map(|sent| sent / rounds as f64);
    [
        count(stage.planned()),
        format::count(stage.sent),
        count(stage.unsent),
        format::count(stage.received),
        format::count(stage.lost),
        sent_per_s.map_or_else(dash, format::rate),
        latency_or_dash(found.p50_us),
        latency_or_dash(found.p99_us),
        latency_or_dash(found.max_us),
    ]
}

/// One row an interval, the first `INTERVAL_ROWS_MAX` of them.
pub(crate) fn interval_table(cell: &Cell) -> Table {
    let mut table = Table::new([
        "second",
        "sent",
        "received",
        "in flight",
        "response p50",
        "p99",
        "max",
        "one-way p50",
        "p99",
        "max",
        "server CPU",
        "server memory",
    ]);
    for interval in cell.intervals.iter().take(INTERVAL_ROWS_MAX) {
        let mut row = vec![
            format!("{:.0}", interval.start_s),
            format::count(interval.sent),
            format::count(interval.received),
            format::count(interval.in_flight),
        ];
        for latency in [interval.response, interval.one_way] {
            row.push(latency_or_dash(latency.map(|latency| latency.p50_us)));
            row.push(latency_or_dash(latency.map(|latency| latency.p99_us)));
            row.push(latency_or_dash(latency.map(|latency| latency.max_us)));
        }
        row.push(interval.server_cpu.map_or_else(dash, format::percent));
        let rss_bytes = interval.server_rss_bytes;
        row.push(rss_bytes.map_or_else(dash, |bytes| format::bytes(bytes as f64)));
        table.row(row);
    }
    let more = cell.intervals.len().saturating_sub(INTERVAL_ROWS_MAX);
    if more > 0 {
        table.row([format!("and {} more", format::count(more as u64))]);
    }
    table
}

/// Kind and count, most frequent first.
pub(crate) fn count_table(head: &str, counts: &BTreeMap<String, u64>) -> Table {
    let mut table = Table::new([head, "count"]);
    let mut sorted: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (kind, count) in sorted {
        table.row([kind.clone(), format::count(*count)]);
    }
    table
}

/// True if the one-way latency of a cell rests on timestamps of whole milliseconds.
pub(crate) fn is_coarse(group: &Group<'_>) -> bool {
    group
        .cells
        .iter()
        .any(|cell| cell.latency.one_way.resolution_us() == Some(1000))
}

/// Which latency a table or plot across client counts shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Client to server.
    OneWay,
    /// Intended send time to the last reply.
    Response,
    /// Actual send to each reply, as uwebsocket-benchmark counts it.
    RoundTripSeed,
}

impl Pick {
    /// The histogram, if it has samples.
    pub(crate) fn of(self, cell: &Cell) -> Option<&Histogram> {
        let histogram = match self {
            Self::OneWay => return cell.latency.one_way.histogram(),
            Self::Response => &cell.latency.response,
            Self::RoundTripSeed => &cell.latency.round_trip_seed,
        };
        (!histogram.is_empty()).then_some(histogram)
    }

    /// The figures of a second, which has none of uwebsocket-benchmark's own.
    pub(crate) fn in_second(self, interval: &Interval) -> Option<IntervalLatency> {
        match self {
            Self::OneWay => interval.one_way,
            Self::Response | Self::RoundTripSeed => interval.response,
        }
    }

    /// The name a reader sees as a heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::OneWay => "Server latency (one-way)",
            Self::Response => "Round trip latency",
            Self::RoundTripSeed => "Round trip latency as uwebsocket-benchmark counts it",
        }
    }

    /// The name in the title of a plot.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::OneWay => "Server latency (one-way)",
            Self::Response => "Round trip latency (response)",
            Self::RoundTripSeed => "Round trip latency (uwebsocket-benchmark)",
        }
    }

    /// What is measured, in one sentence without the full stop.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::OneWay => "time for a message to get to the server, one sample a message",
            Self::Response => {
                "time from the moment a message was due to the arrival of its last reply"
            }
            Self::RoundTripSeed => "time from the actual send to each reply, one sample a reply",
        }
    }
}

fn client_header(group: &Group<'_>) -> Table {
    Table::new(std::iter::once(String::new()).chain(group.cells.iter().map(|cell| clients(cell))))
}

fn latency_row(name: &str, histogram: &Histogram) -> Vec<String> {
    let found = Quantiles::of(histogram);
    let values = [
        found.mean_us,
        found.stddev_us,
        found.min_us,
        found.p50_us,
        found.p90_us,
        found.p99_us,
        found.p99_9_us,
        found.p99_99_us,
        found.max_us,
    ];
    let mut row = vec![name.to_owned()];
    row.extend(values.map(latency_or_dash));
    row.push(format::count(found.count));
    row
}

/// Over the ladder.
pub(crate) const LADDER_TITLE: &str = "Percentile ladder (p50 is the median, p100 the maximum)";
const LADDER: [&str; 12] = [
    "min", "mean", "stddev", "p50", "p66", "p75", "p80", "p90", "p95", "p98", "p99", "p100",
];
/// Over the table of intervals.
const BOUNDS_TITLE: &str = "Response with intervals of 95 %, by drawing blocks of time again";
/// Any will do: the same run has the same intervals.
const BOOTSTRAP_SEED: u64 = 1;
/// The figures of a stage.
pub(crate) const STAGE_FIGURES: [&str; 9] = [
    "planned", "sent", "unsent", "received", "lost", "sent/s", "p50", "p99", "max",
];
/// Over the table of stages.
const STAGES_TITLE: &str = "Stages, by the intended times of their messages";
/// Ten minutes: a page with more rows is slow, and the Run file has them all.
pub(crate) const INTERVAL_ROWS_MAX: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_way::OneWay;
    use crate::time_block::TimeBlock;

    #[test]
    fn the_ladder_has_every_rung_of_response_and_handshake() {
        let mut cell = Cell::default();
        for ms in 1..=100 {
            cell.latency.response.record(ms * 1_000_000);
            cell.handshake.total.record(ms * 10_000_000);
        }
        let markdown = ladder_table(&cell).to_markdown();
        let row = |name: &str| -> Vec<String> {
            let mut lines = markdown.lines();
            let row = lines.find(|line| line.starts_with(&format!("| {name} ")));
            let cells = row.unwrap().trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        };
        let rungs = |unit: &str, rungs: [&str; 12]| rungs.map(|rung| format!("{rung} {unit}"));
        let response = [
            "1.00", "50.5", "28.9", "50.0", "66.0", "75.0", "80.0", "90.0", "95.0", "98.0", "99.0",
            "100",
        ];
        assert_eq!(row("response")[1..], rungs("ms", response), "{markdown}");
        let handshake = row("handshake");
        assert_eq!(handshake.len(), 13, "{markdown}");
        assert_eq!(handshake[1..4], ["10.0 ms", "505 ms", "289 ms"]);
        assert_eq!(handshake[4..6], ["500 ms", "660 ms"]);
        assert_eq!(handshake[11..], ["990 ms", "1.00 s"]);
        for name in LADDER {
            assert!(markdown.lines().next().unwrap().contains(name), "{name}");
        }
    }

    #[test]
    fn one_way_and_round_trip_have_the_six_figures_of_seed_001() {
        let mut cell = Cell::default();
        cell.parameters.clients = 1000;
        let mut one_way = Histogram::new();
        for ms in 1..=100 {
            one_way.record(ms * 1_000_000);
            cell.latency.response.record(ms * 2_000_000);
        }
        cell.latency.one_way = OneWay::Measured {
            histogram: one_way,
            resolution_us: 1,
            clock: None,
        };
        let group = Group { cells: vec![&cell] };
        for (pick, times) in [(Pick::OneWay, 1.0), (Pick::Response, 2.0)] {
            let text = client_table(&group, pick).to_text();
            assert!(text.contains("1,000 clients"), "{text}");
            let figures = [
                ("mean", 50.5),
                ("max", 100.0),
                ("min", 1.0),
                ("p50", 50.0),
                ("p90", 90.0),
                ("p99", 99.0),
            ];
            for (name, ms) in figures {
                let start = format!("  {name} (ms) ");
                let row = text.lines().find(|line| line.starts_with(&start));
                let value: f64 = row.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
                // A bucket of the histogram is as wide as a thousandth.
                assert!((value / (ms * times) - 1.0).abs() < 2e-3, "{name}: {text}");
            }
        }
    }

    #[test]
    fn percentiles_have_intervals_as_far_as_there_are_samples_above_them() {
        let mut cell = Cell::default();
        for block in 0..10_u64 {
            let mut histogram = Histogram::new();
            (0..200_u64).for_each(|step| histogram.record((step + 1) * 10_000 + block * 1000));
            cell.blocks.push(TimeBlock::of(&histogram));
            cell.latency.response.merge(&histogram);
        }
        let text = bounds_table(&cell).to_text();
        // Of 2000 samples 20 are above p99, and 2 above p99.9.
        assert!(text.contains("p99 ") && !text.contains("p99.9"), "{text}");
        let mean = text.lines().find(|line| line.contains("mean")).unwrap();
        assert!(mean.contains("1.01 ms"), "{text}");
        cell.blocks.truncate(3);
        assert!(bounds_table(&cell).is_empty());
    }
}
