//! What is due, what is held, and the record of it: the part of a worker that knows no sockets.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::block_records::BlockRecords;
use crate::client::{Client, Track};
use crate::ledger::Reply;
use crate::plan::Plan;
use crate::raw::{RawLine, RawSink};
use crate::schedule::NEVER;
use crate::stage_records::StageRecords;
use crate::tally::{Occupancy, Tally};

/// The due queue of one worker and its tally.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) tally: Box<Tally>,
    /// Next message of each client that has one and is not blocked: intended time, and the
    /// client's index. In a closed loop one entry per free slot.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// Messages on their way to the socket in the stand-in link. Sorted, as every delay is equal.
    held: VecDeque<Held>,
    /// Messages of a closed loop that may be sent now, by any client.
    budget: u64,
    /// Messages of clients of a closed loop whose own time has not started: when it does, they
    /// join the budget.
    reserved: BinaryHeap<Reverse<(u64, u64)>>,
    /// Slots of a closed loop that found the budget spent, by their client. Bounded by the slots.
    idle: Vec<u32>,
    /// Clients with messages left in the schedule.
    pub(crate) unfinished: usize,
    pub(crate) last_sent_ns: u64,
    /// When the last reply came that was awaited.
    pub(crate) last_reply_ns: u64,
    /// When the last reply came, duplicates included.
    pub(crate) last_received_ns: u64,
    /// Copies of what others and they published that its clients have heard, each once.
    pub(crate) heard: u64,
    /// Clients with something to flush.
    pub(crate) touched: Vec<u32>,
    /// Response times in blocks of time.
    pub(crate) blocks: BlockRecords,
    /// What becomes of the messages of each stage, where there are stages.
    pub(crate) stages: StageRecords,
    raw: Option<RawSink>,
    sending: bool,
}

/// A message in the stand-in link. Its payload is made again when it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) release_ns: u64,
    pub(crate) client: u32,
    pub(crate) seq: u64,
    pub(crate) created_at: u64,
    /// When the connection came up that it is for.
    pub(crate) up_ns: u64,
}

impl Desk {
    pub(crate) fn new(raw: Option<RawSink>) -> Self {
        Self {
            raw,
            ..Self::default()
        }
    }

    /// Begins the first interval.
    pub(crate) fn occupy(&mut self, plan: &Plan, now_ns: u64) {
        self.tally.occupancy = Occupancy::begin(now_ns, plan.link_delay_ns);
        self.blocks = BlockRecords::new(now_ns, plan.schedule.planned_ns());
        if let Some(stages) = plan.scenario.stages() {
            self.stages = StageRecords::new(stages, now_ns);
        }
        self.sending = true;
    }

    /// A client is up after the start: for the first time, or again.
    pub(crate) fn join(
        &mut self,
        plan: &Plan,
        index: u32,
        client: &mut Client,
        start_ns: u64,
        joined_ns: u64,
    ) {
        if !self.sending {
            return;
        }
        let track = &mut client.track;
        let now_ns = start_ns.saturating_add(joined_ns);
        track.ready_ns = now_ns;
        track.blocked = false;
        let first = track.cursor.is_none();
        let cursor = track
            .cursor
            .get_or_insert_with(|| plan.schedule.join(client.number, joined_ns));
        if plan.is_closed() {
            let begin_ns = start_ns.saturating_add(cursor.epoch_ns()).max(now_ns);
            if first && cursor.left() > 0 && !plan.is_short_lived() {
                self.reserved.push(Reverse((begin_ns, cursor.left())));
            }
            let slots = match plan.is_sender(client.number) {
                true => u64::from(plan.in_flight_max).min(track.quota),
                false => 0,
            };
            for _ in 0..slots {
                self.due.push(Reverse((begin_ns, index)));
            }
        } else if cursor.next_ns() != NEVER {
            if first {
                track.unfinished = true;
                self.unfinished += 1;
            }
            self.queue(index, track, start_ns);
        }
    }

    /// A client will send no more: it is down for good, or its schedule has ended.
    pub(crate) fn finish_client(&mut self, track: &mut Track) {
        if std::mem::take(&mut track.unfinished) {
            self.unfinished -= 1;
        }
    }

    /// Puts the client's next message into the due queue.
    pub(crate) fn queue(&mut self, index: u32, track: &mut Track, start_ns: u64) {
        let next_ns = track
            .cursor
            .as_ref()
            .map_or(NEVER, crate::schedule::Cursor::next_ns);
        if next_ns == NEVER {
            self.finish_client(track);
        } else {
            track.due_ns = start_ns.saturating_add(next_ns);
            self.due.push(Reverse((track.due_ns, index)));
        }
    }

    /// One slot of the client became free at `at_ns`.
    pub(crate) fn free_slot(&mut self, plan: &Plan, index: u32, track: &mut Track, at_ns: u64) {
        if !self.sending {
            return;
        }
        if plan.is_closed() {
            let due_ns = at_ns.saturating_add(plan.think_ns);
            self.due.push(Reverse((due_ns, index)));
            if std::mem::take(&mut track.is_ledger_full) {
                self.unblock(index, track, at_ns);
            }
        } else {
            self.unblock(index, track, at_ns);
        }
    }

    /// What the client waited for is there since `at_ns`; its message keeps its intended time.
    pub(crate) fn unblock(&mut self, index: u32, track: &mut Track, at_ns: u64) {
        if !std::mem::take(&mut track.blocked) || !self.sending {
            return;
        }
        track.needs_room = false;
        track.ready_ns = at_ns;
        track.due_ns = at_ns;
        // A closed loop has an entry per slot that could not be used, any other loop has one.
        if track.owed.is_empty() {
            self.due.push(Reverse((at_ns, index)));
        }
        let owed = track.owed.drain(..);
        self.due.extend(owed.map(|due_ns| Reverse((due_ns, index))));
    }

    /// The first entry that is due at `now_ns`: its time in the queue, and the client.
    pub(crate) fn first_due(&self, now_ns: u64) -> Option<(u64, u32)> {
        let &Reverse((at_ns, index)) = self.due.peek()?;
        (at_ns <= now_ns).then_some((at_ns, index))
    }

    /// Takes that entry.
    pub(crate) fn drop_first_due(&mut self) {
        self.due.pop();
    }

    /// Adds the messages of clients whose own time has started by `now_ns` to the budget.
    pub(crate) fn grant(&mut self, now_ns: u64) {
        while let Some(&Reverse((begin_ns, messages))) = self.reserved.peek()
            && begin_ns <= now_ns
        {
            self.reserved.pop();
            self.budget = self.budget.saturating_add(messages);
            self.wake_idle(begin_ns);
        }
    }

    /// Takes one message of a closed loop from the budget for a slot of a client; without one, the
    /// slot waits until there is.
    pub(crate) fn spend(&mut self, index: u32) -> bool {
        let left = self.budget > 0;
        self.budget -= u64::from(left);
        if !left {
            self.idle.push(index);
        }
        left
    }

    /// Gives a message back that could not be sent.
    pub(crate) fn refund(&mut self, now_ns: u64) {
        self.budget = self.budget.saturating_add(1);
        self.wake_idle(now_ns);
    }

    fn wake_idle(&mut self, at_ns: u64) {
        let idle = self.idle.drain(..).map(|index| Reverse((at_ns, index)));
        self.due.extend(idle);
    }

    /// True when a closed loop has sent the messages of all clients that have joined.
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.budget == 0 && self.reserved.is_empty()
    }

    /// Messages of a closed loop that were not sent yet.
    pub(crate) fn budget(&self) -> u64 {
        let reserved = self.reserved.iter().map(|Reverse((_, messages))| messages);
        reserved.fold(self.budget, |sum, messages| sum.saturating_add(*messages))
    }

    /// When the next message is due, or leaves the stand-in link.
    pub(crate) fn next_due_ns(&self) -> u64 {
        let due_ns = self.due.peek().map_or(NEVER, |Reverse((at_ns, _))| *at_ns);
        due_ns.min(self.next_held_ns())
    }

    /// When the next message leaves the stand-in link.
    pub(crate) fn next_held_ns(&self) -> u64 {
        self.held.front().map_or(NEVER, |held| held.release_ns)
    }

    /// Puts a message into the stand-in link.
    pub(crate) fn hold(&mut self, held: Held) {
        self.held.push_back(held);
    }

    /// Takes a message that leaves the stand-in link.
    pub(crate) fn take_held(&mut self, now_ns: u64) -> Option<Held> {
        self.held.pop_front_if(|held| held.release_ns <= now_ns)
    }

    /// Nothing is due any more.
    pub(crate) fn stop_sending(&mut self) {
        self.sending = false;
        self.due.clear();
        self.reserved.clear();
        self.idle.clear();
        self.budget = 0;
    }

    /// Marks a client as one to be flushed at the end of the turn.
    pub(crate) fn touch(&mut self, index: u32, track: &mut Track) {
        if !std::mem::replace(&mut track.touched, true) {
            self.touched.push(index);
        }
    }

    /// Records an awaited reply.
    pub(crate) fn replied(&mut self, reply: &Reply, at_ns: u64) {
        self.last_reply_ns = at_ns;
        self.last_received_ns = at_ns;
        self.tally.replied(reply, at_ns);
        let intended_ns = reply.entry.intended_ns;
        self.stages.received(intended_ns);
        if reply.last {
            let response_ns = at_ns.saturating_sub(intended_ns);
            self.stages.answered(intended_ns, response_ns);
            self.blocks.answered(intended_ns, response_ns);
        }
    }

    /// Counts an awaited reply to a message that was forgotten.
    pub(crate) fn replied_late(&mut self, at_ns: u64) {
        self.last_reply_ns = at_ns;
        self.last_received_ns = at_ns;
        self.tally.replied_late();
    }

    /// True when a line per reply is wanted.
    pub(crate) fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Streams one line.
    pub(crate) fn raw_line(&mut self, line: RawLine) {
        if let Some(raw) = &mut self.raw {
            self.tally.counters.raw_dropped += raw.push(line);
        }
    }

    /// Hands over what is left.
    pub(crate) fn finish(&mut self) {
        if let Some(mut raw) = self.raw.take() {
            self.tally.counters.raw_dropped += raw.flush();
        }
    }
}
