//! One thread of the generator: its connections, its driver, its records.
//!
//! A turn waits until the next intended moment, takes what was received, then sends what is due.
//! Both halves are bounded, so that neither starves the other. The clock is read once right after
//! the wait for everything received in the turn, and once right before each write.

mod connect;
mod receive;
mod report;
mod send;
mod short_lived;
mod subscribe;
mod unsent;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};

use moonwire_net::{Driver, Plaintext, Time, Timers};
use moonwire_proto::{CloseCode, UpgradeRequest};

use crate::client::{Client, State};
use crate::cpu::ThreadCpu;
use crate::desk::Desk;
use crate::meter::Metered;
use crate::plan::Plan;
use crate::reconnect::Reconnect;
use crate::schedule::NEVER;
use crate::tally::Tally;

pub(crate) use report::{Finish, Report, Shared, Stage};
pub(crate) use send::wall_ns;
use short_lived::share_of_open;

/// One worker; owns every connection whose number is its own number modulo the workers.
pub(crate) struct Worker<D> {
    driver: Metered<D>,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    reports: Sender<Report>,
    /// Empty tallies to go on with.
    spares: Receiver<Box<Tally>>,
    number: u32,
    clients: Vec<Client>,
    /// Index into `clients` by the index of its socket; checked against the whole id.
    sockets: Vec<u32>,
    requests: Vec<UpgradeRequest>,
    timers: Timers<u32>,
    plaintext: Plaintext,
    desk: Desk,
    /// Messages of the client that is being written to, not stamped yet. Empty between turns.
    outgoing: Vec<send::Outgoing>,
    /// Scratch space for one payload.
    payload: Vec<u8>,
    stage: Stage,
    /// The moment of this turn: right after the wait.
    now_ns: u64,
    /// When the first connection may be attempted.
    born_ns: u64,
    /// The clients in the order in which they are attempted; those from `next_connect` on were not
    /// yet.
    order: Vec<u32>,
    next_connect: usize,
    /// Handshakes in flight here, each holding one of the shared ones.
    handshaking: usize,
    /// Clients that have a socket, and most that may.
    open: usize,
    open_max: usize,
    /// Clients that are up, connecting, or to be connected again.
    alive: usize,
    /// Clients that are up.
    up: usize,
    /// Set when `Settled` was reported.
    settled: bool,
    /// When a connection came up last.
    progress_ns: u64,
    beat_ns: u64,
    snapshot_ns: u64,
    /// First second of the run that is not reported.
    next_second: u64,
    cpu_start: Option<ThreadCpu>,
    cpu_second: Option<ThreadCpu>,
    cpu: Option<(ThreadCpu, u64)>,
    /// When the present stage ends at the latest.
    stage_end_ns: u64,
    /// Until then those that did not read are looked at; 0 before it begins.
    silence_end_ns: u64,
    unsent_waiting: u64,
    unsent_down: u64,
    unsent_ready: u64,
    /// 0 until sending has ended.
    sending_end_ns: u64,
    died_ns: Option<u64>,
    /// Whether a connection was given up with messages left in its schedule.
    is_cut_off: bool,
    stalled: bool,
}

/// What a worker is made of.
pub(crate) struct Parts<D> {
    pub(crate) driver: D,
    pub(crate) plan: Arc<Plan>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: Sender<Report>,
    pub(crate) spares: Receiver<Box<Tally>>,
    pub(crate) number: u32,
    pub(crate) workers: u32,
    pub(crate) desk: Desk,
    pub(crate) born_ns: u64,
}

impl<D: Driver> Worker<D> {
    /// A worker with all of its clients still to be connected.
    pub(crate) fn new(parts: Parts<D>) -> Self {
        let total = parts.plan.scenario.connections_total();
        let clients: Vec<Client> = (parts.number..total)
            .step_by(parts.workers as usize)
            .map(|number| Client::new(number, parts.plan.quota))
            .collect();
        let clients = subscribe::with_hearings(clients, &parts.plan);
        let scenario = &parts.plan.scenario;
        let mut order: Vec<u32> = (0..clients.len() as u32).collect();
        order.sort_by_cached_key(|&index| {
            let number = clients[index as usize].number;
            parts.plan.connect_offset_ns(number)
        });
        Self {
            open_max: share_of_open(scenario, parts.number, parts.workers),
            requests: parts.plan.requests(),
            alive: clients.len(),
            driver: Metered::new(parts.driver),
            plan: parts.plan,
            shared: parts.shared,
            reports: parts.reports,
            spares: parts.spares,
            number: parts.number,
            clients,
            sockets: Vec::new(),
            timers: Timers::new(),
            plaintext: Plaintext::new(),
            desk: parts.desk,
            outgoing: Vec::new(),
            payload: Vec::new(),
            stage: Stage::Waiting,
            now_ns: parts.born_ns,
            born_ns: parts.born_ns,
            order,
            next_connect: 0,
            handshaking: 0,
            open: 0,
            up: 0,
            settled: false,
            progress_ns: parts.born_ns,
            beat_ns: NEVER,
            snapshot_ns: NEVER,
            next_second: 0,
            cpu_start: None,
            cpu_second: None,
            cpu: None,
            stage_end_ns: NEVER,
            silence_end_ns: 0,
            unsent_waiting: 0,
            unsent_down: 0,
            unsent_ready: 0,
            sending_end_ns: 0,
            died_ns: None,
            is_cut_off: false,
            stalled: false,
        }
    }

    /// Runs to the end and reports it.
    pub(crate) fn run(mut self) {
        // Without a barrier sending begins at once, whenever the first connection is due.
        self.advance();
        while self.stage != Stage::Done {
            let until = Time::from_nanos(self.next_moment_ns());
            if let Err(error) = self.driver.wait(Some(until)) {
                let sentence = format!("the generator cannot wait for its sockets: {error}");
                let _ = self.reports.send(Report::Broken { sentence });
                return;
            }
            self.now_ns = self.read_clock();
            self.beat();
            self.receive_turn();
            self.expire_timers();
            self.connect_turn();
            self.send_turn();
            self.flush_touched();
            self.snapshot();
            self.advance();
        }
        self.desk.finish();
        self.count_bytes_sent();
        self.desk.tally.occupancy.cut(self.now_ns);
        let second = self.now_ns.saturating_sub(self.start_ns()) / SECOND_NS;
        let result = Box::new(Finish {
            tally: std::mem::take(&mut self.desk.tally),
            seconds: self.next_second..=second.max(self.next_second),
            cpu: self.cpu,
            unsent_waiting: self.unsent_waiting,
            unsent_down: self.unsent_down,
            unsent_ready: self.unsent_ready,
            sending_end_ns: self.sending_end_ns,
            last_sent_ns: self.desk.last_sent_ns,
            last_received_ns: self.desk.last_received_ns,
            sent_each: self.sent_each(),
            heard: self.heard_each(),
            blocks: std::mem::take(&mut self.desk.blocks),
            stages: std::mem::take(&mut self.desk.stages),
            died_ns: self.died_ns,
            stalled: self.stalled,
        });
        // The receiver is gone only when the run was given up, and then nobody asks.
        let _ = self.reports.send(Report::Finished {
            worker: self.number,
            result,
        });
    }

    /// The next moment at which there is something to do.
    fn next_moment_ns(&mut self) -> u64 {
        let timer = self.timers.next_deadline().map_or(NEVER, Time::as_nanos);
        let mut moment_ns = timer
            .min(self.beat_ns)
            .min(self.snapshot_ns)
            .min(self.stage_end_ns);
        moment_ns = moment_ns
            .min(self.next_connect_ns())
            .min(self.next_doubt_ns());
        match self.stage {
            Stage::Sending => moment_ns.min(self.desk.next_due_ns()).min(self.end_ns()),
            // Nothing more comes that would wake it.
            Stage::Draining if self.silence_end_ns > 0 || self.is_settled() => {
                self.silence_end_ns.max(self.now_ns)
            }
            Stage::Draining => moment_ns
                .min(self.desk.next_held_ns())
                .min(self.next_look_ns()),
            Stage::Waiting | Stage::Closing | Stage::Done => moment_ns,
        }
    }

    /// Reads the clock, and notes how many messages were in flight until now: what moves a stamp
    /// away from the reading it was taken at is found by Little's law.
    fn read_clock(&mut self) -> u64 {
        let clock_ns = self.driver.now().as_nanos();
        self.desk.tally.occupancy.observe(clock_ns);
        clock_ns
    }

    /// Notes how late this turn is for the moments of its heartbeat.
    fn beat(&mut self) {
        while self.beat_ns <= self.now_ns {
            self.desk.tally.heartbeat.record(self.now_ns - self.beat_ns);
            self.beat_ns += BEAT_NS;
        }
    }

    /// Hands the tally over at the end of a second, if there is one to go on with.
    fn snapshot(&mut self) {
        if self.now_ns < self.snapshot_ns {
            return;
        }
        let elapsed_ns = self.now_ns - self.start_ns();
        self.snapshot_ns = self.start_ns() + (elapsed_ns / SECOND_NS + 1) * SECOND_NS;
        self.expire_replies();
        let Ok(mut spare) = self.spares.try_recv() else {
            return;
        };
        self.count_bytes_sent();
        // Messages of this turn were stamped after its beginning and belong to this interval.
        let cut_ns = self.now_ns.max(self.desk.last_sent_ns);
        spare.occupancy = self.desk.tally.occupancy.cut(cut_ns);
        let tally = std::mem::replace(&mut self.desk.tally, spare);
        let cpu = ThreadCpu::read();
        let run_ns = match (cpu, self.cpu_second) {
            (Some(now), Some(before)) => now.since(before).run_ns,
            (None, _) | (_, None) => 0,
        };
        self.cpu_second = cpu;
        let after = elapsed_ns / SECOND_NS;
        let seconds = std::mem::replace(&mut self.next_second, after)..=after - 1;
        let _ = self.reports.send(Report::Snapshot {
            worker: self.number,
            seconds,
            tally,
            run_ns,
        });
    }

    fn count_bytes_sent(&mut self) {
        self.desk.tally.counters.bytes_sent += self.driver.take_bytes_sent();
    }

    /// Gives slots back that were held by replies nobody expects any more.
    fn expire_replies(&mut self) {
        if self.stage != Stage::Sending {
            return;
        }
        let before_ns = self.now_ns.saturating_sub(self.plan.slot_patience_ns());
        let mut expired = false;
        for (index, client) in self.clients.iter_mut().enumerate() {
            let occupancy = &mut self.desk.tally.occupancy;
            let forget = |wire_ns| occupancy.abandon(wire_ns, self.now_ns);
            let ledger = &mut client.track.ledger;
            for _ in 0..ledger.expire(before_ns, self.plan.overdue_max, forget) {
                expired = true;
                self.desk
                    .free_slot(&self.plan, index as u32, &mut client.track, self.now_ns);
            }
        }
        if expired && self.plan.is_short_lived() {
            for index in 0..self.clients.len() {
                self.leave_if_done(index as u32);
            }
        }
        // It would go on for ever, or very long, against a server that is silent or gone.
        let progress_ns = self.desk.last_reply_ns.max(self.start_ns());
        self.stalled |= (expired || self.is_waiting_for_connections())
            && self.plan.is_closed()
            && self.plan.may_go_on_for_ever()
            && progress_ns < before_ns;
    }

    /// True when nothing can be sent before a connection that is made again comes up.
    fn is_waiting_for_connections(&self) -> bool {
        self.plan.scenario.reconnect != Reconnect::Never
            && self.next_connect == self.clients.len()
            && (self.up == 0 || self.desk.is_budget_spent())
    }

    /// Goes on to the next stage when this one is over.
    fn advance(&mut self) {
        let stopped = self.shared.stop.load(Ordering::Acquire);
        let dead = self.alive == 0;
        if self.stage <= Stage::Sending {
            self.settle();
        }
        let is_over = self.is_settled() || dead || self.now_ns >= self.stage_end_ns;
        let is_drained = self.stage == Stage::Draining && is_over && self.has_looked_around();
        match self.stage {
            Stage::Waiting => {
                if stopped {
                    self.enter_closing();
                } else if self.start_ns() != NEVER {
                    // Known a little ahead, so that everything is in its place when it comes.
                    self.enter_sending();
                }
            }
            Stage::Sending if dead => {
                let has_died = self.is_cut_off || !self.is_sending_over();
                self.died_ns = has_died.then_some(self.now_ns);
                self.leave_sending(0);
            }
            Stage::Sending if stopped => {
                self.leave_sending(self.plan.drain_ns.min(self.stop_patience_ns()));
            }
            Stage::Sending if self.is_sending_over() => self.leave_sending(self.plan.drain_ns),
            Stage::Draining if is_drained => self.enter_closing(),
            Stage::Draining if stopped => {
                let end_ns = self.now_ns.saturating_add(self.stop_patience_ns());
                self.stage_end_ns = self.stage_end_ns.min(end_ns);
            }
            Stage::Closing => self.advance_closing(),
            Stage::Sending | Stage::Draining | Stage::Done => {}
        }
    }

    /// Reports once that every own connection is up or given up.
    fn settle(&mut self) {
        let waited_ns = self.now_ns.saturating_sub(self.progress_ns);
        let pending = self.alive - self.up;
        if pending == 0 || self.is_retrying_in_vain(waited_ns) {
            self.report_settled(if self.plan.is_short_lived() {
                self.were_up()
            } else {
                self.up as u64
            });
        }
    }

    /// Connections that came up, though they may be closed again.
    fn were_up(&self) -> u64 {
        let were_up = self.clients.iter().filter(|client| client.track.was_up);
        were_up.count() as u64
    }

    fn report_settled(&mut self, online: u64) {
        if !std::mem::replace(&mut self.settled, true) {
            let _ = self.reports.send(Report::Settled { online });
        }
    }

    /// Connections that are made again and again may never come up.
    fn is_retrying_in_vain(&self, waited_ns: u64) -> bool {
        self.next_connect == self.clients.len()
            && (waited_ns > CONNECT_PATIENCE_NS
                || waited_ns >= self.absence_patience_ns() && self.is_nobody_there())
    }

    /// How long a server is awaited that takes no connection at all: not longer than the run would
    /// send.
    fn absence_patience_ns(&self) -> u64 {
        match self.plan.scenario.barrier {
            true => CONNECT_PATIENCE_NS.min(self.plan.schedule.end_ns()),
            false => CONNECT_PATIENCE_NS,
        }
    }

    /// True when no connection of any worker is up and each own one has failed.
    fn is_nobody_there(&self) -> bool {
        let has_failed = |client: &Client| {
            client.track.retries > 0 || matches!(client.state, State::Retrying { .. } | State::Down)
        };
        self.shared.online.load(Ordering::Relaxed) == 0 && self.clients.iter().all(has_failed)
    }

    /// When to ask whether anybody is there, which no timer of a connection may come in time for.
    fn next_doubt_ns(&self) -> u64 {
        let doubt_ns = self.progress_ns.saturating_add(self.absence_patience_ns());
        match self.stage == Stage::Waiting && doubt_ns > self.now_ns {
            true => doubt_ns,
            false => NEVER,
        }
    }

    fn enter_sending(&mut self) {
        self.enter(Stage::Sending);
        let start_ns = self.start_ns();
        self.beat_ns = start_ns.max(self.now_ns) + BEAT_NS;
        self.snapshot_ns = start_ns + SECOND_NS;
        self.cpu_start = ThreadCpu::read();
        self.cpu_second = self.cpu_start;
        self.stage_end_ns = start_ns.saturating_add(self.plan.give_up_ns);
        self.desk.occupy(&self.plan, start_ns);
        for (index, client) in self.clients.iter_mut().enumerate() {
            if client.state == State::Up {
                self.desk
                    .join(&self.plan, index as u32, client, start_ns, 0);
            }
        }
    }

    fn leave_sending(&mut self, patience_ns: u64) {
        // Without a barrier, sending may be over before every connection was tried.
        self.report_settled(self.were_up());
        self.count_unsent();
        self.sending_end_ns = self.now_ns;
        let last_ns = self.desk.last_sent_ns.max(self.start_ns());
        self.stage_end_ns = match patience_ns {
            0 => self.now_ns,
            patience_ns => last_ns.saturating_add(patience_ns),
        };
        self.beat_ns = NEVER;
        if let Some(programme) = &self.plan.programme {
            programme.leave();
        }
        self.desk.stop_sending();
        if let (Some(before), Some(now)) = (self.cpu_start, ThreadCpu::read()) {
            let wall_ns = self.now_ns.saturating_sub(self.start_ns());
            self.cpu = Some((now.since(before), wall_ns));
        }
        self.enter(Stage::Draining);
    }

    fn enter_closing(&mut self) {
        self.enter(Stage::Closing);
        self.beat_ns = NEVER;
        self.stage_end_ns = self.now_ns + CLOSE_PATIENCE_NS;
        self.next_connect = self.clients.len();
        self.resume_silent();
        for index in 0..self.clients.len() {
            if let Some(session) = &mut self.clients[index].session {
                session.close(CloseCode::NORMAL, CLOSE_REASON);
                self.flush(index as u32);
            }
        }
        // Without any socket there is nothing to wait for.
        self.advance_closing();
    }

    fn advance_closing(&mut self) {
        let late = self.now_ns >= self.stage_end_ns;
        let mut open = false;
        for index in 0..self.clients.len() {
            let Some(session) = &mut self.clients[index].session else {
                continue;
            };
            open = true;
            if late {
                session.abort();
                self.flush(index as u32);
            }
        }
        if !open || late {
            self.enter(Stage::Done);
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        let _ = self.reports.send(Report::Entered {
            worker: self.number,
            stage,
        });
    }

    fn is_sending_over(&self) -> bool {
        if self.stalled || self.is_given_up() {
            return true;
        }
        let ended = self.now_ns >= self.end_ns();
        if self.plan.is_short_lived() {
            return ended || self.alive == 0;
        }
        if self.plan.is_closed() {
            return ended || self.desk.is_budget_spent() && self.is_everyone_in();
        }
        self.desk.unfinished == 0 && (ended || self.is_everyone_in())
    }

    /// True when what is still due is given up. Without much of a drain, what could be sent at once
    /// still is.
    fn is_given_up(&self) -> bool {
        let catch_up_ns = CATCH_UP_NS.saturating_sub(self.plan.drain_ns);
        self.now_ns >= self.stage_end_ns
            && (self.desk.first_due(self.now_ns).is_none()
                || self.now_ns >= self.stage_end_ns.saturating_add(catch_up_ns))
    }

    /// True when no connection may still join the schedule.
    fn is_everyone_in(&self) -> bool {
        self.plan.schedule.end_ns() == NEVER
            && self.next_connect == self.clients.len()
            && self
                .clients
                .iter()
                .all(|client| client.has_joined_or_never_will())
    }

    fn is_settled(&self) -> bool {
        self.desk.tally.occupancy.in_flight() == 0
            && self.desk.next_held_ns() == NEVER
            && self.has_heard_all()
    }

    /// How long replies are awaited after a stop from outside, that of the stand-in link included.
    fn stop_patience_ns(&self) -> u64 {
        STOP_PATIENCE_NS.saturating_add(2 * self.plan.link_delay_ns)
    }

    fn start_ns(&self) -> u64 {
        self.shared.start_ns.load(Ordering::Acquire)
    }

    /// When no message is intended any more.
    fn end_ns(&self) -> u64 {
        self.start_ns().saturating_add(self.plan.schedule.end_ns())
    }
}

/// Half of what a scheduler's slice usually is, so that a lost slice is seen.
const BEAT_NS: u64 = 5_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// How long what is due may be sent after the last message was, at least.
const CATCH_UP_NS: u64 = SECOND_NS;
/// How long replies are awaited after a stop from outside.
const STOP_PATIENCE_NS: u64 = SECOND_NS;
/// How long connections are made again before the run starts without them.
const CONNECT_PATIENCE_NS: u64 = 60 * SECOND_NS;
/// What a server is told with 1000, so that its log can tell the end of a run from any other.
const CLOSE_REASON: &str = "done";
/// How long all close handshakes together may take.
const CLOSE_PATIENCE_NS: u64 = 3 * SECOND_NS;
