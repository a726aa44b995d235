//! The most that contestants stood: what searches for it found, and latency against load.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::axis::{Axis, Unit};
use crate::battle::Section;
use crate::cell::Cell;
use crate::chart::{Chart, Key, Mark, Panel};
use crate::format;
use crate::histogram::Histogram;
use crate::lineup::Lineup;
use crate::plots::Plot;
use crate::quantiles::{Quantiles, microseconds};
use crate::run::Run;
use crate::statistics::ranks::median;
use crate::table::Table;
use crate::tls::{self, TermsOf, Tls};

/// What one search found. Its tries are cells of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// Whose it is.
    pub contestant: String,
    /// Whether connections were made over TLS.
    pub tls: bool,
    /// Rounds follow each other, each with all contestants; from 1.
    pub round: u64,
    /// What was raised.
    pub over: Over,
    /// The highest value that kept the thresholds; `None` if none did.
    pub highest: Option<f64>,
    /// The lowest that did not; `None` if all that were tried did.
    pub lowest_failed: Option<f64>,
    /// Whether the highest kept them in a longer try, too.
    pub is_confirmed: bool,
    /// Why it is not the contestant's own limit, if it is not.
    pub limit: Option<String>,
}

/// What a search raises.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Messages per second over all connections, at their intended times.
    Rate,
    /// Connections.
    Connections,
}

impl Over {
    /// What a cell of the search was tried with.
    fn value(self, cell: &Cell) -> f64 {
        match self {
            Self::Rate => cell.parameters.rate_per_s.unwrap_or(0.0),
            Self::Connections => cell.parameters.clients as f64,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "messages/s",
            Self::Connections => "connections",
        }
    }
}

/// What the tables have in common.
pub(crate) const METHOD: &str = "A search doubles the load until the thresholds fail in two tries, \
    halves the gap until it is as small as asked for, and tries the highest that passed once more \
    for longer. A load passes if the thresholds hold and 99 % of the messages that were due were \
    sent and answered. Latencies count from intended times, so that a late generator can make a \
    load fail and never pass; where it may have done so, this is said. The processes stay the same \
    through a search. CPU is what they used of one processor, the generator's that of its threads.";

/// What was found, and every try of it.
pub(crate) fn sections(run: &Run) -> Vec<Section> {
    let mut sections = vec![found(run)];
    for ((over, contestant, tls), searches) in searches(run) {
        let mut table = Table::new([
            "round",
            over.name(),
            "sent/s",
            "received/s",
            "p50",
            "p99",
            "max",
            "lost",
            "CPU",
            "memory, peak",
            "generator's CPU",
            "outcome",
        ]);
        for capacity in searches {
            let mut cells = tries(run, capacity);
            cells.sort_by(|one, other| over.value(one).total_cmp(&over.value(other)));
            for cell in cells {
                table.row(try_row(capacity, cell));
            }
        }
        sections.push(Section {
            title: format!("Tries of {contestant}, {}", scheme(tls)),
            table,
            sentences: Vec::new(),
        });
    }
    sections
}

/// Latency against load, a panel for each scheme and a line for each contestant.
pub(crate) fn plots(run: &Run) -> Vec<Plot> {
    let Some(over) = run.capacities.first().map(|capacity| capacity.over) else {
        return Vec::new();
    };
    let lineup = Lineup::of(run);
    let mut legend = Vec::new();
    let mut sheets = Vec::new();
    // Both schemes have the same axes, because they are compared.
    let (mut low, mut high) = ((f64::INFINITY, f64::INFINITY), (0.0_f64, 0.0_f64));
    for tls in [false, true] {
        let searches = searches(run);
        let of_scheme = lineup
            .names()
            .filter_map(|name| Some((name, searches.get(&(over, name, tls))?)));
        let mut marks = Vec::new();
        for (contestant, searches) in of_scheme {
            let color = lineup.color(contestant);
            for (quantile, width) in [(0.5, 1.2), (0.99, 2.4)] {
                let points = points(run, searches, quantile);
                for &(x, y) in &points {
                    low = (low.0.min(x), low.1.min(y));
                    high = (high.0.max(x), high.1.max(y));
                }
                marks.extend(tried(points, curve(run, searches, quantile), color, width));
            }
            let rings = searches.iter().filter_map(|it| passed(run, it));
            marks.extend(rings.map(|at| Mark::Ring { at, color }));
            let entry = Key::solid(lineup.label(contestant), color);
            if !legend.contains(&entry) {
                legend.push(entry);
            }
        }
        if !marks.is_empty() {
            sheets.push((scheme(tls), marks));
        }
    }
    if high.0 <= 0.0 {
        return Vec::new();
    }
    let panel = |(title, marks): (&str, Vec<Mark>)| Panel {
        title: title.to_owned(),
        notes: Vec::new(),
        x: Axis::logarithmic(over.name(), Unit::Count, low.0, high.0),
        y: Axis::fitting(
            "response time, p50 thin, p99 thick",
            Unit::Latency,
            low.1,
            high.1,
        ),
        marks,
    };
    let chart = Chart {
        title: "Latency against load".to_owned(),
        subtitle: "A dot for every try of the searches, those that failed too; lines go through \
                   all samples of a load together; rings are the p99 of the highest loads that \
                   passed"
            .to_owned(),
        legend,
        panels: sheets.into_iter().map(panel).collect(),
    };
    vec![Plot {
        name: "latency-against-load".to_owned(),
        svg: chart.to_svg(),
    }]
}

type SearchKey<'a> = (Over, &'a str, bool);

/// The searches of each contestant, by rounds.
fn searches(run: &Run) -> BTreeMap<SearchKey<'_>, Vec<&Capacity>> {
    let mut searches: BTreeMap<SearchKey<'_>, Vec<&Capacity>> = BTreeMap::new();
    for capacity in &run.capacities {
        let key = (capacity.over, capacity.contestant.as_str(), capacity.tls);
        searches.entry(key).or_default().push(capacity);
    }
    searches
}

/// The cells of one search.
fn tries<'a>(run: &'a Run, capacity: &Capacity) -> Vec<&'a Cell> {
    let cells = run.cells().iter().filter(|cell| {
        cell.contest.as_ref().is_some_and(|contest| {
            contest.contestant == capacity.contestant
                && contest.tls == capacity.tls
                && contest.round == capacity.round
        })
    });
    cells.collect()
}

/// What the searches found, a row for each contestant.
pub(crate) fn found(run: &Run) -> Section {
    let over = run.capacities.first().map_or(Over::Rate, |it| it.over);
    let mut table = Table::new([
        "contestant".to_owned(),
        "scheme".to_owned(),
        "rounds".to_owned(),
        format!("highest {} that passed", over.name()),
        "of the rounds".to_owned(),
        "lowest that failed".to_owned(),
        "p50 there".to_owned(),
        "p99 there".to_owned(),
    ]);
    let mut sentences = Vec::new();
    for ((over, contestant, tls), searches) in searches(run) {
        let values = |of: fn(&Capacity) -> Option<f64>| -> Vec<f64> {
            let mut values: Vec<f64> = searches.iter().filter_map(|it| of(it)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        // Where no load kept the thresholds, and that was the contestant's doing, it stands none.
        let stood = |it: &Capacity| it.highest.or_else(|| it.limit.is_none().then_some(0.0));
        let (highest, failed) = (values(stood), values(|it| it.lowest_failed));
        let middle = |values: &[f64]| match values {
            [] => format::dash(),
            values => format::rate(median(values)),
        };
        let span = match highest.as_slice() {
            [first, .., last] => format!("{} to {}", format::rate(*first), format::rate(*last)),
            [_] | [] => format::dash(),
        };
        let there = there(run, over, &searches, &highest);
        table.row([
            contestant.to_owned(),
            scheme(tls).to_owned(),
            searches.len().to_string(),
            middle(&highest),
            span,
            middle(&failed),
            format::latency_or_dash(there.p50_us),
            format::latency_or_dash(there.p99_us),
        ]);
        sentences.extend(searches.iter().filter_map(|it| remark(it)));
    }
    sentences.extend(other_terms(run));
    Section {
        title: format!("The most {} that keep the thresholds", over.name()),
        table,
        sentences,
    }
}

/// The latencies of the round whose highest is the median, or next to it.
fn there(run: &Run, over: Over, searches: &[&Capacity], highest: &[f64]) -> Quantiles {
    if highest.is_empty() {
        return Quantiles::default();
    }
    let middle = median(highest);
    let distance = |it: &&&Capacity| it.highest.map_or(f64::MAX, |value| (value - middle).abs());
    let nearest = searches
        .iter()
        .min_by(|one, other| distance(one).total_cmp(&distance(other)));
    let found = nearest.and_then(|search| {
        let cells = tries(run, search).into_iter().rev();
        let mut at = cells.filter(|cell| Some(over.value(cell)) == search.highest);
        at.next().map(|cell| Quantiles::of(&cell.latency.response))
    });
    found.unwrap_or_default()
}

/// Who cannot be compared with the first because of TLS, and why.
fn other_terms(run: &Run) -> Vec<String> {
    let searches = searches(run).into_iter();
    let agreed = searches.map(|((_, contestant, _), searches)| {
        let cells = searches.into_iter().flat_map(|it| tries(run, it));
        let agreed = cells.flat_map(|cell| &cell.tls_agreed).map(Tls::terms);
        (contestant, agreed.collect::<TermsOf>())
    });
    let mut agreed = agreed.filter(|(_, terms)| !terms.is_empty());
    let Some((first, known)) = agreed.next() else {
        return Vec::new();
    };
    let others = agreed.filter(|(_, terms)| *terms != known);
    let told = others.map(|(other, terms)| {
        let (theirs, ours) = tls::difference(&terms, &known);
        format!(
            "{other} cannot be compared with {first}: its connections agreed on {theirs}, and not \
             on {ours}."
        )
    });
    told.collect()
}

/// What is to be known of a search beside its figures.
fn remark(capacity: &Capacity) -> Option<String> {
    let name = format!(
        "{}, {}, round {}",
        capacity.contestant,
        scheme(capacity.tls),
        capacity.round
    );
    if let Some(limit) = &capacity.limit {
        return Some(format!("{name}: it may stand more: {limit}."));
    }
    match (capacity.highest, capacity.lowest_failed) {
        (None, _) => Some(format!("{name}: no load kept the thresholds.")),
        (Some(_), None) => Some(format!(
            "{name}: all that was tried passed: raise `to` to find the limit."
        )),
        (Some(_), Some(_)) if !capacity.is_confirmed => {
            Some(format!("{name}: the longer try did not confirm it."))
        }
        (Some(_), Some(_)) => None,
    }
}

fn try_row(capacity: &Capacity, cell: &Cell) -> Vec<String> {
    let found = Quantiles::of(&cell.latency.response);
    let failed = cell.thresholds.iter().find(|threshold| !threshold.passed);
    let outcome = match failed {
        Some(threshold) => format!("{} ({})", threshold.expression, threshold.actual),
        None => cell.assessment.verdict().to_string(),
    };
    let memory = cell.server.as_ref().and_then(|it| it.rss_peak_bytes);
    vec![
        capacity.round.to_string(),
        format::rate(capacity.over.value(cell)),
        format::rate(cell.rate.sent_per_s),
        format::rate(cell.rate.received_per_s),
        format::latency_or_dash(found.p50_us),
        format::latency_or_dash(found.p99_us),
        format::latency_or_dash(found.max_us),
        format::count(cell.messages.lost),
        used(
            cell.server
                .as_ref()
                .and_then(|it| it.cpu_s.zip(it.observed_s)),
        ),
        memory.map_or_else(format::dash, |bytes| format::bytes(bytes as f64)),
        cell.generator
            .cpu_share
            .map_or_else(format::dash, format::percent),
        outcome,
    ]
}

/// Seconds of a processor in so many seconds.
fn used(cpu: Option<(f64, f64)>) -> String {
    let cpu = cpu.filter(|(_, observed_s)| *observed_s > 0.0);
    cpu.map_or_else(format::dash, |(cpu_s, observed_s)| {
        format::percent(cpu_s / observed_s)
    })
}

/// A dot for each try, and a line through what all of a load have together.
fn tried(
    points: Vec<(f64, f64)>,
    line: Vec<(f64, f64)>,
    color: &'static str,
    width: f64,
) -> [Mark; 2] {
    let line = Mark::Line {
        points: line.into_iter().map(Some).collect(),
        color,
        width,
    };
    let radius = width + 1.0;
    let dots = Mark::Dots {
        points,
        color,
        radius,
    };
    [line, dots]
}

/// A quantile of the response time of each try, microseconds, by its load.
fn points(run: &Run, searches: &[&Capacity], quantile: f64) -> Vec<(f64, f64)> {
    let tries = searches.iter().flat_map(|capacity| {
        let tries = tries(run, capacity).into_iter();
        tries.map(|cell| (capacity.over.value(cell), &cell.latency.response))
    });
    let point = |(load, histogram): (f64, &Histogram)| {
        let value_ns = histogram.quantile_ns(quantile)?;
        Some((load, microseconds(value_ns as f64)))
    };
    tries.filter_map(point).collect()
}

/// The same of all tries at a load together, by load.
fn curve(run: &Run, searches: &[&Capacity], quantile: f64) -> Vec<(f64, f64)> {
    let mut merged: Vec<(f64, Histogram)> = Vec::new();
    for capacity in searches {
        for cell in tries(run, capacity) {
            let load = capacity.over.value(cell);
            match merged.iter_mut().find(|(known, _)| *known == load) {
                Some((_, all)) => all.merge(&cell.latency.response),
                None => merged.push((load, cell.latency.response.clone())),
            }
        }
    }
    merged.sort_by(|one, other| one.0.total_cmp(&other.0));
    let point = |(load, all): (f64, Histogram)| {
        Some((load, microseconds(all.quantile_ns(quantile)? as f64)))
    };
    merged.into_iter().filter_map(point).collect()
}

/// The highest load that passed in a search, and the p99 of its last try there, microseconds.
fn passed(run: &Run, capacity: &Capacity) -> Option<(f64, f64)> {
    let highest = capacity.highest?;
    let tries = tries(run, capacity);
    let mut there = tries
        .iter()
        .rev()
        .filter(|cell| capacity.over.value(cell) == highest);
    let p99_ns = there.next()?.latency.response.quantile_ns(0.99)?;
    Some((highest, microseconds(p99_ns as f64)))
}

fn scheme(tls: bool) -> &'static str {
    if tls { "wss" } else { "ws" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::Contest;
    use crate::environment::Threshold;
    use crate::run::Content;
    use crate::tls::tests::tls;

    fn try_of(rate: f64, ms: u64) -> Cell {
        let mut cell = Cell {
            contest: Some(Contest {
                contestant: "a".to_owned(),
                round: 1,
                ..Contest::default()
            }),
            ..Cell::default()
        };
        cell.parameters.rate_per_s = Some(rate);
        cell.latency.response.record(ms * 1_000_000);
        cell.thresholds = vec![Threshold {
            expression: "p(99)<5ms".to_owned(),
            actual: format!("{ms} ms"),
            passed: ms < 5,
        }];
        cell
    }

    fn run() -> Run {
        Run {
            content: Content::Bench(vec![
                try_of(1000.0, 1),
                try_of(2000.0, 2),
                try_of(4000.0, 900),
                try_of(2000.0, 4),
            ]),
            capacities: vec![Capacity {
                contestant: "a".to_owned(),
                tls: false,
                round: 1,
                over: Over::Rate,
                highest: Some(2000.0),
                lowest_failed: Some(4000.0),
                is_confirmed: true,
                limit: None,
            }],
            ..Run::default()
        }
    }

    #[test]
    fn what_was_found_and_every_try_have_a_table() {
        let run = run();
        let sections = sections(&run);
        let found = sections[0].table.to_text();
        for text in ["2,000", "4,000", "4.00 ms"] {
            assert!(found.contains(text), "{text}: {found}");
        }
        let tries = sections[1].table.to_text();
        assert!(tries.contains("p(99)<5ms (900 ms)"), "{tries}");
        assert_eq!(sections[0].sentences, [""; 0]);
        assert_eq!(Run::parse(&run.to_json(), "run.json"), Ok(run));
    }

    #[test]
    fn contestants_with_other_tls_are_said() {
        let mut run = run();
        run.capacities.push(Capacity {
            contestant: "b".to_owned(),
            ..run.capacities[0].clone()
        });
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        let mut other = try_of(1000.0, 1);
        other.contest.as_mut().unwrap().contestant = "b".to_owned();
        cells.push(other);
        for cell in cells.iter_mut() {
            cell.tls_agreed = vec![tls("1.3", 10, 0)];
        }
        cells[4].tls_agreed = vec![tls("1.3", 1, 9)];
        let said = "b cannot be compared with a: its connections agreed on full handshakes and \
                    resumed sessions, and not on full handshakes.";
        assert!(sections(&run)[0].sentences.contains(&said.to_owned()));
    }

    #[test]
    fn a_limit_that_is_not_the_contestants_is_said() {
        let mut run = run();
        run.capacities[0].limit = Some("the generator was the limit".to_owned());
        let said = sections(&run)[0].sentences.join(" ");
        assert!(said.contains("it may stand more: the generator"), "{said}");
        run.capacities[0].limit = None;
        run.capacities[0].lowest_failed = None;
        let said = sections(&run)[0].sentences.join(" ");
        assert!(said.contains("raise `to`"), "{said}");
        run.rules = Some(crate::battle::tests::rules());
        let short = crate::pull_request::pull_request(&run);
        let (short, _) = short.split_once("<details>").unwrap();
        assert!(short.contains("all that was tried passed"), "{short}");
    }

    #[test]
    fn every_try_is_drawn_and_the_curve_has_each_load_once() {
        let run = run();
        let searches = [&run.capacities[0]];
        let of_load = |points: Vec<(f64, f64)>| -> Vec<(f64, f64)> {
            let milliseconds = points
                .into_iter()
                .map(|(load, us)| (load, (us / 1e3).round()));
            milliseconds.collect()
        };
        // Two tries at one load are two points, and no mean of them.
        assert_eq!(
            of_load(points(&run, &searches, 0.99)),
            [(1000.0, 1.0), (2000.0, 2.0), (4000.0, 900.0), (2000.0, 4.0)]
        );
        assert_eq!(
            of_load(curve(&run, &searches, 0.99)),
            [(1000.0, 1.0), (2000.0, 4.0), (4000.0, 900.0)]
        );
        let svg = &plots(&run)[0].svg;
        // Of the median and of the p99, and the ring.
        assert_eq!(svg.matches("<circle").count(), 2 * 4 + 1, "{svg}");
        assert!(plots(&run)[0].svg.contains("Latency against load"));
    }
}
