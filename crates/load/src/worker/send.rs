//! What is due, sent.

use std::time::{SystemTime, UNIX_EPOCH};

use moonwire_net::{Driver, SendError};

use super::{Stage, Worker};
use crate::client::{Client, State, Track};
use crate::desk::Held;
use crate::fragments;
use crate::ledger::Entry;
use crate::plan::{Content, Plan};
use crate::schedule::NEVER;

/// A message that is in the session's outbox, or about to be held, and not stamped yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    intended_ns: u64,
    /// From when on nothing but the generator was in its way.
    ready_ns: u64,
    created_at: u64,
}

impl<D: Driver> Worker<D> {
    /// Sends what is due, a bounded number per turn. Messages of one client that are due leave in
    /// one write, stamped right before it: a generator that falls behind writes larger pieces and
    /// catches up, and every message keeps its own intended time.
    pub(super) fn send_turn(&mut self) {
        self.release_held();
        if self.stage != Stage::Sending {
            return;
        }
        let mut now_ns = self.now_ns;
        self.desk.grant(now_ns);
        let mut writing = None;
        let mut writes = 0;
        for _ in 0..ENTRIES_PER_TURN {
            let Some((due_ns, index)) = self.desk.first_due(now_ns) else {
                break;
            };
            let is_other = writing != Some(index);
            if is_other && writes == WRITES_PER_TURN {
                break;
            }
            // Before the write, after which another entry may be the first.
            self.desk.drop_first_due();
            if is_other {
                writes += 1;
                if let Some(before) = writing.replace(index) {
                    now_ns = self.write(before, now_ns);
                }
            }
            self.enqueue(index, due_ns, now_ns);
        }
        if let Some(index) = writing {
            self.write(index, now_ns);
        }
    }

    /// Puts the client's messages that are due into its outbox, as far as it may send.
    fn enqueue(&mut self, index: u32, mut due_ns: u64, now_ns: u64) {
        while let Some((intended_ns, ready_ns)) = self.admit(index, due_ns) {
            let client = &mut self.clients[index as usize];
            let created_at = created_at(&self.plan, self.desk.has_raw());
            let seq = client.track.ledger.next_seq() + self.outgoing.len() as u64;
            if self.plan.link_delay_ns == 0
                && let Err(error) = self.hand_over(index, seq, created_at)
            {
                self.put_off(index, seq, due_ns, error);
                return;
            }
            self.outgoing.push(Outgoing {
                intended_ns,
                ready_ns,
                created_at,
            });
            match self.step(index, now_ns) {
                Some(next_ns) => due_ns = next_ns,
                None => return,
            }
        }
    }

    /// Goes on to the client's next message; gives its entry if it is due in the same write.
    fn step(&mut self, index: u32, now_ns: u64) -> Option<u64> {
        if self.plan.is_closed() {
            return None;
        }
        let start_ns = self.start_ns();
        let Client { track, number, .. } = &mut self.clients[index as usize];
        let cursor = track.cursor.as_mut()?;
        self.plan.schedule.advance(*number, cursor);
        let next_ns = start_ns.saturating_add(cursor.next_ns());
        if next_ns <= now_ns && self.outgoing.len() < MESSAGES_PER_WRITE {
            track.due_ns = next_ns;
            return Some(next_ns);
        }
        self.desk.queue(index, track, start_ns);
        None
    }

    /// When the message was intended and since when nothing else was in its way; `None` when it
    /// cannot be sent now, or the entry is stale.
    fn admit(&mut self, index: u32, due_ns: u64) -> Option<(u64, u64)> {
        let (start_ns, end_ns) = (self.start_ns(), self.end_ns());
        let client = &mut self.clients[index as usize];
        let is_up = client.state == State::Up;
        let track = &mut client.track;
        let in_flight = track.ledger.in_flight() as usize + self.outgoing.len();
        let has_slot = in_flight < self.plan.in_flight_max as usize;
        let is_full = track.ledger.is_full();
        if self.plan.is_closed() {
            // A slot of an earlier connection is stale, and so is one after the end.
            let valid = is_up && has_slot && due_ns >= track.up_ns && due_ns < end_ns;
            if valid && (is_full || track.blocked) {
                // It waits behind those that wait already.
                track.is_ledger_full |= is_full;
                track.blocked = true;
                track.owed.push_back(due_ns);
                return None;
            }
            let ready_ns = track.ready_ns.max(due_ns);
            if !self.plan.is_short_lived() {
                return (valid && self.desk.spend(index)).then_some((due_ns, ready_ns));
            }
            // These have messages of their own, which no other connection can send.
            let left = track.quota.checked_sub(1).filter(|_| valid)?;
            track.quota = left;
            return Some((due_ns, ready_ns));
        }
        let has_slot = has_slot && !is_full;
        if track.due_ns != due_ns {
            return None;
        }
        track.due_ns = NEVER;
        if !is_up {
            return None;
        }
        if !has_slot {
            track.blocked = true;
            return None;
        }
        let next_ns = track.cursor.as_ref()?.next_ns();
        Some((start_ns.saturating_add(next_ns), track.ready_ns))
    }

    /// Frames a message into the client's outbox.
    fn hand_over(&mut self, index: u32, seq: u64, created_at: u64) -> Result<(), SendError> {
        let client = &mut self.clients[index as usize];
        let session = client.session.as_mut().ok_or(SendError::NotOpen)?;
        self.payload.clear();
        match &self.plan.content {
            Content::Echo(payload) => payload.write(client.number, seq, &mut self.payload),
            Content::Amplify(payload) => {
                payload.write(client.number, seq, created_at, &mut self.payload);
            }
        }
        let opcode = self.plan.opcode(seq);
        let scenario = &self.plan.scenario;
        if scenario.fragments.is_empty() {
            return session.send(opcode, &self.payload);
        }
        let place = (client.number, seq);
        let length = self.payload.len();
        let sizes = fragments::sizes(&scenario.fragments, scenario.seed, place, length);
        session.send_in_parts(opcode, &self.payload, &sizes)
    }

    /// The socket takes no more now: the message keeps its intended time and waits.
    fn put_off(&mut self, index: u32, seq: u64, due_ns: u64, error: SendError) {
        let track = &mut self.clients[index as usize].track;
        track.blocked = true;
        track.needs_room = true;
        let is_first = std::mem::replace(&mut track.put_off_seq, seq) != seq;
        if self.plan.is_closed() {
            track.owed.push_back(due_ns);
            if self.plan.is_short_lived() {
                track.quota += 1;
            } else {
                self.desk.refund(self.now_ns);
            }
        }
        if error == SendError::QueueFull && is_first {
            self.desk.tally.counters.backpressured += 1;
        }
    }

    /// Stamps the client's messages and writes them; gives the stamp.
    fn write(&mut self, index: u32, now_ns: u64) -> u64 {
        if self.outgoing.is_empty() {
            return now_ns;
        }
        let wire_ns = self.read_clock();
        let Client { track, number, .. } = &mut self.clients[index as usize];
        for message in self.outgoing.drain(..) {
            let Outgoing {
                intended_ns,
                ready_ns,
                created_at,
            } = message;
            if let Some(programme) = &self.plan.programme {
                programme.publish(*number, track.ledger.next_seq(), intended_ns);
            }
            if self.plan.link_delay_ns > 0 {
                let held = held(&self.plan, index, track, wire_ns, created_at);
                self.desk.hold(held);
            }
            let replies = self.plan.scenario.replies;
            track
                .ledger
                .enter(Entry::new(intended_ns, wire_ns, created_at, replies));
            self.desk.tally.sent(intended_ns, ready_ns, wire_ns);
            self.desk.stages.sent(intended_ns);
        }
        self.desk.last_sent_ns = wire_ns;
        if self.plan.link_delay_ns == 0 {
            self.flush(index);
        }
        wire_ns
    }

    /// Writes the messages that leave the stand-in link.
    fn release_held(&mut self) {
        for _ in 0..WRITES_PER_TURN {
            let Some(held) = self.desk.take_held(self.now_ns) else {
                return;
            };
            let client = &mut self.clients[held.client as usize];
            if client.state != State::Up || client.track.up_ns != held.up_ns {
                continue;
            }
            if !client.track.parked.is_empty() {
                client.track.parked.push_back(held);
                continue;
            }
            match self.hand_over(held.client, held.seq, held.created_at) {
                Ok(()) => {
                    let late_ns = self.driver.now().as_nanos().saturating_sub(held.release_ns);
                    self.desk.tally.heartbeat.record(late_ns);
                    self.flush(held.client);
                }
                Err(SendError::QueueFull) => {
                    self.desk.tally.counters.backpressured += 1;
                    let track = &mut self.clients[held.client as usize].track;
                    track.parked.push_back(held);
                }
                Err(SendError::NotOpen | SendError::ControlTooLong) => {}
            }
        }
    }

    /// Writes what waited for room in the client's socket. That wait is the peer's doing, so that
    /// it is no lateness of the generator.
    pub(super) fn release_parked(&mut self, index: u32) {
        let mut written = false;
        while let Some(&held) = self.clients[index as usize].track.parked.front() {
            if self.hand_over(index, held.seq, held.created_at) == Err(SendError::QueueFull) {
                break;
            }
            written = true;
            self.clients[index as usize].track.parked.pop_front();
        }
        if written {
            self.flush(index);
        }
    }
}

fn held(plan: &Plan, client: u32, track: &Track, wire_ns: u64, created_at: u64) -> Held {
    let release_ns = wire_ns + plan.link_delay_ns;
    Held {
        release_ns,
        client,
        seq: track.ledger.next_seq(),
        created_at,
        up_ns: track.up_ns,
    }
}

/// The wall clock that the message carries, or that its line in the CSV does; 0 for neither.
fn created_at(plan: &Plan, raw: bool) -> u64 {
    let unit_ns = match plan.content {
        Content::Amplify(_) => plan.amplify_unit_ns,
        Content::Echo(_) if raw => MICROSECOND_NS,
        Content::Echo(_) => return 0,
    };
    wall_ns() / unit_ns
}

/// Nanoseconds since the epoch.
pub(crate) fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, crate::schedule::duration_ns)
}

/// About 5 us each, so that replies wait at most some 300 us for their stamp.
const WRITES_PER_TURN: usize = 64;
/// In a closed loop each message has an entry of its own, and those of a client come together.
const ENTRIES_PER_TURN: usize = WRITES_PER_TURN * MESSAGES_PER_WRITE;
/// Below a microsecond each; more wait for the client's next turn.
const MESSAGES_PER_WRITE: usize = 32;
/// The unit of the CSV.
const MICROSECOND_NS: u64 = 1000;
