//! Response times over time as a heat map, and below it on the same axis what the server and the
//! machine did meanwhile.

use std::collections::BTreeMap;

use crate::axis::{Axis, Unit};
use crate::cell::Cell;
use crate::chart::{Mark, Panel, Timeline, Track};
use crate::curve::{self, Curve, Line};
use crate::format;
use crate::groups::{judged, titled};
use crate::interval::Interval;
use crate::latency_buckets::LatencyBuckets;
use crate::palette::{BLUE, HEAT, ORANGE};
use crate::plots::Plot;
use crate::spikes::{Spike, spikes};

/// The picture of a cell; `None` where it is too short, or from before there were buckets.
pub(crate) fn plot(cell: &Cell) -> Option<Plot> {
    let columns = columns(cell);
    if columns.len() < SECONDS_MIN {
        return None;
    }
    let end_s = columns.last().map_or(0.0, |column| column.end_s);
    let (spikes, _) = spikes(cell);
    let mut tracks = vec![heat(&columns, &spikes, end_s)?];
    let mut never = Vec::new();
    for panel in &PANELS {
        let lines = lines(panel, cell);
        match lines.iter().all(Line::is_empty) {
            false => tracks.push(track(panel, lines, &spikes, end_s)),
            true if lines
                .iter()
                .any(|line| line.points.iter().any(Option::is_some)) =>
            {
                never.push(panel[0].0.title.to_lowercase());
            }
            true => {}
        }
    }
    let mut subtitle = vec![format!("{}, {}", judged(cell), titled(cell))];
    if !never.is_empty() {
        subtitle.push(format!(
            "None of these: {}.",
            never.join(", ").replace("tcp", "TCP").replace("gc", "GC")
        ));
    }
    let timeline = Timeline {
        title: "Response times over time".to_owned(),
        subtitle,
        legend: legend(),
        tracks,
    };
    Some(Plot {
        name: format!("heat-map_{}", cell.key()),
        svg: timeline.to_svg(),
    })
}

/// One or several seconds, put together.
#[derive(Default)]
struct Column {
    start_s: f64,
    end_s: f64,
    counts: BTreeMap<u16, u64>,
}

/// All seconds up to the last reply in at most [`COLUMNS_MAX`] columns, without those in which none
/// came: a pause is blank, and not covered by the column before it.
fn columns(cell: &Cell) -> Vec<Column> {
    let is_told = |it: &Interval| !it.response_buckets.is_empty();
    let last = cell.intervals.iter().rposition(is_told);
    let seconds = &cell.intervals[..last.map_or(0, |last| last + 1)];
    let of_each = seconds.len().div_ceil(COLUMNS_MAX).max(1);
    let column = |seconds: &[Interval]| {
        let mut column = Column::default();
        if let (Some(first), Some(last)) = (seconds.first(), seconds.last()) {
            (column.start_s, column.end_s) = (first.start_s, last.start_s + last.length_s);
        }
        for (bucket, count) in seconds.iter().flat_map(|it| it.response_buckets.iter()) {
            *column.counts.entry(bucket).or_default() += count;
        }
        column
    };
    let columns = seconds.chunks(of_each).map(column);
    columns.filter(|it| !it.counts.is_empty()).collect()
}

fn heat(columns: &[Column], spikes: &[Spike], end_s: f64) -> Option<Track> {
    let buckets = || columns.iter().flat_map(|column| column.counts.keys());
    let (low, high) = (*buckets().min()?, *buckets().max()?);
    let range = (
        LatencyBuckets::edges_us(low).0,
        LatencyBuckets::edges_us(high).1,
    );
    let mut boxes: [Vec<[f64; 4]>; HEAT.len()] = Default::default();
    for column in columns {
        let total: u64 = column.counts.values().sum();
        for (bucket, count) in &column.counts {
            let (bottom, top) = LatencyBuckets::edges_us(*bucket);
            let shade = shade(*count as f64 / total as f64);
            boxes[shade].push([column.start_s, column.end_s, bottom, top]);
        }
    }
    let shaded = boxes.into_iter().zip(HEAT).rev();
    let shaded = shaded.map(|(boxes, color)| Mark::Boxes { boxes, color });
    let numbered = spikes
        .iter()
        .zip(NUMBERS)
        .map(|(spike, text)| Mark::Vertical {
            x: spike.at_s,
            text,
            line: 0,
        });
    Some(Track {
        panel: Panel {
            title: "Share of the replies of each second".to_owned(),
            notes: Vec::new(),
            x: Axis::linear("time since the first send", Unit::Seconds, 0.0, end_s),
            y: Axis::logarithmic("response time", Unit::Latency, range.0, range.1),
            marks: shaded.chain(numbered).collect(),
        },
        height: HEAT_HEIGHT,
        keys: Vec::new(),
        remark: match spikes.len() {
            0 => String::new(),
            1 => "1: a spike, told in the report".to_owned(),
            count => format!("1 to {count}: spikes, told in the report"),
        },
    })
}

/// From many to few.
fn shade(share: f64) -> usize {
    let darker = SHARES.iter().position(|least| share >= *least);
    darker.unwrap_or(SHARES.len())
}

fn legend() -> Vec<(String, &'static str)> {
    let told = SHARES.iter().map(|share| {
        let percent = format::significant(share * 100.0);
        let percent = percent
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned();
        format!("from {percent} %")
    });
    let last = std::iter::once("less".to_owned());
    told.chain(last).zip(HEAT).collect()
}

/// Curves that share a panel, with the names of their lines where there are several.
type Shared = [(Curve, &'static str, &'static str)];

const PANELS: [&Shared; 7] = [
    &[
        (curve::MESSAGES, "sent", BLUE),
        (curve::RECEIVED, "received", ORANGE),
    ],
    &[(curve::CPU, "", BLUE)],
    &[(curve::MEMORY, "", BLUE)],
    &[(curve::GC_PAUSES, "", BLUE)],
    &[(curve::THROTTLED, "", BLUE)],
    &[(curve::RETRANSMITS, "", BLUE)],
    &[
        (curve::VOLUNTARY, "it waited", BLUE),
        (curve::INVOLUNTARY, "it was displaced", ORANGE),
    ],
];

fn lines(panel: &Shared, cell: &Cell) -> Vec<Line> {
    let line = |(curve, _, color): &(Curve, &'static str, &'static str)| Line {
        points: curve.points(cell),
        color,
        width: 1.5,
    };
    panel.iter().map(line).collect()
}

fn track(panel: &Shared, lines: Vec<Line>, spikes: &[Spike], end_s: f64) -> Track {
    let named = panel.iter().filter(|(_, name, _)| !name.is_empty());
    let mut drawn = panel[0].0.panel(lines, end_s);
    drawn
        .marks
        .extend(spikes.iter().map(|spike| Mark::Vertical {
            x: spike.at_s,
            text: "",
            line: 0,
        }));
    Track {
        panel: drawn,
        height: PANEL_HEIGHT,
        keys: named
            .map(|(_, name, color)| ((*name).to_owned(), *color))
            .collect(),
        remark: String::new(),
    }
}

/// Shares from which on a box has one of the colours, from the darkest to the last but one.
const SHARES: [f64; HEAT.len() - 1] = [0.3, 0.1, 0.03, 0.01, 0.001, 0.0001];
/// Fewer are seen better in a table.
const SECONDS_MIN: usize = 5;
/// Of a picture: each is then four pixels wide.
const COLUMNS_MAX: usize = 240;
const HEAT_HEIGHT: f64 = 260.0;
const PANEL_HEIGHT: f64 = 70.0;
/// As many as spikes are told.
const NUMBERS: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;

    fn cell(seconds: usize) -> Cell {
        let mut cell = Cell::default();
        cell.fill_seconds(seconds, |at| {
            let mut histogram = Histogram::new();
            for us in 1..500 {
                histogram.record((1000 + us * (1 + at as u64 % 5)) * 1000);
            }
            Interval {
                sent: 500,
                received: 500,
                response_buckets: LatencyBuckets::of(&histogram),
                server_cpu: Some(0.5),
                retransmitted_segments: Some(0),
                gc_pause_max_ms: Some(0.0),
                ..Interval::default()
            }
        });
        cell
    }

    #[test]
    fn the_picture_has_the_panels_that_were_sampled_and_names_those_without_events() {
        let svg = plot(&cell(40)).unwrap().svg;
        for text in [
            "CPU of the server",
            ">Messages<",
            "None of these: GC pauses of the server, TCP segments sent again.",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("Memory of the server"));
        // Only the last panel tells the time.
        assert_eq!(svg.matches("time since the first send").count(), 1);
    }

    #[test]
    fn a_day_is_no_larger_than_it_can_be_seen() {
        let svg = plot(&cell(20_000)).unwrap().svg;
        assert!(svg.len() < 300_000, "{}", svg.len());
    }

    #[test]
    fn a_pause_is_left_blank_however_many_seconds_share_a_column() {
        let mut long = cell(1000);
        for interval in &mut long.intervals[301..500] {
            interval.response_buckets = LatencyBuckets::default();
        }
        for column in columns(&long) {
            assert!(column.end_s - column.start_s <= 5.0, "{}", column.start_s);
            assert!(column.end_s <= 305.0 || column.start_s >= 500.0);
            assert!(!column.counts.is_empty());
        }
    }

    #[test]
    fn shades_go_by_the_share_of_the_second() {
        assert_eq!(
            [shade(0.5), shade(0.3), shade(0.02), shade(1e-9)],
            [0, 0, 3, 6]
        );
        let names: Vec<String> = legend().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[0], "from 30 %");
        assert_eq!(names[5..], ["from 0.01 %", "less"]);
    }

    #[test]
    fn short_cells_and_old_files_have_none() {
        assert_eq!(plot(&cell(4)), None);
        let mut old = cell(40);
        for interval in &mut old.intervals {
            interval.response_buckets = LatencyBuckets::default();
        }
        assert_eq!(plot(&old), None);
    }
}
