//! Taking connections out of a listening socket's queue.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;

/// What there was.
pub(crate) enum Accepted {
    /// A connection, and who is at its other end.
    Connection(OwnedFd, SocketAddr),
    /// Nobody waits.
    Nobody,
    /// The turn of this listener is over; somebody may wait.
    Enough,
    /// There is no descriptor or no memory for a connection.
    Refused(Errno),
}

/// Accepts the next connection that is alive, as long as there is something left of the budget.
pub(crate) fn accept(fd: &OwnedFd, flags: SocketFlags, budget: &mut usize) -> Accepted {
    while *budget > 0 {
        *budget -= 1;
        match rustix::net::acceptfrom_with(fd, flags | SocketFlags::CLOEXEC) {
            Ok((fd, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
                return Accepted::Connection(fd, peer.unwrap_or(unknown));
            }
            Err(Errno::AGAIN) => return Accepted::Nobody,
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                return Accepted::Refused(error);
            }
            // The connection died in the queue (accept(2) lists the errors); on to the next.
            Err(_) => {}
        }
    }
    Accepted::Enough
}

/// How long a listener rests when there is no descriptor for a connection: long enough to cost
/// nothing, short against the time a peer waits for an answer.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections a listener accepts per turn: enough for 10,000 arrivals to be in within
/// some hundred turns, few enough (about 10 us each) not to hold up those that are open.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 64;
