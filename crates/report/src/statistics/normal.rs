//! The standard normal distribution.

/// The value below which this share of the standard normal distribution lies, by bisection of its
/// integral.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if normal_share_below(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The share below `x`: by the continued fraction of the tail where it converges fast, and by the
/// series elsewhere.
pub(crate) fn normal_share_below(x: f64) -> f64 {
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x.abs() > 3.0 {
        let mut fraction = x.abs();
        for step in (1..60).rev() {
            fraction = x.abs() + f64::from(step) / fraction;
        }
        let tail = density / fraction;
        return if x > 0.0 { 1.0 - tail } else { tail };
    }
    let (mut term, mut sum) = (x, x);
    for step in 1..100 {
        term *= x * x / f64::from(2 * step + 1);
        sum += term;
    }
    0.5 + density * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        for (share, expected) in [(0.5, 0.0), (0.975, 1.959_964), (0.9995, 3.290_527)] {
            assert!(
                (normal_quantile(share) - expected).abs() < 1e-5,
                "{share}: {}",
                normal_quantile(share)
            );
        }
    }
}
