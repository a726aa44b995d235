//! The driver for this machine: io_uring where the kernel has it and allows it, epoll elsewhere.

use std::io;
use std::str::FromStr;

use crate::buffer::ReceiveBuffer;
use crate::driver::{
    Completion, ConnectTarget, Driver, ListenerId, SocketId, Submission, Transport, WakeEvent,
    Waker,
};
use crate::epoll::EpollDriver;
use crate::time::Time;
use crate::uring::UringDriver;

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DriverChoice {
    /// io_uring if it can be had, epoll otherwise.
    Auto,
    /// epoll, which every Linux has.
    #[default]
    Epoll,
    /// io_uring or nothing.
    IoUring,
}

impl DriverChoice {
    /// All of them, as they are written.
    pub const NAMES: [&'static str; 3] = ["auto", "epoll", "io_uring"];

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }
}

impl FromStr for DriverChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Epoll),
            "io_uring" => Ok(Self::IoUring),
            _ => Err("must be \"auto\", \"epoll\" or \"io_uring\"".to_owned()),
        }
    }
}

/// The same call to whichever it is.
macro_rules! either {
    ($driver:expr, $inner:ident => $call:expr) => {
        match $driver {
            SystemDriver::Epoll($inner) => $call,
            SystemDriver::IoUring($inner) => $call,
        }
    };
}

/// One of the drivers of the real world, which one being decided at the start.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each thread")]
pub enum SystemDriver {
    /// Over epoll.
    Epoll(EpollDriver),
    /// Over io_uring.
    IoUring(UringDriver),
}

impl SystemDriver {
    /// Makes the driver that was chosen, for the calling thread. With `Auto` it is epoll where
    /// there can be no ring; [`why_not_io_uring`] then tells the reason.
    pub fn new(choice: DriverChoice) -> io::Result<Self> {
        Self::with_event(choice, &WakeEvent::new()?)
    }

    /// The same with what its wakers write to.
    pub fn with_event(choice: DriverChoice, event: &WakeEvent) -> io::Result<Self> {
        let epoll = || EpollDriver::with_event(event.clone()).map(Self::Epoll);
        let ring = || UringDriver::with_event(event.clone()).map(Self::IoUring);
        match choice {
            DriverChoice::Epoll => epoll(),
            DriverChoice::IoUring => ring().map_err(explained),
            DriverChoice::Auto => ring().or_else(|_| epoll()),
        }
    }

    /// How many sockets it holds, listeners not counted.
    pub fn sockets(&self) -> usize {
        either!(self, driver => driver.sockets())
    }

    /// `epoll` or `io_uring`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Epoll(_) => DriverChoice::Epoll.name(),
            Self::IoUring(_) => DriverChoice::IoUring.name(),
        }
    }
}

/// Why the calling thread cannot have a ring; None if it can.
pub fn why_not_io_uring() -> Option<io::Error> {
    UringDriver::new().err().map(explained)
}

/// The error with what the number alone does not tell.
fn explained(error: io::Error) -> io::Error {
    let reason = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "it is not allowed here (see the sysctl kernel.io_uring_disabled, or the seccomp \
             profile of the container)"
        }
        Some(libc::ENOSYS) => "the kernel has no io_uring",
        Some(libc::EINVAL) => {
            "the kernel is older than 6.12, which fills receive buffers bit by bit"
        }
        Some(libc::ENOMEM) => "there is no memory for the smallest ring (see ulimit -l)",
        Some(libc::EMFILE) => "there is no descriptor left (see ulimit -n)",
        _ => return error,
    };
    io::Error::new(error.kind(), reason)
}

impl Driver for SystemDriver {
    fn now(&self) -> Time {
        Time::monotonic()
    }

    fn listen(&mut self, listener: Transport) -> io::Result<ListenerId> {
        either!(self, driver => driver.listen(listener))
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        either!(self, driver => driver.pause_accept(listener));
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        either!(self, driver => driver.resume_accept(listener));
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        either!(self, driver => driver.stop_listening(listener));
    }

    fn connect(&mut self, target: &ConnectTarget) -> io::Result<SocketId> {
        either!(self, driver => driver.connect(target))
    }

    fn attach(&mut self, transport: Transport) -> io::Result<SocketId> {
        either!(self, driver => driver.attach(transport))
    }

    fn detach(&mut self, socket: SocketId) {
        either!(self, driver => driver.detach(socket));
    }

    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        either!(self, driver => driver.send(socket, buffer))
    }

    fn post(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        either!(self, driver => driver.post(socket, buffer))
    }

    fn send_at_once(&mut self, socket: SocketId, parts: [&[u8]; 2]) -> usize {
        either!(self, driver => driver.send_at_once(socket, parts))
    }

    fn untaken_bytes(&self, socket: SocketId) -> usize {
        either!(self, driver => driver.untaken_bytes(socket))
    }

    fn pause_receive(&mut self, socket: SocketId) {
        either!(self, driver => driver.pause_receive(socket));
    }

    fn resume_receive(&mut self, socket: SocketId) {
        either!(self, driver => driver.resume_receive(socket));
    }

    fn shutdown(&mut self, socket: SocketId) {
        either!(self, driver => driver.shutdown(socket));
    }

    fn close(&mut self, socket: SocketId) {
        either!(self, driver => driver.close(socket));
    }

    fn abort(&mut self, socket: SocketId) {
        either!(self, driver => driver.abort(socket));
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        either!(self, driver => driver.wait(until))
    }

    fn next(&mut self) -> Option<Completion> {
        either!(self, driver => driver.next())
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        either!(self, driver => driver.recycle(buffer));
    }

    fn waker(&self) -> Waker {
        either!(self, driver => driver.waker())
    }
}
