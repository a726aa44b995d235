//! The course of long cells: what went in and out, how soon, and what it took, on one time axis.

use crate::axis::{Axis, Unit};
use crate::cell::{Cell, Parameters};
use crate::chart::{Chart, Mark, Panel};
use crate::groups;
use crate::interval::{Interval, IntervalLatency};
use crate::palette::{BLUE, ORANGE};
use crate::plots::Plot;
use crate::run::Run;
use crate::sentences;

/// A picture for each contestant and load whose cells are long enough to have one: ws and wss in
/// one, in two colours.
pub(crate) fn plots(run: &Run) -> Vec<Plot> {
    let mut courses: Vec<(Key<'_>, Vec<&Cell>)> = Vec::new();
    for cell in run.cells().iter().filter(|cell| is_long(cell)) {
        let Some(key) = Key::of(cell) else { continue };
        match courses.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push(cell),
            None => courses.push((key, vec![cell])),
        }
    }
    courses
        .iter()
        .map(|(key, cells)| plot(key, cells))
        .collect()
}

/// What the cells of one picture have in common.
#[derive(PartialEq)]
struct Key<'a> {
    contestant: &'a str,
    round: u64,
    parameters: &'a Parameters,
}

impl<'a> Key<'a> {
    fn of(cell: &'a Cell) -> Option<Self> {
        let contest = cell.contest.as_ref()?;
        Some(Self {
            contestant: &contest.contestant,
            round: contest.round,
            parameters: &cell.parameters,
        })
    }
}

fn is_long(cell: &Cell) -> bool {
    let end = cell
        .intervals
        .last()
        .map(|last| last.start_s + last.length_s);
    end.is_some_and(|end_s| end_s >= LONG_S)
}

fn plot(key: &Key<'_>, cells: &[&Cell]) -> Plot {
    let mut cells = cells.to_vec();
    cells.sort_by_key(|cell| is_secure(cell));
    let memory = cells.iter().filter_map(|cell| {
        let slope = sentences::memory_slope(cell)?;
        Some(format!("{} memory: {slope}", scheme(cell)))
    });
    let memory: Vec<String> = memory.collect();
    let chart = Chart {
        title: format!(
            "{}, round {}: {} connections, {}",
            key.contestant,
            key.round,
            key.parameters.clients,
            groups::described(key.parameters)
        ),
        subtitle: memory.join(". "),
        legend: cells
            .iter()
            .map(|cell| (scheme(cell).to_owned(), color(cell)))
            .collect(),
        panels: CURVES
            .iter()
            .filter_map(|curve| panel(curve, &cells))
            .collect(),
    };
    let contestant = key.contestant.replace('/', "_");
    Plot {
        name: format!(
            "course_{contestant}_{}_round{}",
            key.parameters.key(),
            key.round
        ),
        svg: chart.to_svg(),
    }
}

/// One thing that is drawn over time.
struct Curve {
    title: &'static str,
    label: &'static str,
    unit: Unit,
    /// Its value in a second.
    value: fn(&Interval) -> Option<f64>,
    /// Of the seconds that share a point of a long course.
    fold: fn(&[f64]) -> f64,
}

type Points = Vec<Option<(f64, f64)>>;

/// Those of WebSocketListener's soaks, and what a reader asks for beside them.
const CURVES: [Curve; 6] = [
    Curve {
        title: "Replies",
        label: "replies a second",
        unit: Unit::Count,
        value: |it| (it.length_s > 0.0).then(|| it.received as f64 / it.length_s),
        fold: mean,
    },
    Curve {
        title: "Connections",
        label: "connections up",
        unit: Unit::Count,
        value: |it| Some(it.connected as f64),
        fold: lowest,
    },
    Curve {
        title: "Response time, median",
        label: "p50 of each second",
        unit: Unit::Latency,
        value: |it| latency(it, |latency| latency.p50_us),
        fold: mean,
    },
    Curve {
        title: "Response time, p99",
        label: "p99 of each second",
        unit: Unit::Latency,
        value: |it| latency(it, |latency| latency.p99_us),
        fold: highest,
    },
    Curve {
        title: "CPU of the server",
        label: "processors in use, %",
        unit: Unit::Percent,
        value: |it| it.server_cpu.map(|cores| cores * 100.0),
        fold: mean,
    },
    Curve {
        title: "Memory of the server",
        label: "resident, MiB",
        unit: Unit::Count,
        value: |it| it.server_rss_bytes.map(|bytes| bytes as f64 / MIB),
        fold: highest,
    },
];

fn latency(interval: &Interval, figure: fn(&IntervalLatency) -> f64) -> Option<f64> {
    interval.response.as_ref().map(figure)
}

/// One curve of all cells; `None` where no cell has it.
fn panel(curve: &Curve, cells: &[&Cell]) -> Option<Panel> {
    let lines: Vec<(Points, &'static str)> = cells
        .iter()
        .map(|cell| (points(curve, cell), color(cell)))
        .collect();
    let values = lines.iter().flat_map(|(points, _)| points.iter().flatten());
    let (mut high, mut end_s) = (0.0_f64, 0.0_f64);
    for &(at_s, value) in values {
        (high, end_s) = (high.max(value), end_s.max(at_s));
    }
    if high <= 0.0 {
        return None;
    }
    Some(Panel {
        title: curve.title.to_owned(),
        notes: Vec::new(),
        x: Axis::linear("time since the first send", Unit::Seconds, 0.0, end_s),
        y: Axis::linear(curve.label, curve.unit, 0.0, high * 1.05),
        marks: lines
            .into_iter()
            .map(|(points, color)| Mark::Line {
                points,
                color,
                width: 1.4,
            })
            .collect(),
    })
}

/// The whole seconds of sending; those of a long course share points, 450 at most, so that
/// each is a pixel wide and no spike falls between two.
fn points(curve: &Curve, cell: &Cell) -> Points {
    let sending = cell
        .intervals
        .iter()
        .filter(|it| it.length_s > 0.5 && it.start_s + it.length_s <= cell.rate.duration_s + 0.05);
    let sending: Vec<&Interval> = sending.collect();
    let of_each = sending.len().div_ceil(POINTS_MAX).max(1);
    let point = |seconds: &[&Interval]| {
        let (first, last) = (seconds.first()?, seconds.last()?);
        let middle_s = f64::midpoint(first.start_s, last.start_s + last.length_s);
        let values: Vec<f64> = seconds.iter().filter_map(|it| (curve.value)(it)).collect();
        (!values.is_empty()).then(|| (middle_s, (curve.fold)(&values)))
    };
    sending.chunks(of_each).map(point).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn is_secure(cell: &Cell) -> bool {
    cell.contest.as_ref().is_some_and(|contest| contest.tls)
}

fn scheme(cell: &Cell) -> &'static str {
    if is_secure(cell) { "wss" } else { "ws" }
}

fn color(cell: &Cell) -> &'static str {
    if is_secure(cell) { ORANGE } else { BLUE }
}

/// Shorter cells have their pictures per second.
const LONG_S: f64 = 30.0;
const POINTS_MAX: usize = 450;
const MIB: f64 = 1024.0 * 1024.0;

#[cfg(test)]
mod tests {
    use super::super::battle::tests;
    use super::*;
    use crate::run::Content;

    fn run(seconds: usize) -> Run {
        let mut run = tests::run(&[("a", 1.0)], 1);
        let mut cells = run.cells().to_vec();
        cells.push(cells[0].clone());
        for (index, cell) in cells.iter_mut().enumerate() {
            cell.contest.as_mut().unwrap().tls = index == 1;
            cell.rate.duration_s = seconds as f64;
            let second = |index: usize| Interval {
                start_s: index as f64,
                length_s: 1.0,
                received: 1000,
                connected: 100,
                server_cpu: Some(0.5),
                server_rss_bytes: Some(30 << 20),
                ..Interval::default()
            };
            cell.intervals = (0..seconds).map(second).collect();
        }
        run.content = Content::Bench(cells);
        run
    }

    #[test]
    fn both_schemes_of_a_long_cell_are_in_one_picture() {
        let plots = plots(&run(4000));
        assert_eq!(plots.len(), 1);
        let svg = &plots[0].svg;
        for text in [
            "Connections",
            "CPU of the server",
            "Memory of the server",
            ">wss<",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        // What no cell has is not drawn.
        assert!(!svg.contains("Response time"));
        assert!(svg.len() < 200_000, "{}", svg.len());
    }

    #[test]
    fn short_cells_have_no_course() {
        assert!(plots(&run(10)).is_empty());
    }
}
