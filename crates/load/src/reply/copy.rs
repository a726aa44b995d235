//! Copies of what was published, taken by those who hear them.

use moonwire_proto::Opcode;

use crate::audience::{Heard, Programme};
use crate::client::Track;
use crate::desk::Desk;
use crate::ledger::Settled;
use crate::plan::{Content, Plan};

/// A message that a connection received.
pub(super) struct Received<'a> {
    pub(super) opcode: Opcode,
    pub(super) payload: &'a [u8],
    pub(super) at_ns: u64,
}

impl Desk {
    /// Takes a copy; `place` is the client's index and its number among all.
    pub(super) fn take_copy(
        &mut self,
        plan: &Plan,
        programme: &Programme,
        place: (u32, u32),
        track: &mut Track,
        received: &Received<'_>,
    ) {
        let (index, number) = place;
        // What it left unread comes when it closes.
        if plan.is_silent(number) {
            return;
        }
        let &Received {
            opcode,
            payload,
            at_ns,
        } = received;
        let read = match &plan.content {
            Content::Echo(echo) => echo.read_of_anybody(payload),
            Content::Amplify(_) => None,
        };
        let Some((publisher, seq, intact)) = read else {
            // Whose it was cannot be said, so that it is lost as well.
            self.tally.counters.received += 1;
            self.tally.counters.corrupt += 1;
            return;
        };
        let Some(hearing) = track.hearings.get_mut(publisher as usize) else {
            self.tally.counters.unexpected += 1;
            return;
        };
        if programme.was_never_sent(publisher, seq) {
            self.tally.counters.unexpected += 1;
            return;
        }
        let has_opcode = opcode == plan.opcode(seq);
        if !has_opcode {
            self.tally
                .error("a copy has another opcode than its message");
        }
        self.last_received_ns = at_ns;
        let heard = hearing.take(seq);
        if heard == Heard::Again {
            self.tally.counters.received += 1;
            self.tally.counters.duplicate += 1;
            return;
        }
        self.heard += 1;
        self.tally.counters.corrupt += u64::from(!intact || !has_opcode);
        let copy = programme.hear(publisher, seq, at_ns);
        if let Some(copy) = &copy {
            self.tally.heard(copy);
        }
        if publisher == number {
            return self.take_own_copy(plan, index, track, seq, at_ns);
        }
        if let Some(copy) = copy {
            self.stages.received(at_ns.saturating_sub(copy.delivery_ns));
        }
        self.tally.counters.received += 1;
        self.tally.counters.distinct += 1;
        self.tally.counters.reordered += u64::from(heard == Heard::Late);
    }

    /// Takes what a publisher waits for: its own copy.
    fn take_own_copy(&mut self, plan: &Plan, index: u32, track: &mut Track, seq: u64, at_ns: u64) {
        match track.ledger.settle(seq) {
            Settled::Reply(reply) => {
                self.replied(&reply, at_ns);
                if reply.frees_slot {
                    self.free_slot(plan, index, track, at_ns);
                }
            }
            Settled::Late => self.replied_late(at_ns),
            Settled::Duplicate | Settled::Unknown => self.tally.counters.unexpected += 1,
        }
    }
}
