//! From received bytes to events.

use std::ops::Range;

use moonwire_proto::{CloseCode, Connection, Event, Request};

use super::codec::with_codec;
use super::error::SessionError;
use super::event::SessionEvent;
use super::handshake::{Answer, Handshake};
use super::kept::{Kept, Part};
use super::{Phase, Session, Stage, random_mask};
use crate::buffer::{Plaintext, RECEIVE_BUFFER_BYTES};
use crate::time::Time;

/// Plaintext of one read that was not looked at yet.
#[derive(Debug)]
pub struct Input<'b> {
    bytes: Bytes<'b>,
    /// How much of `bytes` was taken. Invariant: 0 <= taken <= bytes.len().
    taken: usize,
    /// What looking at that took.
    work: usize,
    /// Whether a part of it came some time ago.
    is_late: bool,
}

#[derive(Debug)]
enum Bytes<'b> {
    /// The driver's buffer or the loop's scratch.
    Lent(&'b mut [u8]),
    /// The session's own, which can be kept again without a copy.
    Own(Vec<u8>),
}

impl Session {
    /// Makes plaintext of received bytes: without TLS they are passed through as they are, with
    /// TLS the records are opened in place where they can be, else into `scratch`. Bytes kept from
    /// before come first.
    ///
    /// An error is the event that ends the session; flush, so that the peer gets the alert.
    pub fn open<'b>(
        &mut self,
        received: &'b mut [u8],
        scratch: &'b mut Plaintext,
    ) -> Result<Input<'b>, SessionError> {
        self.is_read = true;
        if self.phase > Phase::Closing {
            // Nobody is interested any more; received only to find the end of the stream.
            return Ok(Input::new(&mut []));
        }
        if self.tls.is_none() && (self.kept.rest().is_empty() || self.request().is_some()) {
            return Ok(Input::new(received));
        }
        scratch.bytes.clear();
        self.lay_out_kept(scratch);
        let is_late = !scratch.bytes.is_empty();
        match &mut self.tls {
            None => scratch.bytes.extend_from_slice(received),
            Some(tls) => {
                let length = match tls.open(received, &mut scratch.bytes, !is_late) {
                    Ok(length) => length,
                    Err(error) => {
                        self.release();
                        self.phase = Phase::Draining;
                        return Err(SessionError::Tls(error));
                    }
                };
                // It may keep TCP open for as long as it likes (RFC 8446, 6.1); the event comes
                // from `poll` once all that was sent before it has been looked at.
                self.is_ended |= tls.is_ended();
                if length > 0 {
                    return Ok(Input::new(received.get_mut(..length).unwrap_or_default()));
                }
            }
        }
        let input = Input::new(&mut scratch.bytes);
        Ok(Input { is_late, ..input })
    }

    /// The bytes that were kept while the request was not answered, while the connection changed
    /// its driver, or while too much waited to be written: to be polled after a late `accept`,
    /// after `attach`, and whenever [`has_unread`](Self::has_unread) says so.
    pub fn unread(&mut self) -> Input<'static> {
        self.is_read = true;
        if self.phase > Phase::Closing || self.request().is_some() {
            return Input::new(&mut []);
        }
        let Part { bytes, taken } = self.kept.take();
        Input {
            bytes: Bytes::Own(bytes),
            taken,
            work: 0,
            is_late: true,
        }
    }

    /// The next event in `input`; call until None. Between two calls the caller may do anything to
    /// this session and others.
    pub fn poll<'a>(&'a mut self, input: &'a mut Input<'_>, now: Time) -> Option<SessionEvent<'a>> {
        self.note_heard(now);
        if self.phase > Phase::Closing {
            return None;
        }
        if matches!(self.stage, Stage::Handshake(_)) {
            return self.poll_handshake(input, now);
        }
        if self.is_ended && self.kept.rest().is_empty() && input.rest().is_empty() {
            // It ended before all that was received had been looked at; now it has.
            return Some(self.fail(SessionError::EndOfStream));
        }
        let Stage::Open(connection) = &mut self.stage else {
            return None;
        };
        let Input {
            bytes,
            taken,
            work,
            is_late,
        } = input;
        let rest = bytes.get_mut(*taken)?;
        let rest_bytes = rest.len();
        let step = with_codec(|codec| connection.receive(rest, &mut self.outbox, codec));
        *taken += step.taken;
        *work += step.work;
        let Some(event) = step.event else {
            return (step.taken < rest_bytes).then_some(SessionEvent::More);
        };
        Some(match event {
            Event::Message { opcode, payload } => {
                self.message_began = Time::MAX;
                SessionEvent::Message { opcode, payload }
            }
            Event::Ping(payload) => SessionEvent::Ping(payload),
            Event::Pong(payload) => {
                let round_trip = self.own_ping.answered(self.peer, payload, *is_late, now);
                SessionEvent::Pong {
                    payload,
                    round_trip,
                }
            }
            Event::Close { code, reason } => {
                let local = self.phase == Phase::Closing;
                self.phase = Phase::Draining;
                SessionEvent::Closed {
                    code,
                    reason,
                    local,
                }
            }
            Event::Failed(error) => {
                self.phase = Phase::Draining;
                SessionEvent::Failed(SessionError::Protocol(error))
            }
        })
    }

    /// Looks at what the last read left unfinished, once `poll` has given None or its input is
    /// kept: frees the message that was handed out, notes when one began, for
    /// [`deadline`](Self::deadline), and ends the connection of a peer whose message has grown
    /// beyond `memory_bytes_max`.
    pub fn settle(&mut self, now: Time) -> Option<SessionEvent<'static>> {
        self.is_read = false;
        let Stage::Open(connection) = &mut self.stage else {
            return None;
        };
        connection.free_delivered();
        let is_unfinished = self.phase <= Phase::Closing && connection.is_unfinished();
        if !is_unfinished || self.phase > Phase::Active {
            self.message_began = Time::MAX;
        } else if self.message_began == Time::MAX {
            self.message_began = if self.is_paused { Time::default() } else { now };
        }
        if !is_unfinished {
            return None;
        }
        if self.memory_bytes().total() <= self.limits.memory_bytes_max {
            return None;
        }
        let reason = "the message takes too much memory";
        Some(self.abandon(SessionError::MemoryExceeded, reason))
    }

    /// Tells the peer of an open connection that it broke a rule of this end (1008), and ends.
    pub(super) fn abandon(&mut self, error: SessionError, reason: &str) -> SessionEvent<'static> {
        self.reserve_outbox();
        if let Stage::Open(connection) = &mut self.stage {
            connection.abandon(CloseCode::POLICY_VIOLATION, reason, &mut self.outbox);
        }
        self.kept = Kept::default();
        self.phase = Phase::Draining;
        SessionEvent::Failed(error)
    }

    /// Keeps what was not looked at of one read, while the connection changes hands or while
    /// [`is_full`](Self::is_full). As long as there is something, flush has the driver receive no
    /// more, so it is little more than what the driver reads in one turn.
    pub fn keep(&mut self, input: Input<'_>) {
        if self.phase > Phase::Closing || input.rest().is_empty() {
            return;
        }
        match input.bytes {
            Bytes::Own(bytes) if self.kept.rest().is_empty() => {
                let taken = input.taken;
                self.kept.put_back(Part { bytes, taken });
            }
            Bytes::Own(_) | Bytes::Lent(_) => self.kept.extend(input.rest()),
        }
    }

    /// Server: whether so much waits to be written that events are better left in their input:
    /// then keep it, and go on once it `has_unread` and is not full any more.
    pub fn is_full(&self) -> bool {
        self.is_open() && self.write_queue_bytes() > self.limits.write_queue_pause_bytes
    }

    /// Whether `unread` has something to be polled, bytes or the end of the stream.
    pub fn has_unread(&self) -> bool {
        self.can_keep() && (self.is_ended || !self.kept.rest().is_empty())
    }

    /// Server: the caller goes on with this peer only after [`resume`](Self::resume), and keeps
    /// whatever comes until then. The peer's silence does not count meanwhile, nor does its end, as
    /// what it asked is still to be answered.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// What held it up is over.
    pub fn resume(&mut self, now: Time) {
        self.is_held = false;
        self.note_heard(now);
    }

    /// Whether the caller has something to do before it goes on.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether what is kept now comes up again: once the handshake is over, until the peer's close
    /// frame has come.
    pub fn can_keep(&self) -> bool {
        self.phase <= Phase::Closing && matches!(self.stage, Stage::Open(_))
    }

    /// Kept bytes come before those received now, once the request is answered.
    fn lay_out_kept(&mut self, scratch: &mut Plaintext) {
        if self.request().is_none() {
            let Part { bytes, taken } = self.kept.take();
            scratch
                .bytes
                .extend_from_slice(bytes.get(taken..).unwrap_or_default());
        }
    }

    fn note_heard(&mut self, now: Time) {
        if self.close_by == Time::MAX && matches!(self.stage, Stage::Open(_)) {
            self.heard = now;
            self.is_pinged = false;
        }
    }

    fn poll_handshake<'a>(
        &'a mut self,
        input: &mut Input<'_>,
        now: Time,
    ) -> Option<SessionEvent<'a>> {
        self.begin_upgrade(now);
        if self.is_client {
            self.poll_client(input, now)
        } else {
            self.poll_server(input)
        }
    }

    fn poll_server<'a>(&'a mut self, input: &mut Input<'_>) -> Option<SessionEvent<'a>> {
        if self.request().is_some() {
            return self.keep_pipelined(input);
        }
        let Stage::Handshake(handshake) = &mut self.stage else {
            return None;
        };
        let Handshake::Server(server) = &mut **handshake else {
            return None;
        };
        match server.reader.receive(input.rest()) {
            Ok(None) => {
                input.take_all();
                None
            }
            Ok(Some((request, taken))) => {
                input.taken += taken;
                let request: &Request = server.request.insert(request);
                Some(SessionEvent::Request(request))
            }
            Err(error) => {
                self.outbox.extend_from_slice(&error.response());
                self.phase = Phase::Draining;
                Some(SessionEvent::Failed(SessionError::Request(error)))
            }
        }
    }

    /// A client may send frames right behind its request, before it can know the answer.
    fn keep_pipelined<'a>(&'a mut self, input: &mut Input<'_>) -> Option<SessionEvent<'a>> {
        let rest = input.rest();
        if rest.is_empty() {
            return None;
        }
        if self.kept.rest().len() + rest.len() > PIPELINED_BYTES_MAX {
            return Some(self.fail(SessionError::PipelinedTooMuch));
        }
        self.kept.extend(rest);
        input.take_all();
        None
    }

    fn poll_client<'a>(&'a mut self, input: &mut Input<'_>, now: Time) -> Option<SessionEvent<'a>> {
        match self.read_response(input, now)? {
            Err(error) => {
                self.is_aborted = true;
                Some(self.fail(error))
            }
            Ok(Answer::Refused(response)) => {
                self.phase = Phase::Draining;
                Some(SessionEvent::Refused {
                    status: response.status(),
                    response,
                })
            }
            Ok(Answer::Upgraded(response, timings)) => {
                let mut connection = Connection::client(&self.limits.protocol, random_mask);
                if self.is_unmasked() {
                    connection = connection.without_masks();
                }
                if let Some(agreement) = response.deflate() {
                    connection = connection.with_deflate(agreement);
                }
                self.stage = Stage::Open(connection);
                self.note_heard(now);
                Some(SessionEvent::Upgraded { response, timings })
            }
        }
    }

    /// Whether a client's frames are to go without a mask.
    fn is_unmasked(&self) -> bool {
        match &self.stage {
            Stage::Handshake(handshake) => match handshake.as_ref() {
                Handshake::Client(client) => client.is_unmasked,
                Handshake::Server(_) => false,
            },
            Stage::Open(_) => false,
        }
    }

    fn read_response(
        &mut self,
        input: &mut Input<'_>,
        now: Time,
    ) -> Option<Result<Answer, SessionError>> {
        let tls = self.tls.is_some();
        let Stage::Handshake(handshake) = &mut self.stage else {
            return None;
        };
        let Handshake::Client(client) = &mut **handshake else {
            return None;
        };
        if input.rest().is_empty() {
            return None;
        }
        match client.reader.receive(input.rest()) {
            Ok(None) => {
                input.take_all();
                None
            }
            Ok(Some((response, taken))) => {
                input.taken += taken;
                let response = Box::new(response);
                if response.is_upgrade() {
                    return Some(Ok(Answer::Upgraded(response, client.timings(now, tls))));
                }
                Some(Ok(Answer::Refused(response)))
            }
            Err(error) => Some(Err(SessionError::Response(error))),
        }
    }
}

impl<'b> Input<'b> {
    fn new(bytes: &'b mut [u8]) -> Self {
        Self {
            bytes: Bytes::Lent(bytes),
            taken: 0,
            work: 0,
            is_late: false,
        }
    }

    /// What it took to look at what was taken so far, as [`WORK_PER_CALL`] counts it.
    ///
    /// [`WORK_PER_CALL`]: moonwire_proto::WORK_PER_CALL
    pub fn work(&self) -> usize {
        self.work
    }

    /// Where in memory the bytes are that were not taken yet. A message whose payload begins there
    /// was not assembled, and [`last_taken`](Self::last_taken) gives it again.
    pub fn addresses(&self) -> Range<*const u8> {
        self.rest().as_ptr_range()
    }

    /// The last so many bytes that were taken: the payload of a message that was just given and was
    /// not assembled, because nothing follows it in its frame.
    pub fn last_taken(&self, length: usize) -> &[u8] {
        let place = self.taken.saturating_sub(length)..self.taken;
        match &self.bytes {
            Bytes::Lent(bytes) => bytes.get(place),
            Bytes::Own(bytes) => bytes.get(place),
        }
        .unwrap_or_default()
    }

    /// What was not taken yet.
    fn rest(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Lent(bytes) => bytes.get(self.taken..),
            Bytes::Own(bytes) => bytes.get(self.taken..),
        }
        .unwrap_or_default()
    }

    fn take_all(&mut self) {
        self.taken += self.rest().len();
    }
}

impl Bytes<'_> {
    /// Those after the first `taken`.
    fn get_mut(&mut self, taken: usize) -> Option<&mut [u8]> {
        match self {
            Self::Lent(bytes) => bytes.get_mut(taken..),
            Self::Own(bytes) => bytes.get_mut(taken..),
        }
    }
}

/// How much may follow a request before it is answered: what can come along with it in one read,
/// which the client cannot know. Answers take well under a round trip, so one that sends even more
/// is no reasonable client.
const PIPELINED_BYTES_MAX: usize = RECEIVE_BUFFER_BYTES;
