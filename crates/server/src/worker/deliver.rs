//! From received bytes to a service, and from what it wants done to its connections.

use std::ops::Range;
use std::time::Duration;

use moonwire_lua::{Effect, Effects, Handler, Opcode, Refusal};
use moonwire_net::{
    Driver, Input, ReceiveBuffer, SendError, Session, SessionEvent, SocketId, Time,
    take_compression_work,
};
use moonwire_proto::{CloseCode, WORK_PER_CALL};
use tracing::warn;

use super::answer::Asked;
use super::connections::Stage;
use super::resident::Reaction;
use super::scripts::{Place, Scripts};
use super::subscriptions::Subscriber;
use super::{Desk, WORK_PER_TURN, Worker};
use crate::config::QueuePolicy;
use crate::stats::Failure;

impl<D: Driver> Worker<D> {
    /// Tells a session something that is not received bytes, and sees to its end if that is one.
    pub(super) fn tell<F>(&mut self, socket: SocketId, tell: F)
    where
        F: for<'a> FnOnce(&'a mut Session, Time) -> Option<SessionEvent<'a>>,
    {
        let now = self.driver.now();
        let Some(connection) = self.desk.connections.of_socket(socket) else {
            return;
        };
        if let Some(SessionEvent::Failed(error)) = tell(&mut connection.session, now) {
            self.desk.depart(
                socket,
                Some(&error),
                &mut self.scripts,
                &mut self.effects,
                &mut self.driver,
            );
        }
        self.desk.mark_dirty(socket);
    }

    /// Gives a session received bytes and answers each event in them.
    pub(super) fn received(&mut self, socket: SocketId, mut buffer: ReceiveBuffer) {
        if !self.desk.is_put_off(socket, &buffer) {
            self.give(socket, &mut buffer);
        }
        self.driver.recycle(buffer);
    }

    fn give(&mut self, socket: SocketId, received: &mut [u8]) {
        let now = self.driver.now();
        let Self {
            driver,
            scripts,
            desk,
            plaintext,
            effects,
            ..
        } = self;
        if let Some(connection) = desk.connections.of_socket(socket) {
            match connection.session.open(received, plaintext) {
                Ok(input) => {
                    desk.read(socket, input, scripts, effects, driver, now);
                }
                Err(error) => desk.depart(socket, Some(&error), scripts, effects, driver),
            }
            desk.mark_dirty(socket);
        }
    }

    /// Goes on with handshakes of TLS that were put off.
    pub(super) fn secure(&mut self) {
        self.desk.securing.begin_turn();
        while let Some((socket, mut received)) = self.desk.securing.next() {
            self.give(socket, &mut received);
        }
    }

    /// Answers each event in the bytes that were kept: of a connection from another worker, or of
    /// one whose earlier answers had to be written first.
    pub(super) fn unread(&mut self, socket: SocketId) {
        let now = self.driver.now();
        let Self {
            driver,
            scripts,
            desk,
            effects,
            ..
        } = self;
        let Some(connection) = desk.connections.of_socket(socket) else {
            return;
        };
        connection.is_unread = false;
        let input = connection.session.unread();
        desk.read(socket, input, scripts, effects, driver, now);
        desk.mark_dirty(socket);
    }
}

/// What one connection took of a turn.
#[derive(Default)]
struct Share {
    /// As [`WORK_PER_CALL`] counts it.
    work: usize,
    events: usize,
    delivered_bytes: usize,
    compression_work: usize,
    /// Whether the next look goes on with the same message.
    has_more: bool,
}

impl Share {
    fn look(&mut self, input: &Input<'_>) {
        self.work = input.work() + self.events * WORK_PER_EVENT;
    }

    /// Whether the rest has to wait for a later turn.
    fn is_taken(&self) -> bool {
        self.has_more
            || self.work >= WORK_PER_READ
            || self.delivered_bytes >= BYTES_PER_READ
            || self.compression_work >= COMPRESSION_WORK_PER_READ
    }
}

impl Desk {
    /// Whether these bytes are of a handshake of TLS that has to wait for a later turn.
    fn is_put_off(&mut self, socket: SocketId, received: &[u8]) -> bool {
        let Some(connection) = self.connections.of_socket(socket) else {
            return false;
        };
        connection.session.is_securing() && !self.securing.admit(socket, received)
    }

    /// Answers each event in `input`, or as many as the client takes the answers to and as its
    /// part of this turn allows: the rest is kept until then, or for a later turn. All of it is
    /// where others have used up the turn.
    fn read(
        &mut self,
        socket: SocketId,
        mut input: Input<'_>,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
        now: Time,
    ) {
        let is_late = self.turn_work >= WORK_PER_TURN;
        let mut share = Share::default();
        while let Some(connection) = self.connections.of_socket(socket) {
            let stage = connection.stage;
            if let Some(place) = connection.wait_for_place(scripts) {
                self.waiting.entry(place).or_default().push(socket);
            }
            share.look(&input);
            // Behind the peer's close frame only the end of the stream is looked for, which is
            // quick; nothing is kept then.
            let is_served = is_late || connection.is_held() || share.is_taken();
            if is_served && connection.session.can_keep() || connection.session.is_full() {
                connection.session.keep(input);
                break;
            }
            let ahead = input.addresses();
            let Some(event) = connection.session.poll(&mut input, now) else {
                share.look(&input);
                break;
            };
            share.events += 1;
            match event {
                SessionEvent::Message { opcode, payload } => {
                    let Some((place, handler)) = stage.served() else {
                        continue;
                    };
                    self.stats.services[usize::from(place.service)].received(payload.len());
                    share.delivered_bytes += payload.len();
                    let reaction = scripts.message(place, handler, opcode, payload, effects);
                    if reaction == Reaction::SendBack {
                        let lent = set_aside(payload, &ahead, &mut self.assembled);
                        let lent = lent.map(|length| input.last_taken(length));
                        self.send_back(place, handler, opcode, lent, driver);
                        share.compression_work += take_compression_work();
                        continue;
                    }
                    self.apply(place, effects, driver);
                    share.compression_work += take_compression_work();
                    self.react(place, handler, reaction, driver);
                }
                SessionEvent::Request(request) => {
                    let asked = Asked::new(request, &self.shared);
                    self.answer(socket, asked, scripts, effects, driver);
                }
                SessionEvent::Closed { .. } => self.depart(socket, None, scripts, effects, driver),
                SessionEvent::Failed(error) => {
                    self.depart(socket, Some(&error), scripts, effects, driver)
                }
                SessionEvent::More => share.has_more = true,
                SessionEvent::Pong { round_trip, .. } => self.came_back(stage, round_trip),
                // A pong is sent by the session itself; upgrades and refusals are for clients.
                SessionEvent::Ping(_)
                | SessionEvent::Upgraded { .. }
                | SessionEvent::Refused { .. } => {}
            }
        }
        self.settle(socket, scripts, effects, driver, now);
        self.turn_work += share.work + share.delivered_bytes + share.compression_work;
        self.is_behind |= is_late;
    }

    /// A pong has come, perhaps one that tells how long that took.
    fn came_back(&self, stage: Stage, round_trip: Option<Duration>) {
        if let (Stage::Open { place, handler, .. }, Some(took)) = (stage, round_trip) {
            let service = &self.stats.services[usize::from(place.service)];
            service.ping_rtt.note(took);
            self.shared.round_trips.note(handler, took);
        }
    }

    /// After a read: an unfinished message is held to its bounds.
    fn settle(
        &mut self,
        socket: SocketId,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
        now: Time,
    ) {
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        if let Some(SessionEvent::Failed(error)) = connection.session.settle(now) {
            self.depart(socket, Some(&error), scripts, effects, driver);
        }
        // Now and not at the end of the turn, before which every connection may be read from.
        self.recount(socket);
        self.relieve(driver);
    }

    /// Sends a message back to where it came from: what was received, or what was assembled.
    fn send_back(
        &mut self,
        place: Place,
        handler: Handler,
        opcode: Opcode,
        lent: Option<&[u8]>,
        driver: &mut impl Driver,
    ) {
        let mut assembled = std::mem::take(&mut self.assembled);
        let payload = lent.unwrap_or(&assembled);
        let fragment_bytes = self.shared.limits.fragment_bytes;
        self.send(place, handler, opcode, payload, fragment_bytes, driver);
        if assembled.capacity() <= ASSEMBLED_BYTES_KEPT {
            assembled.clear();
            self.assembled = assembled;
        }
    }

    /// Does what a callback of the instance at `place` wants done.
    pub(super) fn apply(&mut self, place: Place, effects: &Effects, driver: &mut impl Driver) {
        let service = &self.stats.services[usize::from(place.service)];
        service.failures[Failure::DeadHandler as usize].add(effects.dead_sends());
        for effect in effects.iter() {
            match effect {
                Effect::Send {
                    handler,
                    opcode,
                    payload,
                } => {
                    self.catch_up(place, handler, driver);
                    let fragment_bytes = self.shared.limits.fragment_bytes;
                    self.send(place, handler, opcode, payload, fragment_bytes, driver);
                }
                Effect::Close {
                    handler,
                    code,
                    reason,
                } => {
                    self.catch_up(place, handler, driver);
                    let code = CloseCode::new(code).unwrap_or(CloseCode::NORMAL);
                    self.close(place, handler, code, reason);
                }
                Effect::Subscribe { handler, channel } => {
                    // Its connection may have ended since the service asked.
                    let is_open = self.connections.of_handler(handler, place).is_some();
                    let subscriber = Subscriber { place, handler };
                    if is_open && !self.subscriptions.subscribe(subscriber, channel) {
                        warn!(
                            handler = handler.as_u64(),
                            "it subscribes to too many channels"
                        );
                    }
                }
                Effect::Unsubscribe { handler, channel } => {
                    let subscriber = Subscriber { place, handler };
                    self.subscriptions.unsubscribe(subscriber, channel);
                }
                Effect::Broadcast { channel, payload } => self.broadcast(place, channel, payload),
            }
        }
    }

    /// The connection whose message was handled goes on or ends.
    pub(super) fn react(
        &mut self,
        place: Place,
        handler: Handler,
        reaction: Reaction,
        driver: &mut impl Driver,
    ) {
        if !matches!(reaction, Reaction::Continue | Reaction::Later) {
            self.catch_up(place, handler, driver);
        }
        match reaction {
            // What is sent back has been sent.
            Reaction::Continue | Reaction::SendBack => {}
            Reaction::Later => {
                if let Some(connection) = self.connections.of_handler(handler, place) {
                    connection.session.hold();
                }
            }
            Reaction::Close => self.close(place, handler, CloseCode::NORMAL, ""),
            Reaction::Refuse(Refusal { code, reason }) => {
                self.failed(place, Failure::Message);
                let code = CloseCode::new(code).unwrap_or(CloseCode::PROTOCOL_ERROR);
                self.close(place, handler, code, &reason);
            }
            Reaction::Failed => {
                self.failed(place, Failure::LuaError);
                self.close(place, handler, CloseCode::INTERNAL_ERROR, "");
            }
            Reaction::Replaced => {
                self.failed(place, Failure::LuaError);
                self.orphan(place);
            }
        }
    }

    /// Queues a message, in fragments if `fragment_bytes` is not zero and it is long enough for
    /// two. A full queue is written first: only what the socket does not take is the doing of a
    /// client that reads too slowly, the rest just waited for the end of the turn.
    pub(super) fn send(
        &mut self,
        place: Place,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
        fragment_bytes: usize,
        driver: &mut impl Driver,
    ) {
        let Some(connection) = self.connections.of_handler(handler, place) else {
            return self.failed(place, Failure::DeadHandler);
        };
        let socket = connection.socket;
        let is_first = !std::mem::replace(&mut connection.was_sent_to, true);
        let send = |session: &mut Session, driver: &mut _| match fragment_bytes {
            1.. if payload.len() / fragment_bytes > 1 => {
                session.send_fragmented(opcode, payload, fragment_bytes)
            }
            _ if is_first => session.send_at_once(opcode, payload, driver),
            _ => session.send(opcode, payload),
        };
        let mut sent = send(&mut connection.session, driver);
        if matches!(sent, Err(SendError::QueueFull)) {
            // An open session stays open here; a failed write is a completion of a later turn.
            let _ = connection.session.flush(driver);
            sent = send(&mut connection.session, driver);
        }
        match sent {
            Ok(()) => {
                let service = &self.stats.services[usize::from(place.service)];
                service.messages_out.add(1);
                service.bytes_out.add(payload.len() as u64);
                self.mark_dirty(socket);
                self.recount(socket);
                self.relieve(driver);
            }
            Err(SendError::QueueFull) => {
                self.failed(place, Failure::QueueFull);
                if self.shared.limits.write_queue_policy == QueuePolicy::Close {
                    let reason = "the client reads too slowly";
                    self.close(place, handler, CloseCode::TRY_AGAIN_LATER, reason);
                }
            }
            // This end has begun to close it; the service may have done so itself.
            Err(SendError::NotOpen | SendError::ControlTooLong) => {}
        }
    }

    /// Begins the close handshake; from here on nothing is delivered to the service but the end.
    fn close(&mut self, place: Place, handler: Handler, code: CloseCode, reason: &str) {
        let Some(connection) = self.connections.of_handler(handler, place) else {
            return;
        };
        connection.close(code, reason);
        let socket = connection.socket;
        self.mark_dirty(socket);
    }

    pub(super) fn failed(&self, place: Place, failure: Failure) {
        self.stats.services[usize::from(place.service)].failed(failure);
    }
}

/// The length of a payload that lies in the bytes that were `ahead`; one that does not is copied,
/// as its connection is to send it.
fn set_aside(payload: &[u8], ahead: &Range<*const u8>, assembled: &mut Vec<u8>) -> Option<usize> {
    if ahead.contains(&payload.as_ptr()) {
        return Some(payload.len());
    }
    assembled.extend_from_slice(payload);
    None
}

/// What looking at one connection's input may take in one turn; the rest is kept and comes in the
/// next one, after everybody else. It is 128 small messages; one that does not end is left earlier,
/// after [`WORK_PER_CALL`]. One read can hold 43,690 empty messages, whose callbacks would take
/// tens of milliseconds. A client that is not flooding sends fewer in the time of a turn, so that
/// nothing is kept and copied for it.
const WORK_PER_READ: usize = 4 * WORK_PER_CALL;

/// What an event takes beyond the bytes that it came in, as [`WORK_PER_CALL`] counts it: about half
/// a microsecond without a callback.
const WORK_PER_EVENT: usize = 192;

/// What compressing the answers may take before the rest of a connection's input waits for the next
/// turn: a millisecond.
const COMPRESSION_WORK_PER_READ: usize = 1 << 20;

/// A worker keeps no more memory than this for messages that are sent back: each of the same size
/// would have it allocated anew, and the long ones take longer than that.
const ASSEMBLED_BYTES_KEPT: usize = 256 << 10;

/// Bytes of messages after which the rest of a connection's input waits for the next turn. One
/// read (256 KiB) can hold messages that inflate to a thousand times as much, and a service takes
/// its time for each byte. Of what was not compressed nothing waits but what follows a message of
/// about this length.
const BYTES_PER_READ: usize = 1 << 20;
