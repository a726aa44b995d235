//! One socket of the epoll driver.

use std::io;
use std::os::fd::OwnedFd;

use bitflags::bitflags;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::driver::Submission;
use crate::queued::unacknowledged_bytes;
use crate::write::write_now;

/// A socket and what is known about it. Small, there are tens of thousands.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) flags: Flags,
    /// The send in flight, if any; boxed because most sockets have none.
    pub(super) pending: Option<Box<PendingSend>>,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, flags: Flags) -> Self {
        Self {
            fd,
            flags,
            pending: None,
        }
    }

    /// Remembers what epoll reported, until a call says that it is over.
    pub(super) fn note(&mut self, events: EventFlags) {
        if events.contains(EventFlags::IN) {
            self.flags.insert(Flags::READABLE);
        }
        if events.contains(EventFlags::OUT) {
            self.flags.insert(Flags::WRITABLE);
        }
        if events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            // The end of the stream and errors are read like bytes, after all bytes before them.
            self.flags.insert(Flags::HUNG_UP);
            self.flags.insert(Flags::READABLE);
            self.flags.insert(Flags::WRITABLE);
        }
        if events.contains(EventFlags::ERR) {
            self.flags.insert(Flags::ERROR);
        }
    }

    /// Whether a receive would be worth the call.
    pub(super) fn can_receive(&self) -> bool {
        const HELD_BACK: Flags = Flags::PAUSED.union(Flags::ENDED).union(Flags::CONNECTING);
        self.flags.intersects(Flags::READABLE) && !self.flags.intersects(HELD_BACK)
    }

    /// An error of a socket that is not being read, which would otherwise go unnoticed.
    pub(super) fn failure(&mut self) -> Option<io::Error> {
        if !self.flags.intersects(Flags::ERROR) || self.flags.intersects(Flags::CONNECTING) {
            return None;
        }
        self.flags.remove(Flags::ERROR);
        let error = rustix::net::sockopt::socket_error(&self.fd).ok()?.err()?;
        self.flags.insert(Flags::ENDED);
        Some(error.into())
    }

    /// The outcome of a connect, once there is one.
    pub(super) fn finish_connect(&mut self) -> Option<io::Result<()>> {
        if !self.flags.intersects(Flags::WRITABLE) {
            return None;
        }
        self.flags.remove(Flags::CONNECTING);
        let result = match rustix::net::sockopt::socket_error(&self.fd) {
            Ok(result) => result,
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.flags.insert(Flags::ENDED);
        }
        Some(result.map_err(io::Error::from))
    }

    /// None: nothing there. Some(0): the stream ended. Some(n): n bytes are in `storage`.
    pub(super) fn receive(&mut self, storage: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.fd, &mut *storage) {
                Ok(0) => {
                    self.flags.remove(Flags::READABLE);
                    self.flags.insert(Flags::ENDED);
                    return Ok(Some(0));
                }
                Ok(received) => {
                    // A short read has emptied the socket, and more bytes give a new edge. Only
                    // a FIN that was reported together with these bytes has had its edge.
                    if received < storage.len() && !self.flags.intersects(Flags::HUNG_UP) {
                        self.flags.remove(Flags::READABLE);
                    }
                    return Ok(Some(received));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.flags.remove(Flags::READABLE);
                    return Ok(None);
                }
                Err(error) => {
                    self.flags.remove(Flags::READABLE);
                    self.flags.insert(Flags::ENDED);
                    return Err(error.into());
                }
            }
        }
    }

    /// Writes what the kernel takes now and keeps the rest.
    pub(super) fn start_send(
        &mut self,
        buffer: Vec<u8>,
    ) -> Result<Submission, (Vec<u8>, io::Error)> {
        assert!(
            self.pending.is_none(),
            "a socket has at most one send in flight"
        );
        let mut pending = PendingSend { buffer, sent: 0 };
        match pending.write(&self.fd) {
            Ok(true) => Ok(Submission::Done(pending.emptied())),
            Ok(false) => {
                self.flags.remove(Flags::WRITABLE);
                // It may lie here for long, and may come from a pool of much larger ones.
                if pending.buffer.capacity() > 2 * pending.buffer.len() {
                    pending.buffer.shrink_to_fit();
                }
                self.pending = Some(Box::new(pending));
                Ok(Submission::InFlight)
            }
            Err(error) => Err((pending.emptied(), error)),
        }
    }

    /// Goes on with the send in flight; its buffer and outcome when that ends it.
    pub(super) fn continue_send(&mut self) -> Option<(Vec<u8>, io::Result<()>)> {
        if !self.flags.intersects(Flags::WRITABLE) {
            return None;
        }
        let result = match self.pending.as_mut()?.write(&self.fd) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.flags.remove(Flags::WRITABLE);
                return None;
            }
            Err(error) => Err(error),
        };
        let pending = self.pending.take()?;
        Some((pending.emptied(), result))
    }

    /// Bytes that were to be sent and that the peer's host has not acknowledged.
    pub(super) fn untaken_bytes(&self) -> usize {
        let pending = self.pending.as_ref();
        let unwritten = pending.map_or(0, |pending| pending.buffer.len() - pending.sent);
        unwritten + unacknowledged_bytes(&self.fd)
    }
}

/// A send that the kernel has not taken all of.
#[derive(Debug)]
pub(super) struct PendingSend {
    buffer: Vec<u8>,
    /// Invariant: 0 <= sent <= buffer.len().
    sent: usize,
}

impl PendingSend {
    /// Whether everything is written.
    fn write(&mut self, fd: &OwnedFd) -> io::Result<bool> {
        self.sent += write_now(fd, &self.buffer[self.sent..])?;
        Ok(self.sent == self.buffer.len())
    }

    fn emptied(self) -> Vec<u8> {
        let mut buffer = self.buffer;
        buffer.clear();
        buffer
    }

    /// The bytes that were not written.
    pub(super) fn rest(mut self) -> Vec<u8> {
        self.buffer.drain(..self.sent);
        self.buffer
    }
}

bitflags! {
    /// A set of facts about a socket.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Flags: u8 {
        /// A receive may find something: bytes, the end or an error.
        const READABLE = 1;
        /// A write may find room.
        const WRITABLE = 1 << 1;
        /// It is in the driver's queue.
        const QUEUED = 1 << 2;
        /// The caller wants no bytes for now.
        const PAUSED = 1 << 3;
        /// Its connect is not over.
        const CONNECTING = 1 << 4;
        /// The peer's end or an error was told: nothing more is to be read.
        const ENDED = 1 << 5;
        /// The end was reported, so reads go on until it is found.
        const HUNG_UP = 1 << 6;
        /// An error was reported.
        const ERROR = 1 << 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_small() {
        println!("size_of Socket of the driver: {} B", size_of::<Socket>());
        assert!(size_of::<Socket>() <= 24);
    }
}
