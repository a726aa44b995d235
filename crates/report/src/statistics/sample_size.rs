//! How many rounds tell two servers apart.

use super::normal::normal_quantile;
use super::ranks::{self, median};

/// Rounds of each server with which a difference of `shift` is told in 19 of 20 contests, by the
/// test of `ranks`, from the scatter of the rounds there are; `None` with fewer than two.
pub(crate) fn rounds_needed(samples: &[&[f64]], shift: f64, alpha: f64) -> Option<u64> {
    let deviation = deviation(samples)?;
    if shift == 0.0 {
        return None;
    }
    let quantiles = normal_quantile(1.0 - alpha / 2.0) + normal_quantile(POWER);
    let count = 2.0 * (quantiles * deviation / shift).powi(2) / EFFICIENCY;
    let least = ranks::count_min(alpha) as f64;
    Some((count.ceil() + 1.0).clamp(least, COUNT_MAX) as u64)
}

/// The standard deviation within the samples, by the median of the differences of their pairs: a
/// few disturbed rounds say nothing about the others.
fn deviation(samples: &[&[f64]]) -> Option<f64> {
    let mut differences = Vec::new();
    for sample in samples {
        let pairs = sample.iter().enumerate();
        for (index, one) in pairs {
            differences.extend(sample[index + 1..].iter().map(|other| (one - other).abs()));
        }
    }
    if differences.is_empty() {
        return None;
    }
    differences.sort_by(f64::total_cmp);
    Some(median(&differences) / PAIR_MEDIAN)
}

const POWER: f64 = 0.95;
/// Of the test of Mann and Whitney beside that of Student, for normal values: 3 / pi.
const EFFICIENCY: f64 = 0.955;
/// Median of the difference of two normal values, in standard deviations: 0.6745 times the root
/// of 2.
const PAIR_MEDIAN: f64 = 0.9539;
/// Nobody waits for more.
const COUNT_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

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
        let needed = rounds_needed(&[&pilot], 1.5, 0.05).unwrap() as usize;
        assert!((8..=25).contains(&needed), "{needed}");
        let told = (0..300).filter(|_| {
            let a = sample(needed, 0.0, &mut random);
            let b = sample(needed, 1.5, &mut random);
            ranks::shift(&a, &b, 0.05).unwrap().is_told()
        });
        let told = told.count();
        assert!(told >= 255, "{told} of 300 with {needed} rounds");
    }

    #[test]
    fn a_smaller_difference_takes_more_and_none_takes_for_ever() {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95];
        let needed = |shift| rounds_needed(&[&values], shift, 0.05);
        assert!(needed(0.01) > needed(0.1));
        assert_eq!(needed(0.0), None);
        assert_eq!(rounds_needed(&[&[1.0]], 0.1, 0.05), None);
    }
}
