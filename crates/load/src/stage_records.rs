//! What becomes of the messages of each stage, by their intended times.

use moonwire_report::{Histogram, Stage};

use crate::schedule::duration_ns;
use crate::stages::RateStages;

/// One record for each stage; without stages none.
#[derive(Debug, Default)]
pub(crate) struct StageRecords {
    start_ns: u64,
    /// When each of them ends, on the clock of the run.
    ends_ns: Vec<u64>,
    records: Vec<StageRecord>,
}

#[derive(Debug, Default)]
struct StageRecord {
    sent: u64,
    /// Due in it by the schedule, and never sent.
    unsent: u64,
    /// Replies, each once.
    received: u64,
    response: Histogram,
}

impl StageRecords {
    /// Of a run that starts at `start_ns`.
    pub(crate) fn new(stages: &RateStages, start_ns: u64) -> Self {
        let mut end_ns = start_ns;
        let ends = stages.stages().iter().map(|stage| {
            end_ns += duration_ns(stage.duration);
            end_ns
        });
        Self {
            start_ns,
            ends_ns: ends.collect(),
            records: stages
                .stages()
                .iter()
                .map(|_| StageRecord::default())
                .collect(),
        }
    }

    /// Counts a message.
    pub(crate) fn sent(&mut self, intended_ns: u64) {
        if let Some(record) = self.of(intended_ns) {
            record.sent += 1;
        }
    }

    /// Counts a reply that was awaited.
    pub(crate) fn received(&mut self, intended_ns: u64) {
        if let Some(record) = self.of(intended_ns) {
            record.received += 1;
        }
    }

    /// Records the time to the last reply.
    pub(crate) fn answered(&mut self, intended_ns: u64, response_ns: u64) {
        if let Some(record) = self.of(intended_ns) {
            record.response.record(response_ns);
        }
    }

    /// Counts what one connection did not come to when sending ends, by how many of its messages
    /// were due before so many nanoseconds from the start and are not sent.
    pub(crate) fn left(&mut self, due_before: impl Fn(u64) -> u64) {
        let mut before = 0;
        for (end_ns, record) in self.ends_ns.iter().zip(&mut self.records) {
            let due = due_before(end_ns - self.start_ns);
            record.unsent += due.saturating_sub(before);
            before = due;
        }
    }

    /// The stage in which a message was intended; what ends one begins the next.
    fn of(&mut self, intended_ns: u64) -> Option<&mut StageRecord> {
        let last = self.records.len().checked_sub(1)?;
        let index = self
            .ends_ns
            .partition_point(|end_ns| *end_ns <= intended_ns);
        self.records.get_mut(index.min(last))
    }

    /// Adds what another worker recorded.
    pub(crate) fn merge(&mut self, other: Self) {
        if self.records.is_empty() {
            *self = other;
            return;
        }
        for (own, other) in self.records.iter_mut().zip(&other.records) {
            own.sent += other.sent;
            own.unsent += other.unsent;
            own.received += other.received;
            own.response.merge(&other.response);
        }
    }

    /// The figures of each stage, of which every message should have so many replies.
    pub(crate) fn figures(&self, stages: &RateStages, replies: u64) -> Vec<Stage> {
        let mut start_s = 0.0;
        let stages = stages.with_starts().zip(&self.records);
        let figures = stages.map(|((from_per_s, stage), record)| {
            let length_s = stage.duration.as_secs_f64();
            start_s += length_s;
            Stage {
                start_s: start_s - length_s,
                length_s,
                from_per_s,
                target_per_s: stage.target_per_s,
                unsent: Some(record.unsent),
                sent: record.sent,
                received: record.received,
                lost: record
                    .sent
                    .saturating_mul(replies)
                    .saturating_sub(record.received),
                response: record.response.packed(),
            }
        });
        figures.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_message_is_of_the_stage_in_which_it_was_intended() {
        let stages = RateStages::parse("2s:10,0s:20,1s:20", 10.0).unwrap();
        let start_ns = 7 * SECOND_NS;
        let record = |intended: &[u64]| {
            let mut records = StageRecords::new(&stages, start_ns);
            for intended_ns in intended {
                records.sent(start_ns + intended_ns);
                records.received(start_ns + intended_ns);
                records.answered(start_ns + intended_ns, SECOND_NS);
            }
            records
        };
        let mut records = record(&[0, 2 * SECOND_NS - 1, 2 * SECOND_NS]);
        records.merge(record(&[SECOND_NS, 9 * SECOND_NS]));
        let figures = records.figures(&stages, 2);
        let counts: Vec<_> = figures
            .iter()
            .map(|it| {
                (
                    it.start_s,
                    it.sent,
                    it.received,
                    it.lost,
                    it.response.count(),
                )
            })
            .collect();
        assert_eq!(
            counts,
            [(0.0, 3, 3, 3, 3), (2.0, 0, 0, 0, 0), (2.0, 2, 2, 2, 2)]
        );
        assert_eq!(
            (figures[2].from_per_s, figures[2].target_per_s),
            (20.0, 20.0)
        );
        // Two of the first stage, none of the jump, one of the last.
        records.left(|until_ns| if until_ns <= 2 * SECOND_NS { 2 } else { 3 });
        let unsent = records.figures(&stages, 2);
        let unsent: Vec<_> = unsent.iter().map(|it| it.unsent).collect();
        assert_eq!(unsent, [Some(2), Some(0), Some(1)]);
        let mut all = StageRecords::default();
        all.sent(5);
        all.merge(records);
        assert_eq!(all.figures(&stages, 1).len(), 3);
    }
}
