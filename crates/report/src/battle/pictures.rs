//! Pictures of a battle: each metric as bars with intervals, and latencies by percentile.

use super::ranking::ROUNDS_MIN;
use super::standing::Standing;
use super::{Field, Rules, circle, metrics, names};
use crate::axis::{Axis, Unit};
use crate::bar_chart::{Bar, BarChart, BarPanel};
use crate::chart::{Chart, FAINT_INK, Key, Mark, Panel, Stroke};
use crate::format;
use crate::histogram::Histogram;
use crate::lineup::Lineup;
use crate::metric::{Figure, Latency, Metric};
use crate::plot_data::{curve_end, percentile_curve};
use crate::plots::Plot;
use crate::quantiles::microseconds;
use crate::run::Run;

/// What decides first, then by percentile, then the other metrics.
pub(crate) fn plots(run: &Run) -> Vec<Plot> {
    let Some(rules) = run.rules.as_ref().filter(|_| run.capacities.is_empty()) else {
        return Vec::new();
    };
    let lineup = Lineup::of(run);
    let fields = fields(run, rules, &lineup);
    let metrics = metrics(rules);
    let mut plots: Vec<Plot> = Vec::new();
    let bars = |metric: &Metric, what: &str| bars(*metric, what, &fields, &lineup);
    plots.extend(metrics.first().and_then(|it| bars(it, PRIMARY_METRIC)));
    let mut latencies = vec![Latency::Response];
    for metric in &metrics {
        if let Metric::Latency(latency, _) = metric
            && !latencies.contains(latency)
        {
            latencies.push(*latency);
        }
    }
    plots.extend(
        latencies
            .iter()
            .filter_map(|it| percentiles(*it, &fields, &lineup)),
    );
    let others = metrics.iter().skip(1);
    plots.extend(others.filter_map(|it| bars(it, OTHER_METRIC)));
    plots
}

/// The contestants under one load, in the order of the lineup.
struct Load<'a> {
    title: String,
    entries: Vec<Entry<'a>>,
}

/// One of them.
struct Entry<'a> {
    standing: Standing<'a>,
    /// Why it is not ranked with the others; `None` where it is.
    objection: Option<String>,
    /// Why some of its rounds are not, where others are.
    remark: Option<String>,
}

/// Each load with ws before wss, so that they lie side by side.
fn fields<'a>(run: &'a Run, rules: &Rules, lineup: &Lineup<'a>) -> Vec<Load<'a>> {
    let mut fields = Field::all(run);
    fields.sort_by_key(|field| {
        let (parameters, tls) = field.common();
        (
            parameters.message_bytes,
            parameters.clients,
            parameters.key(),
            tls,
        )
    });
    let load = |(field, title): (&Field<'a>, String)| {
        let standings = field.standings(run.environment.seed);
        let entries = lineup.names().filter_map(|name| {
            let standing = standings.iter().find(|it| it.contestant() == name)?;
            Some(entry(standing, &standings, rules))
        });
        Load {
            title,
            entries: entries.collect(),
        }
    };
    fields.iter().zip(names(&fields)).map(load).collect()
}

fn entry<'a>(standing: &Standing<'a>, all: &[Standing<'a>], rules: &Rules) -> Entry<'a> {
    let ranked = standing.ranked().count();
    let standing = &match ranked {
        0 => standing.with_all_rounds(),
        _ => standing.clone(),
    };
    // What the tables do not rank is not drawn as if they did; one alone is ranked with nobody.
    if ranked == 0 || (ranked < ROUNDS_MIN && all.len() > 1) {
        let too_few = format!("not ranked with fewer than {ROUNDS_MIN} ranked rounds");
        let objection = match standing.remark() {
            Some(remark) if all.len() > 1 => format!("{too_few}; {remark}"),
            Some(remark) => remark,
            None => too_few,
        };
        return Entry {
            standing: standing.clone(),
            objection: Some(objection),
            remark: None,
        };
    }
    let circles = circle::circles(all, rules.control.as_deref());
    let is_in = |circle: &circle::Circle<'_, '_>| {
        let mut members = circle.members.iter();
        members.any(|it| it.contestant() == standing.contestant())
    };
    let objection = match circles.split_first() {
        Some((first, others)) if !is_in(first) => {
            let other = others.iter().find(|other| is_in(other));
            other.map(|other| first.objection_to(other))
        }
        Some(_) | None => None,
    };
    Entry {
        standing: standing.clone(),
        objection,
        remark: standing.remark(),
    }
}

/// One metric of all contestants under all loads; `None` where nobody has it.
fn bars(metric: Metric, what: &str, fields: &[Load<'_>], lineup: &Lineup<'_>) -> Option<Plot> {
    let (unit, scale) = unit(metric);
    let mut remarks = Remarks::default();
    let mut panels = Vec::new();
    let (mut value_max, mut end) = (0.0_f64, 0.0_f64);
    for field in fields {
        let mut bars = Vec::new();
        for entry in &field.entries {
            let name = entry.standing.contestant();
            let estimate = entry.standing.estimate(metric);
            let told = estimate.map_or_else(format::dash, |it| metric.estimate(it.0, it.1));
            let value = estimate.map(|(value, _)| value * scale);
            let bounds = estimate.and_then(|(_, bounds)| bounds);
            let bounds = bounds.map(|it| (it.low * scale, it.high * scale));
            value_max = value_max.max(value.unwrap_or(0.0));
            end = end.max(bounds.map_or(0.0, |(_, high)| high));
            let said = entry.objection.as_ref().or(entry.remark.as_ref());
            let mark = said.map_or_else(String::new, |said| remarks.mark(&field.title, said));
            bars.push(Bar {
                name: lineup.label(name),
                value,
                bounds,
                text: format!("{told}{mark}"),
                color: lineup.color(name),
                is_hatched: entry.objection.is_some(),
                is_reference: lineup.is_control(name) && entry.objection.is_none(),
            });
        }
        panels.push(BarPanel {
            title: field.title.clone(),
            bars,
        });
    }
    if value_max <= 0.0 {
        return None;
    }
    // An interval of few rounds may be wide beyond measure: its text says how far it goes.
    let high = end.min(value_max * WHISKER_MAX).max(value_max) * 1.02;
    let direction = match metric.is_better_high() {
        true => "more is better",
        false => "less is better",
    };
    let chart = BarChart {
        title: format!("{metric}: {direction}"),
        subtitle: format!("{SAMPLES}, with their intervals of 95 %"),
        axis: Axis::linear("", unit, 0.0, high),
        panels,
        remarks: remarks.lines(),
    };
    Some(Plot {
        name: format!("{what}{}", metric.to_string().replace([' ', '.'], "-")),
        svg: chart.to_svg(),
    })
}

/// How a metric is drawn, and what its values are multiplied by for that.
fn unit(metric: Metric) -> (Unit, f64) {
    match metric {
        Metric::Latency(..) | Metric::Figure(Figure::ServerCpuPerMessage) => (Unit::Latency, 1e-3),
        Metric::Figure(Figure::OnlineS | Figure::DurationS) => (Unit::Seconds, 1.0),
        Metric::Figure(Figure::ServerMemoryPeak | Figure::ServerMemoryPerConnection) => {
            (Unit::Bytes, 1.0)
        }
        Metric::Figure(Figure::Reach | Figure::Recovered | Figure::ServerCpu) => {
            (Unit::Percent, 100.0)
        }
        Metric::Figure(_) => (Unit::Count, 1.0),
    }
}

/// Reasons with their numbers, each once for all loads it is true of.
#[derive(Default)]
struct Remarks {
    /// A reason and the loads.
    all: Vec<(String, Vec<String>)>,
}

impl Remarks {
    fn mark(&mut self, field: &str, said: &str) -> String {
        let place = match self.all.iter().position(|(known, _)| known == said) {
            Some(place) => place,
            None => {
                self.all.push((said.to_owned(), Vec::new()));
                self.all.len() - 1
            }
        };
        let fields = &mut self.all[place].1;
        if fields.last().is_none_or(|last| last != field) {
            fields.push(field.to_owned());
        }
        format!(" ({})", place + 1)
    }

    fn lines(&self) -> Vec<String> {
        let all = self.all.iter().enumerate();
        all.map(|(index, (said, fields))| format!("({}) {}: {said}", index + 1, fields.join("; ")))
            .collect()
    }
}

/// A latency by percentile, a panel for each load and a line for each contestant.
fn percentiles(latency: Latency, fields: &[Load<'_>], lineup: &Lineup<'_>) -> Option<Plot> {
    let mut sheets: Vec<(&str, Vec<(&Entry<'_>, Histogram)>)> = Vec::new();
    for field in fields {
        let entries = field.entries.iter();
        let lines = entries.filter_map(|it| Some((it, it.standing.merged(latency)?)));
        let lines: Vec<_> = lines.collect();
        if !lines.is_empty() {
            sheets.push((&field.title, lines));
        }
    }
    let all_lines = || sheets.iter().flat_map(|(_, lines)| lines);
    let axes = percentile_axes(all_lines().map(|(_, all)| all))?;
    let drawn: Vec<&str> = all_lines()
        .map(|(it, _)| it.standing.contestant())
        .collect();
    let end = curve_end(all_lines().map(|(_, all)| all.count()));
    let end = end.map_or_else(String::new, |end| format!("; {end}"));
    let is_dashed = all_lines().any(|(it, _)| it.objection.is_some());
    let entry = |name: &str| Key {
        name: lineup.label(name),
        color: lineup.color(name),
        stroke: stroke(true, lineup.is_repeated(name)),
    };
    let names = lineup.names().filter(|name| drawn.contains(name));
    let mut legend: Vec<Key> = names.map(entry).collect();
    if is_dashed {
        legend.push(Key {
            name: "dashed: not ranked, the reason is with the bars".to_owned(),
            color: FAINT_INK,
            stroke: Stroke::Dashed,
        });
    }
    let name = latency.name();
    let chart = Chart {
        title: format!("{name} by percentile"),
        subtitle: format!("{SAMPLES}; the tail is stretched, as HdrHistogram plots it{end}"),
        legend,
        panels: sheets
            .iter()
            .map(|(title, lines)| percentile_panel(title, lines, &axes, lineup))
            .collect(),
    };
    Some(Plot {
        name: format!("battle_{}_percentiles", name.replace('.', "-")),
        svg: chart.to_svg(),
    })
}

/// Dashes are for who is not ranked, dots for who has the colour of another.
fn stroke(is_ranked: bool, is_repeated: bool) -> Stroke {
    match (is_ranked, is_repeated) {
        (true, false) => Stroke::Solid,
        (false, false) => Stroke::Dashed,
        (true, true) => Stroke::Dotted,
        (false, true) => Stroke::DashDotted,
    }
}

/// Axes that all panels share, because they are compared; `None` where there is nothing to draw.
fn percentile_axes<'a>(all: impl Iterator<Item = &'a Histogram>) -> Option<(Axis, Axis)> {
    let (mut low, mut high, mut last) = (f64::INFINITY, 0.0_f64, 2.0_f64);
    for histogram in all {
        low = low.min(microseconds(histogram.min_ns()?.max(1) as f64));
        high = high.max(microseconds(histogram.max_ns()?.max(1) as f64));
        last = last.max(histogram.count() as f64);
    }
    (high > 0.0).then(|| {
        (
            Axis::logarithmic("percentile", Unit::Percentile, 1.0, last),
            Axis::fitting("latency", Unit::Latency, low, high),
        )
    })
}

fn percentile_panel(
    title: &str,
    lines: &[(&Entry<'_>, Histogram)],
    (x, y): &(Axis, Axis),
    lineup: &Lineup<'_>,
) -> Panel {
    let mut marks = Vec::new();
    for (entry, all) in lines {
        let points = percentile_curve(all);
        let name = entry.standing.contestant();
        marks.push(Mark::Broken {
            points,
            color: lineup.color(name),
            width: 2.0,
            stroke: stroke(entry.objection.is_none(), lineup.is_repeated(name)),
        });
    }
    Panel {
        title: title.to_owned(),
        notes: Vec::new(),
        x: x.clone(),
        y: y.clone(),
        marks,
    }
}

/// What the file of the metric that decides begins with.
const PRIMARY_METRIC: &str = "battle_primary_";
/// What the files of the others begin with.
pub(crate) const OTHER_METRIC: &str = "battle_column_";
/// What pictures are made of.
const SAMPLES: &str = "All ranked rounds together, or all rounds where none is ranked";
/// A whisker is drawn up to this multiple of the largest value.
const WHISKER_MAX: f64 = 1.6;

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use crate::run::Content;
    use crate::verdict::Verdict;

    /// The bars that are hatched and the lines that are broken, legends included.
    fn unranked(run: &Run) -> (usize, usize) {
        let plots = plots(run);
        let count = |name: &str, what: &str| {
            let mut plots = plots.iter().filter(|plot| plot.name.starts_with(name));
            plots.next().unwrap().svg.matches(what).count()
        };
        (
            count("battle_primary", "fill=\"url(#hatch"),
            count("battle_response", "stroke-dasharray=\"7 4\""),
        )
    }

    #[test]
    fn who_is_not_ranked_is_drawn_in_one_way_however_many_rounds_there_are() {
        let two = [("a", 2.0), ("b", 2.4)];
        assert_eq!(unranked(&tests::run(&two, 4)), (0, 0));
        // Two of each, and what they mean.
        assert_eq!(unranked(&tests::run(&two, 2)), (3, 3));
        let mut run = tests::run(&two, 4);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle")
        };
        cells[0].assessment.add(Verdict::Invalid, "late");
        assert_eq!(unranked(&run), (2, 2));
        // Each keeps its colour.
        let unranked_run = tests::run(&two, 2);
        let lineup = Lineup::of(&unranked_run);
        for plot in plots(&unranked_run).iter().take(2) {
            for (name, _) in two {
                let color = lineup.color(name);
                let line = format!("stroke=\"{color}\"");
                assert!(plot.svg.contains(&line), "{name}: {}", plot.svg);
            }
        }
        // Nobody is there to be ranked with.
        assert_eq!(unranked(&tests::run(&two[..1], 1)), (0, 0));
    }

    #[test]
    fn a_reason_names_each_load_once() {
        let mut remarks = Remarks::default();
        let marks = ["ws", "ws", "wss"].map(|field| remarks.mark(field, "few"));
        assert_eq!(marks, [" (1)", " (1)", " (1)"]);
        assert_eq!(remarks.lines(), ["(1) ws; wss: few"]);
    }

    #[test]
    fn panels_side_by_side_have_one_scale() {
        let mut run = tests::run(&[("a", 2.0)], 1);
        let mut slow = tests::run(&[("a", 90.0)], 1).cells()[0].clone();
        slow.contest.as_mut().unwrap().tls = true;
        let Content::Bench(cells) = &mut run.content else {
            panic!("a battle")
        };
        cells.push(slow);
        let plots = plots(&run);
        let curves = plots.iter().find(|it| it.name.contains("percentiles"));
        let svg = &curves.unwrap().svg;
        // A tick for 2 ms and one for 50 ms in both of them.
        for tick in [">2 ms<", ">50 ms<"] {
            assert_eq!(svg.matches(tick).count(), 2, "{tick}: {svg}");
        }
    }
}
