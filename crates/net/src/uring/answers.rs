//! From what the kernel answers to completions.

use std::io;

use super::ring::Answer;
use super::socket::Flags;
use super::{POLL_ERRORS, POLL_IN, UringDriver};
use crate::buffer::{ReceiveBuffer, Storage};
use crate::driver::{Completion, SocketId};
use crate::uring::token::Token;

impl UringDriver {
    /// What the answer means for the caller, if anything; there may be more in `completions`.
    pub(super) fn answer(&mut self, answer: Answer) -> Option<Completion> {
        match answer.token {
            Token::Receive(socket) => self.received(socket, answer),
            Token::Send(place) => self.sent(place, answer.result),
            Token::Connect(socket) => self.connected(socket),
            Token::Watch(socket) => self.watched(socket, answer.result),
            Token::Accept(listener) => {
                self.connections_wait(listener, answer.is_more);
                None
            }
            Token::Wake => {
                if !answer.is_more {
                    self.ring.poll_always(&self.event, POLL_IN, Token::Wake);
                }
                Some(Completion::Woken)
            }
            Token::Cancel => None,
        }
    }

    fn received(&mut self, socket: SocketId, answer: Answer) -> Option<Completion> {
        let Answer {
            result,
            is_more,
            mut received,
            ..
        } = answer;
        // The caller has closed it since, or the kernel has taken a buffer for nothing.
        let is_wanted = self.sockets.get_mut(socket).is_some() && matches!(result, Ok(1..));
        if !is_wanted && let Some(part) = received.take() {
            self.ring.give_back(part);
        }
        let entry = self.sockets.get_mut(socket)?;
        if !is_more {
            entry.flags.remove(Flags::RECEIVING);
            entry.flags.remove(Flags::CANCELLING);
        }
        let is_detaching = entry.flags.intersects(Flags::DETACHING);
        let completion = match (result, received) {
            (Ok(1..), Some(part)) => Some(Completion::Received {
                socket,
                buffer: ReceiveBuffer {
                    storage: Storage::Provided(part),
                },
            }),
            (Ok(_), _) => {
                entry.flags.insert(Flags::ENDED);
                // The next owner finds it for itself.
                if !is_detaching {
                    self.ended.push(socket);
                }
                None
            }
            (Err(libc::ENOBUFS), _) => {
                // Buffers are given back in this turn, so the next one is soon enough.
                entry.flags.insert(Flags::STARVED);
                self.starved.push_back(socket);
                self.ring.starved();
                None
            }
            (Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN), _) => None,
            (Err(code), _) => {
                entry.flags.insert(Flags::ENDED);
                let error = io::Error::from_raw_os_error(code);
                Some(Completion::Failed { socket, error })
            }
        };
        if !is_more {
            self.went_quiet(socket);
        }
        completion.filter(|told| matches!(told, Completion::Received { .. }) || !is_detaching)
    }

    /// The receive of a socket has ended: what now, if it was not the end of everything.
    fn went_quiet(&mut self, socket: SocketId) {
        let Some(entry) = self.sockets.get_mut(socket) else {
            return;
        };
        if entry.flags.intersects(Flags::DETACHING) {
            self.finish_detach(socket);
        } else if entry.flags.intersects(Flags::PAUSED) {
            self.watch(socket);
        } else {
            self.receive(socket);
        }
    }

    fn connected(&mut self, socket: SocketId) -> Option<Completion> {
        let entry = self.sockets.get_mut(socket)?;
        entry.flags.remove(Flags::CONNECTING);
        if entry.flags.intersects(Flags::DETACHING) {
            self.finish_detach(socket);
            return None;
        }
        let outcome = rustix::net::sockopt::socket_error(&entry.fd);
        let result = outcome
            .and_then(|outcome| outcome)
            // The kernel gives EAGAIN instead of waiting where a descriptor does not block.
            .and_then(|()| rustix::io::ioctl_fionbio(&entry.fd, false))
            .map_err(io::Error::from);
        if result.is_err() {
            entry.flags.insert(Flags::ENDED);
        }
        self.receive(socket);
        Some(Completion::Connected { socket, result })
    }

    /// Has the kernel tell of errors of a socket that is not being received from.
    pub(super) fn watch(&mut self, socket: SocketId) {
        let Some(entry) = self.sockets.get_mut(socket) else {
            return;
        };
        let told = Flags::WATCHED.union(Flags::ENDED).union(Flags::CONNECTING);
        if !entry.flags.intersects(told) {
            entry.flags.insert(Flags::WATCHED);
            self.ring.poll(&entry.fd, POLL_ERRORS, Token::Watch(socket));
        }
    }

    fn watched(&mut self, socket: SocketId, result: Result<usize, i32>) -> Option<Completion> {
        let entry = self.sockets.get_mut(socket)?;
        entry.flags.remove(Flags::WATCHED);
        if entry.flags.intersects(Flags::DETACHING) {
            self.finish_detach(socket);
            return None;
        }
        if !entry.flags.intersects(Flags::PAUSED) {
            self.receive(socket);
            return None;
        }
        if let Err(error) = rustix::net::sockopt::socket_error(&entry.fd).ok()? {
            entry.flags.insert(Flags::ENDED);
            let error = error.into();
            return Some(Completion::Failed { socket, error });
        }
        // It was cancelled for a receive, and that is not wanted any more. A hangup without an
        // error is found when receiving goes on.
        if result.is_err() {
            self.watch(socket);
        }
        None
    }
}
