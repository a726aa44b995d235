//! What happens when nothing happens.

use moonwire_proto::refusal;

use super::error::SessionError;
use super::event::SessionEvent;
use super::{Phase, Session, Stage};
use crate::time::Time;
use crate::tls::TlsError;

impl Session {
    /// When [`on_deadline`](Self::on_deadline) is to be called; it may move later without notice
    /// and moves earlier only in `flush` and by the calls before it, so arm it after `flush`.
    pub fn deadline(&self) -> Option<Time> {
        if self.is_exhausted() && self.phase < Phase::Finished {
            // Now: what was to be sent is lost.
            return Some(Time::default());
        }
        let silence = self.silence_deadline();
        let message = self.message_deadline();
        let ping = self.ping_deadline();
        silence.into_iter().chain(message).chain(ping).min()
    }

    /// Whether TLS cannot send any more.
    fn is_exhausted(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_exhausted())
    }

    /// When the message that has begun must be complete.
    fn message_deadline(&self) -> Option<Time> {
        let is_expected = self.phase == Phase::Active && !self.is_paused;
        if !is_expected || self.message_began == Time::MAX {
            return None;
        }
        Some(self.message_began + self.limits.message_timeout?)
    }

    /// When something must have been heard, or taken, or be over.
    fn silence_deadline(&self) -> Option<Time> {
        match (self.phase, &self.stage) {
            (Phase::Active, Stage::Handshake(_)) => {
                Some(self.heard + self.limits.handshake_timeout)
            }
            (Phase::Active, Stage::Open(_)) if self.is_held => None,
            (Phase::Active, Stage::Open(_)) if self.is_paused => {
                // With nothing to be written it is this end that has to go on.
                (self.write_queue_bytes() > 0).then(|| self.heard + self.limits.write_timeout)
            }
            (Phase::Active, Stage::Open(_)) if self.is_pinged => {
                let silence = self.limits.pong_timeout.or(self.limits.idle_timeout)?;
                Some(self.heard + silence)
            }
            (Phase::Active, Stage::Open(_)) => Some(self.heard + self.limits.idle_timeout?),
            (Phase::Closing | Phase::Draining | Phase::HalfClosed, _) => {
                (self.close_by < Time::MAX).then_some(self.close_by)
            }
            (Phase::Finished | Phase::Gone, _) => None,
        }
    }

    /// Acts on a deadline that has passed: sends a ping, or ends the connection. Does nothing when
    /// the deadline has moved later since the timer was armed. Flush afterwards.
    ///
    /// `untaken_bytes` is what the driver says of the socket now: a peer that took something since
    /// the last look is slow but not gone.
    pub fn on_deadline(&mut self, untaken_bytes: usize, now: Time) -> Option<SessionEvent<'_>> {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        if self.is_exhausted() && self.phase <= Phase::Closing {
            return Some(self.time_out(SessionError::Tls(TlsError::KeysExhausted)));
        }
        if self
            .message_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            let reason = "the message took too long";
            return Some(self.abandon(SessionError::MessageTimeout, reason));
        }
        if self.ping_deadline().is_some_and(|deadline| deadline <= now) {
            self.ping_for_round_trip(untaken_bytes, now);
        }
        let is_silent = self.silence_deadline().is_some_and(|by| by <= now);
        if !is_silent && !self.is_exhausted() {
            return None;
        }
        let is_taking = self.untaken_bytes.saturating_sub(untaken_bytes) > PROGRESS_BYTES_MIN;
        self.untaken_bytes = untaken_bytes;
        if is_taking && self.put_off_close(now) {
            return None;
        }
        match (self.phase, &self.stage) {
            (Phase::Active, Stage::Handshake(_)) => Some(self.end_handshake()),
            (Phase::Active, Stage::Open(_)) if is_taking && (self.is_paused || self.is_pinged) => {
                // A ping may wait behind what it is still taking.
                self.heard = now;
                None
            }
            (Phase::Active, Stage::Open(_)) if self.is_paused => {
                Some(self.time_out(SessionError::WriteStalled))
            }
            (Phase::Active, Stage::Open(_))
                if self.is_pinged && self.limits.pong_timeout.is_some() =>
            {
                Some(self.time_out(SessionError::PongTimeout))
            }
            (Phase::Active, Stage::Open(_)) => {
                self.is_pinged = true;
                self.heard = now;
                // A peer with a full queue is not sent one; its silence counts all the same.
                if !self.is_ping_underway(now) {
                    self.ping_for_round_trip(untaken_bytes, now);
                }
                None
            }
            (Phase::Closing, _) => Some(self.time_out(SessionError::CloseTimeout)),
            (Phase::Draining | Phase::HalfClosed, _) => {
                // The last event was given; what is left undone is the peer's loss.
                self.abort();
                None
            }
            (Phase::Finished | Phase::Gone, _) => None,
        }
    }

    /// Ends a handshake that is not over, as if its time were: a server answers 408 to a request
    /// that has begun to come. Flush afterwards.
    pub fn end_handshake(&mut self) -> SessionEvent<'static> {
        if let Stage::Handshake(handshake) = &self.stage
            && handshake.has_request_begun()
            && self.phase == Phase::Active
        {
            let response = refusal(408, &[], b"");
            self.outbox.extend(response.unwrap_or_default());
            self.phase = Phase::Draining;
            return SessionEvent::Failed(SessionError::HandshakeTimeout);
        }
        self.time_out(SessionError::HandshakeTimeout)
    }

    /// A peer that is still taking what was queued before the end is given more time, within the
    /// bound; whether it was.
    pub(super) fn put_off_close(&mut self, now: Time) -> bool {
        if self.close_by == Time::MAX {
            return false;
        }
        let end = self.heard + CLOSE_TIMEOUTS_MAX * self.limits.close_timeout;
        self.close_by = self.close_by.max(end.min(now + self.limits.close_timeout));
        self.close_by > now
    }
}

/// Taking no more than this is not progress: a dead program's kernel still acknowledges a control
/// frame (127 bytes, RFC 6455, 5.5, and its TLS record).
const PROGRESS_BYTES_MIN: usize = 256;

/// How many times `close_timeout` a close may take in all: one that trickles is cut off then.
const CLOSE_TIMEOUTS_MAX: u32 = 10;
