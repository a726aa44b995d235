//! Connections: made, lost, made again.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moonwire_net::{Driver, Flushed, Session, SocketId, Time, TlsFacts, random_mask};
use moonwire_proto::ClientKey;
use moonwire_report::Tls;

use super::{SECOND_NS, Stage, Worker};
use crate::client::{State, Upgrade};
use crate::reconnect::RECONNECT_DELAY_MIN;
use crate::schedule::{NEVER, duration_ns};

impl<D: Driver> Worker<D> {
    /// Starts the connections that may be started now, a bounded number per turn.
    pub(super) fn connect_turn(&mut self) {
        if self.stage >= Stage::Draining {
            return;
        }
        for _ in 0..CONNECTS_PER_TURN {
            if self.next_attempt_ns() > self.now_ns || !self.has_room() || !self.take_handshake() {
                return;
            }
            let index = self.order[self.next_connect];
            self.next_connect += 1;
            self.start_connect(index);
        }
    }

    /// When this worker wants to start a connection next.
    pub(super) fn next_connect_ns(&self) -> u64 {
        if self.stage >= Stage::Draining {
            return NEVER;
        }
        match self.next_attempt_ns() {
            due if due > self.now_ns => due,
            // An own one that closes wakes us.
            _ if !self.has_room() => NEVER,
            // Due, but there is no handshake to be had. An own one that ends wakes us; other
            // workers' do not.
            _ if self.has_every_handshake() => NEVER,
            _ if self.shared.handshakes.load(Ordering::Relaxed) == 0 => {
                self.now_ns + HANDSHAKE_POLL_NS
            }
            due => due,
        }
    }

    /// When the next client that was never attempted is to be.
    fn next_attempt_ns(&self) -> u64 {
        match self.order.get(self.next_connect) {
            Some(&index) => self.intended_ns(self.clients[index as usize].number),
            None => NEVER,
        }
    }

    /// When connection `number` is to be attempted for the first time.
    fn intended_ns(&self, number: u32) -> u64 {
        self.born_ns
            .saturating_add(self.plan.connect_offset_ns(number))
    }

    fn has_every_handshake(&self) -> bool {
        self.handshaking == self.plan.scenario.connect_concurrency as usize
    }

    fn take_handshake(&self) -> bool {
        let take = |free: usize| free.checked_sub(1);
        self.shared
            .handshakes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    fn start_connect(&mut self, index: u32) {
        self.handshaking += 1;
        self.open += 1;
        let client = &mut self.clients[index as usize];
        client.state = State::Connecting;
        let number = client.number;
        let target = self.plan.connect_target(number);
        let now = self.driver.now();
        let started = self
            .driver
            .connect(&target)
            .map_err(describe_connect)
            .and_then(|socket| {
                let request = &mut self.requests[self.plan.target_of(number)];
                request.key = ClientKey::generate(random_mask);
                let tls = self.plan.tls_of(number);
                let limits = &self.plan.limits;
                Session::connect(socket, target.remote, tls, request, limits, now)
                    .map_err(|error| (Some(socket), error.to_string()))
            });
        match started {
            Ok(mut session) => {
                if !self.plan.scenario.masked {
                    session.omit_masks();
                }
                self.remember(session.socket(), index);
                self.timers.arm(index, session.deadline());
                self.clients[index as usize].session = Some(session);
            }
            Err((socket, sentence)) => {
                if let Some(socket) = socket {
                    self.driver.close(socket);
                }
                self.desk.tally.error(&sentence);
                self.end(index);
                self.retire(index);
            }
        }
    }

    fn remember(&mut self, socket: SocketId, index: u32) {
        if self.sockets.len() <= socket.index() {
            self.sockets.resize(socket.index() + 1, u32::MAX);
        }
        self.sockets[socket.index()] = index;
    }

    /// The client whose socket this is.
    pub(super) fn client_of(&self, socket: SocketId) -> Option<u32> {
        let index = *self.sockets.get(socket.index())?;
        let session = self.clients.get(index as usize)?.session.as_ref()?;
        (session.socket() == socket).then_some(index)
    }

    /// The server accepted.
    pub(super) fn upgraded(&mut self, index: u32, upgrade: &Upgrade) {
        let &Upgrade {
            timings,
            is_compressed,
        } = upgrade;
        self.release_handshake();
        self.progress_ns = self.now_ns;
        self.up += 1;
        self.timers.disarm(index);
        self.shared.online.fetch_add(1, Ordering::Relaxed);
        self.shared.made.fetch_add(1, Ordering::Relaxed);
        let intended_ns = self.intended_ns(self.clients[index as usize].number);
        let tally = &mut self.desk.tally;
        tally.counters.connects_ok += 1;
        tally.counters.connects_compressed += u64::from(is_compressed);
        let tls = timings.tls.unwrap_or_default();
        tally.handshake.tcp.record(duration_ns(timings.tcp));
        if timings.tls.is_some() {
            tally.handshake.tls.record(duration_ns(tls));
        }
        tally.handshake.upgrade.record(duration_ns(timings.upgrade));
        tally
            .handshake
            .total
            .record(duration_ns(timings.tcp + tls + timings.upgrade));
        let client = &mut self.clients[index as usize];
        let session = client.session.as_ref();
        if let Some(facts) = session.and_then(Session::tls_facts) {
            agreed(facts).add_to(&mut tally.tls_agreed);
        }
        client.state = State::Up;
        let track = &mut client.track;
        track.up_ns = self.now_ns;
        let retries = std::mem::take(&mut track.retries);
        let lost_ns = std::mem::replace(&mut track.lost_ns, NEVER);
        if lost_ns != NEVER {
            tally.recovered(self.now_ns.saturating_sub(lost_ns), retries);
        }
        tally.counters.reconnected += u64::from(track.was_up);
        if !std::mem::replace(&mut track.was_up, true) && self.plan.is_connect_paced() {
            // Slots and attempts that it waited for are part of what a user waits.
            let response_ns = self.now_ns.saturating_sub(intended_ns);
            tally.handshake.response.record(response_ns);
        }
        if self.stage == Stage::Sending {
            let start_ns = self.shared.start_ns.load(Ordering::Acquire);
            let joined_ns = self.now_ns.saturating_sub(start_ns);
            self.desk
                .join(&self.plan, index, client, start_ns, joined_ns);
            let schedule = &self.plan.schedule;
            let cursor = client.track.cursor.as_ref();
            if let Some(last_ns) = cursor.and_then(|own| schedule.last_ns(client.number, own)) {
                let give_up_ns = last_ns.saturating_add(self.plan.drain_ns);
                let give_up_ns = start_ns.saturating_add(give_up_ns);
                self.stage_end_ns = self.stage_end_ns.max(give_up_ns);
            }
        }
    }

    /// The connection is over, for whatever reason; its socket may still be closing.
    pub(super) fn end(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        match client.state {
            State::Connecting => {
                client.state = State::Ended;
                client.subscribing = None;
                // One that this end breaks off at the end of the run has not failed.
                let has_failed = self.stage < Stage::Closing;
                self.desk.tally.counters.connects_failed += u64::from(has_failed);
                self.release_handshake();
            }
            State::Up | State::Leaving => {
                let early = self.stage < Stage::Closing && client.state == State::Up;
                client.state = State::Ended;
                if early && !self.plan.is_silent(client.number) {
                    self.desk.tally.counters.disconnected += 1;
                    client.track.lost_ns = self.now_ns;
                }
                self.desk.tally.counters.connections_ended += 1;
                self.shared.online.fetch_sub(1, Ordering::Relaxed);
                client.track.blocked = false;
                client.track.due_ns = NEVER;
                client.track.owed.clear();
                client.track.is_ledger_full = false;
                client.track.needs_room = false;
                client.track.parked.clear();
                self.up -= 1;
                for wire_ns in client.track.ledger.abandon() {
                    self.desk.tally.occupancy.abandon(wire_ns, self.now_ns);
                }
            }
            State::Unborn | State::Ended | State::Retrying { .. } | State::Down => {}
        }
    }

    /// The socket is closed: decides whether there will be another one.
    pub(super) fn retire(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        client.session = None;
        self.timers.disarm(index);
        self.open -= 1;
        let is_wanted = self.stage < Stage::Draining && client.track.quota > 0;
        match self.plan.pause(client.number, &client.track) {
            Some(pause) if is_wanted => {
                let at_ns = self.now_ns.saturating_add(duration_ns(pause));
                client.state = State::Retrying { at_ns };
                self.timers.arm(index, Some(Time::from_nanos(at_ns)));
            }
            Some(_) | None => {
                client.state = State::Down;
                self.is_cut_off |= client.track.unfinished;
                self.desk.finish_client(&mut client.track);
                self.alive -= 1;
            }
        }
    }

    /// Makes a connection again whose time has come.
    pub(super) fn retry(&mut self, index: u32) {
        if self.stage >= Stage::Draining {
            return;
        }
        if self.has_room() && self.take_handshake() {
            self.desk.tally.counters.connects_retried += 1;
            let track = &mut self.clients[index as usize].track;
            track.retries = track.retries.saturating_add(1);
            track.retries_total = track.retries_total.wrapping_add(1);
            self.start_connect(index);
        } else {
            let later = Time::from_nanos(self.now_ns + HANDSHAKE_POLL_NS);
            self.timers.arm(index, Some(later));
        }
    }

    /// Writes what is queued and notices when the socket is closed.
    pub(super) fn flush(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        client.track.touched = false;
        let Some(session) = &mut client.session else {
            return;
        };
        match session.flush(&mut self.driver) {
            Flushed::Open => {
                let deadline = session.deadline();
                // What went out at once is told by no completion.
                if client.track.needs_room && session.write_queue_bytes() == 0 {
                    let now_ns = self.now_ns;
                    self.desk.unblock(index, &mut client.track, now_ns);
                }
                // What an open session is to do at once: end, because it cannot send any more.
                if !session.is_open() || deadline == Some(Time::default()) {
                    self.timers.arm(index, deadline);
                }
            }
            Flushed::Finished => {
                self.end(index);
                self.retire(index);
            }
        }
    }

    fn release_handshake(&mut self) {
        self.handshaking -= 1;
        self.shared.handshakes.fetch_add(1, Ordering::Relaxed);
    }
}

/// As a result has it.
fn agreed(facts: TlsFacts) -> Tls {
    Tls {
        version: facts.version.to_owned(),
        cipher: facts.cipher.to_owned(),
        group: facts.group.unwrap_or_default().to_owned(),
        key: facts.key.map_or("", |key| key.kind).to_owned(),
        key_bits: facts.key.map_or(0, |key| key.bits),
        alpn: facts.alpn.unwrap_or_default(),
        full: u64::from(!facts.is_resumed),
        resumed: u64::from(facts.is_resumed),
    }
}

fn describe_connect(error: io::Error) -> (Option<SocketId>, String) {
    (None, format!("cannot make a socket: {error}"))
}

/// About 20 us each, and as much for each of the handshakes that follow: the turn stays far under a
/// millisecond.
const CONNECTS_PER_TURN: usize = 4;
/// How often a worker looks for a handshake that another one may have given back.
const HANDSHAKE_POLL_NS: u64 = SECOND_NS / 1000;

const _: () = assert!(RECONNECT_DELAY_MIN.as_nanos() >= Duration::from_millis(1).as_nanos());
