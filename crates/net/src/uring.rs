//! The driver over io_uring: one ring per thread, and one call to the kernel per turn.
//!
//! A receive is begun once for each socket and goes on by itself; what comes is put into a few
//! buffers that all sockets share. Sends are queued by the turn and go with its one call, which
//! also waits for what comes next. The ring belongs to its thread, and the kernel does its part
//! only inside of that call (SINGLE_ISSUER, DEFER_TASKRUN), so nothing comes in the way of a turn.
//!
//! Connections are accepted by a call for each, once the ring says that there are some: a ring
//! that accepts by itself gives no addresses, which would take a call as well, and knows no bound.

mod accept;
mod answers;
mod provided;
mod ring;
mod send;
mod socket;
mod token;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use crate::buffer::{ReceiveBuffer, Storage};
use crate::connect::connect;
use crate::driver::{
    Completion, ConnectTarget, Driver, ListenerId, SocketId, Submission, Transport, WakeEvent,
    Waker, WakerKind,
};
use crate::table::SocketTable;
use crate::time::Time;
use crate::write::write_parts_now;
use accept::Listener;
use ring::Ring;
use socket::{Flags, Socket};
use token::Token;

pub(crate) use provided::Provided;

/// The driver for Linux 6.12 and newer, where io_uring may be used.
///
/// It belongs to the thread that makes it: making it also sets that thread's timer slack, because
/// the default of 50 us would be added to every wait.
pub struct UringDriver {
    ring: Ring,
    /// Written by wakers. Polled edge triggered, so it is never read.
    event: Arc<OwnedFd>,
    sockets: SocketTable<Socket>,
    listeners: Slab<Listener>,
    /// Listeners that have connections waiting, with what each may still accept in this turn.
    accepting: Vec<(ListenerId, usize)>,
    /// What happened and was not told yet. At most a few per call, `next` empties it first.
    completions: VecDeque<Completion>,
    /// Sockets for whose bytes there was no buffer; received from again in turn, as many at a time
    /// as there are buffers for.
    starved: VecDeque<SocketId>,
    /// Sockets whose end is told with the next turn.
    ended: Vec<SocketId>,
    /// What was not sent of sockets that are being detached.
    unsent: Vec<(SocketId, Vec<u8>)>,
    /// Closed once the kernel has taken the submissions that may name them: the numbers of closed
    /// descriptors are given to the next ones.
    closing: Vec<OwnedFd>,
}

impl UringDriver {
    /// Makes the ring and its waker. The error tells whether the kernel is too old (EINVAL, ENOSYS)
    /// or does not allow it (EPERM).
    pub fn new() -> io::Result<Self> {
        Self::with_event(WakeEvent::new()?)
    }

    /// The same with what its wakers write to.
    pub fn with_event(WakeEvent(event): WakeEvent) -> io::Result<Self> {
        let mut ring = Ring::new()?;
        ring.poll_always(&event, POLL_IN, Token::Wake);
        // Without the right to set it, waits are up to 50 us late; that is no reason to fail.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Self {
            ring,
            event,
            sockets: SocketTable::new(),
            listeners: Slab::new(),
            accepting: Vec::new(),
            completions: VecDeque::new(),
            starved: VecDeque::new(),
            ended: Vec::new(),
            unsent: Vec::new(),
            closing: Vec::new(),
        })
    }

    /// How many sockets it holds, listeners not counted.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }

    fn add(&mut self, fd: OwnedFd, flags: Flags) -> io::Result<SocketId> {
        let id = self.sockets.add(|_| Ok(Socket::new(fd, flags)))?;
        self.receive(id);
        Ok(id)
    }

    /// Begins to receive, if there is nothing against it.
    fn receive(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(id)
            && socket.wants_receive()
        {
            socket.flags.insert(Flags::RECEIVING);
            self.ring.receive(&socket.fd, Token::Receive(id));
        }
    }

    /// Has the receive of a socket end, once.
    fn cancel_receive(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(id)
            && socket.flags.contains(Flags::RECEIVING)
            && !socket.flags.contains(Flags::CANCELLING)
        {
            socket.flags.insert(Flags::CANCELLING);
            self.ring.cancel(Token::Receive(id));
        }
    }

    /// Ends all that the kernel does with the socket.
    fn cancel_all(&mut self, id: SocketId) {
        self.cancel_receive(id);
        let Some(socket) = self.sockets.get(id) else {
            return;
        };
        if socket.flags.contains(Flags::CONNECTING) {
            self.ring.cancel(Token::Connect(id));
        }
        if socket.flags.contains(Flags::WATCHED) {
            self.ring.cancel(Token::Watch(id));
        }
        if let Some(place) = socket.send() {
            self.ring.cancel(Token::Send(place));
        }
    }

    /// Ends what the kernel does with the socket, and takes it out of the table.
    fn remove(&mut self, id: SocketId) -> Option<OwnedFd> {
        self.cancel_all(id);
        let Socket { fd, .. } = self.sockets.remove(id)?;
        self.unsent.retain(|(of, _)| *of != id);
        Some(fd)
    }

    /// Lets go of a socket that is being detached, as soon as the kernel has.
    fn finish_detach(&mut self, id: SocketId) {
        let is_over =
            |socket: &Socket| socket.flags.contains(Flags::DETACHING) && socket.is_quiet();
        if !self.sockets.get(id).is_some_and(is_over) {
            return;
        }
        let Some(Socket { fd, .. }) = self.sockets.remove(id) else {
            return;
        };
        let unsent = self.unsent.iter().position(|(of, _)| *of == id);
        let unsent = unsent.map(|place| self.unsent.swap_remove(place).1);
        self.completions.push_back(Completion::Detached {
            socket: id,
            transport: fd.into(),
            unsent: unsent.unwrap_or_default(),
        });
    }

    /// The call of a turn, after which closed sockets are closed.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let result = self.ring.enter(timeout);
        if self.ring.is_submitted() {
            self.closing.clear();
        }
        self.settle_posted();
        result
    }

    /// How long to sleep; None is without end.
    fn timeout(&self, until: Option<Time>) -> Option<Duration> {
        let is_idle = self.completions.is_empty() && self.accepting.is_empty();
        let is_waited_for = self.starved.is_empty()
            && self.closing.is_empty()
            && self.ended.is_empty()
            && !self.ring.is_followed();
        if !is_idle || !is_waited_for {
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

impl Driver for UringDriver {
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
        self.remove_listener(listener);
    }

    fn connect(&mut self, target: &ConnectTarget) -> io::Result<SocketId> {
        let (fd, result) = connect(target)?;
        let Some(result) = result else {
            let socket = self.add(fd, Flags::CONNECTING)?;
            if let Some(entry) = self.sockets.get(socket) {
                self.ring.poll(&entry.fd, POLL_OUT, Token::Connect(socket));
            }
            return Ok(socket);
        };
        // The kernel gives EAGAIN instead of waiting where a descriptor does not block.
        rustix::io::ioctl_fionbio(&fd, false)?;
        let flags = if result.is_ok() {
            Flags::empty()
        } else {
            Flags::ENDED
        };
        let socket = self.add(fd, flags)?;
        self.completions
            .push_back(Completion::Connected { socket, result });
        Ok(socket)
    }

    fn attach(&mut self, transport: Transport) -> io::Result<SocketId> {
        let fd = transport.descriptor()?;
        rustix::io::ioctl_fionbio(&fd, false)?;
        self.add(fd, Flags::empty())
    }

    fn detach(&mut self, socket: SocketId) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.flags.insert(Flags::DETACHING);
            self.cancel_all(socket);
            self.finish_detach(socket);
        }
    }

    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        self.submit(socket, buffer, false)
    }

    fn post(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        self.submit(socket, buffer, true)
    }

    fn send_at_once(&mut self, socket: SocketId, parts: [&[u8]; 2]) -> usize {
        let entry = self.sockets.get(socket);
        match entry.filter(|entry| entry.send().is_none()) {
            Some(entry) => write_parts_now(&entry.fd, parts).unwrap_or(0),
            None => 0,
        }
    }

    fn untaken_bytes(&self, socket: SocketId) -> usize {
        let Some(entry) = self.sockets.get(socket) else {
            return 0;
        };
        let unsent = entry.send().map(|place| self.ring.unsent_bytes(place));
        unsent.unwrap_or(0) + entry.unacknowledged_bytes()
    }

    fn pause_receive(&mut self, socket: SocketId) {
        let Some(entry) = self.sockets.get_mut(socket) else {
            return;
        };
        entry.flags.insert(Flags::PAUSED);
        if entry.flags.contains(Flags::RECEIVING) {
            self.cancel_receive(socket);
        } else {
            self.watch(socket);
        }
    }

    fn resume_receive(&mut self, socket: SocketId) {
        let Some(entry) = self.sockets.get_mut(socket) else {
            return;
        };
        entry.flags.remove(Flags::PAUSED);
        if entry.flags.intersects(Flags::WATCHED) {
            self.ring.cancel(Token::Watch(socket));
        } else {
            self.receive(socket);
        }
    }

    fn shutdown(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.get_mut(socket) {
            // It fails only when the connection is gone already, which is told otherwise.
            let _ = rustix::net::shutdown(&socket.fd, rustix::net::Shutdown::Write);
        }
    }

    fn close(&mut self, socket: SocketId) {
        if let Some(fd) = self.remove(socket) {
            self.closing.push(fd);
        }
    }

    fn abort(&mut self, socket: SocketId) {
        if let Some(fd) = self.remove(socket) {
            // Where it fails the connection is gone, and a plain close is as good.
            let _ = rustix::net::sockopt::set_socket_linger(&fd, Some(Duration::ZERO));
            self.closing.push(fd);
        }
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        let mut left = self.ring.receives_per_turn();
        while left > 0
            && let Some(id) = self.starved.pop_front()
        {
            if let Some(socket) = self.sockets.get_mut(id) {
                socket.flags.remove(Flags::STARVED);
                left -= usize::from(socket.wants_receive());
                self.receive(id);
            }
        }
        self.resume_listeners();
        let timeout = self.timeout(until);
        let result = self.enter(timeout);
        let ended = self.ended.drain(..);
        self.completions
            .extend(ended.map(|socket| Completion::EndOfStream { socket }));
        result
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
            if let Some(answer) = self.ring.next() {
                let completion = self.answer(answer);
                if completion.is_some() {
                    return completion;
                }
            } else if !self.accept_next() {
                return None;
            }
        }
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        if let Storage::Provided(part) = buffer.storage {
            self.ring.give_back(part);
        }
    }

    fn waker(&self) -> Waker {
        Waker {
            kind: WakerKind::Event(Arc::clone(&self.event)),
        }
    }
}

impl fmt::Debug for UringDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringDriver")
            .field("sockets", &self.sockets.len())
            .field("listeners", &self.listeners.len())
            .finish_non_exhaustive()
    }
}

/// There is something to read, or somebody to accept.
const POLL_IN: u32 = libc::POLLIN as u32;

/// There is room to write, or a connect is over.
const POLL_OUT: u32 = libc::POLLOUT as u32;

/// Nothing but errors and hangups, which are always told.
const POLL_ERRORS: u32 = 0;
