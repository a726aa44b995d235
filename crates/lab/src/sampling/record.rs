//! The samples of a run that may be of any length, in room that has a bound.

use super::{Sample, Series};

/// Samples, oldest first. Where they become too many, every other one is left out.
#[derive(Debug)]
pub(super) struct Record {
    samples: Vec<Sample>,
    most: usize,
}

impl Record {
    /// Begins with the first look, if there is one, and holds so many at most.
    pub(super) fn of(first: Option<Sample>, most: usize) -> Self {
        Self {
            samples: first.into_iter().collect(),
            most,
        }
    }

    /// Adds one. `true` says that there was no more room, so that half of it was made free: looks
    /// are to be half as many from then on.
    pub(super) fn add(&mut self, sample: Sample) -> bool {
        let is_full = self.samples.len() >= self.most;
        if is_full {
            self.samples = thinned(std::mem::take(&mut self.samples));
        }
        self.samples.push(sample);
        is_full
    }

    pub(super) fn end(self) -> Series {
        Series(self.samples)
    }
}

/// The first one, which is that of an idle process, and of each two after it the one with the
/// larger memory. It has the close look of the two: so that peaks stay.
fn thinned(samples: Vec<Sample>) -> Vec<Sample> {
    let mut samples = samples.into_iter();
    let mut kept: Vec<Sample> = samples.next().into_iter().collect();
    while let Some(one) = samples.next() {
        let pair = [Some(one), samples.next()];
        let looks = pair.iter().flatten().filter_map(|sample| sample.rare);
        let rare = looks.max_by_key(|rare| rare.pss_bytes);
        let largest = pair.into_iter().flatten().max_by_key(|it| it.rss_bytes);
        kept.extend(largest.map(|sample| Sample { rare, ..sample }));
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::tests::sample;
    use super::*;
    use crate::sampling::RareSample;

    #[test]
    fn a_long_run_is_known_all_along_in_the_room_that_there_is() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        // Half a processor, for more than a hundred times what there is room for.
        let look = |ms: u64| Sample {
            rss_bytes: if ms == 300 { 1 << 30 } else { 1 << 20 },
            rare: (ms == 500).then_some(RareSample {
                pss_bytes: 7,
                descriptors: 3,
            }),
            ..sample(at(ms), ms * 500_000)
        };
        let mut record = Record::of(Some(look(0)), 50);
        let (mut ms, mut period) = (0, 100);
        while ms < 600_000 {
            ms += period;
            if record.add(look(ms)) {
                period *= 2;
            }
        }
        let series = record.end();
        assert!((25..=50).contains(&series.0.len()), "{}", series.0.len());
        assert_eq!(
            (series.0[0].at, series.0.last().unwrap().at),
            (at(0), at(ms))
        );
        let gaps = series.0.windows(2).map(|pair| pair[1].at - pair[0].at);
        assert!(gaps.max() < Some(Duration::from_secs(60)), "{series:?}");
        let share = series.cpu_share(at(100_000), at(200_000)).unwrap();
        assert!((share - 0.5).abs() < 1e-6, "{share}");
        // Neither a peak nor a close look of the beginning is lost.
        assert_eq!(series.rss_peak_bytes(), Some(1 << 30));
        assert!(series.0.iter().any(|sample| sample.rare.is_some()));
    }
}
