//! The messages of one connection that still await replies.
//!
//! Sequence numbers are dense, so a ring with the number of its first entry holds them. A message
//! that waits longer than the patience of the run gives up its place and its slot, but is kept
//! aside: a reply that comes after all has its latency. Of those that do not fit aside, only the
//! number of missing replies is known: they are late when they come, and no duplicates.

use std::collections::VecDeque;

/// Messages sent and not yet answered in full, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Sequence number of `open[0]`, or of the next message while it is empty.
    base: u64,
    /// Entry `i` is message `base + i`. Invariant: the first one is incomplete.
    open: VecDeque<Entry>,
    /// Incomplete messages that left the ring, oldest first. Bounded by who lets them expire.
    overdue: VecDeque<(u64, Entry)>,
    /// Replies missing to messages that were forgotten, all older than those in `overdue`.
    forgotten: u64,
    /// Highest sequence number that was answered, plus one.
    answered_to: u64,
    /// Entries that hold one of the connection's slots.
    in_flight: u32,
}

/// One message: times are nanoseconds of the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When it should have been sent.
    pub(crate) intended_ns: u64,
    /// When it was handed to the socket.
    pub(crate) wire_ns: u64,
    /// Wall clock inside the message, in its own unit; 0 where it has none.
    pub(crate) created_at: u64,
    /// Replies still missing.
    missing: u16,
    /// Whether any reply came.
    answered: bool,
    /// Whether it counts as in flight.
    holds_slot: bool,
}

impl Entry {
    /// A message that awaits `replies` replies.
    pub(crate) fn new(intended_ns: u64, wire_ns: u64, created_at: u64, replies: u16) -> Self {
        Self {
            intended_ns,
            wire_ns,
            created_at,
            missing: replies,
            answered: false,
            holds_slot: true,
        }
    }
}

/// What a reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// One of the replies awaited.
    Reply(Reply),
    /// One of the replies awaited, to a message of which nothing else is known any more.
    Late,
    /// The message had all its replies before.
    Duplicate,
    /// No such message was sent.
    Unknown,
}

/// A reply that was awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The message, as it was before this reply.
    pub(crate) entry: Entry,
    /// It is the first reply to the message.
    pub(crate) first: bool,
    /// It is the last reply to the message.
    pub(crate) last: bool,
    /// A later message was answered before.
    pub(crate) reordered: bool,
    /// It gave back a slot.
    pub(crate) frees_slot: bool,
}

impl Ledger {
    /// Sequence number of the next message.
    pub(crate) fn next_seq(&self) -> u64 {
        self.base + self.open.len() as u64
    }

    /// Enters the next message.
    pub(crate) fn enter(&mut self, entry: Entry) {
        self.open.push_back(entry);
        self.in_flight += 1;
    }

    /// Settles one reply to message `seq`.
    pub(crate) fn settle(&mut self, seq: u64) -> Settled {
        if seq >= self.next_seq() {
            return Settled::Unknown;
        }
        let reordered = seq + 1 < self.answered_to;
        let settled = match seq.checked_sub(self.base) {
            Some(index) => self.settle_open(index as usize, reordered),
            None => self.settle_overdue(seq, reordered),
        };
        if matches!(settled, Settled::Reply(_)) {
            self.answered_to = self.answered_to.max(seq + 1);
        }
        settled
    }

    /// The oldest message that awaits a reply; one that is overdue only if no other is left.
    pub(crate) fn oldest(&self) -> Option<(u64, &Entry)> {
        let open = self.open.front().map(|entry| (self.base, entry));
        open.or_else(|| self.overdue.front().map(|(seq, entry)| (*seq, entry)))
    }

    /// Message `seq`, while it awaits a reply.
    pub(crate) fn awaiting(&self, seq: u64) -> Option<&Entry> {
        let index = usize::try_from(seq.checked_sub(self.base)?).ok()?;
        self.open.get(index).filter(|entry| entry.missing > 0)
    }

    /// Messages that await a reply, oldest first: of the oldest entries, and then of the newest.
    /// Those between are left out, as many may be answered where one is lost.
    pub(crate) fn awaiting_some(&self) -> impl Iterator<Item = u64> + '_ {
        let length = self.open.len();
        let oldest = 0..length.min(SEARCH_MAX);
        let newest = length.saturating_sub(SEARCH_MAX).max(oldest.end)..length;
        let is_awaiting = |index: &usize| self.open.get(*index).is_some_and(|it| it.missing > 0);
        let some = oldest.chain(newest).filter(is_awaiting);
        some.map(|index| self.base + index as u64)
    }

    /// Gives up waiting for messages that were written before `wire_ns`; returns the slots that
    /// became free. Of those given up, the last `overdue_max` are kept aside, and the wire time of
    /// each that is not goes to `forget`.
    pub(crate) fn expire(
        &mut self,
        wire_ns: u64,
        overdue_max: usize,
        mut forget: impl FnMut(u64),
    ) -> u32 {
        let mut freed = 0;
        while let Some(entry) = self.open.front().copied().filter(|e| e.wire_ns < wire_ns) {
            freed += u32::from(entry.holds_slot);
            let aside = Entry {
                holds_slot: false,
                ..entry
            };
            self.overdue.push_back((self.base, aside));
            if self.overdue.len() > overdue_max
                && let Some((_, oldest)) = self.overdue.pop_front()
            {
                self.forgotten += u64::from(oldest.missing);
                forget(oldest.wire_ns);
            }
            self.open.pop_front();
            self.base += 1;
            self.drop_complete();
        }
        self.in_flight -= freed;
        freed
    }

    /// The connection is gone and with it every reply; gives the wire time of each message that
    /// awaited one. Sequence numbers go on.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.base = self.next_seq();
        self.in_flight = 0;
        self.forgotten = 0;
        let open = self.open.drain(..).filter(|entry| entry.missing > 0);
        let overdue = self.overdue.drain(..).map(|(_, entry)| entry);
        open.chain(overdue).map(|entry| entry.wire_ns)
    }

    /// Messages that hold a slot.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// True when the ring cannot take more.
    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    fn settle_open(&mut self, index: usize, reordered: bool) -> Settled {
        let Some(entry) = self.open.get_mut(index) else {
            return Settled::Unknown;
        };
        if entry.missing == 0 {
            return Settled::Duplicate;
        }
        let reply = reply_to(entry, reordered);
        self.in_flight -= u32::from(reply.frees_slot);
        self.drop_complete();
        Settled::Reply(reply)
    }

    fn settle_overdue(&mut self, seq: u64, reordered: bool) -> Settled {
        let Ok(at) = self.overdue.binary_search_by_key(&seq, |(seq, _)| *seq) else {
            return self.settle_forgotten(seq);
        };
        let reply = reply_to(&mut self.overdue[at].1, reordered);
        if reply.last {
            self.overdue.remove(at);
        }
        Settled::Reply(reply)
    }

    /// A message that is not kept: as long as replies to forgotten ones are missing, one that is
    /// old enough is taken for one of them.
    fn settle_forgotten(&mut self, seq: u64) -> Settled {
        let is_old = self.overdue.front().is_none_or(|(oldest, _)| seq < *oldest);
        if self.forgotten == 0 || !is_old {
            return Settled::Duplicate;
        }
        self.forgotten -= 1;
        Settled::Late
    }

    fn drop_complete(&mut self) {
        while self.open.front().is_some_and(|entry| entry.missing == 0) {
            self.open.pop_front();
            self.base += 1;
        }
    }
}

fn reply_to(entry: &mut Entry, reordered: bool) -> Reply {
    let before = *entry;
    entry.missing -= 1;
    entry.answered = true;
    let last = entry.missing == 0;
    if last {
        entry.holds_slot = false;
    }
    Reply {
        entry: before,
        first: !before.answered,
        last,
        reordered,
        frees_slot: last && before.holds_slot,
    }
}

/// Messages awaited on one connection: 32 MiB of entries. Then the connection sends no more until
/// the oldest is answered or given up; that wait is kept as a wait for a slot.
const OPEN_MAX: usize = 1 << 20;

/// Entries at either end that one reply without a number is compared with.
const SEARCH_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(messages: u64, replies: u16) -> Ledger {
        let mut ledger = Ledger::default();
        for seq in 0..messages {
            assert_eq!(ledger.next_seq(), seq);
            ledger.enter(Entry::new(seq * 10, seq * 10 + 1, 0, replies));
        }
        ledger
    }

    fn reply(settled: Settled) -> Reply {
        match settled {
            Settled::Reply(reply) => reply,
            Settled::Late | Settled::Duplicate | Settled::Unknown => {
                panic!("not a reply: {settled:?}")
            }
        }
    }

    #[test]
    fn replies_in_order_settle_and_free_their_slots() {
        let mut ledger = ledger(2, 2);
        let first = reply(ledger.settle(0));
        assert!(first.first && !first.last && !first.frees_slot);
        assert_eq!(ledger.in_flight(), 2);
        let last = reply(ledger.settle(0));
        assert!(!last.first && last.last && last.frees_slot && !last.reordered);
        assert_eq!((ledger.in_flight(), ledger.oldest().unwrap().0), (1, 1));
        assert!(ledger.awaiting(0).is_none() && ledger.awaiting(1).is_some());
    }

    #[test]
    fn one_reply_too_many_is_a_duplicate_for_ever() {
        let mut ledger = ledger(3, 1);
        reply(ledger.settle(1));
        assert_eq!(ledger.settle(1), Settled::Duplicate);
        reply(ledger.settle(0));
        assert_eq!(ledger.settle(0), Settled::Duplicate);
        assert_eq!(ledger.settle(1), Settled::Duplicate);
        assert_eq!(ledger.settle(3), Settled::Unknown);
    }

    #[test]
    fn a_reply_that_was_overtaken_is_reordered_and_a_lost_one_is_not() {
        let mut ledger = ledger(4, 1);
        assert!(!reply(ledger.settle(0)).reordered);
        assert!(!reply(ledger.settle(2)).reordered);
        assert!(!reply(ledger.settle(3)).reordered);
        assert!(reply(ledger.settle(1)).reordered);
        assert!(ledger.oldest().is_none());
    }

    #[test]
    fn messages_at_both_ends_are_compared_with_a_reply() {
        let mut ledger = ledger(1000, 1);
        let some: Vec<u64> = ledger.awaiting_some().collect();
        assert_eq!((some.len(), some[0], some[511]), (512, 0, 999));
        assert!(some.is_sorted() && some[255] == 255 && some[256] == 744);
        for seq in 1..900 {
            reply(ledger.settle(seq));
        }
        let some: Vec<u64> = ledger.awaiting_some().collect();
        assert_eq!((some[0], some[1], some.len()), (0, 900, 101));
    }

    #[test]
    fn the_overdue_free_their_slot_and_may_still_come() {
        let mut ledger = ledger(4, 1);
        reply(ledger.settle(1));
        assert_eq!(expire(&mut ledger, 22, 9), (2, vec![]));
        assert_eq!((ledger.in_flight(), ledger.oldest().unwrap().0), (1, 3));
        let late = reply(ledger.settle(2));
        assert!(late.last && !late.frees_slot);
        assert_eq!(ledger.settle(2), Settled::Duplicate);
        assert_eq!(expire(&mut ledger, 1000, 9), (1, vec![]));
        reply(ledger.settle(0));
        assert!(ledger.oldest().is_some());
        reply(ledger.settle(3));
        assert!(ledger.oldest().is_none());
        assert_eq!(ledger.next_seq(), 4);
    }

    #[test]
    fn a_dead_connection_abandons_what_it_awaited_and_counts_on() {
        let mut ledger = ledger(4, 1);
        reply(ledger.settle(2));
        assert_eq!(ledger.abandon().collect::<Vec<_>>(), [1, 11, 31]);
        assert!(ledger.oldest().is_none());
        assert_eq!((ledger.in_flight(), ledger.next_seq()), (0, 4));
    }

    fn expire(ledger: &mut Ledger, wire_ns: u64, overdue_max: usize) -> (u32, Vec<u64>) {
        let mut forgotten = Vec::new();
        let freed = ledger.expire(wire_ns, overdue_max, |wire_ns| forgotten.push(wire_ns));
        (freed, forgotten)
    }

    #[test]
    fn replies_after_a_long_stall_are_replies_and_no_duplicates() {
        let mut ledger = ledger(5000, 1);
        let (freed, forgotten) = expire(&mut ledger, u64::MAX, 4000);
        assert_eq!((freed, forgotten.len()), (5000, 1000));
        assert_eq!(forgotten[..2], [1, 11]);
        for seq in 0..1000 {
            assert_eq!(ledger.settle(seq), Settled::Late);
        }
        assert_eq!(ledger.settle(0), Settled::Duplicate);
        for seq in 1000..5000 {
            reply(ledger.settle(seq));
        }
        assert_eq!(ledger.settle(4999), Settled::Duplicate);
        assert!(ledger.oldest().is_none());
    }

    #[test]
    fn every_reply_of_a_forgotten_message_is_late_once() {
        let mut ledger = ledger(2, 3);
        reply(ledger.settle(0));
        assert_eq!(expire(&mut ledger, 2, 0), (1, vec![1]));
        assert_eq!([ledger.settle(0), ledger.settle(0)], [Settled::Late; 2]);
        assert_eq!(ledger.settle(0), Settled::Duplicate);
        reply(ledger.settle(1));
    }
}
