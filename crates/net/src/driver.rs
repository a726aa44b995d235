//! What a loop asks of the operating system, and what it is told back.
//!
//! The shape is completion style, so that epoll, io_uring and the simulated world fit behind the
//! same calls: a buffer is handed over with an operation and handed back with its completion, and
//! received bytes arrive in buffers that the driver owns.
//!
//! One turn of a loop: [`Driver::wait`]; [`Driver::next`] until there is none, answering each
//! completion and giving receive buffers back with [`Driver::recycle`]; then one
//! [`Driver::send`] per connection that has something to say.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::buffer::ReceiveBuffer;
use crate::descriptors::{Passage, Portal, PortalExit};
use crate::time::Time;

/// A thread's sockets. Not shared between threads; a connection changes its driver with
/// [`detach`](Self::detach) and [`attach`](Self::attach).
///
/// An id stays valid until `close`, `abort` or the `Detached` completion; calls with an id that
/// is no longer valid do nothing, and no completion ever names it again.
pub trait Driver {
    /// Reads the clock.
    fn now(&self) -> Time;

    /// Accepts connections from a listening socket; gives [`Completion::Accepted`] for each.
    fn listen(&mut self, listener: Transport) -> io::Result<ListenerId>;

    /// Accepts no more for now: connections wait in the kernel's queue, up to the backlog. What is
    /// in the hands of the driver already may still arrive.
    fn pause_accept(&mut self, listener: ListenerId);

    /// Accepts again, those that waited first.
    fn resume_accept(&mut self, listener: ListenerId);

    /// Accepts no more and closes the listening socket. Accepted connections stay.
    fn stop_listening(&mut self, listener: ListenerId);

    /// Starts a connection; gives exactly one [`Completion::Connected`]. After a failed one the
    /// caller closes the id. The error returned here is that of making or binding the socket,
    /// such as EMFILE or EADDRNOTAVAIL.
    fn connect(&mut self, target: &ConnectTarget) -> io::Result<SocketId>;

    /// Takes over a connected socket, from [`detach`](Self::detach) of another driver or from
    /// elsewhere; bytes it holds already are delivered.
    fn attach(&mut self, transport: Transport) -> io::Result<SocketId>;

    /// Lets go of a connected socket without closing it; gives [`Completion::Detached`] after
    /// everything that was received before it.
    fn detach(&mut self, socket: SocketId);

    /// Writes all of `buffer`; the driver finishes short writes itself. At most one may be in
    /// flight per socket: after [`Submission::InFlight`] wait for [`Completion::Sent`].
    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission;

    /// The same for a buffer of whose end nobody needs to know, as long as more is to be sent after
    /// it at some time: [`Submission::Done`] may be said before it is with the kernel, at the next
    /// `wait` at the latest. If the socket does not take all of it then,
    /// [`Completion::Blocked`] makes it one that is in flight. After [`shutdown`](Self::shutdown)
    /// or before a `close` that is to follow all bytes, this is not for use.
    fn post(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        self.send(socket, buffer)
    }

    /// Writes what the socket takes at once of these parts, one after the other, while no send is
    /// in flight, without keeping anything: how many bytes that were. None where a driver does not
    /// do so, where the socket is full, and where it has failed, of which `send` tells.
    fn send_at_once(&mut self, socket: SocketId, parts: [&[u8]; 2]) -> usize {
        let _ = (socket, parts);
        0
    }

    /// How many of the bytes handed to `send` the peer's host has not taken, as far as is known:
    /// what tells a slow reader from one that is gone. 0 for an id that is not valid.
    fn untaken_bytes(&self, socket: SocketId) -> usize;

    /// Delivers no more received bytes until `resume_receive`, so that the peer is slowed down by
    /// TCP. What is in the hands of the driver already may still arrive.
    fn pause_receive(&mut self, socket: SocketId);

    /// Delivers received bytes again, those that waited included.
    fn resume_receive(&mut self, socket: SocketId);

    /// Half close: sends FIN after what was sent. Receiving goes on.
    fn shutdown(&mut self, socket: SocketId);

    /// Closes, at the next `wait` at the latest. A send in flight is dropped and gives no
    /// completion.
    fn close(&mut self, socket: SocketId);

    /// Closes with RST: what was not delivered is thrown away, no TIME_WAIT stays behind.
    fn abort(&mut self, socket: SocketId);

    /// Sleeps until there is a completion, the waker is used, or `until` is there (None: without
    /// end; a moment that has passed: only looks).
    fn wait(&mut self, until: Option<Time>) -> io::Result<()>;

    /// The next completion of this turn; None when the turn is over.
    fn next(&mut self) -> Option<Completion>;

    /// Gives back the buffer of a [`Completion::Received`].
    fn recycle(&mut self, buffer: ReceiveBuffer);

    /// A handle with which another thread ends this driver's `wait`.
    fn waker(&self) -> Waker;
}

/// Everything that can happen to a driver.
#[derive(Debug)]
pub enum Completion {
    /// A peer connected.
    Accepted {
        /// Where it came in.
        listener: ListenerId,
        /// The new connection; the caller owns it and closes it.
        socket: SocketId,
        /// The address of the other end.
        peer: SocketAddr,
    },
    /// A peer could not be accepted, usually for want of descriptors (EMFILE). The listener
    /// pauses for a moment and goes on by itself.
    AcceptFailed {
        /// Where it happened.
        listener: ListenerId,
        /// Why.
        error: io::Error,
    },
    /// The end of a [`Driver::connect`].
    Connected {
        /// The id that `connect` returned.
        socket: SocketId,
        /// Whether there is a connection.
        result: io::Result<()>,
    },
    /// Bytes of the peer.
    Received {
        /// Whose.
        socket: SocketId,
        /// The bytes, never empty; to be given back with [`Driver::recycle`].
        buffer: ReceiveBuffer,
    },
    /// The peer sends no more (FIN). Sending is still possible. It comes in a later turn than the
    /// bytes before it, so that what they ask for is answered first.
    EndOfStream {
        /// Whose.
        socket: SocketId,
    },
    /// The connection is dead (reset, timed out). The caller closes the id.
    Failed {
        /// Whose.
        socket: SocketId,
        /// Why.
        error: io::Error,
    },
    /// The end of a send that was [`Submission::InFlight`].
    Sent {
        /// Whose.
        socket: SocketId,
        /// The buffer, empty again.
        buffer: Vec<u8>,
        /// Whether all of it was handed to the kernel.
        result: io::Result<()>,
    },
    /// What was posted is in flight, although [`Driver::post`] said that it was done, because the
    /// socket had no room for it; `Sent` follows. It comes before what was received since.
    Blocked {
        /// Whose.
        socket: SocketId,
        /// The length of the buffer.
        bytes: usize,
    },
    /// The end of a [`Driver::detach`]. The id is no longer valid.
    Detached {
        /// The id that was given up.
        socket: SocketId,
        /// The connection, for another driver.
        transport: Transport,
        /// Bytes of a send in flight that were not written yet; they must be sent first.
        unsent: Vec<u8>,
    },
    /// The waker was used, once or more.
    Woken,
}

impl Completion {
    /// Whose it is to be told of only as long as that socket is there.
    pub(crate) fn depends_on(&self) -> Option<SocketId> {
        match self {
            Self::Connected { socket, .. }
            | Self::Received { socket, .. }
            | Self::EndOfStream { socket }
            | Self::Failed { socket, .. }
            | Self::Blocked { socket, .. }
            | Self::Sent { socket, .. } => Some(*socket),
            Self::Accepted { .. }
            | Self::AcceptFailed { .. }
            | Self::Detached { .. }
            | Self::Woken => None,
        }
    }
}

/// A connection of one driver.
///
/// The generation makes it safe to keep after the connection is gone: a later connection in the
/// same place has another one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SocketId {
    /// The place in the driver's table.
    pub(crate) index: u32,
    /// Different for each connection that is put in that place.
    pub(crate) generation: u32,
}

impl SocketId {
    /// The place in the driver's table: small, dense, used again after a close. Tables of callers
    /// can be indexed by it as long as they compare the whole id.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A listening socket of one driver.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ListenerId(pub(crate) u32);

/// What became of a [`Driver::send`].
#[derive(Debug)]
#[must_use]
pub enum Submission {
    /// All bytes are with the kernel, or the id is no longer valid; the buffer comes back empty.
    Done(Vec<u8>),
    /// The driver keeps the buffer until [`Completion::Sent`].
    InFlight,
}

/// Where to connect to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectTarget {
    /// The address of the other end.
    pub remote: SocketAddr,
    /// The local address to connect from; None leaves it to the routing table. The port is always
    /// the kernel's choice, made with the destination known, so that each source address has the
    /// whole port range for each destination.
    pub source: Option<IpAddr>,
}

impl From<SocketAddr> for ConnectTarget {
    fn from(remote: SocketAddr) -> Self {
        Self {
            remote,
            source: None,
        }
    }
}

/// A socket that no driver owns at the moment. Dropping it closes it.
#[derive(Debug)]
pub struct Transport {
    pub(crate) kind: TransportKind,
}

/// What a transport is in the real world and in the simulated one.
#[derive(Debug)]
pub(crate) enum TransportKind {
    /// A descriptor of the operating system.
    Descriptor(OwnedFd),
    /// One that is on its way to another table of descriptors.
    Passed(Passage),
    /// A socket of the simulated world.
    Simulated(crate::sim::Handle),
}

impl Transport {
    /// The descriptor, to be passed to another process; None for one of the simulated world.
    pub fn into_fd(self) -> Option<OwnedFd> {
        match self.kind {
            TransportKind::Descriptor(fd) => Some(fd),
            TransportKind::Passed(_) | TransportKind::Simulated(_) => None,
        }
    }

    /// Sends it to a thread with a table of descriptors of its own; the error is that there is no
    /// room, and the transport still here.
    pub(crate) fn pass(self, portal: &Portal) -> Result<Self, (Self, io::Error)> {
        let TransportKind::Descriptor(fd) = self.kind else {
            return Ok(self);
        };
        match portal.pass(fd) {
            Ok(passage) => Ok(Self {
                kind: TransportKind::Passed(passage),
            }),
            Err((fd, error)) => Err((fd.into(), error)),
        }
    }

    /// Takes it out of the portal, if it came through one.
    pub(crate) fn arrive(self, exit: &mut PortalExit) -> io::Result<Self> {
        match self.kind {
            TransportKind::Passed(passage) => exit.take(passage).map(Self::from),
            TransportKind::Descriptor(_) | TransportKind::Simulated(_) => Ok(self),
        }
    }
}

impl Transport {
    /// The descriptor; an error for a socket of the simulated world.
    pub(crate) fn descriptor(self) -> io::Result<OwnedFd> {
        self.into_fd()
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

impl From<OwnedFd> for Transport {
    fn from(fd: OwnedFd) -> Self {
        Self {
            kind: TransportKind::Descriptor(fd),
        }
    }
}

impl From<TcpListener> for Transport {
    fn from(listener: TcpListener) -> Self {
        OwnedFd::from(listener).into()
    }
}

/// Ends another thread's [`Driver::wait`]. Cheap to clone and to use; several uses between two
/// turns count as one.
#[derive(Clone, Debug)]
pub struct Waker {
    pub(crate) kind: WakerKind,
}

/// What wakers write to and a driver listens to. It can be made before the driver, so that threads
/// with other tables of descriptors know it as well.
#[derive(Clone, Debug)]
pub struct WakeEvent(pub(crate) Arc<OwnedFd>);

impl WakeEvent {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }
}

/// What a waker does in the real world and in the simulated one.
#[derive(Clone, Debug)]
pub(crate) enum WakerKind {
    /// An eventfd in the driver's epoll set.
    Event(Arc<OwnedFd>),
    /// A flag that the simulated world looks at.
    Flag(Arc<AtomicBool>),
}

impl Waker {
    /// Wakes the driver, now or at its next `wait`.
    pub fn wake(&self) {
        match &self.kind {
            // It fails only when the counter is full, and then the driver is woken anyway.
            WakerKind::Event(event) => drop(rustix::io::write(event, &1u64.to_ne_bytes())),
            WakerKind::Flag(flag) => flag.store(true, Ordering::Release),
        }
    }
}
