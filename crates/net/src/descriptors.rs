//! More descriptors than one table holds: each thread can have a table of its own.
//!
//! Where the hard limit of open files is low and fixed, a process still holds as many connections
//! as its threads can, each of which is counted by itself. A descriptor that was made before a
//! thread left the common table is the same for both; one that was made later is unknown to all
//! others, and has to be passed.
#![allow(
    unsafe_code,
    reason = "a descriptor means nothing in another table: callers must know which is whose"
)]

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Resource, getrlimit};
use rustix::thread::UnshareFlags;

/// Gives the calling thread a table of its own, with all that is open now.
///
/// What it opens from here on is its alone, and so is what it closes: whoever wants to use one of
/// its descriptors on another thread has to pass it ([`Portal`]). Descriptors of others that are
/// copied here stay open until they are closed here, too, so it is best done before there are any.
pub fn leave_descriptor_table() -> io::Result<()> {
    // SAFETY: the caller's thread uses, from here on, descriptors that were made before, which are
    // the same in both tables, or by itself; connections change threads through a portal only.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?;
    Ok(())
}

/// How many connections a table holds at most, of this process or of each of its threads that have
/// left it.
pub fn connections_per_table() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let left = hard.saturating_sub(DESCRIPTORS_RESERVED).max(1);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// Listeners, wakers, log, files of services, connections on their way elsewhere, and what the
/// kernel's choice among threads is uneven by.
const DESCRIPTORS_RESERVED: u64 = 500;

/// The way for connections into a thread with a table of its own.
#[derive(Clone, Debug)]
pub struct Portal {
    to: Arc<OwnedFd>,
    next: Arc<AtomicU64>,
}

/// The end of it in that thread.
#[derive(Debug)]
pub struct PortalExit {
    from: OwnedFd,
    /// Those that came before the one that was asked for.
    waiting: HashMap<u64, OwnedFd>,
}

/// Which of those that were passed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Passage(u64);

impl Portal {
    /// Both ends; to be made while all threads still share a table.
    pub fn new() -> io::Result<(Self, PortalExit)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (to, from) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let portal = Self {
            to: Arc::new(to),
            next: Arc::default(),
        };
        let exit = PortalExit {
            from,
            waiting: HashMap::new(),
        };
        Ok((portal, exit))
    }

    /// Passes a descriptor of the calling thread. Where so many are under way that no more fit, it
    /// comes back with EAGAIN.
    pub(crate) fn pass(&self, fd: OwnedFd) -> Result<Passage, (OwnedFd, io::Error)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes = number.to_ne_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [fd.as_fd()];
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = loop {
            let data = [IoSlice::new(&bytes)];
            match rustix::net::sendmsg(&self.to, &data, &mut rights, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        match sent {
            // The kernel holds it now; ours is closed.
            Ok(_) => Ok(Passage(number)),
            Err(error) => Err((fd, error.into())),
        }
    }
}

impl PortalExit {
    /// Takes what was passed; an error if the table has no place for it (EMFILE) or it is not
    /// there.
    pub(crate) fn take(&mut self, passage: Passage) -> io::Result<OwnedFd> {
        loop {
            if let Some(fd) = self.waiting.remove(&passage.0) {
                return Ok(fd);
            }
            let (number, fd) = self.receive()?;
            // Without one there was no place for it.
            if let Some(fd) = fd {
                self.waiting.insert(number, fd);
            } else if number == passage.0 {
                return Err(Errno::MFILE.into());
            }
        }
    }

    fn receive(&mut self) -> io::Result<(u64, Option<OwnedFd>)> {
        let mut bytes = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            let mut data = [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.from, &mut data, &mut rights, flags) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        if received.bytes != size_of::<u64>() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let fd = rights.drain().find_map(|message| {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                descriptors.next()
            } else {
                None
            }
        });
        Ok((u64::from_ne_bytes(bytes), fd))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_connection_goes_from_one_table_to_another() {
        let (portal, mut exit) = Portal::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peers: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
            .collect();
        let passages = std::thread::spawn(move || {
            leave_descriptor_table().unwrap();
            let accepted = (0..3).map(|_| OwnedFd::from(listener.accept().unwrap().0));
            let accepted: Vec<_> = accepted.collect();
            // They mean something else here, or nothing, to everybody else.
            accepted
                .into_iter()
                .map(|fd| portal.pass(fd).unwrap())
                .collect::<Vec<_>>()
        });
        let passages = passages.join().unwrap();
        // In another order than they came.
        for (place, passage) in passages.into_iter().enumerate().rev() {
            let mut stream = TcpStream::from(exit.take(passage).unwrap());
            stream.write_all(&[place as u8]).unwrap();
            let mut byte = [0];
            peers[place].read_exact(&mut byte).unwrap();
            assert_eq!(byte, [place as u8]);
        }
        // Nobody else holds them.
        for mut peer in peers {
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn a_portal_holds_so_many_and_gives_back_what_does_not_fit() {
        let (portal, mut exit) = Portal::new().unwrap();
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut passages = Vec::new();
        let (fd, error) = loop {
            match portal.pass(open()) {
                Ok(passage) => passages.push(passage),
                Err(refused) => break refused,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(
            passages.len() > 100 && fd.as_raw_fd() > 0,
            "{}",
            passages.len()
        );
        for passage in passages {
            exit.take(passage).unwrap();
        }
        portal.pass(fd).unwrap();
    }
}
