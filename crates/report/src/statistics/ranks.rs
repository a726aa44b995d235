//! How much two samples differ, by ranks: the shift of Hodges and Lehmann with the interval that
//! belongs to the test of Mann and Whitney.
//!
//! Nothing is assumed of the distribution but that all values of one server could have come in any
//! order, which is why rounds are interleaved at random. The interval is exact for small samples,
//! and a few disturbed rounds move it little.

use super::normal::normal_quantile;

/// How far the values of `b` lie above those of `a`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shift {
    /// Median of all differences between a value of `b` and one of `a`.
    pub(crate) estimate: f64,
    /// Lower end of its interval.
    pub(crate) low: f64,
    /// Upper end of its interval.
    pub(crate) high: f64,
    /// Probability that a value of `b` is above one of `a`, ties counted half.
    pub(crate) superiority: f64,
}

impl Shift {
    /// Cliff's delta, the size of the effect beside the scatter of the rounds: 1 where each value
    /// of `b` is above each of `a`, -1 where each is below, 0 where neither is more often above.
    pub(crate) fn cliffs_delta(&self) -> f64 {
        2.0 * self.superiority - 1.0
    }

    /// Whether the two samples differ, at the level of the interval.
    pub(crate) fn is_told(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// The shift with an interval that misses the true one with a probability of at most `alpha`;
/// `None` where the samples are too small for any such interval.
pub(crate) fn shift(a: &[f64], b: &[f64], alpha: f64) -> Option<Shift> {
    let pairs = a.len() * b.len();
    if pairs == 0 || pairs > PAIRS_MAX {
        return None;
    }
    let outside = differences_outside(a.len(), b.len(), alpha)?;
    let mut differences: Vec<f64> = b
        .iter()
        .flat_map(|above| a.iter().map(move |below| above - below))
        .collect();
    differences.sort_by(f64::total_cmp);
    let share = |is: fn(f64) -> bool| {
        let count = differences.iter().filter(|difference| is(**difference));
        count.count() as f64 / pairs as f64
    };
    Some(Shift {
        estimate: median(&differences),
        low: differences[outside],
        high: differences[pairs - 1 - outside],
        superiority: share(|difference| difference > 0.0)
            + share(|difference| difference == 0.0) / 2.0,
    })
}

/// Values of each of two samples below which no difference can be told at this level.
pub(crate) fn count_min(alpha: f64) -> usize {
    let is_enough = |count: &usize| differences_outside(*count, *count, alpha).is_some();
    (1..EXACT_COUNT_MAX)
        .find(is_enough)
        .unwrap_or(EXACT_COUNT_MAX)
}

/// The median of values in order, which are not none.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// How many of the differences, in order, lie below the interval, and as many above it.
///
/// The true shift is below the k-th difference just when at most k - 1 pairs of the samples, freed
/// of the shift, are in the wrong order; the statistic of Mann and Whitney counts these.
fn differences_outside(count_a: usize, count_b: usize, alpha: f64) -> Option<usize> {
    if count_a.max(count_b) > EXACT_COUNT_MAX {
        return approximate_outside(count_a, count_b, alpha);
    }
    let ways = arrangements(count_a, count_b);
    let total: f64 = ways.iter().sum();
    let mut tail = 0.0;
    let mut below = 0;
    for count in ways {
        tail += count / total;
        if tail > alpha / 2.0 {
            break;
        }
        below += 1;
    }
    // With `below` values of the statistic in the tail, the first of the interval is that one.
    (below > 0).then(|| below - 1)
}

/// The same by the normal distribution, which the statistic is near to in large samples.
fn approximate_outside(count_a: usize, count_b: usize, alpha: f64) -> Option<usize> {
    let (a, b) = (count_a as f64, count_b as f64);
    let deviation = (a * b * (a + b + 1.0) / 12.0).sqrt();
    let below = (a * b / 2.0 - normal_quantile(1.0 - alpha / 2.0) * deviation).floor();
    (below >= 1.0).then(|| below as usize - 1)
}

/// In how many ways the values of two samples can be ordered, by the number of pairs in the wrong
/// order. Exact to the precision of the numbers, which is more than a level needs.
fn arrangements(count_a: usize, count_b: usize) -> Vec<f64> {
    // The Gaussian binomial: multiply by (1 - q^(b + i)) and divide by (1 - q^i) for each i.
    let mut ways = vec![0.0; count_a * count_b + 1];
    ways[0] = 1.0;
    for index in 1..=count_a {
        let step = count_b + index;
        for at in (step..ways.len()).rev() {
            ways[at] -= ways[at - step];
        }
        for at in index..ways.len() {
            ways[at] += ways[at - index];
        }
    }
    ways
}

/// Larger samples take the normal approximation: the exact table would have more than 40,000 sums.
const EXACT_COUNT_MAX: usize = 200;
/// More differences than this are not put in order: 32 MiB.
const PAIRS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrangements_are_those_of_the_published_tables() {
        // Mann and Whitney, 1947, n = 4: the counts of U from 0 on, 70 in all.
        let ways = arrangements(4, 4);
        assert_eq!(ways[..6], [1.0, 1.0, 2.0, 3.0, 5.0, 5.0]);
        assert_eq!(ways.iter().sum::<f64>(), 70.0);
        // Critical values at 5 %, two-sided: U at most 0 for 4 and 4, 2 for 5 and 5, 23 for 10.
        let critical = |count| differences_outside(count, count, 0.05);
        assert_eq!(critical(3), None);
        // 2 of 70 ways, 2 of 252 and 2 of 924.
        let least = [0.05, 0.02, 0.003].map(count_min);
        assert_eq!(least, [4, 5, 6]);
        assert_eq!(
            [critical(4), critical(5), critical(10)],
            [Some(0), Some(2), Some(23)]
        );
    }

    #[test]
    fn large_samples_agree_with_the_exact_table() {
        for count in [30, 100, 200] {
            let exact = differences_outside(count, count, 0.05).unwrap();
            let near = approximate_outside(count, count, 0.05).unwrap();
            assert!(exact.abs_diff(near) <= 2, "{count}: {exact} and {near}");
        }
    }

    #[test]
    fn a_shift_is_told_when_it_is_there() {
        let a: Vec<f64> = (0..10).map(|index| f64::from(index) * 0.1).collect();
        let b: Vec<f64> = a.iter().map(|value| value + 2.0).collect();
        let found = shift(&a, &b, 0.05).unwrap();
        assert!((found.estimate - 2.0).abs() < 1e-9, "{found:?}");
        assert!(found.is_told() && found.superiority == 1.0);
        assert_eq!(found.cliffs_delta(), 1.0);
        assert_eq!(shift(&b, &a, 0.05).unwrap().cliffs_delta(), -1.0);
        let none = shift(&a, &a, 0.05).unwrap();
        assert!(
            !none.is_told() && (none.superiority - 0.5).abs() < 1e-9,
            "{none:?}"
        );
        assert_eq!(shift(&a[..3], &b[..3], 0.05), None);
    }

    /// Samples drawn without replacement from one pool, disturbed now and then as a host does.
    #[test]
    fn of_two_thousand_comparisons_of_one_server_at_most_one_in_twenty_alarms() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut pool: Vec<f64> = (0..60)
            .map(|_| {
                let noise = random.f64() + random.f64() + random.f64();
                if random.f64() < 0.1 {
                    noise * 3.0
                } else {
                    noise
                }
            })
            .collect();
        let alarms = (0..2000).filter(|_| {
            random.shuffle(&mut pool);
            shift(&pool[..10], &pool[10..20], 0.05).unwrap().is_told()
        });
        let alarms = alarms.count();
        // 4.3 % are expected of this test; 3.5 deviations of chance are allowed.
        assert!((50..=120).contains(&alarms), "{alarms}");
    }
}
