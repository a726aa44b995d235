//! How many rounds tell two servers apart.

use serde::Serialize;

use super::normal::normal_quantile;
use super::ranks;

/// How many rounds tell a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub(crate) enum RoundsNeeded {
    /// So many of each server.
    Rounds(u64),
    /// More than [`ROUNDS_MAX`].
    Beyond,
}

/// Rounds of each server with which a difference of `shift` is told in 19 of 20 contests, by the
/// test of `ranks`, from the scatter of the rounds there are; `None` with fewer than two.
pub(crate) fn rounds_needed(samples: &[&[f64]], shift: f64, alpha: f64) -> Option<RoundsNeeded> {
    let deviation = deviation(samples)?;
    if shift == 0.0 {
        return None;
    }
    let quantiles = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(POWER);
    let count = 2.0 * (quantiles * deviation / shift).powi(2) / EFFICIENCY;
    let least = ranks::count_min(alpha) as f64;
    let count = (count.ceil() + 1.0).max(least);
    Some(match count > ROUNDS_MAX as f64 {
        true => RoundsNeeded::Beyond,
        false => RoundsNeeded::Rounds(count as u64),
    })
}

/// The standard deviation within the samples, as large as it may well be: a scatter that is known
/// from a few rounds only is often larger. Disturbed rounds count as they are, because the test has
/// to do with as many of them.
fn deviation(samples: &[&[f64]]) -> Option<f64> {
    let degrees: usize = samples.iter().map(|it| it.len().saturating_sub(1)).sum();
    if degrees == 0 {
        return None;
    }
    let squares = samples.iter().flat_map(|sample| {
        let mean = sample.iter().sum::<f64>() / sample.len() as f64;
        sample.iter().map(move |value| (value - mean).powi(2))
    });
    let degrees = degrees as f64;
    Some((squares.sum::<f64>() / chi_square(degrees, 1.0 - CONFIDENCE)).sqrt())
}

/// A quantile of the distribution of a sum of squares (Wilson and Hilferty, 1931).
fn chi_square(degrees: f64, share: f64) -> f64 {
    let variance = 2.0 / (9.0 * degrees);
    degrees * (1.0 - variance + normal_quantile(share) * variance.sqrt()).powi(3)
}

const POWER: f64 = 0.95;
/// Of the test of Mann and Whitney beside that of Student, for normal values: 3 / pi.
const EFFICIENCY: f64 = 0.955;
/// That the scatter is not larger than it is taken for.
const CONFIDENCE: f64 = 0.8;
/// Nobody waits for more.
pub(crate) const ROUNDS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(samples: &[&[f64]], shift: f64) -> usize {
        match rounds_needed(samples, shift, 0.05) {
            Some(RoundsNeeded::Rounds(count)) => count as usize,
            other => panic!("{other:?}"),
        }
    }

    /// About normal, with one round in ten disturbed.
    fn sample(count: usize, mean: f64, random: &mut fastrand::Rng) -> Vec<f64> {
        let value = |random: &mut fastrand::Rng| {
            let noise: f64 = (0..12).map(|_| random.f64() - 0.5).sum();
            let scale = if random.f64() < 0.1 { 3.0 } else { 1.0 };
            mean + noise * scale
        };
        (0..count).map(|_| value(random)).collect()
    }

    #[test]
    fn as_many_rounds_as_it_says_tell_what_it_says() {
        let mut random = fastrand::Rng::with_seed(11);
        let pilot = sample(40, 0.0, &mut random);
        let needed = counted(&[&pilot], 1.5);
        assert!((15..=60).contains(&needed), "{needed}");
        let told = (0..300).filter(|_| {
            let a = sample(needed, 0.0, &mut random);
            let b = sample(needed, 1.5, &mut random);
            ranks::shift(&a, &b, 0.05).unwrap().is_told()
        });
        let told = told.count();
        assert!(told >= 255, "{told} of 300 with {needed} rounds");
    }

    /// From a pilot of twenty rounds, whichever those are, of which every fourth is disturbed.
    #[test]
    fn a_small_pilot_recommends_enough() {
        let mut random = fastrand::Rng::with_seed(5);
        let value = |random: &mut fastrand::Rng| {
            let noise: f64 = (0..12).map(|_| random.f64() - 0.5).sum();
            let disturbed = if random.f64() < 0.25 { 6.0 } else { 0.0 };
            noise + disturbed
        };
        let mut sample = |count: usize, shift: f64| -> Vec<f64> {
            (0..count).map(|_| value(&mut random) + shift).collect()
        };
        let mut told = 0;
        for _ in 0..100 {
            let pilots = [sample(20, 0.0), sample(20, 3.0)];
            let needed = counted(&[&pilots[0], &pilots[1]], 3.0);
            let (a, b) = (sample(needed, 0.0), sample(needed, 3.0));
            told += usize::from(ranks::shift(&a, &b, 0.05).unwrap().is_told());
        }
        assert!(told >= 90, "{told} of 100");
    }

    #[test]
    fn chi_square_is_as_in_the_tables() {
        for (degrees, share, expected) in
            [(8.0, 0.2, 4.594), (38.0, 0.2, 30.537), (3.0, 0.5, 2.366)]
        {
            let found = chi_square(degrees, share);
            assert!((found / expected - 1.0).abs() < 0.01, "{degrees}: {found}");
        }
    }

    #[test]
    fn a_smaller_difference_takes_more_and_none_takes_for_ever() {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95];
        let needed = |shift| rounds_needed(&[&values], shift, 0.05);
        assert!(needed(0.01) > needed(0.1));
        assert_eq!(needed(0.0), None);
        assert_eq!(needed(1e-6), Some(RoundsNeeded::Beyond));
        assert_eq!(rounds_needed(&[&[1.0]], 0.1, 0.05), None);
    }
}
