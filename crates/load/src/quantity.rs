//! Numbers as people type them: `10k`, `1m`, `100ms`, `1h`, `1KiB`.
//!
//! Each parser refuses what it does not understand with a sentence that names the accepted forms,
//! because the sentence is all a user sees of it.

use std::time::Duration;

/// A whole number: digits, `_` between them, and an optional `k`, `m` or `g` (powers of 1000).
pub fn count(text: &str) -> Result<u64, String> {
    let value = Decimal::parse(text, COUNT_UNITS).ok_or_else(|| {
        format!("'{text}' is not a count; write a whole number such as 1000, 10k or 1m")
    })?;
    value
        .whole()
        .ok_or_else(|| format!("'{text}' is not a whole number of at least 0"))
}

/// A whole number of at least one.
pub fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err(format!("'{text}' must be at least 1")),
        value => Ok(value),
    }
}

/// A whole number of at most 32 bits.
pub fn count_u32(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?).map_err(|_| format!("'{text}' is more than {}", u32::MAX))
}

/// A rate in events per second, fractions allowed, above zero.
pub fn rate(text: &str) -> Result<f64, String> {
    match Decimal::parse(text, COUNT_UNITS).map(|value| value.approximate()) {
        Some(value) if value > 0.0 => Ok(value),
        Some(_) => Err(format!(
            "'{text}' is not above 0; a rate is in events per second"
        )),
        None => Err(format!(
            "'{text}' is not a rate; write events per second such as 500 or 10k"
        )),
    }
}

/// A duration with its unit: `250us`, `20ms`, `1.5s`, `5m`, `1h`; a bare number means seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time_ns = Decimal::parse(text, DURATION_UNITS).ok_or_else(|| {
        format!("'{text}' is not a duration; write it with a unit such as 100ms, 10s or 1h")
    })?;
    let time_ns = time_ns.rounded();
    time_ns
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("'{text}' is not a duration from 0 up; write 100ms, 10s or 1h"))
}

/// As `duration`, but a bare number, whole or not, means milliseconds.
pub fn duration_ms(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        return duration(&format!("{text}ms"));
    }
    duration(text)
}

/// Bytes: `512`, `16KiB`, `1MiB`, `64kB`.
pub fn size(text: &str) -> Result<usize, String> {
    Decimal::parse(text, SIZE_UNITS)
        .and_then(|value| value.whole())
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| format!("'{text}' is not a size; write bytes such as 512, 16KiB or 1MiB"))
}

/// A share from 0 to less than 1, as `0.01` or `1%`.
pub fn fraction(text: &str) -> Result<f64, String> {
    let (digits, divisor) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text, 1.0),
    };
    let share = digits.trim().parse().map(|value: f64| value / divisor);
    share
        .ok()
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is not a share from 0 to below 1; write 0.01 or 1%"))
}

/// `NAME=VALUE` or, for headers, `Name: value`.
pub fn pair(text: &str, separator: char) -> Result<(String, String), String> {
    match text.split_once(separator) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        Some(_) | None => Err(format!("'{text}' has no name before '{separator}'")),
    }
}

/// A number as it was typed, times its unit: exact, where binary fractions would not be.
struct Decimal {
    is_negative: bool,
    numerator: u128,
    /// A power of ten.
    denominator: u128,
}

impl Decimal {
    fn parse(text: &str, units: &[(&str, u64)]) -> Option<Self> {
        let text = text.trim();
        let split = text
            .find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let (_, factor) = units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
        let digits = digits.trim();
        let (is_negative, digits) = match digits.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, digits),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let fraction = fraction.replace('_', "");
        let number = format!("{}{fraction}", whole.replace('_', ""));
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            is_negative,
            numerator: number.parse::<u128>().ok()?.checked_mul((*factor).into())?,
            denominator: 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?,
        })
    }

    /// The value when it is an integer that JSON readers hold exactly, so up to 2^53.
    fn whole(&self) -> Option<u64> {
        let is_whole = self.numerator.is_multiple_of(self.denominator);
        let value = self.rounded().filter(|value| *value <= 1 << 53);
        value.filter(|_| is_whole)
    }

    /// The nearest integer; none below zero.
    fn rounded(&self) -> Option<u64> {
        let value = self.numerator.checked_add(self.denominator / 2)? / self.denominator;
        let is_below_zero = self.is_negative && self.numerator > 0;
        u64::try_from(value).ok().filter(|_| !is_below_zero)
    }

    fn approximate(&self) -> f64 {
        let value = self.numerator as f64 / self.denominator as f64;
        if self.is_negative { -value } else { value }
    }
}

const COUNT_UNITS: &[(&str, u64)] = &[("", 1), ("k", 1000), ("m", 1_000_000), ("g", 1_000_000_000)];
/// In nanoseconds.
const DURATION_UNITS: &[(&str, u64)] = &[
    ("", 1_000_000_000),
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_decimal_suffixes() {
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("1.5m"), Ok(1_500_000));
        assert_eq!(count("1_000"), Ok(1000));
        assert_eq!(count("1.005k"), Ok(1005));
        assert_eq!(count("4.35m"), Ok(4_350_000));
        assert!(count("1.0005k").is_err());
        assert!(count("9007199254740993").is_err());
        assert!(count(&"9".repeat(60)).is_err());
        assert!(count("-1").is_err());
        assert!(count("1.5").is_err());
        assert!(count("ten").is_err());
        assert!(positive("0").is_err());
    }

    #[test]
    fn durations_take_units_and_bare_seconds() {
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("0.1us"), Ok(Duration::from_nanos(100)));
        assert_eq!(duration_ms("1000"), Ok(Duration::from_secs(1)));
        assert_eq!(duration_ms("2.5"), Ok(Duration::from_micros(2500)));
        assert_eq!(duration_ms(" .5 "), Ok(Duration::from_micros(500)));
        assert_eq!(
            duration_ms("4294967296"),
            Ok(Duration::from_millis(1 << 32))
        );
        assert_eq!(duration_ms("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(duration_ms("-1").is_err());
        assert!(duration("-5s").is_err());
        assert!(duration("5 parsecs").is_err());
        assert!(duration("inf").is_err());
    }

    #[test]
    fn sizes_know_both_kilos() {
        assert_eq!(size("1KiB"), Ok(1024));
        assert_eq!(size("1kB"), Ok(1000));
        assert_eq!(size("0"), Ok(0));
        assert!(size("1.5").is_err());
    }

    #[test]
    fn a_fraction_is_a_number_or_a_percentage_below_all() {
        assert_eq!(fraction("0.01"), Ok(0.01));
        assert_eq!(fraction("1%"), Ok(0.01));
        assert_eq!(fraction("0"), Ok(0.0));
        for refused in ["1", "100%", "-0.1", "NaN", "few", "%"] {
            assert!(fraction(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_rate_is_above_zero() {
        assert_eq!(rate("0.5"), Ok(0.5));
        assert!(rate("-3").expect_err("negative").contains("above 0"));
        assert!(rate("0").is_err());
    }
}
