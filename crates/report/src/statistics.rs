//! Estimators on series of one value per interval: mean and its error when neighbours resemble
//! each other, and Welch's test. Of several rounds: intervals by drawing them
//! again, their difference by ranks, and how many of them are needed.

pub(crate) mod bootstrap;
mod normal;
pub(crate) mod pool;
pub(crate) mod ranks;
pub(crate) mod sample_size;
pub(crate) mod theil_sen;

/// The mean of a series with what its error rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Mean of the series.
    pub(crate) mean: f64,
    /// Standard error of the mean.
    pub(crate) error: f64,
    /// Number of values the series is worth, at most its length: neighbours that resemble each
    /// other tell less than independent ones.
    pub(crate) effective_count: f64,
}

impl Estimate {
    /// `None` with fewer than `COUNT_MIN` values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.len() < COUNT_MIN {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let effective_count = count / correlation_time(values, mean, squares);
        let error = (squares / (count - 1.0) / effective_count).sqrt();
        Some(Self {
            mean,
            error,
            effective_count,
        })
    }
}

/// Probability that two series with the same true mean differ by as much as these do (Welch's
/// t-test, two-sided). Series without any spread differ for certain unless they are equal.
pub(crate) fn welch_p_value(a: &Estimate, b: &Estimate) -> f64 {
    let variance = a.error.powi(2) + b.error.powi(2);
    if variance == 0.0 {
        return if a.mean == b.mean { 1.0 } else { 0.0 };
    }
    let t = (a.mean - b.mean) / variance.sqrt();
    let part =
        |estimate: &Estimate| estimate.error.powi(4) / (estimate.effective_count - 1.0).max(1.0);
    let degrees = variance.powi(2) / (part(a) + part(b));
    incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// Half the width of the interval of 95 % of the difference of two series (Welch).
pub(crate) fn welch_margin(a: &Estimate, b: &Estimate) -> f64 {
    let variance = a.error.powi(2) + b.error.powi(2);
    if variance == 0.0 {
        return 0.0;
    }
    let part =
        |estimate: &Estimate| estimate.error.powi(4) / (estimate.effective_count - 1.0).max(1.0);
    variance.sqrt() * t_quantile_975(variance.powi(2) / (part(a) + part(b)))
}

/// The difference of two series in standard deviations within them (Cohen's d); `None` without any
/// spread.
pub(crate) fn cohens_d(a: &Estimate, b: &Estimate) -> Option<f64> {
    let variance = |it: &Estimate| it.error.powi(2) * it.effective_count;
    let deviation = f64::midpoint(variance(a), variance(b)).sqrt();
    (deviation > 0.0).then(|| (b.mean - a.mean) / deviation)
}

/// How many neighbouring values count as one: 1 + 2 x the sum of the autocorrelations up to the
/// first that is not positive, at least 1.
fn correlation_time(values: &[f64], mean: f64, squares: f64) -> f64 {
    if squares == 0.0 {
        return 1.0;
    }
    let mut time = 1.0;
    for lag in 1..values.len() / 2 {
        let pairs = values.iter().zip(&values[lag..]);
        let product: f64 = pairs
            .map(|(early, late)| (early - mean) * (late - mean))
            .sum();
        if product <= 0.0 {
            break;
        }
        time += 2.0 * product / squares;
    }
    time.min(values.len() as f64 / 2.0)
}

/// The t for which 97.5 % of Student's distribution lie below, by bisection.
fn t_quantile_975(degrees: f64) -> f64 {
    let (mut low, mut high) = (1.9, 13.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let two_sided = incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + middle * middle));
        if two_sided > 0.05 {
            low = middle
        } else {
            high = middle
        }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function, by Lentz's continued fraction.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let tiny = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < tiny { tiny } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..FRACTION_STEPS_MAX {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            change = d * c;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction / a
}

/// The logarithm of the gamma function, by Stirling's series after shifting the argument up.
fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut z = x;
    while z < 10.0 {
        shift += z.ln();
        z += 1.0;
    }
    let inverse = 1.0 / z;
    let square = inverse * inverse;
    let series =
        inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (z - 0.5) * z.ln() - z + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

/// Fewer values than this say nothing about their spread.
const COUNT_MIN: usize = 4;
/// The fraction converges in tens of steps for the arguments of a t-test.
const FRACTION_STEPS_MAX: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incomplete_beta_function_agrees_with_closed_forms() {
        // I_x(1, b) = 1 - (1 - x)^b, I_x(a, 1) = x^a.
        for (x, exponent) in [(0.1, 3.0), (0.5, 0.5), (0.9, 7.5)] {
            let expected = 1.0 - (1.0f64 - x).powf(exponent);
            assert!((incomplete_beta(1.0, exponent, x) - expected).abs() < 1e-10);
            assert!((incomplete_beta(exponent, 1.0, x) - x.powf(exponent)).abs() < 1e-10);
        }
    }

    #[test]
    fn student_quantiles_are_those_of_the_tables() {
        for (degrees, expected) in [(1.0, 12.706), (5.0, 2.571), (30.0, 2.042), (1e6, 1.960)] {
            assert!(
                (t_quantile_975(degrees) - expected).abs() < 1e-3,
                "{degrees} degrees"
            );
        }
    }

    #[test]
    fn equal_series_do_not_differ_and_distant_ones_do() {
        let noise = |offset: f64| -> Vec<f64> {
            (0..40)
                .map(|index| offset + f64::from(index * 7919 % 13))
                .collect()
        };
        let estimate = |values: &[f64]| Estimate::of(values).unwrap();
        let (a, b) = (estimate(&noise(100.0)), estimate(&noise(100.0)));
        assert!((welch_p_value(&a, &b) - 1.0).abs() < 1e-9);
        assert!(welch_p_value(&a, &estimate(&noise(110.0))) < 1e-6);
    }

    #[test]
    fn the_margin_and_the_effect_are_those_of_the_difference() {
        let noise = |offset: f64| -> Vec<f64> {
            let values = (0..60).map(|index| f64::from(index * 7919 % 13));
            values.map(|value| offset + value).collect()
        };
        let estimate = |values: &[f64]| Estimate::of(values).unwrap();
        let (a, b) = (estimate(&noise(100.0)), estimate(&noise(104.0)));
        // A uniform spread over 13 values has a deviation of 3.74.
        let effect = cohens_d(&a, &b).unwrap();
        assert!((effect - 4.0 / 3.74).abs() < 0.05, "{effect}");
        let margin = welch_margin(&a, &b);
        assert!((1.0..1.8).contains(&margin), "{margin}");
        assert_eq!(cohens_d(&estimate(&[1.0; 9]), &estimate(&[2.0; 9])), None);
    }

    #[test]
    fn a_series_of_runs_is_worth_fewer_values() {
        let runs: Vec<f64> = (0..100).map(|index| f64::from(index / 20 % 2)).collect();
        let mixed: Vec<f64> = (0..100).map(|index| f64::from(index % 2)).collect();
        let count = |values: &[f64]| Estimate::of(values).unwrap().effective_count;
        assert!(count(&runs) < 15.0, "{}", count(&runs));
        assert!(count(&mixed) > 99.0, "{}", count(&mixed));
    }
}
