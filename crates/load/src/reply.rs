//! What a received message is a reply to, and what it is worth.

mod copy;

use moonwire_proto::Opcode;
use moonwire_report::ClockOffset;

use crate::amplify::{AmplifyPayload, AmplifyReply};
use crate::client::Track;
use crate::desk::Desk;
use crate::ledger::{Entry, Ledger, Settled};
use crate::payload::{EchoPayload, Reading};
use crate::plan::{Content, Plan};
use crate::raw::RawLine;
use crate::worker::wall_ns;

/// The judgement on a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Judged {
    /// The message it answers; `None` when nobody asked for it.
    seq: Option<u64>,
    /// Its content is what it should be.
    intact: bool,
    /// The server's clock, in the unit of the run.
    server: Option<i64>,
}

impl Judged {
    const UNASKED: Self = Self {
        seq: None,
        intact: true,
        server: None,
    };

    fn echo(seq: u64, intact: bool) -> Self {
        Self {
            seq: Some(seq),
            intact,
            server: None,
        }
    }

    /// A reply that cannot be read is taken for the one that was due next, so that it is wrong
    /// content and not a loss as well.
    fn unreadable(ledger: &Ledger) -> Self {
        ledger
            .oldest()
            .map_or(Self::UNASKED, |(seq, _)| Self::echo(seq, false))
    }
}

impl Desk {
    /// Takes a message that a client received at `at_ns`; `place` is the client's index and its
    /// number among all.
    pub(crate) fn take_message(
        &mut self,
        plan: &Plan,
        place: (u32, u32),
        track: &mut Track,
        opcode: Opcode,
        payload: &[u8],
        at_ns: u64,
    ) {
        if let Some(programme) = &plan.programme {
            let copy = copy::Received {
                opcode,
                payload,
                at_ns,
            };
            return self.take_copy(plan, programme, place, track, &copy);
        }
        let (index, number) = place;
        let judged = match &plan.content {
            Content::Echo(echo) => judge_echo(echo, number, &track.ledger, payload),
            Content::Amplify(amplify) => {
                let within = (plan.amplify_unit_ns, at_ns);
                judge_amplify(amplify, number, &track.ledger, payload, within)
            }
        };
        // Where it answers nothing, any message of the run will do.
        let has_opcode = opcode == plan.opcode(judged.seq.unwrap_or(0));
        if !has_opcode {
            self.tally
                .error("a reply has another opcode than its message");
        }
        let judged = Judged {
            intact: judged.intact && has_opcode,
            ..judged
        };
        let Some(seq) = judged.seq else {
            self.tally.counters.unexpected += 1;
            return;
        };
        match track.ledger.settle(seq) {
            Settled::Reply(reply) => {
                self.tally.counters.corrupt += u64::from(!judged.intact);
                self.replied(&reply, at_ns);
                if let (true, Some(server)) = (reply.first && judged.intact, judged.server) {
                    self.record_one_way(plan, &reply.entry, server, at_ns);
                }
                if self.has_raw() {
                    self.raw_line(raw_line(plan, number, seq, reply.entry.created_at, judged));
                }
                if reply.frees_slot {
                    self.free_slot(plan, index, track, at_ns);
                }
            }
            Settled::Late => {
                self.tally.counters.corrupt += u64::from(!judged.intact);
                self.replied_late(at_ns);
            }
            Settled::Duplicate => {
                self.tally.counters.received += 1;
                self.tally.counters.duplicate += 1;
                self.last_received_ns = at_ns;
            }
            Settled::Unknown => self.tally.counters.unexpected += 1,
        }
    }

    /// Records the server's clock less our own stamp, unless no clock that shares ours could say
    /// so.
    fn record_one_way(&mut self, plan: &Plan, entry: &Entry, server: i64, at_ns: u64) {
        let Some(unit_ns) = plan.one_way_unit_ns else {
            return;
        };
        // From when it was due, which is before our stamp in any case: between the stamp and the
        // write this thread may have waited for a processor.
        let elapsed_ns = at_ns.saturating_sub(entry.intended_ns);
        let clock = plan.scenario.server_clock.unwrap_or_default();
        match one_way_ns(entry.created_at, server, unit_ns, elapsed_ns, clock) {
            Some(one_way_ns) => self.tally.one_way.record(one_way_ns),
            None => self.tally.counters.one_way_impossible += 1,
        }
    }
}

/// From our stamp to the server's clock, less what that is ahead of ours; `None` when it is
/// negative or longer than the message can have taken, by more than the clocks are known.
fn one_way_ns(
    created_at: u64,
    server: i64,
    unit_ns: u64,
    elapsed_ns: u64,
    clock: ClockOffset,
) -> Option<u64> {
    let units = i128::from(server) - i128::from(created_at);
    let one_way_ns = units * i128::from(unit_ns) - i128::from(clock.offset_ns);
    let longest_ns = elapsed_ns
        .saturating_add(unit_ns)
        .saturating_add(STAMP_SLACK_NS)
        .saturating_add(clock.bound_ns);
    let possible = -i128::from(clock.bound_ns)..=i128::from(longest_ns);
    let possible_ns = possible.contains(&one_way_ns).then_some(one_way_ns)?;
    // What lies below zero is an error within the bound.
    u64::try_from(possible_ns.max(0)).ok()
}

fn judge_echo(echo: &EchoPayload, number: u32, ledger: &Ledger, payload: &[u8]) -> Judged {
    // An empty reply has none, and may be the right one where messages alternate.
    if echo.has_header() && !payload.is_empty() {
        return match echo.read(number, payload) {
            Reading::Message { seq, intact } => Judged::echo(seq, intact),
            Reading::Foreign => Judged::UNASKED,
            Reading::Unreadable => Judged::unreadable(ledger),
        };
    }
    // Too small for a header: the first message in order that has this content.
    let matching = ledger
        .awaiting_some()
        .find(|&seq| echo.matches(number, seq, payload));
    let before = ledger.next_seq().checked_sub(1);
    let last = match ledger.oldest() {
        Some((seq, _)) => seq.checked_sub(1),
        None => before,
    };
    let repeated = || last.filter(|&seq| echo.matches(number, seq, payload));
    match matching.or_else(repeated) {
        Some(seq) => Judged::echo(seq, true),
        None => Judged::unreadable(ledger),
    }
}

/// `within` is the unit of the reply's times and the moment it was received.
fn judge_amplify(
    amplify: &AmplifyPayload,
    number: u32,
    ledger: &Ledger,
    payload: &[u8],
    within: (u64, u64),
) -> Judged {
    let (unit_ns, at_ns) = within;
    let Some(reply) = AmplifyReply::read(payload) else {
        return Judged::unreadable(ledger);
    };
    if reply
        .client_id
        .is_some_and(|client| client != i64::from(number))
    {
        return Judged::UNASKED;
    }
    let Some(seq) = amplified_seq(&reply, number, ledger) else {
        return Judged::unreadable(ledger);
    };
    let entry = ledger.awaiting(seq);
    let intact = entry.is_none_or(|entry| {
        let round_trip_ns = at_ns.saturating_sub(entry.wire_ns);
        let held_max = round_trip_ns.saturating_add(STAMP_SLACK_NS) / unit_ns;
        amplify.is_intact(&reply, number, seq, entry.created_at, held_max)
    });
    Judged {
        seq: Some(seq),
        intact,
        server: reply.created_at,
    }
}

/// The message that a reply answers. One server of uwebsocket-benchmark puts the number of the
/// client where that of the message belongs; its replies are known by the time they carry, in
/// order.
fn amplified_seq(reply: &AmplifyReply<'_>, number: u32, ledger: &Ledger) -> Option<u64> {
    let seq = u64::try_from(reply.msg_id?).ok()?;
    let stamped = |created_at: u64| reply.client_ts == i64::try_from(created_at).ok();
    if ledger
        .awaiting(seq)
        .is_some_and(|entry| stamped(entry.created_at))
    {
        return Some(seq);
    }
    match ledger.oldest() {
        Some((oldest, entry)) if seq == u64::from(number) && stamped(entry.created_at) => {
            Some(oldest)
        }
        Some(_) | None => Some(seq),
    }
}

fn raw_line(plan: &Plan, number: u32, seq: u64, created_at: u64, judged: Judged) -> RawLine {
    let to_us = |time: i64| time.saturating_mul((plan.amplify_unit_ns / 1000) as i64);
    let created_at = i64::try_from(created_at).unwrap_or(i64::MAX);
    RawLine {
        timestamp_us: ((wall_ns() + plan.link_delay_ns) / 1000) as i64,
        client_id: number,
        msg_id: seq,
        server_created_at_us: judged.server.map(to_us),
        client_created_at_us: match plan.content {
            Content::Amplify(_) => to_us(created_at),
            Content::Echo(_) => created_at,
        },
    }
}

/// A message carries the time before it is framed and is stamped with those it shares a write
/// with, and a reply has the stamp of its turn: both ends of a round trip are off by less.
const STAMP_SLACK_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(messages: u64) -> Ledger {
        let mut ledger = Ledger::default();
        for seq in 0..messages {
            ledger.enter(Entry::new(0, 0, 1000 + seq, 1));
        }
        ledger
    }

    fn echoed(echo: &EchoPayload, seq: u64) -> Vec<u8> {
        let mut payload = Vec::new();
        echo.write(5, seq, &mut payload);
        payload
    }

    #[test]
    fn an_unreadable_reply_is_corrupt_and_not_a_loss_as_well() {
        let echo = EchoPayload::new(64, 1);
        let ledger = ledger(3);
        let mut payload = echoed(&echo, 0);
        payload[0] ^= 1;
        assert_eq!(
            judge_echo(&echo, 5, &ledger, &payload),
            Judged::echo(0, false)
        );
        assert_eq!(
            judge_echo(&echo, 5, &Ledger::default(), &payload),
            Judged::UNASKED
        );
    }

    #[test]
    fn payloads_without_a_header_are_known_by_order_and_content() {
        let echo = EchoPayload::new(8, 1);
        let mut ledger = ledger(3);
        assert_eq!(
            judge_echo(&echo, 5, &ledger, &echoed(&echo, 0)),
            Judged::echo(0, true)
        );
        assert_eq!(
            judge_echo(&echo, 5, &ledger, &echoed(&echo, 2)),
            Judged::echo(2, true)
        );
        assert_eq!(
            judge_echo(&echo, 5, &ledger, b"nonsense"),
            Judged::echo(0, false)
        );
        ledger.settle(0);
        assert_eq!(
            judge_echo(&echo, 5, &ledger, &echoed(&echo, 0)),
            Judged::echo(0, true)
        );
        assert_eq!(ledger.settle(0), Settled::Duplicate);
        let empty = EchoPayload::new(0, 1);
        assert_eq!(judge_echo(&empty, 5, &ledger, b""), Judged::echo(1, true));
    }

    #[test]
    fn a_one_way_latency_that_the_round_trip_does_not_hold_is_refused() {
        const NOW_US: u64 = 1_711_700_000_000_000;
        let one_clock = ClockOffset::default();
        let us = |server: u64| one_way_ns(NOW_US, server as i64, 1000, 5_000_000, one_clock);
        assert_eq!(us(NOW_US + 700), Some(700_000));
        assert_eq!(us(NOW_US), Some(0));
        assert_eq!(us(NOW_US - 1), None);
        assert_eq!(us(NOW_US + 5000), Some(5_000_000));
        assert_eq!(us(NOW_US + 7000), None);
        // One end counts milliseconds and the other one microseconds.
        assert_eq!(us(NOW_US / 1000), None);
        let now_ms = NOW_US / 1000;
        assert_eq!(
            one_way_ns(now_ms, NOW_US as i64, 1_000_000, 5_000_000, one_clock),
            None
        );
        let never = one_way_ns(now_ms, i64::MAX, 1_000_000, 5_000_000, one_clock);
        assert_eq!(never, None);
        assert_eq!(
            one_way_ns(now_ms, -1, 1_000_000, 5_000_000, one_clock),
            None
        );
    }

    #[test]
    fn the_clock_of_another_host_is_brought_to_ours_and_may_be_off_by_its_bound() {
        const NOW_US: u64 = 1_711_700_000_000_000;
        let behind = ClockOffset {
            offset_ns: -7_000_000_000,
            bound_ns: 50_000,
            ..ClockOffset::default()
        };
        let us = |later: i64| {
            let server = NOW_US as i64 - 7_000_000 + later;
            one_way_ns(NOW_US, server, 1000, 5_000_000, behind)
        };
        assert_eq!(us(700), Some(700_000));
        assert_eq!(us(-50), Some(0));
        assert_eq!(us(-51), None);
        assert_eq!(us(6051), Some(6_051_000));
        assert_eq!(us(6052), None);
    }

    #[test]
    fn a_server_reads_its_clock_while_it_has_the_message() {
        const MS: u64 = 1_000_000;
        let amplify = AmplifyPayload::new(200, 1);
        let mut sent = Vec::new();
        amplify.write(5, 0, 1000, &mut sent);
        let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
        // Received after 30 ms, and stamped by the server when it came and when it was answered.
        let corrupt = |server_latency: i64, created_at: i64, unit_ns: u64| {
            let reply = serde_json::json!({
                "client_id": 5, "msg_id": 0, "msg": sent["msg"], "client_ts": 1000,
                "created_at": created_at, "server_latency": server_latency,
            });
            let judged = judge_amplify(
                &amplify,
                5,
                &ledger(1),
                reply.to_string().as_bytes(),
                (unit_ns, 30 * MS),
            );
            assert_eq!(judged.seq, Some(0));
            !judged.intact
        };
        assert!(!corrupt(5000, 6000, 1000) && !corrupt(5000, 31_000, 1000));
        assert!(corrupt(5000, 61_000, 1000) && corrupt(35_000, 1000, 1000));
        assert!(!corrupt(5, 1030, MS) && corrupt(5, 1050, MS));
    }

    fn amplified(msg_id: i64, client_ts: i64) -> AmplifyReply<'static> {
        AmplifyReply {
            msg_id: Some(msg_id),
            client_ts: Some(client_ts),
            ..AmplifyReply::default()
        }
    }

    #[test]
    fn the_server_that_confuses_its_numbers_is_understood() {
        let ledger = ledger(9);
        assert_eq!(amplified_seq(&amplified(3, 1003), 5, &ledger), Some(3));
        assert_eq!(amplified_seq(&amplified(5, 1005), 5, &ledger), Some(5));
        assert_eq!(amplified_seq(&amplified(5, 1000), 5, &ledger), Some(0));
        assert_eq!(amplified_seq(&amplified(77, 1000), 5, &ledger), Some(77));
    }
}
