//! How long a ping takes to come back, for the pings that a session sends by itself.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use super::{Phase, Session, Stage};
use crate::time::Time;

/// The latest ping of this end, or, before the first one, when the connection was accepted. One
/// word: the payload is made anew when its pong comes, and the last bit of the nanoseconds says
/// whether that will tell the round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnPing(u64);

/// What a ping carries. The peer cannot know it before it has come, so that no pong is early.
pub(super) type PingPayload = [u8; 8];

impl OwnPing {
    /// None is sent yet.
    pub(super) fn none_since(now: Time) -> Self {
        Self(now.as_nanos() & !1)
    }

    fn sent(now: Time) -> Self {
        Self(now.as_nanos() | 1)
    }

    /// The pong will not tell how long it took.
    pub(super) fn give_up(&mut self) {
        self.0 &= !1;
    }

    fn is_awaited(self) -> bool {
        self.0 & 1 == 1
    }

    fn at(self) -> Time {
        Time::from_nanos(self.0 & !1)
    }

    /// The time from this ping to the pong, if that is the first answer to it. Others are asked for
    /// by the caller, or by nobody, which RFC 6455 allows (5.5.3). `is_late`: it was kept for a
    /// while, so when it came is not known.
    pub(super) fn answered(
        &mut self,
        peer: SocketAddr,
        pong: &[u8],
        is_late: bool,
        now: Time,
    ) -> Option<Duration> {
        if !self.is_awaited() || pong != self.payload(peer) {
            return None;
        }
        self.give_up();
        (!is_late).then(|| now - self.at())
    }

    fn payload(self, peer: SocketAddr) -> PingPayload {
        /// One secret for the whole process: a session may change its thread.
        static SECRET: OnceLock<RandomState> = OnceLock::new();
        let secret = SECRET.get_or_init(RandomState::new);
        secret.hash_one((peer, self.at())).to_ne_bytes()
    }
}

impl Session {
    /// When the next ping of `ping_interval` is to be sent. While one is not answered there is no
    /// other one, until it counts as lost: a peer may answer the latest ping only (RFC 6455,
    /// 5.5.3), and one that takes longer than the interval would never be measured.
    pub(super) fn ping_deadline(&self) -> Option<Time> {
        let interval = self.limits.ping_interval?;
        let is_listened_to = self.phase == Phase::Active && !self.is_held && !self.is_paused;
        if !is_listened_to || !matches!(self.stage, Stage::Open(_)) {
            return None;
        }
        let patience = self.limits.pong_timeout.unwrap_or_default();
        let pause = match self.own_ping.is_awaited() {
            true => interval.max(patience),
            false => interval,
        };
        Some(self.own_ping.at() + pause)
    }

    /// Whether a ping was sent that has still time to be answered; another one would only spoil
    /// what it tells.
    pub(super) fn is_ping_underway(&self, now: Time) -> bool {
        let patience = self.limits.pong_timeout.unwrap_or_default();
        self.own_ping.is_awaited() && self.own_ping.at() + patience > now
    }

    /// Sends a ping of its own. Behind bytes that the peer does not take it would tell how long
    /// those wait, so its pong is not looked for then. `untaken_bytes` are those that the kernel
    /// has.
    pub(super) fn ping_for_round_trip(&mut self, untaken_bytes: usize, now: Time) {
        let ahead = untaken_bytes.saturating_add(self.write_queue_bytes());
        let is_behind = self.in_flight_bytes > 0 || ahead > AHEAD_BYTES_MAX;
        self.own_ping = OwnPing::sent(now);
        let payload = self.own_ping.payload(self.peer);
        // A peer with a full queue is not sent a ping.
        let is_sent = self.ping(&payload).is_ok();
        if !is_sent || is_behind {
            self.own_ping.give_up();
        }
    }
}

/// What a ping may wait for: about the first window of a connection (RFC 6928), which a peer that
/// reads has taken after one round trip.
const AHEAD_BYTES_MAX: usize = 16 * 1024;
