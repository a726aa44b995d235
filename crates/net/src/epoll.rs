//! The driver over epoll: one set per thread, edge triggered.
//!
//! Each socket is registered once, for reading and writing, and never again: what epoll reports
//! is remembered in the socket's flags until a read or write says "would block". Level triggering
//! would need a call per pause, resume, half close and short write, and has the kernel look at
//! each reported socket a second time on the next wait. An idle connection costs no call at all.

mod accept;
mod socket;
mod wait;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use slab::Slab;

use crate::accept::ACCEPTS_PER_TURN_MAX;
use crate::buffer::{RECEIVE_BUFFER_BYTES, ReceiveBuffer, Storage};
use crate::connect::connect;
use crate::driver::{
    Completion, ConnectTarget, Driver, ListenerId, SocketId, Submission, Transport, WakeEvent,
    Waker, WakerKind,
};
use crate::table::SocketTable;
use crate::time::Time;
use accept::Listener;
use socket::{Flags, Socket};

/// The driver for every Linux: non-blocking sockets and one epoll set.
///
/// It belongs to the thread that makes it: making it also sets that thread's timer slack, because
/// the default of 50 us would be added to every wait.
pub struct EpollDriver {
    epoll: OwnedFd,
    /// Written by wakers. Registered edge triggered, so it is never read.
    event: Arc<OwnedFd>,
    sockets: SocketTable<Socket>,
    listeners: Slab<Listener>,
    /// What the last wait reported; empty but for its capacity outside of `wait`.
    events: Vec<libc::epoll_event>,
    /// Sockets with something to do. Invariant: each is in it at most once, flag `QUEUED`.
    ready: VecDeque<SocketId>,
    /// How many of `ready` belong to this turn; the rest waits for the next one.
    ready_in_turn: usize,
    /// Listeners that have connections waiting, with what each may still accept in this turn.
    accepting: Vec<(ListenerId, usize)>,
    /// What happened and was not told yet. At most a few per call, `next` empties it first.
    completions: VecDeque<Completion>,
    /// The receive buffer, when it is not lent out.
    spare: Option<Box<[u8]>>,
}

impl EpollDriver {
    /// Makes the epoll set and its waker.
    pub fn new() -> io::Result<Self> {
        Self::with_event(WakeEvent::new()?)
    }

    /// The same with what its wakers write to.
    pub fn with_event(WakeEvent(event): WakeEvent) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker_flags = EventFlags::IN | EventFlags::ET;
        epoll::add(
            &epoll,
            &event,
            EventData::new_u64(token(0, WAKER)),
            waker_flags,
        )?;
        // Without the right to set it, waits are up to 50 us late; that is no reason to fail.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Self {
            epoll,
            event,
            sockets: SocketTable::new(),
            listeners: Slab::new(),
            events: Vec::with_capacity(EVENTS_PER_TURN_MAX),
            ready: VecDeque::new(),
            ready_in_turn: 0,
            accepting: Vec::new(),
            completions: VecDeque::new(),
            spare: None,
        })
    }

    /// How many sockets it holds, listeners not counted.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    fn add(&mut self, fd: OwnedFd, flags: Flags) -> io::Result<SocketId> {
        let Self { epoll, sockets, .. } = self;
        sockets.add(|id| {
            let data = EventData::new_u64(token(id.index, id.generation));
            let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&*epoll, &fd, data, interest)?;
            Ok(Socket::new(fd, flags))
        })
    }

    /// Puts the socket in the queue of those with something to do, once.
    fn enqueue(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(id)
            && !socket.flags.intersects(Flags::QUEUED)
        {
            socket.flags.insert(Flags::QUEUED);
            self.ready.push_back(id);
        }
    }

    /// Notes what epoll reported.
    fn note(&mut self, event: libc::epoll_event) {
        let (index, generation) = parts(event.u64);
        match generation {
            WAKER => self.completions.push_back(Completion::Woken),
            LISTENER => self
                .accepting
                .push((ListenerId(index), ACCEPTS_PER_TURN_MAX)),
            _ => {
                let id = SocketId { index, generation };
                if let Some(socket) = self.sockets.get_mut(id) {
                    socket.note(EventFlags::from_bits_retain(event.events));
                    self.enqueue(id);
                }
            }
        }
    }

    /// Does what one ready socket has to do: finish a connect, go on writing, one receive.
    fn serve(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else {
            return;
        };
        socket.flags.remove(Flags::QUEUED);
        if socket.flags.intersects(Flags::CONNECTING) {
            if let Some(result) = socket.finish_connect() {
                self.completions
                    .push_back(Completion::Connected { socket: id, result });
            }
        } else {
            if let Some((buffer, result)) = socket.continue_send() {
                self.completions.push_back(Completion::Sent {
                    socket: id,
                    buffer,
                    result,
                });
            }
            self.receive(id);
        }
        if self
            .sockets
            .get_mut(id)
            .is_some_and(|socket| socket.can_receive())
        {
            self.enqueue(id);
        }
    }

    /// One receive: a socket with more to say waits for the next turn, so that none starves.
    fn receive(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else {
            return;
        };
        if !socket.can_receive() {
            if let Some(error) = socket.failure() {
                self.completions
                    .push_back(Completion::Failed { socket: id, error });
            }
            return;
        }
        let mut storage = self.spare.take().unwrap_or_else(receive_storage);
        let completion = match socket.receive(&mut storage) {
            Ok(None) => None,
            Ok(Some(0)) => Some(Completion::EndOfStream { socket: id }),
            Ok(Some(filled)) => {
                let buffer = ReceiveBuffer::owned(storage, filled);
                self.completions
                    .push_back(Completion::Received { socket: id, buffer });
                return;
            }
            Err(error) => Some(Completion::Failed { socket: id, error }),
        };
        self.spare = Some(storage);
        self.completions.extend(completion);
    }

    /// How long to sleep; None is without end.
    fn timeout(&self, until: Option<Time>) -> Option<Duration> {
        let is_idle = self.ready.is_empty() && self.completions.is_empty();
        if !is_idle || !self.accepting.is_empty() {
            return Some(Duration::ZERO);
        }
        let resume = self
            .listeners
            .iter()
            .filter_map(|(_, listener)| listener.paused_until)
            .min();
        let until = until.into_iter().chain(resume).min()?;
        Some(until - self.now())
    }
}

impl Driver for EpollDriver {
    fn now(&self) -> Time {
        Time::monotonic()
    }

    fn listen(&mut self, listener: Transport) -> io::Result<ListenerId> {
        let fd = listener.descriptor()?;
        self.add_listener(fd)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.hold_listener(listener, true);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.hold_listener(listener, false);
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.listeners.try_remove(listener.0 as usize);
    }

    fn connect(&mut self, target: &ConnectTarget) -> io::Result<SocketId> {
        let (fd, result) = connect(target)?;
        let flags = if result.is_none() {
            Flags::CONNECTING
        } else {
            Flags::empty()
        };
        let socket = self.add(fd, flags)?;
        if let Some(result) = result {
            self.completions
                .push_back(Completion::Connected { socket, result });
        }
        Ok(socket)
    }

    fn attach(&mut self, transport: Transport) -> io::Result<SocketId> {
        let fd = transport.descriptor()?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        self.add(fd, Flags::empty())
    }

    fn detach(&mut self, socket: SocketId) {
        let Some(Socket { fd, pending, .. }) = self.sockets.remove(socket) else {
            return;
        };
        // It cannot fail: the descriptor is open and was added.
        let _ = epoll::delete(&self.epoll, &fd);
        let unsent = pending.map(|pending| pending.rest()).unwrap_or_default();
        let transport = fd.into();
        self.completions.push_back(Completion::Detached {
            socket,
            transport,
            unsent,
        });
    }

    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        let Some(entry) = self.sockets.get_mut(socket) else {
            let mut buffer = buffer;
            buffer.clear();
            return Submission::Done(buffer);
        };
        match entry.start_send(buffer) {
            Ok(submission) => submission,
            Err((buffer, error)) => {
                let result = Err(error);
                self.completions.push_back(Completion::Sent {
                    socket,
                    buffer,
                    result,
                });
                Submission::InFlight
            }
        }
    }

    fn untaken_bytes(&self, socket: SocketId) -> usize {
        self.sockets.get(socket).map_or(0, Socket::untaken_bytes)
    }

    fn pause_receive(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.get_mut(socket) {
            socket.flags.insert(Flags::PAUSED);
        }
    }

    fn resume_receive(&mut self, socket: SocketId) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.flags.remove(Flags::PAUSED);
            if entry.can_receive() {
                self.enqueue(socket);
            }
        }
    }

    fn shutdown(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.get_mut(socket) {
            // It fails only when the connection is gone already, which is told otherwise.
            let _ = rustix::net::shutdown(&socket.fd, rustix::net::Shutdown::Write);
        }
    }

    fn close(&mut self, socket: SocketId) {
        // Closing the only descriptor also takes it out of the epoll set.
        drop(self.sockets.remove(socket));
    }

    fn abort(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.remove(socket) {
            // Where it fails the connection is gone, and a plain close is as good.
            let _ = rustix::net::sockopt::set_socket_linger(&socket.fd, Some(Duration::ZERO));
        }
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let result = wait::wait(&self.epoll, &mut events, self.timeout(until));
        for event in events.drain(..) {
            self.note(event);
        }
        self.events = events;
        result?;
        self.ready_in_turn = self.ready.len();
        self.resume_listeners();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.completions.pop_front() {
                let depends_on = completion.depends_on();
                if depends_on.is_none_or(|socket| self.sockets.get(socket).is_some()) {
                    return Some(completion);
                }
                if let Completion::Received { buffer, .. } = completion {
                    self.recycle(buffer);
                }
            }
            if self.ready_in_turn > 0 {
                self.ready_in_turn -= 1;
                let id = self.ready.pop_front()?;
                self.serve(id);
            } else if !self.accept_next() {
                return None;
            }
        }
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        if let Storage::Owned { bytes, .. } = buffer.storage {
            self.spare = Some(bytes);
        }
    }

    fn waker(&self) -> Waker {
        Waker {
            kind: WakerKind::Event(Arc::clone(&self.event)),
        }
    }
}

impl fmt::Debug for EpollDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollDriver")
            .field("sockets", &self.sockets.len())
            .field("listeners", &self.listeners.len())
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

fn receive_storage() -> Box<[u8]> {
    vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice()
}

/// What epoll hands back with an event.
fn token(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

fn parts(token: u64) -> (u32, u32) {
    (token as u32, (token >> 32) as u32)
}

/// The generation that marks a listener's token.
const LISTENER: u32 = 0;

/// The generation that marks the waker's token.
const WAKER: u32 = u32::MAX;

/// How many events one wait may report. 1024 x 12 bytes stay in the first-level cache with room
/// to spare, a busy loop saves the call for all but one in a thousand, and the time between two
/// looks at the clock stays near a millisecond.
const EVENTS_PER_TURN_MAX: usize = 1024;
