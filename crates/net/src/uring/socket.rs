//! One socket of the io_uring driver.

use std::os::fd::OwnedFd;

use bitflags::bitflags;

use crate::queued::unacknowledged_bytes;

/// A socket and which of its operations are with the kernel. Small, there are tens of thousands.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    /// The place of the send in flight, or `NO_SEND`.
    send: u32,
    pub(super) flags: Flags,
}

impl Socket {
    pub(super) fn new(fd: OwnedFd, flags: Flags) -> Self {
        Self {
            fd,
            send: NO_SEND,
            flags,
        }
    }

    /// The place of the send in flight.
    pub(super) fn send(&self) -> Option<usize> {
        (self.send != NO_SEND).then_some(self.send as usize)
    }

    pub(super) fn set_send(&mut self, place: Option<usize>) {
        self.send = place.map_or(NO_SEND, |place| place as u32);
    }

    /// Whether a receive is to be begun.
    pub(super) fn wants_receive(&self) -> bool {
        const HELD_BACK: Flags = Flags::RECEIVING
            .union(Flags::PAUSED)
            .union(Flags::ENDED)
            .union(Flags::CONNECTING)
            .union(Flags::DETACHING)
            .union(Flags::WATCHED)
            .union(Flags::STARVED);
        !self.flags.intersects(HELD_BACK)
    }

    /// Whether the kernel does nothing with it any more.
    pub(super) fn is_quiet(&self) -> bool {
        const BUSY: Flags = Flags::RECEIVING
            .union(Flags::CONNECTING)
            .union(Flags::WATCHED);
        self.send == NO_SEND && !self.flags.intersects(BUSY)
    }

    /// Bytes that were sent and that the peer's host has not acknowledged.
    pub(super) fn unacknowledged_bytes(&self) -> usize {
        unacknowledged_bytes(&self.fd)
    }
}

/// More sends than there can be sockets, which their places count.
const NO_SEND: u32 = u32::MAX;

bitflags! {
    /// A set of facts about a socket.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Flags: u8 {
        /// A receive is with the kernel.
        const RECEIVING = 1;
        /// The receive is to end, or is about to.
        const CANCELLING = 1 << 1;
        /// The caller wants no bytes for now.
        const PAUSED = 1 << 2;
        /// Its connect is not over.
        const CONNECTING = 1 << 3;
        /// The peer's end or an error was told: nothing more is to be received.
        const ENDED = 1 << 4;
        /// It is to be given up as soon as the kernel does nothing with it.
        const DETACHING = 1 << 5;
        /// The kernel tells when it fails, since nothing is received that would.
        const WATCHED = 1 << 6;
        /// There was no buffer for its bytes; the next turn receives again.
        const STARVED = 1 << 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_small() {
        println!("size_of Socket of the driver: {} B", size_of::<Socket>());
        assert!(size_of::<Socket>() <= 16);
    }
}
