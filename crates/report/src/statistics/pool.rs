//! Statistics of the samples of several rounds together, and their intervals by drawing rounds and
//! blocks of time again.

use super::bootstrap::{self, Bounds};
use crate::metric::Statistic;
use crate::time_block::TimeBlock;

/// All samples, in rounds and in blocks of time inside them.
pub(crate) struct Pool<'a> {
    /// Every value there is, from the smallest up.
    values_ns: Vec<u64>,
    rounds: Vec<Vec<Part<'a>>>,
}

/// A value, and its interval of 95 % where the samples can say.
pub(crate) type Estimate = (f64, Option<Bounds>);

/// One block, ready to be counted with others.
struct Part<'a> {
    block: &'a TimeBlock,
    /// How many of its samples are at most each of the values.
    up_to: Vec<u64>,
}

impl<'a> Pool<'a> {
    /// Of the blocks of each round; those without samples say nothing.
    pub(crate) fn new(rounds: &'a [Vec<TimeBlock>]) -> Self {
        let blocks = rounds.iter().flatten();
        let values = blocks.flat_map(|it| it.counts.iter().map(|(value_ns, _)| *value_ns));
        let mut values_ns: Vec<u64> = values.collect();
        values_ns.sort_unstable();
        values_ns.dedup();
        let parts = |blocks: &'a Vec<TimeBlock>| -> Vec<Part<'a>> {
            let blocks = blocks.iter().filter(|block| block.count > 0);
            blocks.map(|block| Part::new(block, &values_ns)).collect()
        };
        let rounds = rounds.iter().map(parts).collect();
        Self { values_ns, rounds }
    }

    /// The statistic of all samples with its interval.
    pub(crate) fn estimate(&self, statistic: Statistic, seed: u64) -> Option<Estimate> {
        Some((self.value(statistic)?, self.bounds(statistic, seed)))
    }

    /// The statistic of all samples; `None` where there are none.
    pub(crate) fn value(&self, statistic: Statistic) -> Option<f64> {
        let all: Vec<&Part<'_>> = self.rounds.iter().flatten().collect();
        self.statistic(&all, statistic)
    }

    /// Its interval; `None` where the samples cannot say.
    pub(crate) fn bounds(&self, statistic: Statistic, seed: u64) -> Option<Bounds> {
        if !self.is_backed(statistic) {
            return None;
        }
        bootstrap::bounds(&self.rounds, seed, |drawn| self.statistic(drawn, statistic))
    }

    /// Whether enough samples lie on both sides: draws of what was seen know nothing of what was
    /// not, least of all beyond the extremes.
    fn is_backed(&self, statistic: Statistic) -> bool {
        match statistic {
            Statistic::Min | Statistic::Max => false,
            Statistic::Mean => true,
            Statistic::Quantile(share) => {
                let count: u64 = self.rounds.iter().flatten().map(|it| it.block.count).sum();
                let below = wanted(share, count);
                below.min(count.saturating_sub(below)) >= TAIL_MIN
            }
        }
    }

    fn statistic(&self, parts: &[&Part<'_>], statistic: Statistic) -> Option<f64> {
        let blocks = || parts.iter().map(|part| part.block);
        let count: u64 = blocks().map(|block| block.count).sum();
        let min_ns = blocks().map(|block| block.min_ns).min()?;
        let max_ns = blocks().map(|block| block.max_ns).max()?;
        Some(match statistic {
            Statistic::Min => min_ns as f64,
            Statistic::Max => max_ns as f64,
            Statistic::Mean => blocks().map(|block| block.sum_ns).sum::<f64>() / count as f64,
            Statistic::Quantile(share) => {
                let wanted = wanted(share, count);
                let (mut low, mut high) = (0, self.values_ns.len() - 1);
                while low < high {
                    let middle = low.midpoint(high);
                    let found: u64 = parts.iter().map(|part| part.up_to[middle]).sum();
                    if found < wanted {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                self.values_ns[low].clamp(min_ns, max_ns) as f64
            }
        })
    }
}

impl<'a> Part<'a> {
    fn new(block: &'a TimeBlock, values_ns: &[u64]) -> Self {
        let mut counts = block.counts.iter().peekable();
        let mut sum = 0;
        let up_to = values_ns.iter().map(|value_ns| {
            while let Some((_, count)) = counts.next_if(|(own_ns, _)| own_ns <= value_ns) {
                sum += count;
            }
            sum
        });
        Self {
            block,
            up_to: up_to.collect(),
        }
    }
}

/// As HdrHistogram has it: of the smallest value that this share of all is not above, how many
/// are at most it.
fn wanted(share: f64, count: u64) -> u64 {
    ((share * count as f64).ceil() as u64).max(1)
}

/// Samples on each side of a percentile that has an interval.
const TAIL_MIN: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn block(values: &[u64]) -> TimeBlock {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        TimeBlock {
            counts: sorted.iter().map(|value_ns| (*value_ns, 1)).collect(),
            count: values.len() as u64,
            sum_ns: values.iter().sum::<u64>() as f64,
            min_ns: sorted.first().copied().unwrap_or(0),
            max_ns: sorted.last().copied().unwrap_or(0),
        }
    }

    /// Latencies of a log-normal distribution around 1 ms, each like the one before it.
    fn autocorrelated(count: usize, random: &mut fastrand::Rng) -> Vec<u64> {
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let mut state = normal(random);
        let values = (0..count).map(|_| {
            state = LIKENESS * state + (1.0 - LIKENESS * LIKENESS).sqrt() * normal(random);
            (1e6 * (SPREAD * state).exp()) as u64
        });
        values.collect()
    }

    const LIKENESS: f64 = 0.9;
    const SPREAD: f64 = 0.2;

    #[test]
    fn statistics_are_those_of_all_samples() {
        let rounds = [vec![block(&[5, 1, 9]), block(&[])], vec![block(&[9, 3])]];
        let pool = Pool::new(&rounds);
        for (statistic, expected) in [
            (Statistic::Min, 1.0),
            (Statistic::Max, 9.0),
            (Statistic::Mean, 5.4),
            (Statistic::Quantile(0.2), 1.0),
            (Statistic::Quantile(0.5), 5.0),
            (Statistic::Quantile(0.61), 9.0),
        ] {
            assert_eq!(pool.value(statistic), Some(expected), "{statistic:?}");
        }
        assert_eq!(Pool::new(&[vec![block(&[])]]).value(Statistic::Min), None);
        assert_eq!(Pool::new(&rounds[1..]).bounds(Statistic::Mean, 1), None);
    }

    #[test]
    fn what_hangs_on_a_few_samples_has_no_interval() {
        // Two hundred samples: 20 above p90, 2 above p99 and below p1.
        let of_block = |at: u64| {
            (0..20)
                .map(|step| 1000 + at + step * 10)
                .collect::<Vec<u64>>()
        };
        let rounds = [(0..10).map(|at| block(&of_block(at))).collect::<Vec<_>>()];
        let pool = Pool::new(&rounds);
        let has = |statistic| pool.bounds(statistic, 1).is_some();
        assert!(has(Statistic::Mean) && has(Statistic::Quantile(0.5)));
        assert!(has(Statistic::Quantile(0.9)) && has(Statistic::Quantile(0.1)));
        assert!(!has(Statistic::Quantile(0.99)) && !has(Statistic::Quantile(0.01)));
        assert!(!has(Statistic::Min) && !has(Statistic::Max));
    }

    #[test]
    fn the_intervals_of_one_run_hold_the_truth_though_neighbours_resemble_each_other() {
        let mut random = fastrand::Rng::with_seed(11);
        let truth = [
            (Statistic::Mean, 1e6 * (SPREAD * SPREAD / 2.0).exp()),
            (Statistic::Quantile(0.5), 1e6),
            (Statistic::Quantile(0.9), 1e6 * (SPREAD * 1.2816).exp()),
        ];
        let trials = 150;
        let mut hits = [0; 3];
        let mut hits_as_if_independent = 0;
        for seed in 0..trials {
            let samples = autocorrelated(4000, &mut random);
            let rounds = [samples.chunks(400).map(block).collect::<Vec<_>>()];
            let pool = Pool::new(&rounds);
            for (hits, (statistic, truth)) in hits.iter_mut().zip(truth) {
                let found = pool.bounds(statistic, seed).unwrap();
                *hits += usize::from(found.low <= truth && truth <= found.high);
            }
            let mean = pool.value(Statistic::Mean).unwrap();
            let squares = samples.iter().map(|value| (*value as f64 - mean).powi(2));
            let error = (squares.sum::<f64>() / 4000.0 / 4000.0).sqrt();
            hits_as_if_independent += usize::from((mean - truth[0].1).abs() < 1.96 * error);
        }
        // Three deviations of chance below 95 % are 134.
        assert!(hits.iter().all(|hits| *hits >= 134), "{hits:?} of {trials}");
        assert!(
            hits_as_if_independent < 90,
            "{hits_as_if_independent} of {trials}"
        );
    }

    #[test]
    fn blocks_inside_rounds_widen_what_few_rounds_say() {
        let mut random = fastrand::Rng::with_seed(2);
        let samples = autocorrelated(8000, &mut random);
        let rounds: Vec<Vec<TimeBlock>> = samples
            .chunks(2000)
            .map(|round| round.chunks(200).map(block).collect())
            .collect();
        let found = Pool::new(&rounds)
            .bounds(Statistic::Quantile(0.5), 1)
            .unwrap();
        assert!(found.low < 1e6 && 1e6 < found.high, "{found:?}");
    }
}
