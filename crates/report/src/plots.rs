//! The plots of a run as SVG, and any SVG of ours as PNG.

use std::sync::{Arc, LazyLock};

use resvg::{tiny_skia, usvg};

use crate::axis::{Axis, Unit};
use crate::battle;
use crate::capacity;
use crate::cell::Cell;
use crate::chart::{Chart, Key, Mark, Panel};
use crate::course;
use crate::format;
use crate::groups::{Group, judged};
use crate::heat_map;
use crate::histogram::Histogram;
use crate::interval::IntervalLatency;
use crate::palette::{BLUE, GREEN, GREY, ORANGE, VERMILLION, series_color};
use crate::plot_data::{Bin, curve_end, log_bins, percentile_curve, tail_bins, value_range};
use crate::quantiles::Quantiles;
use crate::rolling::{rolling_label, rolling_means};
use crate::run::Run;
use crate::sentences;
use crate::tables::Pick;

/// A picture with the name of its file, without extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plot {
    /// Name for a file: what is drawn and the parameters it is drawn for.
    pub name: String,
    /// The picture as an SVG document.
    pub svg: String,
}

/// Every plot of a run: per group of cells side by side, then per cell.
pub fn plots(run: &Run) -> Vec<Plot> {
    let mut plots = capacity::plots(run);
    if !plots.is_empty() {
        // What each try looked like is on the page; pictures of all of them are too many.
        return plots;
    }
    plots.extend(battle::plots(run));
    plots.extend(course::plots(run));
    plots.extend(run.cells().iter().filter_map(heat_map::plot));
    for group in Group::all(run) {
        plots.extend(group_plots(&group.cells, &group.title(), &group.key()));
        if group.cells.len() > 1 {
            for cell in &group.cells {
                let title = format!("{}, {}", judged(cell), group.title());
                plots.extend(group_plots(&[cell], &title, &cell.key()));
            }
        }
    }
    plots
}

/// The picture as PNG, `scale` pixels to a unit of the SVG, or fewer where these would be more than
/// [`PIXELS_MAX`]: names and numbers of contestants come from files and make sheets of any size.
pub fn png(svg: &str, scale: f32) -> Option<Vec<u8>> {
    let tree = usvg::Tree::from_str(svg, &options()).ok()?;
    let area = tree.size().width() * tree.size().height();
    let scale = scale.min((PIXELS_MAX as f32 / area).sqrt());
    let size = tree.size().to_int_size().scale_by(scale)?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height())?;
    let transform = tiny_skia::Transform::from_scale(scale, scale);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    pixels.encode_png().ok()
}

fn options() -> usvg::Options<'static> {
    usvg::Options {
        fontdb: Arc::clone(&FONTS),
        ..usvg::Options::default()
    }
}

/// Every picture names the same two fonts, which travel with the program and are read once.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(include_bytes!("../assets/font/DejaVuSans.ttf").to_vec());
    fonts.load_font_data(include_bytes!("../assets/font/DejaVuSans-Bold.ttf").to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

fn group_plots(cells: &[&Cell], subtitle: &str, key: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (pick, name) in [(Pick::OneWay, "one-way"), (Pick::Response, "round-trip")] {
        let cells: Vec<&Cell> = cells
            .iter()
            .copied()
            .filter(|cell| pick.of(cell).is_some())
            .collect();
        let Some(range) = value_range(&cells, pick) else {
            continue;
        };
        let what = pick.short();
        let mut add = |kind: &str, title: String, note: &str, legend, panels| {
            let chart = Chart {
                title,
                subtitle: [subtitle, note].join(""),
                legend,
                panels,
            };
            plots.push(Plot {
                name: format!("{name}_{kind}_{key}"),
                svg: chart.to_svg(),
            });
        };
        let over_time = time_panels(&cells, pick);
        if !over_time.is_empty() {
            add(
                "over-time",
                format!("{what} over time"),
                "",
                time_legend(),
                over_time,
            );
        }
        let panels = distribution_panels(&cells, pick, range);
        add(
            "distribution",
            format!("{what} distribution"),
            "",
            Vec::new(),
            panels,
        );
        let note = match cells.len() {
            1 => String::new(),
            _ => format!(". {}", sentences::OWN_AXES),
        };
        for (quantile, kind) in [(0.9, "p90"), (0.99, "p99")] {
            let panels = tail_panels(&cells, pick, quantile);
            let title = format!("{what} above {kind}");
            add(&format!("above-{kind}"), title, &note, Vec::new(), panels);
        }
        let (legend, panel) = percentile_panel(&cells, pick, range);
        let counts = cells.iter().filter_map(|cell| pick.of(cell));
        let end = curve_end(counts.map(Histogram::count));
        let end = end.map_or_else(String::new, |end| format!("; {end}"));
        add(
            "percentiles",
            format!("{what} by percentile"),
            &end,
            legend,
            vec![panel],
        );
    }
    plots
}

fn time_legend() -> Vec<Key> {
    vec![
        Key::solid("max", GREY),
        Key::solid("p99", VERMILLION),
        Key::solid("mean", ORANGE),
        Key::solid(rolling_label(), GREEN),
        Key::solid("p50", BLUE),
    ]
}

/// One panel a cell, all on the same axes.
fn time_panels(cells: &[&Cell], pick: Pick) -> Vec<Panel> {
    let values = || {
        cells
            .iter()
            .flat_map(|cell| series(cell, pick))
            .filter_map(|(_, v)| v)
    };
    let low = values().map(|v| v.p50_us).fold(f64::INFINITY, f64::min);
    let high = values().map(|v| v.max_us).fold(0.0, f64::max);
    if high <= 0.0 {
        return Vec::new();
    }
    let end = cells.iter().flat_map(|cell| cell.intervals.last());
    let end_s = end
        .map(|interval| interval.start_s + interval.length_s)
        .fold(0.0, f64::max);
    let panel = |cell: &&Cell| {
        let line = |figure: fn(&IntervalLatency) -> f64, color, width| Mark::Line {
            points: series(cell, pick)
                .map(|(at_s, latency)| latency.map(|latency| (at_s, figure(&latency))))
                .collect(),
            color,
            width,
        };
        Panel {
            title: judged(cell),
            notes: Vec::new(),
            x: Axis::linear("time since the first send", Unit::Seconds, 0.0, end_s),
            y: Axis::fitting("latency, per second", Unit::Latency, low, high),
            marks: vec![
                line(|latency| latency.max_us, GREY, 1.2),
                line(|latency| latency.p99_us, VERMILLION, 2.0),
                line(|latency| latency.mean_us, ORANGE, 2.0),
                rolling(cell, pick),
                line(|latency| latency.p50_us, BLUE, 2.0),
            ],
        }
    };
    cells.iter().map(panel).collect()
}

fn rolling(cell: &Cell, pick: Pick) -> Mark {
    let intervals = cell.intervals.iter();
    let latencies: Vec<_> = intervals
        .map(|it| (it.start_s, it.length_s, pick.in_second(it)))
        .collect();
    let means = rolling_means(&latencies).into_iter();
    let points = means.zip(series(cell, pick));
    Mark::Line {
        points: points
            .map(|(mean_us, (at_s, _))| Some((at_s, mean_us?)))
            .collect(),
        color: GREEN,
        width: 2.6,
    }
}

fn series(cell: &Cell, pick: Pick) -> impl Iterator<Item = (f64, Option<IntervalLatency>)> {
    cell.intervals.iter().map(move |interval| {
        let at_s = interval.start_s + interval.length_s / 2.0;
        (at_s, pick.in_second(interval))
    })
}

fn distribution_panels(cells: &[&Cell], pick: Pick, range: (f64, f64)) -> Vec<Panel> {
    let bins = |histogram: &Histogram| {
        let bins = log_bins(histogram, Some(range), BIN_COUNT);
        Some((range, bins))
    };
    bar_panels(cells, pick, bins, "share of messages", true)
}

/// Each on an axis of its own: next to a long tail, a short one would be a single bar.
fn tail_panels(cells: &[&Cell], pick: Pick, quantile: f64) -> Vec<Panel> {
    let bins = |histogram: &Histogram| tail_bins(histogram, quantile, BIN_COUNT);
    bar_panels(cells, pick, bins, "share of all messages", false)
}

/// The range of an axis, and bars along it as [`Mark::Bars`] has them.
type Bars = ((f64, f64), Vec<(f64, f64, f64)>);

fn bar_panels(
    cells: &[&Cell],
    pick: Pick,
    bins: impl Fn(&Histogram) -> Option<((f64, f64), Vec<Bin>)>,
    y_label: &'static str,
    whole: bool,
) -> Vec<Panel> {
    let bars = |cell: &&Cell| -> Bars {
        let total = pick.of(cell).map_or(1, Histogram::count) as f64;
        let bar = |bin: Bin| (bin.low_us, bin.high_us, bin.count as f64 * 100.0 / total);
        let (range, bins) = pick.of(cell).and_then(&bins).unwrap_or(EMPTY);
        (range, bins.into_iter().map(bar).collect())
    };
    let all: Vec<Bars> = cells.iter().map(bars).collect();
    let highest = |bars: &[(f64, f64, f64)]| bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    let high_of_all = all
        .iter()
        .map(|(_, bars)| highest(bars))
        .fold(0.0, f64::max);
    let panel = |(cell, (range, bars)): (&&Cell, Bars)| {
        // Those on one axis for latencies have one for shares as well.
        let high = if whole { high_of_all } else { highest(&bars) };
        let found = pick.of(cell).map(Quantiles::of).unwrap_or_default();
        let mut marks = vec![Mark::Bars { bars, color: BLUE }];
        let lines = [
            (found.p50_us, "p50"),
            (found.p99_us, "p99"),
            (found.p99_9_us, "p99.9"),
        ];
        for (line, (value, text)) in lines.into_iter().enumerate() {
            let shown = value.filter(|x| *x >= range.0 && (whole || text != "p50"));
            marks.extend(shown.map(|x| Mark::Vertical { x, text, line }));
        }
        Panel {
            title: judged(cell),
            notes: notes(&found, whole),
            x: Axis::logarithmic("latency", Unit::Latency, range.0, range.1),
            y: Axis::linear(y_label, Unit::Percent, 0.0, high * 1.1),
            marks,
        }
    };
    cells.iter().zip(all).map(panel).collect()
}

fn notes(found: &Quantiles, whole: bool) -> Vec<(String, String)> {
    let mut notes = vec![("count".to_owned(), format::count(found.count))];
    let mut note = |name: &str, value: Option<f64>| {
        notes.push((name.to_owned(), format::latency_or_dash(value)));
    };
    if whole {
        note("mean", found.mean_us);
        note("stddev", found.stddev_us);
        note("min", found.min_us);
        note("p50", found.p50_us);
    }
    note("p90", found.p90_us);
    note("p99", found.p99_us);
    note("p99.9", found.p99_9_us);
    note("max", found.max_us);
    notes
}

fn percentile_panel(cells: &[&Cell], pick: Pick, range: (f64, f64)) -> (Vec<Key>, Panel) {
    let mut legend = Vec::new();
    let mut marks = Vec::new();
    let mut last: f64 = 2.0;
    for (index, cell) in cells.iter().enumerate() {
        let Some(histogram) = pick.of(cell) else {
            continue;
        };
        let color = series_color(index);
        let curve = percentile_curve(histogram);
        last = last.max(curve.last().map_or(0.0, |point| point.0));
        marks.push(Mark::Line {
            points: curve.into_iter().map(Some).collect(),
            color,
            width: 2.2,
        });
        legend.push(Key::solid(judged(cell), color));
    }
    let panel = Panel {
        title: String::new(),
        notes: Vec::new(),
        x: Axis::logarithmic("percentile", Unit::Percentile, 1.0, last),
        y: Axis::fitting("latency", Unit::Latency, range.0, range.1),
        marks,
    };
    (legend, panel)
}

/// Of a picture: 64 MiB until it is encoded. The sheets of a battle have about a tenth.
const PIXELS_MAX: u64 = 16 << 20;
/// Bars across a panel: about six pixels each.
const BIN_COUNT: usize = 72;
/// What a panel without a sample shows.
const EMPTY: ((f64, f64), Vec<Bin>) = ((1.0, 2.0), Vec::new());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn latencies_over_time_have_a_rolling_mean_whose_window_is_told() {
        let cell = sample::cell(1000, 1.0, 30, 100);
        let panels = time_panels(&[&cell], Pick::Response);
        let of_color = |wanted: &str| {
            let mut marks = panels[0].marks.iter();
            let points = marks.find_map(|mark| {
                let Mark::Line { points, color, .. } = mark else {
                    return None;
                };
                (*color == wanted).then(|| points.clone())
            });
            points.unwrap()
        };
        let (mean, rolling) = (of_color(ORANGE), of_color(GREEN));
        assert_eq!((mean.len(), rolling.len()), (30, 30));
        // It moves less from second to second.
        let travelled = |points: &[Option<(f64, f64)>]| -> f64 {
            let values: Vec<f64> = points.iter().flatten().map(|point| point.1).collect();
            values.windows(2).map(|two| (two[1] - two[0]).abs()).sum()
        };
        assert!(travelled(&rolling) < travelled(&mean) / 2.0);
        let plots = group_plots(&[&cell], "", "key");
        let plot = plots
            .iter()
            .find(|it| it.name == "round-trip_over-time_key");
        let svg = &plot.unwrap().svg;
        assert!(svg.contains(">rolling mean, 10 s<"), "{svg}");
    }

    #[test]
    fn a_sheet_that_is_too_large_for_memory_is_drawn_with_fewer_pixels() {
        let sheet = |side: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{side}\" height=\"{side}\" \
                 viewBox=\"0 0 {side} {side}\"/>"
            )
        };
        let side = |svg: &str| {
            let image = png(svg, 1.5).unwrap();
            // Width in the header of a PNG.
            u32::from_be_bytes(image[16..20].try_into().unwrap())
        };
        assert_eq!(side(&sheet("100")), 150);
        let pixels = u64::from(side(&sheet("60000"))).pow(2);
        assert!(pixels > PIXELS_MAX / 2 && pixels <= PIXELS_MAX, "{pixels}");
    }
}
