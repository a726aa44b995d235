//! Numbers as people type them: `10k`, `1m`, `100ms`, `1h`, `1KiB`.
//!
//! Each parser refuses what it does not understand with a sentence that names the accepted forms,
//! because the sentence is all a user sees of it.

use std::time::Duration;

/// A whole number: digits, `_` between them, and an optional `k`, `m` or `g` (powers of 1000).
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let value = scaled(text, COUNT_UNITS).ok_or_else(|| {
        format!("'{text}' is not a count; write a whole number such as 1000, 10k or 1m")
    })?;
    whole(value).ok_or_else(|| format!("'{text}' is not a whole number of at least 0"))
}

/// A whole number of at least one.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err(format!("'{text}' must be at least 1")),
        value => Ok(value),
    }
}

/// A rate in events per second, fractions allowed, above zero.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match scaled(text, COUNT_UNITS) {
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
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = scaled(text, DURATION_UNITS).ok_or_else(|| {
        format!("'{text}' is not a duration; write it with a unit such as 100ms, 10s or 1h")
    })?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("'{text}' is not a duration from 0 up; write 100ms, 10s or 1h"))
}

/// Milliseconds as in the seed's `--wait`: a bare number means milliseconds.
pub(crate) fn duration_ms(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(value) => Ok(Duration::from_millis(u64::from(value))),
        Err(_) => duration(text),
    }
}

/// Bytes: `512`, `16KiB`, `1MiB`, `64kB`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    scaled(text, SIZE_UNITS)
        .and_then(whole)
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| format!("'{text}' is not a size; write bytes such as 512, 16KiB or 1MiB"))
}

/// A share from 0 to less than 1, as `0.01` or `1%`.
pub(crate) fn fraction(text: &str) -> Result<f64, String> {
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
pub(crate) fn pair(text: &str, separator: char) -> Result<(String, String), String> {
    match text.split_once(separator) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        Some(_) | None => Err(format!("'{text}' has no name before '{separator}'")),
    }
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let digits = digits.trim();
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
        return None;
    }
    let number: f64 = digits.replace('_', "").parse().ok()?;
    let factor = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        .map(|(_, factor)| *factor)?;
    Some(number * factor)
}

/// The value as an integer when it is one; f64 holds integers exactly up to 2^53.
fn whole(value: f64) -> Option<u64> {
    (value >= 0.0 && value.fract() == 0.0 && value <= 9_007_199_254_740_992.0)
        .then_some(value as u64)
}

const COUNT_UNITS: &[(&str, f64)] = &[("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9)];
const DURATION_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];
const SIZE_UNITS: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", 1024.0),
    ("kb", 1e3),
    ("kib", 1024.0),
    ("m", 1_048_576.0),
    ("mb", 1e6),
    ("mib", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("gb", 1e9),
    ("gib", 1_073_741_824.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_decimal_suffixes() {
        assert_eq!(count("10k"), Ok(10_000));
        assert_eq!(count("1.5m"), Ok(1_500_000));
        assert_eq!(count("1_000"), Ok(1000));
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
        assert_eq!(duration_ms("1000"), Ok(Duration::from_secs(1)));
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
