//! From messages to the driver.

use std::io;

use moonwire_proto::{CloseCode, Opcode, refusal};

use super::codec::with_codec;
use super::error::{SendError, SessionError};
use super::event::{Flushed, SessionEvent};
use super::{Phase, Session, Stage};
use crate::buffer::BufferPool;
use crate::driver::{Driver, Submission};
use crate::time::Time;

impl Session {
    /// Queues a message. The payload of a text must be UTF-8.
    ///
    /// A message is queued as a whole or not at all: where something waits already, and with it
    /// more than `write_queue_bytes_max` bytes would, it is [`SendError::QueueFull`] and the caller
    /// decides.
    pub fn send(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), SendError> {
        if self.is_queue_full(payload.len().saturating_add(FRAME_HEADER_BYTES_MAX)) {
            return if self.is_open() {
                Err(SendError::QueueFull)
            } else {
                Err(SendError::NotOpen)
            };
        }
        self.reserve_outbox();
        let Stage::Open(connection) = &mut self.stage else {
            return Err(SendError::NotOpen);
        };
        if self.phase > Phase::Active {
            return Err(SendError::NotOpen);
        }
        let out = &mut self.outbox;
        Ok(with_codec(|codec| {
            connection.send(opcode, payload, out, codec)
        })?)
    }

    /// The same; of a large message before which nothing waits, what the socket takes at once is
    /// written without being copied. For the first message of a turn: what follows it goes
    /// together.
    pub fn send_at_once<D: Driver>(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        driver: &mut D,
    ) -> Result<(), SendError> {
        if self.may_go_at_once(payload.len())
            && let Stage::Open(connection) = &mut self.stage
        {
            let mut header = Vec::with_capacity(FRAME_HEADER_BYTES_MAX);
            if connection.send_header(opcode, payload.len(), &mut header)? {
                match self.tls {
                    None => self.write_at_once(&header, payload, driver),
                    Some(_) => self.seal_at_once(&header, payload, driver),
                }
                return Ok(());
            }
        }
        self.send(opcode, payload)
    }

    /// Whether a message of so many bytes is worth it, and nothing comes before it.
    fn may_go_at_once(&self, payload_bytes: usize) -> bool {
        let is_worth_it = match &self.tls {
            None => payload_bytes >= AT_ONCE_BYTES_MIN,
            Some(tls) => {
                let range = SEALED_AT_ONCE_BYTES_MIN..SEALED_BYTES_MAX;
                range.contains(&payload_bytes) && tls.takes_parts()
            }
        };
        is_worth_it && self.phase <= Phase::Active && self.write_queue_bytes() == 0
    }

    /// Seals a frame from where it is, and hands it to the driver.
    fn seal_at_once<D: Driver>(&mut self, header: &[u8], payload: &[u8], driver: &mut D) {
        let Some(tls) = &mut self.tls else {
            return;
        };
        let mut wire = BufferPool::take();
        wire.reserve_exact(sealed_bytes(header.len() + payload.len()));
        tls.write_parts([header, payload], &mut wire);
        if wire.is_empty() {
            // The keys are used up, which the next look at the session finds.
            return BufferPool::give(wire);
        }
        self.submit(wire, driver);
    }

    /// Writes a frame as far as the socket takes it, and queues the rest.
    fn write_at_once<D: Driver>(&mut self, header: &[u8], payload: &[u8], driver: &mut D) {
        let taken = driver.send_at_once(self.socket, [header, payload]);
        self.untaken_bytes = self.untaken_bytes.saturating_add(taken);
        if taken == header.len() + payload.len() {
            return;
        }
        self.reserve_outbox();
        self.outbox.reserve(header.len() + payload.len() - taken);
        let of_header = header.get(taken..).unwrap_or_default();
        let of_payload = payload.get(taken.saturating_sub(header.len())..);
        self.outbox.extend_from_slice(of_header);
        self.outbox
            .extend_from_slice(of_payload.unwrap_or_default());
    }

    /// Queues a message in frames of `fragment_bytes` each, the last one with what is left, under
    /// the same bound as `send`.
    pub fn send_fragmented(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        fragment_bytes: usize,
    ) -> Result<(), SendError> {
        let frames = payload.len() / fragment_bytes.max(1) + 1;
        let added = payload
            .len()
            .saturating_add(frames.saturating_mul(FRAME_HEADER_BYTES_MAX));
        if !self.is_open() {
            return Err(SendError::NotOpen);
        }
        if self.is_queue_full(added) {
            return Err(SendError::QueueFull);
        }
        self.reserve_outbox();
        let Stage::Open(connection) = &mut self.stage else {
            return Err(SendError::NotOpen);
        };
        let out = &mut self.outbox;
        Ok(with_codec(|codec| {
            connection.send_fragmented(opcode, payload, fragment_bytes, out, codec)
        })?)
    }

    /// Queues a message in frames of these sizes and one with the rest, under the same bound as
    /// `send`; a message that is shorter has fewer frames.
    pub fn send_in_parts(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        sizes: &[usize],
    ) -> Result<(), SendError> {
        let headers = sizes
            .len()
            .saturating_add(1)
            .saturating_mul(FRAME_HEADER_BYTES_MAX);
        if !self.is_open() {
            return Err(SendError::NotOpen);
        }
        if self.is_queue_full(payload.len().saturating_add(headers)) {
            return Err(SendError::QueueFull);
        }
        self.reserve_outbox();
        let Stage::Open(connection) = &mut self.stage else {
            return Err(SendError::NotOpen);
        };
        let out = &mut self.outbox;
        Ok(with_codec(|codec| {
            connection.send_in_parts(opcode, payload, sizes, out, codec)
        })?)
    }

    /// Queues a ping with at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::NotOpen);
        }
        if self.write_queue_bytes() > self.limits.write_queue_bytes_max {
            return Err(SendError::QueueFull);
        }
        self.reserve_outbox();
        let Stage::Open(connection) = &mut self.stage else {
            return Err(SendError::NotOpen);
        };
        Ok(connection.ping(payload, &mut self.outbox)?)
    }

    /// Begins the close handshake; `Closed` or `Failed` follows within `close_timeout`. Before the
    /// upgrade it ends the connection without an event: a server answers 503 where it can.
    /// Ignored when the end has begun already.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        if self.phase > Phase::Active {
            return;
        }
        self.reserve_outbox();
        match &mut self.stage {
            Stage::Open(connection) => {
                // It fails only after a close frame, and then this phase is over.
                let _ = connection.close(code, reason, &mut self.outbox);
                self.phase = Phase::Closing;
            }
            Stage::Handshake(_) => {
                let is_secured = self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking());
                if !self.is_client && is_secured {
                    self.outbox
                        .extend(refusal(503, &[], b"").unwrap_or_default());
                    self.kept = super::kept::Kept::default();
                    self.phase = Phase::Draining;
                } else {
                    self.release();
                    self.phase = Phase::Finished;
                }
            }
        }
    }

    /// Ends at once with RST and without an event.
    pub fn abort(&mut self) {
        self.is_aborted = true;
        self.phase = self.phase.max(Phase::Finished);
        self.release();
    }

    /// Takes note of a `Completion::Sent`; flush afterwards.
    pub fn on_sent(
        &mut self,
        buffer: Vec<u8>,
        result: io::Result<()>,
        now: Time,
    ) -> Option<SessionEvent<'_>> {
        BufferPool::give(buffer);
        self.in_flight_bytes = 0;
        match result {
            Ok(()) => {
                if self.is_open() {
                    // Taking bytes is a sign of life, and all that is to be expected of a peer
                    // that is not listened to.
                    self.heard = now;
                }
                self.put_off_close(now);
                None
            }
            Err(error) => self.on_failed(error),
        }
    }

    /// Takes note of a `Completion::Blocked`; `on_sent` follows.
    pub fn on_blocked(&mut self, bytes: usize) {
        self.in_flight_bytes = bytes;
    }

    /// Does everything that is to be done with the socket: one write of all that is queued, then
    /// pausing, half closing and closing as it comes. Call it at the end of a turn for each
    /// session that something happened to.
    pub fn flush<D: Driver>(&mut self, driver: &mut D) -> Flushed {
        if self.phase < Phase::Finished && self.in_flight_bytes == 0 {
            self.write(driver);
        }
        if self.phase > Phase::Active {
            self.advance_close(driver);
        } else {
            self.regulate(driver);
        }
        if self.phase == Phase::Gone {
            Flushed::Finished
        } else {
            Flushed::Open
        }
    }

    /// Whether a message of `added` bytes would be too much beside what waits already. A message
    /// that waits for nothing is never too much.
    fn is_queue_full(&self, added: usize) -> bool {
        let waiting = self.write_queue_bytes();
        let is_beyond = |held: usize, max: usize| held.saturating_add(added) > max;
        waiting > 0
            && (is_beyond(waiting, self.limits.write_queue_bytes_max)
                || is_beyond(self.memory_bytes().total(), self.limits.memory_bytes_max))
    }

    /// Makes sure that the outbox has capacity, from the loop's pool.
    pub(super) fn reserve_outbox(&mut self) {
        if self.outbox.capacity() == 0 {
            self.outbox = BufferPool::take();
        }
    }

    /// Hands all that is queued to the driver: as one buffer, or with TLS part by part, each sealed
    /// only when the one before has been written. A long queue would take long to be sealed as a
    /// whole, and as much memory again.
    fn write<D: Driver>(&mut self, driver: &mut D) {
        if let Stage::Open(connection) = &mut self.stage {
            connection.send_owed_pong(&mut self.outbox);
        }
        if self.tls.is_some() {
            while self.in_flight_bytes == 0
                && let Some(wire) = self.seal_part()
            {
                self.submit(wire, driver);
            }
        } else if self.outbox.is_empty() {
            self.empty_outbox();
        } else {
            let wire = std::mem::take(&mut self.outbox);
            self.submit(wire, driver);
        }
    }

    /// What TLS itself has to say, and the next records of the outbox.
    fn seal_part(&mut self) -> Option<Vec<u8>> {
        let tls = self.tls.as_mut()?;
        let end = (self.sealed_bytes + SEALED_BYTES_MAX).min(self.outbox.len());
        let part = self.outbox.get(self.sealed_bytes..end).unwrap_or_default();
        let mut wire = BufferPool::take();
        if part.len() > SEALED_BYTES_MAX / 2 && wire.capacity() < WIRE_BYTES_MAX {
            wire.reserve_exact(WIRE_BYTES_MAX);
        }
        if !part.is_empty() || tls.wants_write() {
            tls.write(part, &mut wire);
        }
        self.sealed_bytes = end;
        if end == self.outbox.len() {
            self.empty_outbox();
        } else if end >= self.outbox.len() / 2 {
            // No more is moved in all than was queued, and half of the memory is in use at least.
            self.outbox.drain(..end);
            self.sealed_bytes = 0;
        }
        if wire.is_empty() {
            BufferPool::give(wire);
            return None;
        }
        Some(wire)
    }

    /// Gives the outbox back with whatever is in it.
    pub(super) fn empty_outbox(&mut self) {
        BufferPool::give(std::mem::take(&mut self.outbox));
        self.sealed_bytes = 0;
    }

    pub(super) fn submit<D: Driver>(&mut self, wire: Vec<u8>, driver: &mut D) {
        let length = wire.len();
        self.untaken_bytes = self.untaken_bytes.saturating_add(length);
        // What comes last is to be known to be written, before anything is closed behind it.
        let submission = if self.phase > Phase::Active {
            driver.send(self.socket, wire)
        } else {
            driver.post(self.socket, wire)
        };
        match submission {
            Submission::Done(buffer) => BufferPool::give(buffer),
            Submission::InFlight => self.in_flight_bytes = length,
        }
    }

    /// Stops listening to a peer that does not take its answers, until it does and all that was
    /// received before is looked at. Only a server does so: if both ends did, each could wait for
    /// the other to read.
    fn regulate<D: Driver>(&mut self, driver: &mut D) {
        if self.is_client {
            return;
        }
        if self.is_paused {
            // While an input is out, what is left of it is not seen from here.
            if self.write_queue_bytes() == 0 && !self.is_read && !self.has_unread() {
                self.is_paused = false;
                self.turn_message_clock(driver.now());
                driver.resume_receive(self.socket);
            }
        } else if self.is_full() || self.has_unread() {
            // What it did before says nothing about whether it takes what waits for it now.
            self.is_paused = true;
            self.is_pinged = false;
            // When the pong comes is not seen from here on.
            self.own_ping.give_up();
            self.heard = driver.now();
            self.turn_message_clock(self.heard);
            self.untaken_bytes = driver.untaken_bytes(self.socket);
            driver.pause_receive(self.socket);
        }
    }

    /// From the moment when a message began to how long ago that is, and back: the peer cannot go
    /// on with it while nothing is received, so that time does not count. Were it to begin anew
    /// instead, pauses would keep a message open for ever.
    fn turn_message_clock(&mut self, now: Time) {
        if self.message_began < Time::MAX {
            let turned = now.as_nanos().saturating_sub(self.message_began.as_nanos());
            self.message_began = Time::from_nanos(turned);
        }
    }

    fn advance_close<D: Driver>(&mut self, driver: &mut D) {
        self.regulate_closing(driver);
        if self.close_by == Time::MAX {
            self.heard = driver.now();
            self.close_by = self.heard + self.limits.close_timeout;
            self.untaken_bytes = driver.untaken_bytes(self.socket);
        }
        if self.phase == Phase::Draining && self.write_queue_bytes() == 0 {
            self.half_close(driver);
        }
        if self.phase == Phase::Finished {
            if self.is_aborted {
                driver.abort(self.socket);
            } else {
                driver.close(self.socket);
            }
            self.phase = Phase::Gone;
        }
    }

    /// The peer's close frame or the end of its stream is what is waited for now. Only what was
    /// received before comes first.
    fn regulate_closing<D: Driver>(&mut self, driver: &mut D) {
        let is_behind = !self.is_client && self.can_keep() && !self.kept.rest().is_empty();
        if self.is_paused {
            // While an input is out, what is left of it is not seen from here.
            let is_unknown = self.is_read && self.can_keep();
            if !is_behind && !is_unknown {
                self.is_paused = false;
                driver.resume_receive(self.socket);
            }
        } else if is_behind {
            self.is_paused = true;
            driver.pause_receive(self.socket);
        }
    }

    /// Everything is written: says so to the peer, once.
    fn half_close<D: Driver>(&mut self, driver: &mut D) {
        if let Some(tls) = &mut self.tls {
            tls.notify_close();
            if tls.wants_write() {
                self.write(driver);
                if self.in_flight_bytes > 0 {
                    return;
                }
            }
        }
        if self.is_ended {
            self.phase = Phase::Finished;
            return;
        }
        // RFC 6455, 7.1.1: the server closes first, so that it is the one in TIME_WAIT.
        let was_upgraded = matches!(self.stage, Stage::Open(_));
        if !(self.is_client && was_upgraded) {
            driver.shutdown(self.socket);
        }
        self.phase = Phase::HalfClosed;
    }

    /// Ends because of a deadline.
    pub(super) fn time_out(&mut self, error: SessionError) -> SessionEvent<'static> {
        self.is_aborted = true;
        self.fail(error)
    }
}

/// Seven records, which take some 100 us to be sealed.
const SEALED_BYTES_MAX: usize = 7 * 16 * 1024;
/// They fit into it with what each adds, and it into the pool.
const WIRE_BYTES_MAX: usize = SEALED_BYTES_MAX + 8 * 1024;
/// From here on to copy a message takes longer than a call of its own to write it.
const AT_ONCE_BYTES_MIN: usize = 32 * 1024;
/// From here on to copy a message before it is sealed costs more than to write it by itself.
const SEALED_AT_ONCE_BYTES_MIN: usize = 8 * 1024;

/// What becomes of plaintext as records, with a little left for what TLS itself has to say.
const fn sealed_bytes(plaintext_bytes: usize) -> usize {
    plaintext_bytes + (plaintext_bytes / (16 * 1024) + 2) * RECORD_OVERHEAD_BYTES
}

/// Of a record of TLS 1.3: header, type and tag; there is room for more.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// RFC 6455, 5.2: two bytes, eight of length, four of mask.
const FRAME_HEADER_BYTES_MAX: usize = 14;
