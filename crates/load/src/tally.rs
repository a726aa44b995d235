//! What one worker records between two snapshots, without locks.
//!
//! A worker fills one tally, hands it over once a second and goes on with another one; the totals
//! of a run are the sum of all tallies, so that nothing is recorded twice.

use std::collections::BTreeMap;

use moonwire_report::{Handshake, Histogram, Tls};

use crate::audience::Copy;
use crate::ledger::Reply;

/// Histograms and counters of one worker and one interval, or the sum of many. About 4 MiB, all
/// taken at once.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) response: Histogram,
    pub(crate) service: Histogram,
    pub(crate) send_lag: Histogram,
    pub(crate) slot_wait: Histogram,
    pub(crate) first_reply: Histogram,
    pub(crate) round_trip_seed: Histogram,
    pub(crate) one_way: Histogram,
    pub(crate) handshake: Handshake,
    /// Lateness of the worker's heartbeat, from its intended times.
    pub(crate) heartbeat: Histogram,
    pub(crate) counters: Counters,
    /// Errors by their text. Bounded by [`KINDS_MAX`].
    pub(crate) errors: BTreeMap<String, u64>,
    /// Close codes received.
    pub(crate) closes: BTreeMap<u16, u64>,
    /// What the connections over TLS that came up agreed on. Bounded where it is added to.
    pub(crate) tls_agreed: Vec<Tls>,
    /// From the loss of a connection until it was up again.
    pub(crate) recovery: Histogram,
    /// From the intended send time of what is published to each that hears it, to the first of
    /// them, and until half of them have.
    pub(crate) delivery: Histogram,
    pub(crate) first_receiver: Histogram,
    pub(crate) median_receiver: Histogram,
    /// Connections that came back, by the attempts that took. Bounded by [`ATTEMPTS_MAX`].
    pub(crate) recovery_attempts: BTreeMap<u32, u64>,
    pub(crate) occupancy: Occupancy,
}

/// The plain numbers of a tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Messages handed to a socket.
    pub(crate) sent: u64,
    /// Replies received, duplicates included.
    pub(crate) received: u64,
    /// Replies that were awaited.
    pub(crate) distinct: u64,
    /// Those among them to messages given up so long before that no latency is known.
    pub(crate) late: u64,
    pub(crate) duplicate: u64,
    pub(crate) reordered: u64,
    pub(crate) corrupt: u64,
    pub(crate) unexpected: u64,
    /// Messages that found the socket's queue full and were sent later.
    pub(crate) backpressured: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// Handshakes completed.
    pub(crate) connects_ok: u64,
    pub(crate) connects_failed: u64,
    pub(crate) connects_retried: u64,
    /// Those that agreed on compression.
    pub(crate) connects_compressed: u64,
    pub(crate) reconnected: u64,
    /// Connections that were up and ended before this end wanted it, while messages were sent
    /// or replies awaited.
    pub(crate) disconnected: u64,
    /// Connections that were up and are over, whoever wanted it.
    pub(crate) connections_ended: u64,
    /// One-way latencies that were negative or longer than the round trip, and not recorded.
    pub(crate) one_way_impossible: u64,
    /// Lines of the raw CSV that found its queue full.
    pub(crate) raw_dropped: u64,
    /// Connections that do not read and that the server has ended.
    pub(crate) silent_cut: u64,
}

impl Tally {
    /// Records a message that was due at `intended_ns`, had a slot from `ready_ns` on and was
    /// handed to the socket at `wire_ns`.
    pub(crate) fn sent(&mut self, intended_ns: u64, ready_ns: u64, wire_ns: u64) {
        self.counters.sent += 1;
        let ready_ns = ready_ns.max(intended_ns);
        self.slot_wait.record(ready_ns - intended_ns);
        self.send_lag.record(wire_ns.saturating_sub(ready_ns));
        self.occupancy.enter(wire_ns);
    }

    /// Records an awaited reply that arrived at `now_ns`.
    pub(crate) fn replied(&mut self, reply: &Reply, now_ns: u64) {
        let since_intended_ns = now_ns.saturating_sub(reply.entry.intended_ns);
        let since_wire_ns = now_ns.saturating_sub(reply.entry.wire_ns);
        self.counters.received += 1;
        self.counters.distinct += 1;
        self.counters.reordered += u64::from(reply.reordered);
        self.round_trip_seed.record(since_wire_ns);
        if reply.first {
            self.first_reply.record(since_intended_ns);
        }
        if reply.last {
            self.response.record(since_intended_ns);
            self.service.record(since_wire_ns);
            self.occupancy.leave(reply.entry.wire_ns);
        }
    }

    /// Records a copy of what was published.
    pub(crate) fn heard(&mut self, copy: &Copy) {
        self.delivery.record(copy.delivery_ns);
        if copy.is_first {
            self.first_receiver.record(copy.delivery_ns);
        }
        if copy.is_median {
            self.median_receiver.record(copy.delivery_ns);
        }
    }

    /// Counts an awaited reply to a message that left without it.
    pub(crate) fn replied_late(&mut self) {
        self.counters.received += 1;
        self.counters.distinct += 1;
        self.counters.late += 1;
    }

    /// Counts an error; texts beyond [`KINDS_MAX`] share one entry.
    pub(crate) fn error(&mut self, text: &str) {
        self.errors(text, 1);
    }

    /// Counts several. Peers choose what stands in close reasons, so that texts have no bound.
    fn errors(&mut self, text: &str, count: u64) {
        let is_known = self.errors.contains_key(text) || self.errors.len() < KINDS_MAX;
        let text = if is_known {
            text
        } else {
            "further kinds of errors"
        };
        if let Some(known) = self.errors.get_mut(text) {
            *known += count;
        } else {
            self.errors.insert(text.to_owned(), count);
        }
    }

    /// Records that a connection is up again.
    pub(crate) fn recovered(&mut self, recovery_ns: u64, attempts: u32) {
        self.recovery.record(recovery_ns);
        let attempts = attempts.min(ATTEMPTS_MAX);
        *self.recovery_attempts.entry(attempts).or_insert(0) += 1;
    }

    /// Counts the close code of a connection that ended.
    pub(crate) fn closed(&mut self, code: u16) {
        *self.closes.entry(code).or_insert(0) += 1;
    }

    /// Whether so many one-way latencies were impossible that the others mean nothing either.
    pub(crate) fn is_one_way_implausible(&self) -> bool {
        let impossible = self.counters.one_way_impossible as f64;
        impossible > ONE_WAY_IMPOSSIBLE_SHARE * (impossible + self.one_way.count() as f64)
    }

    /// Adds everything `other` holds.
    pub(crate) fn merge(&mut self, other: &Self) {
        let (own, others) = (self.histograms_mut(), other.histograms());
        for (own, other) in own.into_iter().zip(others) {
            if !other.is_empty() {
                own.merge(other);
            }
        }
        self.counters.add(&other.counters);
        for (text, count) in &other.errors {
            self.errors(text, *count);
        }
        for (&code, count) in &other.closes {
            *self.closes.entry(code).or_insert(0) += count;
        }
        for (&attempts, count) in &other.recovery_attempts {
            *self.recovery_attempts.entry(attempts).or_insert(0) += count;
        }
        for tls in &other.tls_agreed {
            tls.add_to(&mut self.tls_agreed);
        }
    }

    /// Forgets everything but who is in flight, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        for histogram in self.histograms_mut() {
            if !histogram.is_empty() {
                histogram.clear();
            }
        }
        self.counters = Counters::default();
        self.errors.clear();
        self.closes.clear();
        self.tls_agreed.clear();
        self.recovery_attempts.clear();
        self.occupancy = Occupancy::default();
    }

    fn histograms(&self) -> [&Histogram; 17] {
        [
            &self.response,
            &self.service,
            &self.send_lag,
            &self.slot_wait,
            &self.first_reply,
            &self.round_trip_seed,
            &self.one_way,
            &self.handshake.tcp,
            &self.handshake.tls,
            &self.handshake.upgrade,
            &self.handshake.total,
            &self.handshake.response,
            &self.recovery,
            &self.delivery,
            &self.first_receiver,
            &self.median_receiver,
            &self.heartbeat,
        ]
    }

    fn histograms_mut(&mut self) -> [&mut Histogram; 17] {
        [
            &mut self.response,
            &mut self.service,
            &mut self.send_lag,
            &mut self.slot_wait,
            &mut self.first_reply,
            &mut self.round_trip_seed,
            &mut self.one_way,
            &mut self.handshake.tcp,
            &mut self.handshake.tls,
            &mut self.handshake.upgrade,
            &mut self.handshake.total,
            &mut self.handshake.response,
            &mut self.recovery,
            &mut self.delivery,
            &mut self.first_receiver,
            &mut self.median_receiver,
            &mut self.heartbeat,
        ]
    }
}

impl Counters {
    fn add(&mut self, other: &Self) {
        let Self {
            sent,
            received,
            distinct,
            late,
            duplicate,
            reordered,
            corrupt,
            unexpected,
            backpressured,
            bytes_sent,
            bytes_received,
            connects_ok,
            connects_failed,
            connects_retried,
            connects_compressed,
            reconnected,
            disconnected,
            connections_ended,
            one_way_impossible,
            raw_dropped,
            silent_cut,
        } = other;
        self.sent += sent;
        self.received += received;
        self.distinct += distinct;
        self.late += late;
        self.duplicate += duplicate;
        self.reordered += reordered;
        self.corrupt += corrupt;
        self.unexpected += unexpected;
        self.backpressured += backpressured;
        self.bytes_sent += bytes_sent;
        self.bytes_received += bytes_received;
        self.connects_ok += connects_ok;
        self.connects_failed += connects_failed;
        self.connects_retried += connects_retried;
        self.connects_compressed += connects_compressed;
        self.reconnected += reconnected;
        self.disconnected += disconnected;
        self.connections_ended += connections_ended;
        self.one_way_impossible += one_way_impossible;
        self.raw_dropped += raw_dropped;
        self.silent_cut += silent_cut;
    }
}

/// How many messages were in flight: counted over the worker's own readings of the clock, and as
/// the sum of what the messages' stamps say. By Little's law the two are equal, if every message
/// was recorded and no stamp was misread.
///
/// The counted side knows no stamp: between two readings of the clock the count stands still, so
/// that it is exact at any load, where samples at a heartbeat would be in step with a periodic one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// Messages in flight now.
    in_flight: u64,
    /// The worker's last reading of its clock.
    read_ns: u64,
    /// Sum of `in_flight` times the time between readings, in this interval.
    counted: u128,
    /// Sum of the wire times of those in flight.
    wire_sum: u128,
    /// Age of those in flight when the interval began, and when it ended.
    ages: (u128, u128),
    /// Time in flight of messages that left without their last reply, in this interval.
    abandoned_ns: u128,
    /// By how much a stand-in link delays the stamp of a reply, which is counted no more by then.
    reply_delay_ns: u64,
}

impl Occupancy {
    /// Nothing in flight, from `now_ns` on.
    pub(crate) fn begin(now_ns: u64, reply_delay_ns: u64) -> Self {
        Self {
            read_ns: now_ns,
            reply_delay_ns,
            ..Self::default()
        }
    }

    /// Notes that the worker read its clock: before anything enters or leaves after that moment.
    pub(crate) fn observe(&mut self, clock_ns: u64) {
        let elapsed_ns = clock_ns.saturating_sub(self.read_ns);
        self.counted += u128::from(elapsed_ns) * u128::from(self.in_flight);
        self.read_ns = self.read_ns.max(clock_ns);
    }

    fn enter(&mut self, wire_ns: u64) {
        self.in_flight += 1;
        self.wire_sum += u128::from(wire_ns);
    }

    fn leave(&mut self, wire_ns: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.wire_sum = self.wire_sum.saturating_sub(u128::from(wire_ns));
    }

    /// A message leaves without its last reply: its connection is gone, or it is given up.
    pub(crate) fn abandon(&mut self, wire_ns: u64, now_ns: u64) {
        self.leave(wire_ns);
        self.abandoned_ns += u128::from(now_ns.saturating_sub(wire_ns));
    }

    /// Messages in flight now.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Ends an interval at `now_ns`: the state that the next one begins with.
    pub(crate) fn cut(&mut self, now_ns: u64) -> Self {
        self.observe(now_ns);
        let in_flight_ns = u128::from(self.in_flight) * u128::from(now_ns);
        let age = in_flight_ns.saturating_sub(self.wire_sum);
        self.ages.1 = age;
        Self {
            counted: 0,
            abandoned_ns: 0,
            ages: (age, 0),
            read_ns: now_ns,
            ..*self
        }
    }

    /// Both sides of Little's law for an interval that was just cut, in message-nanoseconds:
    /// what was counted in flight, and what the recorded service times add up to.
    pub(crate) fn both_sides(&self, service: &Histogram) -> (f64, f64) {
        let replied = service.count() as f64;
        let recorded_ns = service.mean_ns().unwrap_or(0.0) * replied;
        let aged = self.ages.1 as f64 - self.ages.0 as f64;
        (
            self.counted as f64 + replied * self.reply_delay_ns as f64,
            recorded_ns + self.abandoned_ns as f64 + aged,
        )
    }
}

/// Attempts that are told apart; more count as so many.
const ATTEMPTS_MAX: u32 = 100;
/// Different texts of errors that are told apart.
const KINDS_MAX: usize = 200;
/// A clock that does not fit spoils all samples or those after it was set; a stamp that was held
/// up between its clock and its message spoils one in many.
const ONE_WAY_IMPOSSIBLE_SHARE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Entry, Ledger, Settled};

    const MS: u64 = 1_000_000;

    /// Sends one message and takes its replies, all at the given milliseconds.
    fn exchange(intended: u64, ready: u64, wire: u64, replies: &[u64]) -> Tally {
        let mut tally = Tally::default();
        let mut ledger = Ledger::default();
        tally.occupancy.observe(wire * MS);
        tally.sent(intended * MS, ready * MS, wire * MS);
        let count = u16::try_from(replies.len()).unwrap();
        ledger.enter(Entry::new(intended * MS, wire * MS, 0, count));
        for at in replies {
            let Settled::Reply(reply) = ledger.settle(0) else {
                panic!("awaited")
            };
            tally.occupancy.observe(at * MS);
            tally.replied(&reply, at * MS);
        }
        tally
    }

    fn ms(histogram: &Histogram) -> Vec<u64> {
        histogram
            .buckets()
            .map(|bucket| (bucket.low_ns + MS / 2) / MS)
            .collect()
    }

    #[test]
    fn the_reference_of_a_response_is_the_intended_time() {
        let tally = exchange(100, 100, 130, &[150]);
        assert_eq!(ms(&tally.response), [50]);
        assert_eq!(ms(&tally.service), [20]);
        assert_eq!(ms(&tally.send_lag), [30]);
        assert_eq!(ms(&tally.slot_wait), [0]);
    }

    #[test]
    fn waiting_for_a_slot_is_kept_apart_from_the_generators_lag() {
        let tally = exchange(100, 1000, 1002, &[1010]);
        assert_eq!(ms(&tally.response), [910]);
        assert_eq!(ms(&tally.slot_wait), [900]);
        assert_eq!(ms(&tally.send_lag), [2]);
        assert_eq!(ms(&tally.service), [8]);
    }

    #[test]
    fn first_and_last_reply_and_the_round_trip_of_the_seed() {
        let tally = exchange(10, 10, 11, &[20, 30, 41]);
        assert_eq!(ms(&tally.first_reply), [10]);
        assert_eq!(ms(&tally.response), [31]);
        assert_eq!(ms(&tally.round_trip_seed), [9, 19, 30]);
        assert_eq!(tally.counters.distinct, 3);
        assert_eq!(tally.occupancy.in_flight(), 0);
    }

    #[test]
    fn littles_law_holds_over_windows_that_cut_messages() {
        let mut tally = exchange(0, 0, 10, &[25]);
        tally.occupancy.observe(30 * MS);
        tally.sent(30 * MS, 30 * MS, 30 * MS);
        let next = tally.occupancy.cut(50 * MS);
        let (counted, recorded) = tally.occupancy.both_sides(&tally.service);
        assert_eq!(counted, (15 + 20) as f64 * MS as f64);
        assert_eq!(recorded, counted);
        let mut later = Tally {
            occupancy: next,
            ..Tally::default()
        };
        later.occupancy.observe(70 * MS);
        later.occupancy.abandon(30 * MS, 70 * MS);
        later.occupancy.cut(100 * MS);
        let (counted, recorded) = later.occupancy.both_sides(&later.service);
        assert_eq!((counted, recorded), (20.0 * MS as f64, 20.0 * MS as f64));
    }

    #[test]
    fn a_message_that_was_never_recorded_breaks_littles_law() {
        let mut tally = exchange(0, 0, 10, &[25]);
        tally.occupancy.cut(50 * MS);
        let (counted, recorded) = tally.occupancy.both_sides(&Histogram::new());
        assert!(counted > 0.0 && recorded == 0.0);
    }

    #[test]
    fn stamps_that_are_misread_break_littles_law() {
        // A hundred messages of 20 ms, one after the other: their stamps, then both sides in ms.
        let sides = |wire: fn(u64) -> u64, at: fn(u64) -> u64| {
            let mut tally = Tally::default();
            let mut ledger = Ledger::default();
            for seq in 0..100 {
                let (sent_ns, replied_ns) = (seq * 30 * MS, (seq * 30 + 20) * MS);
                tally.occupancy.observe(sent_ns);
                tally.sent(sent_ns, sent_ns, wire(sent_ns));
                ledger.enter(Entry::new(sent_ns, wire(sent_ns), 0, 1));
                let Settled::Reply(reply) = ledger.settle(seq) else {
                    panic!("awaited")
                };
                tally.occupancy.observe(replied_ns);
                tally.replied(&reply, at(replied_ns));
            }
            tally.occupancy.cut(3000 * MS);
            let (counted, recorded) = tally.occupancy.both_sides(&tally.service);
            let ms = |ns: f64| (ns / MS as f64).round() as u64;
            (ms(counted), ms(recorded) / 10 * 10)
        };
        assert_eq!(sides(|ns| ns, |ns| ns), (2000, 2000));
        assert_eq!(sides(|ns| ns + 2 * MS, |ns| ns), (2000, 1800));
        assert_eq!(sides(|ns| ns, |ns| ns - 10 * MS), (2000, 1000));
        assert_eq!(sides(|ns| ns / 2, |ns| ns / 2), (2000, 1000));
    }

    #[test]
    fn a_stand_in_link_is_on_both_sides_of_littles_law() {
        let mut tally = Tally {
            occupancy: Occupancy::begin(0, 20 * MS),
            ..Tally::default()
        };
        let mut ledger = Ledger::default();
        tally.sent(0, 0, 0);
        ledger.enter(Entry::new(0, 0, 0, 1));
        let Settled::Reply(reply) = ledger.settle(0) else {
            panic!("awaited")
        };
        tally.occupancy.observe(25 * MS);
        tally.replied(&reply, (25 + 20) * MS);
        tally.occupancy.cut(30 * MS);
        let (counted, recorded) = tally.occupancy.both_sides(&tally.service);
        assert_eq!(counted, 45.0 * MS as f64);
        assert!((recorded - counted).abs() < 0.001 * counted);
    }

    #[test]
    fn the_texts_of_errors_are_bounded_over_the_whole_run() {
        let mut total = Tally::default();
        for second in 0..3 {
            let mut tally = Tally::default();
            for number in 0..KINDS_MAX {
                tally.error(&format!("{second} {number}"));
            }
            total.merge(&tally);
        }
        assert_eq!(total.errors.len(), KINDS_MAX + 1);
        let further = total.errors["further kinds of errors"];
        assert_eq!(further, 2 * KINDS_MAX as u64);
    }

    #[test]
    fn merging_adds_and_clearing_forgets() {
        let mut total = exchange(0, 0, 1, &[5]);
        let mut other = exchange(0, 0, 1, &[9]);
        other.error("refused");
        other.closed(1001);
        total.merge(&other);
        assert_eq!(total.response.count(), 2);
        assert_eq!(total.counters.sent, 2);
        assert_eq!((total.errors["refused"], total.closes[&1001]), (1, 1));
        total.clear();
        assert!(total.response.is_empty() && total.errors.is_empty());
        assert_eq!(total.counters, Counters::default());
    }
}
