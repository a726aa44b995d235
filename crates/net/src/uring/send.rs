//! What is sent, and what becomes of it.

use std::io;

use super::UringDriver;
use super::ring::{Ended, Sent};
use super::socket::Flags;
use crate::buffer::BufferPool;
use crate::driver::{Completion, SocketId, Submission};
use crate::write::write_now;

impl UringDriver {
    /// Sends the buffer, or what of it a large one has left after a try. A posted send is told of
    /// only if it does not go out at once.
    pub(super) fn submit(
        &mut self,
        socket: SocketId,
        mut buffer: Vec<u8>,
        is_posted: bool,
    ) -> Submission {
        let entry = self.sockets.get_mut(socket);
        let Some(entry) = entry.filter(|_| !buffer.is_empty()) else {
            buffer.clear();
            return Submission::Done(buffer);
        };
        if let Some(place) = entry.send() {
            self.wait_behind(socket, place, buffer);
            return Submission::InFlight;
        }
        let mut sent = 0;
        if buffer.len() >= DIRECT_SEND_BYTES {
            match write_now(&entry.fd, &buffer) {
                Ok(bytes) => sent = bytes,
                Err(error) => {
                    buffer.clear();
                    let result = Err(error);
                    self.completions.push_back(Completion::Sent {
                        socket,
                        buffer,
                        result,
                    });
                    return Submission::InFlight;
                }
            }
            if sent == buffer.len() {
                buffer.clear();
                return Submission::Done(buffer);
            }
        }
        let is_much_too_large = buffer.capacity() / 4 > buffer.len();
        if sent == 0 && buffer.capacity() >= DIRECT_SEND_BYTES && is_much_too_large {
            // What waits together is small: a large buffer is for large messages.
            let small = buffer.as_slice().to_vec();
            BufferPool::give(std::mem::replace(&mut buffer, small));
        }
        if is_posted && sent == 0 {
            let place = self.ring.post(&entry.fd, socket, buffer);
            entry.set_send(Some(place));
            return Submission::Done(BufferPool::take());
        }
        let place = self.ring.send(&entry.fd, socket, buffer, sent);
        entry.set_send(Some(place));
        Submission::InFlight
    }

    /// Puts a buffer behind one that the caller takes for done.
    fn wait_behind(&mut self, socket: SocketId, place: usize, buffer: Vec<u8>) {
        if !self.ring.is_posted(place) {
            // It has not heard yet that it is not. There is one in flight now in any case.
            let is_it = |told: &Completion| {
                let is_of_it = told.depends_on() == Some(socket);
                is_of_it && matches!(told, Completion::Blocked { .. })
            };
            let untold = self.completions.iter().position(is_it);
            let untold = untold.expect("a socket has at most one send in flight");
            self.completions.remove(untold);
        }
        self.ring.put_behind(place, buffer);
    }

    /// Takes note of what has become of posted sends in the last call of the kernel.
    pub(super) fn settle_posted(&mut self) {
        // Before anything more is submitted.
        let is_settled = self.ring.is_settled();
        while let Some((place, result)) = self.ring.next_refused() {
            let completion = self.sent(place, result);
            self.completions.extend(completion);
        }
        if is_settled {
            while let Some(ended) = self.ring.next_settled() {
                self.ended_well(ended);
            }
        }
    }

    /// All of a send is with the kernel; whether the caller is to be told of it, and not of one
    /// behind it.
    fn ended_well(&mut self, ended: Ended) -> bool {
        let Ended {
            socket,
            buffer,
            behind,
        } = ended;
        BufferPool::give(buffer);
        let Some(entry) = self.sockets.get_mut(socket) else {
            return false;
        };
        entry.set_send(None);
        if behind.is_empty() {
            self.finish_detach(socket);
            return true;
        }
        if entry.flags.intersects(Flags::DETACHING) {
            self.unsent.push((socket, behind));
            self.finish_detach(socket);
        } else {
            let place = self.ring.send(&entry.fd, socket, behind, 0);
            entry.set_send(Some(place));
        }
        false
    }

    /// What the kernel answers to a send.
    pub(super) fn sent(&mut self, place: usize, result: Result<usize, i32>) -> Option<Completion> {
        let bytes = match result {
            Ok(0) => Err(libc::EPIPE),
            Err(libc::EINTR | libc::EAGAIN) => Ok(0),
            result => result,
        };
        match bytes.map(|bytes| self.ring.sent(place, bytes)) {
            Ok(Sent::Whole(ended)) => {
                let socket = ended.socket;
                let is_told = self.ended_well(ended) && self.sockets.get(socket).is_some();
                is_told.then(|| Completion::Sent {
                    socket,
                    buffer: BufferPool::take(),
                    result: Ok(()),
                })
            }
            Ok(Sent::Short(socket)) => {
                let entry = self.sockets.get(socket);
                match entry.filter(|it| !it.flags.contains(Flags::DETACHING)) {
                    Some(entry) => {
                        let blocked = self.ring.tell_of(place);
                        self.ring.go_on(&entry.fd, place);
                        blocked.map(|bytes| Completion::Blocked { socket, bytes })
                    }
                    None => self.failed_to_send(place, libc::ECANCELED),
                }
            }
            Err(code) => self.failed_to_send(place, code),
        }
    }

    /// Ends a send that does not go on.
    fn failed_to_send(&mut self, place: usize, code: i32) -> Option<Completion> {
        let was_posted = self.ring.tell_of(place).is_some();
        let Ended {
            socket,
            buffer: mut rest,
            behind,
        } = self.ring.end(place);
        let entry = self.sockets.get_mut(socket)?;
        entry.set_send(None);
        if entry.flags.intersects(Flags::DETACHING) {
            rest.extend_from_slice(&behind);
            self.unsent.push((socket, rest));
            self.finish_detach(socket);
            return None;
        }
        let error = io::Error::from_raw_os_error(code);
        if was_posted {
            // Nobody waits for its end.
            return Some(Completion::Failed { socket, error });
        }
        rest.clear();
        Some(Completion::Sent {
            socket,
            buffer: rest,
            result: Err(error),
        })
    }
}

/// From here on a send is tried at once: beside copying so much a call of its own is nothing, the
/// bytes are still in the cache, and a queue that is bound by its length empties into the buffers
/// of the kernel while it fills.
const DIRECT_SEND_BYTES: usize = 32 * 1024;
