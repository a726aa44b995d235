//! The slope of a line through points as the median of the slopes of all pairs (Theil, 1950): a
//! few points far off move it little.

use super::correlation_time;
use super::ranks::median;

/// A slope with the interval that holds the true one with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RobustSlope {
    /// Rise per unit of x.
    pub(crate) per_x: f64,
    /// Lower end of its interval.
    pub(crate) low: f64,
    /// Upper end of its interval.
    pub(crate) high: f64,
}

/// The slope through points in the order of x; `None` with fewer than [`POINTS_MIN`] of them, or
/// where all have the same x.
///
/// The interval is that of Sen (1968), from the variance of Kendall's statistic, wider by as much
/// as neighbouring residuals resemble each other.
pub(crate) fn robust_slope(points: &[(f64, f64)]) -> Option<RobustSlope> {
    let points = thinned(points);
    if points.len() < POINTS_MIN {
        return None;
    }
    let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * points.len() / 2);
    for (index, early) in points.iter().enumerate() {
        let later = points[index + 1..].iter().filter(|late| late.0 > early.0);
        slopes.extend(later.map(|late| (late.1 - early.1) / (late.0 - early.0)));
    }
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    let per_x = median(&slopes);
    let half_width = half_width(&points, per_x);
    let middle = slopes.len() as f64 / 2.0;
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    Some(RobustSlope {
        per_x,
        low: at(middle - half_width),
        high: at(middle + half_width),
    })
}

/// How many of the slopes in order lie between the median and an end of the interval.
fn half_width(points: &[(f64, f64)], per_x: f64) -> f64 {
    let count = points.len() as f64;
    let mut residuals: Vec<f64> = points.iter().map(|(x, y)| y - per_x * x).collect();
    let mean = residuals.iter().sum::<f64>() / count;
    residuals.iter_mut().for_each(|residual| *residual -= mean);
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let variance = count * (count - 1.0) * (2.0 * count + 5.0) / 18.0;
    let inflation = correlation_time(&residuals, 0.0, squares);
    NORMAL_QUANTILE_975 * (variance * inflation).sqrt() / 2.0
}

/// Means of neighbours, so that there are at most [`POINTS_MAX`].
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |block: &[(f64, f64)]| {
        let count = block.len() as f64;
        let sum = |of: fn(&(f64, f64)) -> f64| block.iter().map(of).sum::<f64>() / count;
        (sum(|point| point.0), sum(|point| point.1))
    };
    points.chunks(each).map(mean).collect()
}

/// Fewer say nothing about their spread.
const POINTS_MIN: usize = 8;
/// 7,140 pairs.
const POINTS_MAX: usize = 120;
const NORMAL_QUANTILE_975: f64 = 1.959_964;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: u32, per_x: f64, noise: impl Fn(u32) -> f64) -> Vec<(f64, f64)> {
        let point = |x: u32| (f64::from(x), per_x * f64::from(x) + noise(x));
        (0..count).map(point).collect()
    }

    #[test]
    fn the_slope_of_a_line_is_found_beside_points_far_off() {
        let noise = |x: u32| match x % 10 {
            3 => 5000.0,
            _ => f64::from(x * 7919 % 13),
        };
        let found = robust_slope(&line(600, 3.0, noise)).unwrap();
        assert!(found.low < 3.0 && 3.0 < found.high, "{found:?}");
        assert!(found.high - found.low < 1.0, "{found:?}");
    }

    #[test]
    fn noise_alone_has_no_slope() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut misses = 0;
        for _ in 0..200 {
            let draws: Vec<f64> = (0..100).map(|_| random.f64()).collect();
            let found = robust_slope(&line(100, 0.0, |x| draws[x as usize])).unwrap();
            misses += u32::from(found.low > 0.0 || found.high < 0.0);
        }
        // 10 are expected; 20 would be three deviations more.
        assert!(misses <= 20, "{misses} of 200");
    }

    #[test]
    fn stairs_are_not_taken_for_a_precise_line() {
        let plain = robust_slope(&line(100, 1.0, |x| f64::from(x * 31 % 7))).unwrap();
        let stairs = robust_slope(&line(100, 1.0, |x| -f64::from(x % 25))).unwrap();
        let width = |slope: RobustSlope| slope.high - slope.low;
        assert!(width(stairs) > 3.0 * width(plain), "{stairs:?} {plain:?}");
    }

    #[test]
    fn few_points_or_one_x_have_none() {
        assert_eq!(robust_slope(&line(7, 1.0, |_| 0.0)), None);
        assert_eq!(robust_slope(&[(1.0, 2.0); 20]), None);
    }
}
