//! Listening sockets of the epoll driver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::SocketFlags;

use super::socket::Flags;
use super::{EpollDriver, LISTENER, token};
use crate::accept::{ACCEPT_PAUSE, Accepted, accept};
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

impl EpollDriver {
    pub(super) fn add_listener(&mut self, fd: OwnedFd) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let entry = self.listeners.vacant_entry();
        let index = u32::try_from(entry.key()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // Level triggered: what a turn does not accept is reported again by the next one.
        epoll::add(
            &self.epoll,
            &fd,
            EventData::new_u64(token(index, LISTENER)),
            EventFlags::IN,
        )?;
        entry.insert(Listener {
            fd,
            is_held: false,
            paused_until: None,
        });
        Ok(ListenerId(index))
    }

    /// Accepts one connection of those waiting, within the bound of this turn; false when there
    /// is none. Its completion is queued.
    pub(super) fn accept_next(&mut self) -> bool {
        while let Some((id, budget)) = self.accepting.last_mut() {
            let id = *id;
            let Some(listener) = self.listeners.get(id.0 as usize) else {
                self.accepting.pop();
                continue;
            };
            match accept(&listener.fd, SocketFlags::NONBLOCK, budget) {
                Accepted::Connection(fd, peer) => {
                    self.accepted(id, fd, peer);
                    return true;
                }
                Accepted::Nobody | Accepted::Enough => drop(self.accepting.pop()),
                Accepted::Refused(error) => {
                    self.accepting.pop();
                    self.accept_failed(id, error.into());
                    return true;
                }
            }
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

    /// Waiting connections would be reported again at once, and the loop would spin.
    fn accept_failed(&mut self, id: ListenerId, error: io::Error) {
        let until = self.now() + ACCEPT_PAUSE;
        if let Some(listener) = self.listeners.get_mut(id.0 as usize) {
            listener.paused_until = Some(until);
            listener.watch(&self.epoll, id);
        }
        self.completions.push_back(Completion::AcceptFailed {
            listener: id,
            error,
        });
    }

    /// Accepts again where the pause is over.
    pub(super) fn resume_listeners(&mut self) {
        for (index, listener) in &mut self.listeners {
            let Some(until) = listener.paused_until else {
                continue;
            };
            if until <= Time::monotonic() {
                listener.paused_until = None;
                listener.watch(&self.epoll, ListenerId(index as u32));
            }
        }
    }

    /// Accepts from the listener, or leaves what comes in its queue.
    pub(super) fn hold_listener(&mut self, id: ListenerId, is_held: bool) {
        if is_held {
            self.accepting.retain(|(accepting, _)| *accepting != id);
        }
        if let Some(listener) = self.listeners.get_mut(id.0 as usize) {
            listener.is_held = is_held;
            listener.watch(&self.epoll, id);
        }
    }
}

impl Listener {
    /// Has connections reported, or not while there is a reason to accept none.
    fn watch(&self, epoll: &OwnedFd, id: ListenerId) {
        let is_open = !self.is_held && self.paused_until.is_none();
        let interest = if is_open {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        // It cannot fail: the descriptor is open and was added.
        let _ = epoll::modify(
            epoll,
            &self.fd,
            EventData::new_u64(token(id.0, LISTENER)),
            interest,
        );
    }
}
