//! What is true of the simulated world, and how its bytes move.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::SimConditions;
use crate::driver::{ListenerId, SocketId};
use crate::time::Time;

/// Every socket and every driver of a network.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) conditions: SimConditions,
    /// Ends are never removed: a test is over before that would matter.
    pub(super) ends: Vec<End>,
    pub(super) listeners: Vec<SimListener>,
    pub(super) drivers: Vec<DriverState>,
    pub(super) generation: u32,
}

/// What the world knows of a driver.
#[derive(Debug, Default)]
pub(super) struct DriverState {
    /// Until when it would sleep. MAX: without end.
    pub(super) wake_at: Time,
    pub(super) woken: Arc<AtomicBool>,
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct SimListener {
    pub(super) addr: SocketAddr,
    pub(super) driver: usize,
    pub(super) id: ListenerId,
    pub(super) is_open: bool,
    /// Whether its driver wants no connections for now.
    pub(super) is_held: bool,
    /// Ends that wait to be accepted, each from a moment on.
    pub(super) backlog: VecDeque<(Time, usize)>,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    /// The other end.
    pub(super) peer: usize,
    pub(super) addr: SocketAddr,
    /// The driver that has it and the id it has there.
    pub(super) owner: Option<(usize, SocketId)>,
    /// Bytes on their way to this end, in order, each part with its time of arrival.
    inbound: VecDeque<(Time, Vec<u8>)>,
    /// Invariant: the sum of the lengths in `inbound`.
    inbound_bytes: usize,
    /// When the last part arrives; a later part does not overtake it.
    arrival_last: Time,
    /// When the peer's FIN arrives.
    fin_at: Option<Time>,
    /// When a reset arrives.
    reset_at: Option<Time>,
    /// The outcome of the connect that is not over, and when it is.
    pub(super) connecting: Option<(Time, io::ErrorKind, bool)>,
    /// The send in flight and how much of it is written.
    pub(super) sending: Option<(Vec<u8>, usize)>,
    pub(super) is_paused: bool,
    /// Whether the end of the stream or a failure was told.
    is_over: bool,
    is_closed: bool,
}

/// What one look at an end came to.
pub(super) enum Arrival {
    Connected(io::Result<()>),
    Bytes(Vec<u8>),
    EndOfStream,
    Reset,
}

impl World {
    pub(super) fn new(seed: u64, conditions: SimConditions) -> Self {
        Self {
            now: Time::default(),
            rng: Rng::with_seed(seed),
            conditions,
            ends: Vec::new(),
            listeners: Vec::new(),
            drivers: Vec::new(),
            generation: 0,
        }
    }

    pub(super) fn add_end(&mut self, peer: usize, addr: SocketAddr) -> usize {
        self.ends.push(End {
            peer,
            addr,
            owner: None,
            inbound: VecDeque::new(),
            inbound_bytes: 0,
            arrival_last: Time::default(),
            fin_at: None,
            reset_at: None,
            connecting: None,
            sending: None,
            is_paused: false,
            is_over: false,
            is_closed: false,
        });
        self.ends.len() - 1
    }

    /// Gives the end to a driver, under a new id.
    pub(super) fn own(&mut self, end: usize, driver: usize) -> SocketId {
        self.generation += 1;
        let index = u32::try_from(end).expect("a test has few sockets");
        let id = SocketId {
            index,
            generation: self.generation,
        };
        self.ends[end].owner = Some((driver, id));
        id
    }

    /// The end that `driver` has under this id.
    pub(super) fn end(&mut self, driver: usize, id: SocketId) -> Option<usize> {
        let index = id.index as usize;
        (self.ends.get(index)?.owner == Some((driver, id))).then_some(index)
    }

    pub(super) fn delay(&mut self) -> Duration {
        let max = u64::try_from(self.conditions.delay_max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.rng.u64(0..=max))
    }

    /// A random part of `length`, at least one byte.
    fn part(&mut self, length: usize) -> usize {
        if self.rng.u32(0..1000) < self.conditions.short_per_mille {
            self.rng.usize(1..=length.min(SHORT_BYTES_MAX))
        } else {
            length
        }
    }

    /// Writes what the network takes now; whether that was all.
    pub(super) fn write(&mut self, end: usize) -> bool {
        let Some((buffer, mut sent)) = self.ends[end].sending.take() else {
            return true;
        };
        if self.ends[end].connecting.is_some() {
            self.ends[end].sending = Some((buffer, sent));
            return false;
        }
        let peer = self.ends[end].peer;
        if self.ends[peer].is_closed {
            let at = self.now + self.delay();
            self.reset(end, at);
            return true;
        }
        let room = self
            .conditions
            .window_bytes
            .saturating_sub(self.ends[peer].inbound_bytes);
        let length = room.min(buffer.len() - sent);
        if length > 0 {
            let length = self.part(length);
            let at = (self.now + self.delay()).max(self.ends[peer].arrival_last);
            let target = &mut self.ends[peer];
            target
                .inbound
                .push_back((at, buffer[sent..sent + length].to_vec()));
            target.inbound_bytes += length;
            target.arrival_last = at;
            sent += length;
        }
        if self.rng.u32(0..10_000) < self.conditions.resets_per_10_000 {
            let at = self.now + self.delay();
            self.reset(end, at);
            self.reset(peer, at);
        }
        let is_done = sent == buffer.len();
        if !is_done {
            self.ends[end].sending = Some((buffer, sent));
        }
        is_done
    }

    /// Whether a write would take anything.
    fn can_write(&self, end: &End) -> bool {
        let peer = &self.ends[end.peer];
        end.sending.is_some()
            && end.connecting.is_none()
            && (peer.is_closed || peer.inbound_bytes < self.conditions.window_bytes)
    }

    /// What arrived at an end, at most one thing per look.
    pub(super) fn arrival(&mut self, index: usize) -> Option<Arrival> {
        let now = self.now;
        let end = &mut self.ends[index];
        if let Some((at, kind, is_connected)) = end.connecting {
            if at > now {
                return None;
            }
            end.connecting = None;
            end.is_over = !is_connected;
            let result = if is_connected {
                Ok(())
            } else {
                Err(kind.into())
            };
            return Some(Arrival::Connected(result));
        }
        if end.is_over {
            return None;
        }
        if end.reset_at.is_some_and(|at| at <= now) {
            end.is_over = true;
            return Some(Arrival::Reset);
        }
        if end.is_paused {
            return None;
        }
        let due = end.inbound.iter().take_while(|(at, _)| *at <= now);
        let due_bytes: usize = due.map(|(_, bytes)| bytes.len()).sum();
        if due_bytes == 0 {
            if !end.inbound.is_empty() || end.fin_at.is_none_or(|at| at > now) {
                return None;
            }
            end.is_over = true;
            return Some(Arrival::EndOfStream);
        }
        let length = self.part(due_bytes);
        Some(Arrival::Bytes(self.ends[index].take(length)))
    }

    pub(super) fn reset(&mut self, end: usize, at: Time) {
        let end = &mut self.ends[end];
        end.reset_at = Some(end.reset_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The end's owner sends no more.
    pub(super) fn finish(&mut self, end: usize) {
        let at = self.now + self.delay();
        let peer = self.ends[end].peer;
        let peer = &mut self.ends[peer];
        let at = at.max(peer.arrival_last);
        peer.fin_at.get_or_insert(at);
    }

    /// The end's owner closes it; with a reset if bytes were not read, as the kernel does.
    pub(super) fn close(&mut self, end: usize, with_reset: bool) {
        let with_reset = with_reset || self.ends[end].inbound_bytes > 0;
        if with_reset {
            let at = self.now + self.delay();
            let peer = self.ends[end].peer;
            self.reset(peer, at);
        } else {
            self.finish(end);
        }
        let end = &mut self.ends[end];
        end.owner = None;
        end.is_closed = true;
        end.sending = None;
        end.inbound.clear();
        end.inbound_bytes = 0;
    }

    pub(super) fn advance(&mut self) -> bool {
        let next = self.next_moment();
        for driver in &mut self.drivers {
            driver.wake_at = Time::MAX;
        }
        self.now = self.now.max(next);
        next < Time::MAX
    }

    fn next_moment(&self) -> Time {
        let ends = self.ends.iter().filter(|end| end.owner.is_some());
        let ends = ends.map(|end| self.moment(end));
        let is_accepting = |listener: &&SimListener| listener.is_open && !listener.is_held;
        let listeners = self.listeners.iter().filter(is_accepting);
        let accepts = listeners.filter_map(|listener| listener.backlog.front().map(|(at, _)| *at));
        let drivers = self.drivers.iter().map(|driver| {
            if driver.woken.load(Ordering::Acquire) {
                self.now
            } else {
                driver.wake_at
            }
        });
        let next = ends
            .chain(accepts)
            .chain(drivers)
            .min()
            .unwrap_or(Time::MAX);
        if next == Time::MAX {
            next
        } else {
            next.max(self.now)
        }
    }

    /// When something happens at this end. MAX: not by itself.
    fn moment(&self, end: &End) -> Time {
        if self.can_write(end) {
            return self.now;
        }
        if let Some((at, ..)) = end.connecting {
            return at;
        }
        if end.is_over {
            return Time::MAX;
        }
        let bytes = end.inbound.front().map(|(at, _)| *at).or(end.fin_at);
        let bytes = bytes.filter(|_| !end.is_paused);
        bytes
            .into_iter()
            .chain(end.reset_at)
            .min()
            .unwrap_or(Time::MAX)
    }
}

impl End {
    /// Takes the first `length` bytes.
    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(length);
        while taken.len() < length {
            let Some((_, bytes)) = self.inbound.front_mut() else {
                break;
            };
            let wanted = length - taken.len();
            if bytes.len() <= wanted {
                taken.append(bytes);
                self.inbound.pop_front();
            } else {
                taken.extend(bytes.drain(..wanted));
            }
        }
        self.inbound_bytes -= taken.len();
        taken
    }
}

/// How little a short read or write can be, at most: a few bytes cut through frame headers, TLS
/// record headers and UTF-8 sequences.
const SHORT_BYTES_MAX: usize = 8;
