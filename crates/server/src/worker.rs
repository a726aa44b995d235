//! One thread of the server: its own driver, its own listeners, its own connections and the
//! instances that live on it. A message and a service meet here and nowhere else.
//!
//! One turn: wait; answer everything that happened, in the order it happened; then flush each
//! connection that has something to say, once.

mod answer;
mod balance;
mod broadcast;
mod connections;
mod deliver;
mod depart;
mod done;
mod handshakes;
mod hook;
mod ledger;
mod resident;
mod scripts;
mod securing;
mod subscriptions;
mod threaded;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use moonwire_lua::Effects;
use moonwire_net::{
    Completion, Driver, Flushed, ListenerId, Plaintext, PortalExit, Session, SocketId, Time,
    Timers, Transport, compressor_bytes, spare_buffer_bytes,
};
use moonwire_proto::WORK_PER_CALL;
use tracing::warn;

use crate::event::{Event, Letter};
use crate::shared::Shared;
use crate::sources::Excess;
use crate::stats::{HandshakeFailure, WorkerStats};
pub(crate) use broadcast::Broadcast;
use broadcast::Fanouts;
use connections::{Connections, Stage};
use handshakes::Handshakes;
use ledger::Ledger;
pub(crate) use resident::log_failure;
use scripts::Place;
pub(crate) use scripts::{Scripts, check_service};
use securing::Securing;
use subscriptions::Subscriptions;
pub(crate) use threaded::Done;

/// A worker. `D` is the driver of the real or of the simulated world.
pub(crate) struct Worker<D: Driver> {
    driver: D,
    scripts: Scripts,
    desk: Desk,
    listeners: Vec<ListenerId>,
    /// Where connections of other workers come from, if it has a table of descriptors of its own.
    arrivals: Option<PortalExit>,
    /// Where TLS records are opened; free between two received buffers.
    plaintext: Plaintext,
    /// What the last callback wants done; empty between two callbacks.
    effects: Effects,
    /// How far the end is.
    phase: Phase,
}

/// What a worker knows apart from its driver and its scripts, so that these three can be used at
/// the same time.
struct Desk {
    /// Which worker this is.
    worker: usize,
    shared: Arc<Shared>,
    stats: Arc<WorkerStats>,
    connections: Connections,
    /// One entry for each connection that has a deadline.
    timers: Timers<SocketId>,
    /// Connections to be flushed in this turn, each once: those with `is_dirty`.
    dirty: Vec<SocketId>,
    /// Connections that were received from and not answered to the end, but can be now: they go on
    /// in the next turn, so that nobody waits for one that has much to answer. Each once: those
    /// with `is_unread`.
    unread: VecDeque<SocketId>,
    /// Connections whose next message finds no place in the mailbox of their instance.
    waiting: HashMap<Place, Vec<SocketId>>,
    /// What this turn took so far, as [`WORK_PER_CALL`] counts it.
    turn_work: usize,
    /// Whether somebody in `unread` was put off because a turn took too long for others.
    is_behind: bool,
    /// A message that is sent back and lies in no received buffer; empty between two events.
    assembled: Vec<u8>,
    /// Who gets what is broadcast.
    subscriptions: Subscriptions,
    /// Broadcasts that not all subscribers have yet.
    fanouts: Fanouts,
    /// What all connections hold in memory.
    ledger: Ledger,
    /// The handshakes that are not over.
    handshakes: Handshakes,
    /// Those of TLS among them that wait for a later turn.
    securing: Securing<SocketId>,
    /// The owner that the next hand-over goes to, counted over all services.
    rotation: usize,
}

/// Whether a worker still takes connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Serving,
    /// Everybody was told to go; at this moment the rest is cut.
    Draining {
        until: Time,
    },
    /// Nothing is left to do.
    Done,
}

impl<D: Driver> Worker<D> {
    /// A worker that listens nowhere yet.
    pub(crate) fn new(worker: usize, driver: D, scripts: Scripts, shared: Arc<Shared>) -> Self {
        let stats = Arc::clone(&shared.stats.workers[worker]);
        let desk = Desk {
            worker,
            shared,
            stats,
            connections: Connections::default(),
            timers: Timers::new(),
            dirty: Vec::new(),
            unread: VecDeque::new(),
            waiting: HashMap::new(),
            turn_work: 0,
            is_behind: false,
            assembled: Vec::new(),
            subscriptions: Subscriptions::default(),
            fanouts: Fanouts::default(),
            ledger: Ledger::default(),
            handshakes: Handshakes::default(),
            securing: Securing::default(),
            rotation: worker,
        };
        Self {
            driver,
            scripts,
            desk,
            listeners: Vec::new(),
            arrivals: None,
            plaintext: Plaintext::new(),
            effects: Effects::new(),
            phase: Phase::Serving,
        }
    }

    /// Takes connections of other workers out of there.
    pub(crate) fn receive_from(&mut self, arrivals: PortalExit) {
        self.arrivals = Some(arrivals);
    }

    /// Accepts connections from a listening socket.
    pub(crate) fn listen(&mut self, listener: Transport) -> std::io::Result<()> {
        self.listeners.push(self.driver.listen(listener)?);
        Ok(())
    }

    /// Turns until it was ordered to stop and everybody has gone; then runs `onShutdown`.
    pub(crate) fn run(&mut self) -> std::io::Result<()> {
        while self.phase != Phase::Done {
            self.turn()?;
        }
        // Whoever waits for a place must not wait for ever.
        drop(self.desk.shared.broadcasts[self.desk.worker].close());
        drop(self.desk.shared.done[self.desk.worker].close());
        for letter in self.desk.mailbox().close() {
            // Dropped, which closes its socket.
            if matches!(letter, Letter::Handover(_)) {
                self.desk.stats.handshake_failed(HandshakeFailure::Stopping);
            }
        }
        self.scripts.shutdown(&mut self.effects);
        Ok(())
    }

    /// One turn of the loop.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let until = self.wait_until();
        self.go_on();
        self.secure();
        self.send_fanouts();
        self.driver.wait(until)?;
        self.desk.stats.turns.add(1);
        self.desk.turn_work = 0;
        while let Some(completion) = self.driver.next() {
            self.handle(Event::Socket(completion));
        }
        let now = self.driver.now();
        for _ in 0..DEADLINES_PER_TURN_MAX {
            let Some(socket) = self.desk.timers.expired(now) else {
                break;
            };
            self.handle(Event::Deadline(socket));
        }
        // Before anybody is cut, everybody is told: that a server goes away takes no time to write.
        self.flush();
        let waiting_events = self.desk.unread.len() as u64;
        self.desk.stats.waiting_events.set(waiting_events);
        let compressor_bytes = compressor_bytes() as u64;
        self.desk.stats.compressor_bytes.set(compressor_bytes);
        let spare_buffer_bytes = spare_buffer_bytes() as u64;
        self.desk.stats.spare_buffer_bytes.set(spare_buffer_bytes);
        self.regulate_accepting(now);
        if let Phase::Draining { until } = self.phase
            && (now >= until || self.desk.connections.len() == 0)
        {
            self.handle(Event::DrainTimeout);
        }
        Ok(())
    }

    /// Goes on with connections that have more to be looked at, in turn, for a bounded time. It
    /// comes before the wait, so that what has arrived meanwhile is not only seen but answered
    /// before any of them goes on again.
    fn go_on(&mut self) {
        self.desk.is_behind &= !self.desk.unread.is_empty();
        let most = match self.desk.is_behind {
            true => WORK_PER_TURN,
            false => UNREAD_WORK_PER_TURN,
        };
        self.desk.turn_work = 0;
        while self.desk.turn_work < most
            && let Some(socket) = self.desk.unread.pop_front()
        {
            self.unread(socket);
        }
    }

    fn wait_until(&mut self) -> Option<Time> {
        let is_behind = !self.desk.unread.is_empty() || self.desk.securing.is_waiting();
        if is_behind || !self.desk.fanouts.is_empty() {
            return Some(Time::default());
        }
        let deadline = self.desk.timers.next_deadline();
        let deadline = deadline.into_iter().chain(self.desk.full_until()).min();
        match self.phase {
            Phase::Serving => deadline,
            Phase::Draining { until } if self.desk.connections.len() > 0 => {
                Some(deadline.map_or(until, |deadline| deadline.min(until)))
            }
            Phase::Draining { .. } | Phase::Done => Some(Time::default()),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Socket(completion) => self.completed(completion),
            Event::Letter(Letter::Handover(handover)) => self.taken_over(*handover),
            Event::Letter(Letter::Stop) => self.stop(),
            Event::Deadline(socket) => {
                let untaken_bytes = self.driver.untaken_bytes(socket);
                self.tell(socket, |session, now| {
                    session.on_deadline(untaken_bytes, now)
                });
            }
            Event::DrainTimeout => self.cut(),
        }
    }

    fn completed(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { socket, peer, .. } => self.accepted(socket, peer),
            Completion::AcceptFailed { error, .. } => {
                self.desk.stats.accept_failed.add(1);
                warn!("a connection cannot be accepted: {error}");
            }
            Completion::Received { socket, buffer } => self.received(socket, buffer),
            Completion::EndOfStream { socket } => self.tell(socket, Session::on_end_of_stream),
            Completion::Failed { socket, error } => {
                self.tell(socket, |session, _| session.on_failed(error));
            }
            Completion::Blocked { socket, bytes } => self.tell(socket, |session, _| {
                session.on_blocked(bytes);
                None
            }),
            Completion::Sent {
                socket,
                buffer,
                result,
            } => {
                self.tell(socket, |session, now| session.on_sent(buffer, result, now));
            }
            Completion::Detached {
                socket,
                transport,
                unsent,
            } => {
                self.detached(socket, transport, unsent);
            }
            Completion::Woken => {
                self.read_letters();
                self.read_broadcasts();
                self.read_done();
            }
            // A server connects to nobody.
            Completion::Connected { socket, .. } => self.driver.close(socket),
        }
    }

    fn accepted(&mut self, socket: SocketId, peer: SocketAddr) {
        self.desk.stats.accepted.add(1);
        let now = self.driver.now();
        if let Err(reason) = self.admit(peer, now) {
            self.desk.stats.handshake_failed(reason);
            self.driver.abort(socket);
            return;
        }
        self.desk.make_room(now);
        let tls = self.desk.shared.tls.as_ref();
        let limits = &self.desk.shared.handshake_limits;
        match Session::accept_socket(socket, peer, tls, limits, now) {
            Ok(session) => {
                self.desk.insert(socket, session, Stage::Handshake);
                self.desk.handshake_began(socket, now);
                self.regulate_accepting(now);
            }
            Err(error) => {
                warn!("a TLS handshake cannot begin: {error}");
                self.desk.stats.handshake_failed(HandshakeFailure::Tls);
                self.release_source(peer);
                self.driver.close(socket);
            }
        }
    }

    /// Whether another connection may come in; if so, its source is to be released when it has
    /// gone.
    fn admit(&self, peer: SocketAddr, now: Time) -> Result<(), HandshakeFailure> {
        let shared = &self.desk.shared;
        if self.phase != Phase::Serving {
            return Err(HandshakeFailure::Stopping);
        }
        if self.desk.is_full() {
            return Err(HandshakeFailure::Busy);
        }
        shared.sources.admit(peer.ip(), now).map_err(|excess| {
            if let Some(unlogged) = shared.sources.may_log(now) {
                let source = peer.ip().to_canonical();
                warn!("{source} is beyond {excess}: reset ({unlogged} others since the last line)");
            }
            match excess {
                Excess::Connections => HandshakeFailure::SourceConnections,
                Excess::Handshakes => HandshakeFailure::SourceRate,
            }
        })
    }

    /// A connection from there has gone.
    fn release_source(&self, peer: SocketAddr) {
        let now = self.driver.now();
        self.desk.shared.sources.release(peer.ip(), now);
    }

    /// Letters of other threads, at most a few in one turn; the rest wakes the next turn.
    fn read_letters(&mut self) {
        for _ in 0..LETTERS_PER_TURN_MAX {
            let Some(letter) = self.desk.mailbox().take() else {
                return;
            };
            self.handle(Event::Letter(letter));
        }
        self.driver.waker().wake();
    }

    /// One write for each connection that has something to say.
    fn flush(&mut self) {
        // The end of one connection can give others something to say: then there is another list.
        while let Some(batch) = self.desk.take_dirty() {
            self.flush_each(batch);
        }
    }

    fn flush_each(&mut self, mut batch: Vec<SocketId>) {
        for socket in batch.drain(..) {
            let Some(connection) = self.desk.connections.of_socket(socket) else {
                continue;
            };
            connection.is_dirty = false;
            connection.was_sent_to = false;
            if matches!(connection.stage, Stage::Leaving { .. }) {
                continue;
            }
            match connection.session.flush(&mut self.driver) {
                Flushed::Open => {
                    self.desk.settled(socket);
                    self.desk.relieve(&mut self.driver);
                }
                Flushed::Finished => self.finished(socket),
            }
        }
        if self.desk.dirty.is_empty() {
            // Its memory is used again.
            self.desk.dirty = batch;
        }
    }
}

/// Connections that have more to be looked at go on until they took this, as [`WORK_PER_CALL`]
/// counts it, or until one took more; the others follow in the next turns. For so long everybody
/// else waits.
const UNREAD_WORK_PER_TURN: usize = WORK_PER_CALL;

/// What all connections together may take of a turn, and again before the wait of the next one if
/// some were put off: some 16 ms, beyond what a thousand messages of 16 KiB take. What is received
/// beyond it is kept and comes in turn, so that messages that were made to take long, such as many
/// that are to be compressed, do not hold up those that arrive after them.
const WORK_PER_TURN: usize = 16 << 20;

/// Deadlines that are looked at in one turn; those beyond it come in the next one, at once.
const DEADLINES_PER_TURN_MAX: usize = 1024;

/// Letters that are read in one turn: each costs about as much as an accept.
const LETTERS_PER_TURN_MAX: usize = 256;

#[cfg(test)]
mod tests;
