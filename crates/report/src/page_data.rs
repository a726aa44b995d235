//! The figures behind the charts of the page, as JSON that is safe inside a `<script>`.

use serde::Serialize;

use crate::cell::Cell;
use crate::groups::{Group, judged};
use crate::histogram::Histogram;
use crate::interval::{Interval, IntervalLatency};
use crate::palette::series_color;
use crate::plot_data::{Bin, log_bins, percentile_curve, tail_bins, value_range};
use crate::rolling::{rolling_label, rolling_means};
use crate::tables::Pick;

/// The JSON of all groups and their cells.
pub(crate) fn page_data(groups: &[Group<'_>]) -> String {
    let mut data = Data {
        rolling_label: rolling_label(),
        groups: Vec::new(),
        cells: Vec::new(),
    };
    for (index, group) in groups.iter().enumerate() {
        let first = data.cells.len();
        let ranges = Ranges {
            one_way: Range::of(group, Pick::OneWay),
            response: Range::of(group, Pick::Response),
        };
        for (column, cell) in group.cells.iter().enumerate() {
            data.cells.push(CellData::of(cell, column, &ranges));
        }
        let cells = (first..data.cells.len()).collect();
        data.groups.push(GroupData {
            index,
            cells,
            ranges,
        });
    }
    let json = serde_json::to_string(&data).expect("numbers and strings fit into JSON");
    // `<` ends a script element in the wrong place, the two separators end a line of JavaScript.
    json.replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[derive(Serialize)]
struct Data {
    rolling_label: String,
    groups: Vec<GroupData>,
    cells: Vec<CellData>,
}

#[derive(Serialize)]
struct GroupData {
    index: usize,
    cells: Vec<usize>,
    ranges: Ranges,
}

/// The x axes that the panels of a group share: that of the distributions.
#[derive(Serialize)]
struct Ranges {
    one_way: Option<Range>,
    response: Option<Range>,
}

#[derive(Clone, Copy, Serialize)]
struct Range {
    bins: (f64, f64),
}

#[derive(Serialize)]
struct CellData {
    key: String,
    label: String,
    color: &'static str,
    seconds: Vec<f64>,
    sent: Vec<f64>,
    received: Vec<f64>,
    in_flight: Vec<u64>,
    server_cpu: Vec<Option<f64>>,
    server_rss: Vec<Option<u64>>,
    generator_cpu: Vec<Option<f64>>,
    one_way: Option<LatencyData>,
    response: Option<LatencyData>,
}

#[derive(Serialize)]
struct LatencyData {
    over_time: OverTime,
    curve: Curve,
    bins: Bars,
    above_p90: Bars,
    above_p99: Bars,
}

#[derive(Serialize)]
struct OverTime {
    mean: Vec<Option<f64>>,
    rolling: Vec<Option<f64>>,
    p50: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
    max: Vec<Option<f64>>,
}

/// Values at `x = 1 / (1 - q)`.
#[derive(Serialize)]
struct Curve {
    x: Vec<f64>,
    us: Vec<f64>,
}

/// One edge more than bars; shares in per cent of all messages.
#[derive(Serialize)]
struct Bars {
    edges: Vec<f64>,
    share: Vec<f64>,
}

impl Range {
    fn of(group: &Group<'_>, pick: Pick) -> Option<Self> {
        // As the edges are: one that lies outside by a rounding hides its whole bar.
        let (low, high) = value_range(&group.cells, pick)?;
        Some(Self {
            bins: (rounded(low), rounded(high)),
        })
    }
}

impl CellData {
    fn of(cell: &Cell, column: usize, ranges: &Ranges) -> Self {
        let intervals = &cell.intervals;
        let per_s = |count: fn(&Interval) -> u64| {
            let rate =
                |interval: &Interval| rounded(count(interval) as f64 / interval.length_s.max(1e-9));
            intervals.iter().map(rate).collect()
        };
        let percent = |share: Option<f64>| share.map(|share| rounded(share * 100.0));
        Self {
            key: cell.key(),
            label: judged(cell),
            color: series_color(column),
            seconds: intervals
                .iter()
                .map(|i| rounded(i.start_s + i.length_s / 2.0))
                .collect(),
            sent: per_s(|interval| interval.sent),
            received: per_s(|interval| interval.received),
            in_flight: intervals
                .iter()
                .map(|interval| interval.in_flight)
                .collect(),
            server_cpu: intervals
                .iter()
                .map(|interval| percent(interval.server_cpu))
                .collect(),
            server_rss: intervals
                .iter()
                .map(|interval| interval.server_rss_bytes)
                .collect(),
            generator_cpu: intervals.iter().map(|i| percent(i.generator_cpu)).collect(),
            one_way: LatencyData::of(cell, Pick::OneWay, ranges.one_way),
            response: LatencyData::of(cell, Pick::Response, ranges.response),
        }
    }
}

impl LatencyData {
    fn of(cell: &Cell, pick: Pick, range: Option<Range>) -> Option<Self> {
        let (histogram, range) = (pick.of(cell)?, range?);
        let seconds = cell.intervals.iter();
        let seconds: Vec<_> = seconds
            .map(|it| (it.start_s, it.length_s, pick.in_second(it)))
            .collect();
        let over_time = |figure: fn(IntervalLatency) -> f64| {
            let latencies = seconds.iter().map(|(_, _, latency)| latency.map(figure));
            latencies.collect()
        };
        let rolling = rolling_means(&seconds).into_iter();
        let tail = |quantile| {
            let (range, bins) = tail_bins(histogram, quantile, BIN_COUNT)?;
            Some(Bars::of(&bins, histogram, range))
        };
        let (x, us) = percentile_curve(histogram)
            .into_iter()
            .map(|(x, us)| (significant(x), rounded(us)))
            .unzip();
        Some(Self {
            over_time: OverTime {
                mean: over_time(|figures| figures.mean_us),
                rolling: rolling.map(|mean_us| mean_us.map(rounded)).collect(),
                p50: over_time(|figures| figures.p50_us),
                p99: over_time(|figures| figures.p99_us),
                max: over_time(|figures| figures.max_us),
            },
            curve: Curve { x, us },
            bins: Bars::of(
                &log_bins(histogram, Some(range.bins), BIN_COUNT),
                histogram,
                range.bins,
            ),
            above_p90: tail(0.9)?,
            above_p99: tail(0.99)?,
        })
    }
}

impl Bars {
    fn of(bins: &[Bin], whole: &Histogram, range: (f64, f64)) -> Self {
        if bins.is_empty() {
            return Self {
                edges: vec![range.0, range.1],
                share: vec![0.0],
            };
        }
        let total = whole.count().max(1) as f64;
        let mut edges: Vec<f64> = bins.iter().map(|bin| rounded(bin.low_us)).collect();
        edges.extend(bins.last().map(|bin| rounded(bin.high_us)));
        let share = |bin: &Bin| (bin.count as f64 * 1e7 / total).round() / 1e5;
        Self {
            edges,
            share: bins.iter().map(share).collect(),
        }
    }
}

/// To the nanosecond: the file need not hold what the histogram does not know.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Six digits, so that the same step of two curves is the same number.
fn significant(value: f64) -> f64 {
    let unit = 10f64.powf(value.abs().max(1e-9).log10().floor() - 5.0);
    (value / unit).round() * unit
}

const BIN_COUNT: usize = 90;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn all_bars_lie_within_the_axis() {
        for scale in 1..200 {
            let cell = sample::cell(10, 0.1 + f64::from(scale) / 7.0, 2, 1);
            let group = Group { cells: vec![&cell] };
            let range = Range::of(&group, Pick::Response).unwrap();
            let ranges = Ranges {
                one_way: None,
                response: Some(range),
            };
            let data = CellData::of(&cell, 0, &ranges).response.unwrap();
            let edges = &data.bins.edges;
            let (low, high) = range.bins;
            let (first, last) = (edges[0], edges[edges.len() - 1]);
            assert!(
                first >= low && last <= high,
                "{first} to {last} on {low} to {high}"
            );
        }
    }
}
