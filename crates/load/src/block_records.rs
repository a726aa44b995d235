//! Response times in equal blocks of time, by the intended times of their messages: what intervals
//! of percentiles are drawn from.

use moonwire_report::{Histogram, TimeBlock};

/// At most [`BLOCKS_MAX`] blocks of equal length. Where the end is not known before, they are short
/// in the beginning, and two become one whenever there would be too many.
#[derive(Debug)]
pub(crate) struct BlockRecords {
    start_ns: u64,
    /// Never 0.
    length_ns: u64,
    /// The last block has also what comes after it.
    is_planned: bool,
    blocks: Vec<Histogram>,
}

impl BlockRecords {
    /// Of a run that starts at `start_ns` and sends for so long, if that is known.
    pub(crate) fn new(start_ns: u64, planned_ns: Option<u64>) -> Self {
        let planned_ns = planned_ns.filter(|planned_ns| *planned_ns > 0);
        let length_ns = planned_ns.map_or(FIRST_NS, |it| it.div_ceil(BLOCKS_MAX as u64));
        Self {
            start_ns,
            length_ns,
            is_planned: planned_ns.is_some(),
            blocks: Vec::new(),
        }
    }

    /// Records the time to the last reply.
    pub(crate) fn answered(&mut self, intended_ns: u64, response_ns: u64) {
        let since_ns = intended_ns.saturating_sub(self.start_ns);
        while !self.is_planned && since_ns / self.length_ns >= BLOCKS_MAX as u64 {
            self.double();
        }
        let index = (since_ns / self.length_ns).min(BLOCKS_MAX as u64 - 1) as usize;
        while self.blocks.len() <= index {
            self.blocks.push(Histogram::default());
        }
        self.blocks[index].record(response_ns);
    }

    /// Makes one block of each two.
    fn double(&mut self) {
        self.length_ns = self.length_ns.saturating_mul(2);
        let mut halves = std::mem::take(&mut self.blocks).into_iter();
        while let Some(mut block) = halves.next() {
            if let Some(other) = halves.next() {
                block.merge(&other);
            }
            self.blocks.push(block);
        }
    }

    /// Adds what another worker of the same run recorded.
    pub(crate) fn merge(&mut self, mut other: Self) {
        if self.blocks.is_empty() {
            *self = other;
            return;
        }
        if other.blocks.is_empty() {
            return;
        }
        while self.length_ns < other.length_ns {
            self.double();
        }
        while other.length_ns < self.length_ns {
            other.double();
        }
        for (index, block) in other.blocks.into_iter().enumerate() {
            match self.blocks.get_mut(index) {
                Some(own) => own.merge(&block),
                None => self.blocks.push(block),
            }
        }
    }

    /// The blocks from the first one on.
    pub(crate) fn blocks(&self) -> Vec<TimeBlock> {
        self.blocks.iter().map(TimeBlock::of).collect()
    }
}

impl Default for BlockRecords {
    fn default() -> Self {
        Self::new(0, None)
    }
}

/// Enough to see how they differ, and few enough that a p99 has samples in each.
const BLOCKS_MAX: usize = 10;
/// A run of which the end is not known may be as short as some of these.
const FIRST_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn counts(records: &BlockRecords) -> Vec<u64> {
        records.blocks().iter().map(TimeBlock::count).collect()
    }

    #[test]
    fn a_planned_run_has_ten_blocks_and_late_joiners_are_in_the_last() {
        let mut records = BlockRecords::new(5 * MS, Some(1000 * MS));
        for ms in (0..1000).chain([1000, 5000]) {
            records.answered((5 + ms) * MS, MS);
        }
        assert_eq!(
            counts(&records),
            [100, 100, 100, 100, 100, 100, 100, 100, 100, 102]
        );
    }

    #[test]
    fn blocks_grow_with_a_run_of_unknown_length_and_hold_every_sample() {
        for messages in [1, 9, 10, 11, 1000, 12_345] {
            let mut records = BlockRecords::new(0, None);
            for ms in 0..messages {
                records.answered(ms * MS, ms * 1000);
            }
            let counts = counts(&records);
            assert_eq!(counts.iter().sum::<u64>(), messages);
            assert!(counts.len() <= BLOCKS_MAX, "{counts:?}");
            assert!(messages < 10 || counts.len() > BLOCKS_MAX / 2, "{counts:?}");
            let (last, whole) = counts.split_last().unwrap();
            assert!(
                whole.iter().all(|it| *it == counts[0] && it >= last),
                "{counts:?}"
            );
        }
    }

    #[test]
    fn workers_with_blocks_of_unlike_lengths_are_added_up() {
        let of = |times: &[u64]| {
            let mut records = BlockRecords::new(0, None);
            times.iter().for_each(|ms| records.answered(ms * MS, MS));
            records
        };
        for (one, other, first) in [
            (&[0, 3][..], &[0, 35][..], 3),
            (&[0, 35], &[0, 3], 3),
            (&[], &[0, 35], 1),
        ] {
            let mut records = of(one);
            records.merge(of(other));
            records.merge(BlockRecords::new(0, None));
            // Of 4 ms each.
            assert_eq!(counts(&records), [first, 0, 0, 0, 0, 0, 0, 0, 1]);
        }
    }
}
