//! What is drawn over time: one figure of each second, and how the seconds of a long run share
//! points.

use crate::axis::{Axis, Unit};
use crate::cell::Cell;
use crate::chart::{Mark, Panel};
use crate::interval::{Interval, IntervalLatency};
use crate::trend::Trend;

/// One thing that is drawn over time.
#[derive(Clone, Copy)]
pub(crate) struct Curve {
    pub(crate) title: &'static str,
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    /// Its value in a second.
    pub(crate) value: fn(&Interval) -> Option<f64>,
    /// Of the seconds that share a point of a long course.
    pub(crate) fold: Fold,
}

/// What stands for several seconds.
#[derive(Clone, Copy)]
pub(crate) enum Fold {
    Mean,
    Highest,
    Lowest,
}

pub(crate) type Points = Vec<Option<(f64, f64)>>;

impl Curve {
    /// The whole seconds of sending; those of a long course share points, 450 at most, so that
    /// each is a pixel or two wide and no spike falls between two.
    pub(crate) fn points(&self, cell: &Cell) -> Points {
        let sending: Vec<&Interval> = sending(cell).collect();
        let of_each = sending.len().div_ceil(POINTS_MAX).max(1);
        let point = |seconds: &[&Interval]| {
            let (first, last) = (seconds.first()?, seconds.last()?);
            let middle_s = f64::midpoint(first.start_s, last.start_s + last.length_s);
            let values: Vec<f64> = seconds.iter().filter_map(|it| (self.value)(it)).collect();
            (!values.is_empty()).then(|| (middle_s, self.fold.of(&values)))
        };
        sending.chunks(of_each).map(point).collect()
    }

    /// The least, the mean and the most of it over the whole seconds of sending.
    pub(crate) fn range(&self, cell: &Cell) -> Option<[f64; 3]> {
        let values: Vec<f64> = sending(cell).filter_map(self.value).collect();
        let folds = [Fold::Lowest, Fold::Mean, Fold::Highest];
        (!values.is_empty()).then(|| folds.map(|fold| fold.of(&values)))
    }

    /// Whether it stays where it is; `None` where the cell has no such figure, or a load that does
    /// not stay itself.
    pub(crate) fn trend(&self, cell: &Cell) -> Option<Trend> {
        if cell.parameters.stages.is_some() {
            return None;
        }
        let point = |it: &Interval| Some((it.start_s + it.length_s / 2.0, (self.value)(it)?));
        let points: Vec<(f64, f64)> = sending(cell).filter_map(point).collect();
        (!points.is_empty()).then(|| Trend::of(&points))
    }

    /// Lines in a panel up to `end_s`, with room above the highest value.
    pub(crate) fn panel(&self, lines: Vec<Line>, end_s: f64) -> Panel {
        let values = lines.iter().flat_map(|line| line.points.iter().flatten());
        let high = values.map(|point| point.1).fold(0.0, f64::max);
        Panel {
            title: self.title.to_owned(),
            notes: Vec::new(),
            x: Axis::linear("time since the first send", Unit::Seconds, 0.0, end_s),
            y: Axis::linear(self.label, self.unit, 0.0, high * 1.08).with_few_ticks(),
            marks: lines.into_iter().map(Line::into_mark).collect(),
        }
    }
}

/// One curve of one cell.
pub(crate) struct Line {
    pub(crate) points: Points,
    pub(crate) color: &'static str,
    pub(crate) width: f64,
}

impl Line {
    /// Whether there is nothing to see: no value, or none above zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.iter().flatten().all(|point| point.1 <= 0.0)
    }

    fn into_mark(self) -> Mark {
        Mark::Line {
            points: self.points,
            color: self.color,
            width: self.width,
        }
    }
}

impl Fold {
    fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
            Self::Highest => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Lowest => values.iter().copied().fold(f64::INFINITY, f64::min),
        }
    }
}

/// The whole seconds in which messages were sent.
pub(crate) fn sending(cell: &Cell) -> impl Iterator<Item = &Interval> {
    let end_s = cell.rate.duration_s + 0.05;
    let intervals = cell.intervals.iter();
    intervals.filter(move |it| it.length_s > 0.5 && it.start_s + it.length_s <= end_s)
}

fn per_second(count: u64, interval: &Interval) -> Option<f64> {
    (interval.length_s > 0.0).then(|| count as f64 / interval.length_s)
}

fn latency(interval: &Interval, figure: fn(&IntervalLatency) -> f64) -> Option<f64> {
    interval.response.as_ref().map(figure)
}

/// Messages to the server, as the generator counts them.
pub(crate) const SENT: Curve = Curve {
    title: "Messages in",
    label: "a second",
    unit: Unit::Count,
    value: |it| per_second(it.sent, it),
    fold: Fold::Mean,
};

/// The same in a panel with [`RECEIVED`].
pub(crate) const MESSAGES: Curve = Curve {
    title: "Messages",
    ..SENT
};

/// The same as the server counts them.
pub(crate) const SERVER_RECEIVED: Curve = Curve {
    value: |it| per_second(it.server_received?, it),
    ..SENT
};

/// Messages from the server, as the generator counts them.
pub(crate) const RECEIVED: Curve = Curve {
    title: "Messages out",
    value: |it| per_second(it.received, it),
    ..SENT
};

/// The same by the connections that were up.
pub(crate) const OF_EACH: Curve = Curve {
    title: "Messages out, each client",
    value: |it| {
        Some(per_second(it.received, it)? / Some(it.connected as f64).filter(|up| *up > 0.0)?)
    },
    ..RECEIVED
};

/// The same as the server counts them.
pub(crate) const SERVER_SENT: Curve = Curve {
    value: |it| per_second(it.server_sent?, it),
    ..RECEIVED
};

pub(crate) const CONNECTED: Curve = Curve {
    title: "Connections",
    label: "up",
    unit: Unit::Count,
    value: |it| Some(it.connected as f64),
    fold: Fold::Lowest,
};

/// The same as the server counts them.
pub(crate) const SERVER_CONNECTED: Curve = Curve {
    value: |it| it.server_connected.map(|count| count as f64),
    ..CONNECTED
};

pub(crate) const P50: Curve = Curve {
    title: "Delay, median",
    label: "response time",
    unit: Unit::Latency,
    value: |it| latency(it, |latency| latency.p50_us),
    fold: Fold::Mean,
};

pub(crate) const P99: Curve = Curve {
    title: "Delay, p99",
    value: |it| latency(it, |latency| latency.p99_us),
    fold: Fold::Highest,
    ..P50
};

pub(crate) const CPU: Curve = Curve {
    title: "CPU of the server",
    label: "of one, %",
    unit: Unit::Percent,
    value: |it| it.server_cpu.map(|cores| cores * 100.0),
    fold: Fold::Mean,
};

pub(crate) const MEMORY: Curve = Curve {
    title: "Memory of the server",
    label: "resident, MiB",
    unit: Unit::Count,
    value: |it| it.server_rss_bytes.map(|bytes| bytes as f64 / MIB),
    fold: Fold::Highest,
};

pub(crate) const GC_PAUSES: Curve = Curve {
    title: "GC pauses of the server",
    label: "longest, ms",
    unit: Unit::Count,
    value: |it| it.gc_pause_max_ms,
    fold: Fold::Highest,
};

pub(crate) const THROTTLED: Curve = Curve {
    title: "Throttling of the server",
    label: "ms a second",
    unit: Unit::Count,
    value: |it| it.throttled_ms,
    fold: Fold::Highest,
};

pub(crate) const RETRANSMITS: Curve = Curve {
    title: "TCP segments sent again",
    label: "a second",
    unit: Unit::Count,
    value: |it| per_second(it.retransmitted_segments?, it),
    fold: Fold::Highest,
};

pub(crate) const VOLUNTARY: Curve = Curve {
    title: "Context switches of the server",
    label: "a second",
    unit: Unit::Count,
    value: |it| per_second(it.voluntary_switches?, it),
    fold: Fold::Highest,
};

pub(crate) const INVOLUNTARY: Curve = Curve {
    value: |it| per_second(it.involuntary_switches?, it),
    ..VOLUNTARY
};

const POINTS_MAX: usize = 450;
const MIB: f64 = 1024.0 * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(seconds: usize) -> Cell {
        let mut cell = Cell::default();
        cell.fill_seconds(seconds, |_| Interval {
            connected: 100,
            response: Some(IntervalLatency {
                p50_us: 1000.0,
                p99_us: 2000.0,
                ..IntervalLatency::default()
            }),
            ..Interval::default()
        });
        cell
    }

    #[test]
    fn seconds_that_share_a_point_hide_neither_a_spike_nor_a_loss() {
        let mut long = cell(3600);
        let latency = long.intervals[1801].response.as_mut().unwrap();
        (latency.p50_us, latency.p99_us) = (9000.0, 9000.0);
        long.intervals[1801].connected = 40;
        let values = |curve: Curve| -> Vec<f64> {
            let points = curve.points(&long).into_iter();
            points.map(|point| point.unwrap().1).collect()
        };
        assert_eq!(values(P99).len(), POINTS_MAX);
        assert_eq!(values(P99)[225], 9000.0);
        assert_eq!(values(CONNECTED)[225], 40.0);
        // A mean of eight.
        assert_eq!(values(P50)[225], 2000.0);
    }

    #[test]
    fn seconds_without_a_value_break_the_line_and_the_drain_is_not_drawn() {
        let mut short = cell(10);
        short.rate.duration_s = 8.4;
        short.intervals[3].response = None;
        let points = P99.points(&short);
        let drawn: Vec<f64> = points.iter().flatten().map(|point| point.0).collect();
        assert_eq!(points.len(), 8);
        assert_eq!(drawn, [0.5, 1.5, 2.5, 4.5, 5.5, 6.5, 7.5]);
        assert!(points[3].is_none());
    }
}
