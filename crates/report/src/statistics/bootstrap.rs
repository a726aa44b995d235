//! Intervals of any statistic of several rounds, by drawing rounds and blocks of time again.
//!
//! Rounds are drawn first, because rounds of one server differ by more than its seconds do, then
//! runs of neighbouring seconds inside each, because neighbours resemble each other. The ends are
//! those of the expanded percentile interval (Hesterberg, "What Teachers Should Know About the
//! Bootstrap", 2015, 3.2): with few rounds the plain one is too narrow.

use super::normal::normal_share_below;
use super::t_quantile_975;

/// An interval that holds the true value with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

/// The interval of `statistic`, which is given the blocks that were drawn; `None` where there is
/// one round of fewer than [`BLOCKS_MIN`] blocks, there are fewer than [`ROUNDS_MIN`] of several,
/// or the statistic has no value.
pub(crate) fn bounds<T>(
    rounds: &[Vec<T>],
    seed: u64,
    statistic: impl Fn(&[&T]) -> Option<f64>,
) -> Option<Bounds> {
    let rounds: Vec<&Vec<T>> = rounds.iter().filter(|blocks| !blocks.is_empty()).collect();
    let independent = match rounds.as_slice() {
        [] => return None,
        [only] if only.len() < BLOCKS_MIN => return None,
        [only] => only.len() as f64 / run_length(only.len()) as f64,
        few if few.len() < ROUNDS_MIN => return None,
        several => several.len() as f64,
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut drawn = Vec::new();
    let mut values = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        drawn.clear();
        for _ in 0..rounds.len() {
            draw_blocks(
                rounds[random.usize(..rounds.len())],
                &mut random,
                &mut drawn,
            );
        }
        values.push(statistic(&drawn)?);
    }
    values.sort_by(f64::total_cmp);
    let tail = tail_share(independent);
    let low = ((tail * DRAWS as f64) as usize).min(DRAWS - 1);
    Some(Bounds {
        low: values[low],
        high: values[DRAWS - 1 - low],
    })
}

/// Draws as many blocks as the round has, in runs of neighbours; the end is followed by the start.
fn draw_blocks<'a, T>(blocks: &'a [T], random: &mut fastrand::Rng, drawn: &mut Vec<&'a T>) {
    let run = run_length(blocks.len());
    let mut left = blocks.len();
    while left > 0 {
        let start = random.usize(..blocks.len());
        for step in 0..run.min(left) {
            drawn.push(&blocks[(start + step) % blocks.len()]);
        }
        left -= run.min(left);
    }
}

/// The cube root, as usual for the variance of a mean (Hall, Horowitz and Jing, 1995).
fn run_length(blocks: usize) -> usize {
    (blocks as f64).cbrt().round().max(1.0) as usize
}

/// The share of the draws to leave out at each end, so that the interval is as wide as Student's
/// with as many independent values.
fn tail_share(independent: f64) -> f64 {
    if independent < 2.0 {
        return 0.0;
    }
    let expansion = (independent / (independent - 1.0)).sqrt();
    normal_share_below(-expansion * t_quantile_975(independent - 1.0))
}

const DRAWS: usize = 1000;
/// Fewer blocks of a single round say nothing about their spread.
const BLOCKS_MIN: usize = 4;
/// Draws never go beyond the lowest and the highest round, and the true value lies outside of two
/// rounds in every second battle, and of three in every fourth.
const ROUNDS_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(drawn: &[&f64]) -> Option<f64> {
        let sum: f64 = drawn.iter().copied().sum();
        (!drawn.is_empty()).then(|| sum / drawn.len() as f64)
    }

    /// Rounds that differ more than their blocks do, as real ones.
    fn rounds(count: usize, random: &mut fastrand::Rng) -> Vec<Vec<f64>> {
        let noise = |random: &mut fastrand::Rng| (0..6).map(|_| random.f64() - 0.5).sum::<f64>();
        (0..count)
            .map(|_| {
                let level = noise(random);
                (0..10).map(|_| level + noise(random) * 0.5).collect()
            })
            .collect()
    }

    #[test]
    fn the_true_mean_is_inside_19_times_of_20() {
        let mut random = fastrand::Rng::with_seed(3);
        for count in [4, 12] {
            let trials = 100;
            let hits = (0..trials).filter(|seed| {
                let found = bounds(&rounds(count, &mut random), *seed, mean).unwrap();
                found.low <= 0.0 && 0.0 <= found.high
            });
            let hits = hits.count();
            // Three deviations of chance below 95 %.
            assert!(hits >= 88, "{count} rounds: {hits} of {trials}");
        }
    }

    #[test]
    fn two_or_three_rounds_have_no_interval() {
        let mut random = fastrand::Rng::with_seed(9);
        for count in [2, 3] {
            assert_eq!(
                bounds(&rounds(count, &mut random), 1, mean),
                None,
                "{count}"
            );
        }
    }

    #[test]
    fn more_rounds_tell_more() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut width = |count| {
            let found = bounds(&rounds(count, &mut random), 1, mean).unwrap();
            found.high - found.low
        };
        assert!(width(40) < width(5));
    }

    #[test]
    fn one_round_is_judged_by_its_blocks_and_a_short_one_not_at_all() {
        let round: Vec<f64> = (0..30).map(|index| f64::from(index * 7 % 11)).collect();
        let found = bounds(std::slice::from_ref(&round), 1, mean).unwrap();
        assert!(found.low < 5.0 && 5.0 < found.high, "{found:?}");
        assert_eq!(bounds(&[round[..3].to_vec()], 1, mean), None);
        assert_eq!(bounds::<f64>(&[], 1, mean), None);
    }
}
