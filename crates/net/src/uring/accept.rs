//! Listening sockets of the io_uring driver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::SocketFlags;

use super::socket::Flags;
use super::token::Token;
use super::{POLL_IN, UringDriver};
use crate::accept::{ACCEPT_PAUSE, ACCEPTS_PER_TURN_MAX, Accepted, accept};
use crate::driver::{Completion, Driver, ListenerId};
use crate::time::Time;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    /// Whether the caller wants no connections for now.
    is_held: bool,
    /// When to accept again after there was no descriptor or memory for a connection.
    pub(super) paused_until: Option<Time>,
}

impl Listener {
    fn is_accepting(&self) -> bool {
        !self.is_held && self.paused_until.is_none()
    }
}

impl UringDriver {
    pub(super) fn add_listener(&mut self, fd: OwnedFd) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let entry = self.listeners.vacant_entry();
        let index = u32::try_from(entry.key()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let id = ListenerId(index);
        self.ring.poll_always(&fd, POLL_IN, Token::Accept(id));
        entry.insert(Listener {
            fd,
            is_held: false,
            paused_until: None,
        });
        Ok(id)
    }

    pub(super) fn remove_listener(&mut self, id: ListenerId) {
        if let Some(Listener { fd, .. }) = self.listeners.try_remove(id.0 as usize) {
            self.ring.cancel(Token::Accept(id));
            self.closing.push(fd);
            // Peers are to be refused from now on: the kernel lets go of it inside of this call.
            // It fails only for want of memory; then the next wait does it.
            let _ = self.enter(Some(Duration::ZERO));
        }
    }

    /// The kernel says that there are connections, which it does not repeat.
    pub(super) fn connections_wait(&mut self, id: ListenerId, is_more: bool) {
        let Some(listener) = self.listeners.get(id.0 as usize) else {
            return;
        };
        if !is_more {
            self.ring
                .poll_always(&listener.fd, POLL_IN, Token::Accept(id));
        }
        self.accept_from(id);
    }

    /// Accepts one connection of those waiting, within the bound of this turn; false when there
    /// is none. Its completion is queued.
    pub(super) fn accept_next(&mut self) -> bool {
        while let Some((id, budget)) = self.accepting.iter_mut().find(|(_, budget)| *budget > 0) {
            let id = *id;
            let Some(listener) = self.listeners.get(id.0 as usize) else {
                self.accept_no_more(id);
                continue;
            };
            match accept(&listener.fd, SocketFlags::empty(), budget) {
                Accepted::Connection(fd, peer) => {
                    self.accepted(id, fd, peer);
                    return true;
                }
                Accepted::Nobody => self.accept_no_more(id),
                Accepted::Enough => {}
                Accepted::Refused(error) => {
                    self.accept_failed(id, error.into());
                    return true;
                }
            }
        }
        // Those that have used up their turn go on with the next one.
        for (_, budget) in &mut self.accepting {
            *budget = ACCEPTS_PER_TURN_MAX;
        }
        false
    }

    fn accepted(&mut self, listener: ListenerId, fd: OwnedFd, peer: SocketAddr) {
        match self.add(fd, Flags::empty()) {
            Ok(socket) => {
                self.completions.push_back(Completion::Accepted {
                    listener,
                    socket,
                    peer,
                });
            }
            Err(error) => self.accept_failed(listener, error),
        }
    }

    fn accept_failed(&mut self, id: ListenerId, error: io::Error) {
        let until = self.now() + ACCEPT_PAUSE;
        if let Some(listener) = self.listeners.get_mut(id.0 as usize) {
            listener.paused_until = Some(until);
        }
        self.accept_no_more(id);
        self.completions.push_back(Completion::AcceptFailed {
            listener: id,
            error,
        });
    }

    /// Accepts again where the pause is over.
    pub(super) fn resume_listeners(&mut self) {
        let mut resumed = Vec::new();
        for (index, listener) in &mut self.listeners {
            let is_over = |until| until <= Time::monotonic();
            if listener.paused_until.is_some_and(is_over) {
                listener.paused_until = None;
                resumed.push(ListenerId(index as u32));
            }
        }
        for id in resumed {
            self.accept_from(id);
        }
    }

    /// Accepts from the listener, or leaves what comes in its queue.
    pub(super) fn hold_listener(&mut self, id: ListenerId, is_held: bool) {
        if let Some(listener) = self.listeners.get_mut(id.0 as usize) {
            listener.is_held = is_held;
        }
        if is_held {
            self.accept_no_more(id);
        } else {
            self.accept_from(id);
        }
    }

    /// Looks for connections at the listener, unless there is a reason not to.
    fn accept_from(&mut self, id: ListenerId) {
        let is_accepting = self
            .listeners
            .get(id.0 as usize)
            .is_some_and(Listener::is_accepting);
        if is_accepting && !self.accepting.iter().any(|(of, _)| *of == id) {
            self.accepting.push((id, ACCEPTS_PER_TURN_MAX));
        }
    }

    fn accept_no_more(&mut self, id: ListenerId) {
        self.accepting.retain(|(of, _)| *of != id);
    }
}
