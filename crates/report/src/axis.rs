//! Axes: from a value to a position, and the ticks a reader can count by.

use crate::format;

/// One axis of a panel. Invariant: `low < high`, and both above 0 on a logarithmic scale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    label: &'static str,
    unit: Unit,
    logarithmic: bool,
    low: f64,
    high: f64,
    /// About this many ticks where they are evenly spaced.
    even_ticks: f64,
}

/// What the values of an axis are, which decides how ticks read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds since the start.
    Seconds,
    /// Microseconds, printed with the unit that fits.
    Latency,
    /// A share in per cent.
    Percent,
    /// `1 / (1 - q)`, printed as the percentile.
    Percentile,
    /// Bytes, printed with the binary unit that fits.
    Bytes,
    /// A number of things, or of things per second.
    Count,
}

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Position, 0 at the low end and 1 at the high one.
    pub(crate) at: f64,
    /// Its text; empty for a minor tick.
    pub(crate) text: String,
}

impl Axis {
    /// A linear axis; an empty range is widened so that it can be drawn.
    pub(crate) fn linear(label: &'static str, unit: Unit, low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self {
            label,
            unit,
            logarithmic: false,
            low,
            high,
            even_ticks: LINEAR_TICKS,
        }
    }

    /// A logarithmic axis; values at or below zero are drawn at a nanosecond.
    pub(crate) fn logarithmic(label: &'static str, unit: Unit, low: f64, high: f64) -> Self {
        let low = low.max(LOWEST);
        let high = if high > low * 1.01 { high } else { low * 1.01 };
        Self {
            label,
            unit,
            logarithmic: true,
            low,
            high,
            even_ticks: LINEAR_TICKS,
        }
    }

    /// Logarithmic where the values span more than a linear axis shows, else linear from zero.
    pub(crate) fn fitting(label: &'static str, unit: Unit, low: f64, high: f64) -> Self {
        if low > 0.0 && high / low > LINEAR_RATIO_MAX {
            Self::logarithmic(label, unit, low * 0.9, high * 1.1)
        } else {
            Self::linear(label, unit, 0.0, high * 1.08)
        }
    }

    /// With the ticks of a panel that is low.
    pub(crate) fn with_few_ticks(self) -> Self {
        Self {
            even_ticks: FEW_TICKS,
            ..self
        }
    }

    pub(crate) fn label(&self) -> &'static str {
        self.label
    }

    /// Where `value` lies: 0 at the low end, 1 at the high one, held inside.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let place = if self.logarithmic {
            (value.max(LOWEST) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    /// Whether `value` is drawn where it is, and not held at the high end.
    pub(crate) fn reaches(&self, value: f64) -> bool {
        value <= self.high
    }

    /// The ticks from low to high.
    pub(crate) fn ticks(&self) -> Vec<Tick> {
        let inside = |value: f64| value >= self.low * 0.9999 && value <= self.high * 1.0001;
        let tick = |(value, labelled): (f64, bool)| Tick {
            at: self.position(value),
            text: if labelled {
                self.text(value)
            } else {
                String::new()
            },
        };
        self.values()
            .into_iter()
            .filter(|(value, _)| inside(*value))
            .map(tick)
            .collect()
    }

    fn values(&self) -> Vec<(f64, bool)> {
        match (self.logarithmic, self.unit) {
            (_, Unit::Percentile) => [1.0, 2.0, 4.0]
                .into_iter()
                .chain((1..12).map(|exponent| 10f64.powi(exponent)))
                .map(|value| (value, true))
                .collect(),
            (_, Unit::Bytes) => {
                let scale = binary_scale(self.high);
                let step = round_step((self.high - self.low) / scale / LINEAR_TICKS) * scale;
                self.steps(step)
            }
            (true, Unit::Latency | Unit::Seconds | Unit::Percent | Unit::Count)
                if self.high / self.low >= DECADES_RATIO_MIN =>
            {
                self.decades()
            }
            (_, Unit::Latency | Unit::Seconds | Unit::Percent | Unit::Count) => {
                self.steps(round_step((self.high - self.low) / self.even_ticks))
            }
        }
    }

    fn steps(&self, step: f64) -> Vec<(f64, bool)> {
        let first = (self.low / step).ceil();
        let count = ((self.high - self.low) / step).floor() as u32 + 1;
        (0..count)
            .map(|index| ((first + f64::from(index)) * step, true))
            .collect()
    }

    /// 1, 2, ..., 9 in every decade; labels at 1, and at 2 and 5 where there is room.
    fn decades(&self) -> Vec<(f64, bool)> {
        let span = (self.high / self.low).log10();
        let labelled = |digit: u32| match digit {
            1 => true,
            2 | 5 => span < 3.1,
            3 | 4 | 7 => span < 0.75,
            _ => false,
        };
        let exponents = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        exponents
            .flat_map(|exponent| {
                let decade = 10f64.powi(exponent);
                (1..10).map(move |digit| (f64::from(digit) * decade, labelled(digit)))
            })
            .collect()
    }

    fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::Latency => format::latency_tick(value),
            Unit::Seconds => format!("{} s", shortest(value)),
            Unit::Percent => format!("{} %", shortest(value)),
            Unit::Percentile => percentile_text(value),
            Unit::Bytes => format::round_number(&format::bytes(value)),
            Unit::Count if is_whole(value) => format::count(value.round() as u64),
            Unit::Count => decimals(value),
        }
    }
}

fn percentile_text(value: f64) -> String {
    match value {
        v if v < 1.5 => "min".to_owned(),
        v if v < 3.0 => "p50".to_owned(),
        v if v < 5.0 => "p75".to_owned(),
        v => {
            let nines = v.log10().round() as usize;
            match nines {
                1 => "p90".to_owned(),
                2 => "p99".to_owned(),
                more => format!("p99.{}", "9".repeat(more - 2)),
            }
        }
    }
}

/// But for what adding steps up does to the last digits.
fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() <= value.abs() * 1e-9
}

/// As many decimals as there are, up to six.
fn decimals(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn shortest(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{rounded}")
}

/// The largest power of 1024 that is not above `value`, and at least 1.
fn binary_scale(value: f64) -> f64 {
    1024f64.powf(value.max(1.0).log(1024.0).floor())
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|digit| digit * decade >= step * 0.999);
    digit.unwrap_or(10.0) * decade
}

/// A nanosecond in microseconds: what a logarithmic axis shows for zero.
const LOWEST: f64 = 0.001;
/// A linear axis shows the smallest of values that differ by more than this as nothing.
const LINEAR_RATIO_MAX: f64 = 12.0;
/// Below this, 1 to 9 of every decade are too few ticks, and even steps look even.
const DECADES_RATIO_MIN: f64 = 3.0;
/// About this many ticks on a linear axis.
const LINEAR_TICKS: f64 = 6.0;
/// About this many where there is room for a few lines of text.
const FEW_TICKS: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<String> {
        let ticks = axis.ticks().into_iter();
        ticks
            .map(|tick| tick.text)
            .filter(|text| !text.is_empty())
            .collect()
    }

    #[test]
    fn ticks_are_round_numbers_with_their_unit() {
        let linear = Axis::linear("", Unit::Latency, 0.0, 52_000.0);
        let expected = ["0", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"];
        assert_eq!(texts(&linear), expected);
        let log = Axis::logarithmic("", Unit::Latency, 400.0, 1_200_000.0);
        assert_eq!(texts(&log), ["1 ms", "10 ms", "100 ms", "1 s"]);
        let counts = Axis::logarithmic("", Unit::Count, 900.0, 60_000.0);
        let expected = ["1,000", "2,000", "5,000", "10,000", "20,000", "50,000"];
        assert_eq!(texts(&counts), expected);
        let bytes = Axis::linear("", Unit::Bytes, 0.0, 45.0 * 1024.0 * 1024.0);
        let expected = ["0 B", "10 MiB", "20 MiB", "30 MiB", "40 MiB"];
        assert_eq!(texts(&bytes), expected);
        let percentiles = Axis::logarithmic("", Unit::Percentile, 1.0, 10_000.0);
        let expected = ["min", "p50", "p75", "p90", "p99", "p99.9", "p99.99"];
        assert_eq!(texts(&percentiles), expected);
    }

    #[test]
    fn a_short_logarithmic_axis_has_even_ticks_with_all_their_digits() {
        let tail = Axis::logarithmic("", Unit::Latency, 20_000.0, 20_250.0);
        let expected = [
            "20 ms", "20.05 ms", "20.1 ms", "20.15 ms", "20.2 ms", "20.25 ms",
        ];
        assert_eq!(texts(&tail), expected);
        let tail = Axis::logarithmic("", Unit::Latency, 990.0, 2100.0);
        assert_eq!(
            texts(&tail),
            ["1 ms", "1.2 ms", "1.4 ms", "1.6 ms", "1.8 ms", "2 ms"]
        );
    }

    #[test]
    fn positions_stay_inside() {
        let axis = Axis::logarithmic("", Unit::Latency, 10.0, 1000.0);
        assert_eq!(axis.position(100.0), 0.5);
        assert_eq!((axis.position(0.0), axis.position(1e9)), (0.0, 1.0));
    }
}
