//! The two rings shared with the kernel, and the memory it reads and writes.
#![allow(
    unsafe_code,
    reason = "the kernel reads and writes memory long after the call that names it"
)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use slab::Slab;

use super::provided::{BUFFER_BYTES, GROUP, Provided, ProvidedBuffers};
use super::token::Token;
use crate::driver::SocketId;

/// Submissions and completions. It owns everything that the kernel was told the address of: a
/// send's bytes stay here until its completion is there, whatever becomes of its socket.
pub(super) struct Ring {
    ring: IoUring,
    provided: ProvidedBuffers,
    sends: Slab<Send>,
    /// Posted sends whose end is not known yet: all is well with those that give no answer.
    posted: Vec<usize>,
    /// Posted sends that have something behind them, which is to follow as soon as they have gone.
    followed: usize,
    /// Answers of posted sends, which all is not well with.
    refused: VecDeque<(usize, Result<usize, i32>)>,
    /// Answers of the last `enter` that were not taken yet.
    answers: VecDeque<cqueue::Entry>,
    /// What a socket may have received before others get their turn; 0: as much as there are
    /// buffers.
    receive_bytes_max: u32,
}

/// A send that the kernel may be reading from.
struct Send {
    socket: SocketId,
    buffer: Vec<u8>,
    /// Invariant: 0 <= sent < buffer.len().
    sent: usize,
    /// Whether the caller takes it for done, and the kernel says nothing if it is.
    is_posted: bool,
    /// What is to be sent after it, and is in flight for the caller; usually empty.
    behind: Vec<u8>,
}

impl Send {
    fn is_followed(&self) -> bool {
        self.is_posted && !self.behind.is_empty()
    }
}

/// The end of a send: whose it was, its bytes, and what is to be sent after it.
pub(super) struct Ended {
    pub(super) socket: SocketId,
    pub(super) buffer: Vec<u8>,
    pub(super) behind: Vec<u8>,
}

/// An operation that has come to something.
pub(super) struct Answer {
    pub(super) token: Token,
    /// What the call would have returned.
    pub(super) result: Result<usize, i32>,
    /// Whether more answers with this token will come.
    pub(super) is_more: bool,
    /// What was received.
    pub(super) received: Option<Provided>,
}

/// What came of a part of a send.
pub(super) enum Sent {
    /// The rest is to be sent; `go_on` or `end`.
    Short(SocketId),
    /// All is sent; the buffer is empty.
    Whole(Ended),
}

impl Ring {
    /// Makes a ring as large as there is memory for. The calling thread is the only one that may
    /// use it.
    pub(super) fn new() -> io::Result<Self> {
        let mut entries = SUBMISSIONS;
        let ring = loop {
            let made = IoUring::builder()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_submit_all()
                .setup_cqsize(entries * COMPLETIONS_PER_SUBMISSION)
                .build(entries);
            match made {
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOMEM) && entries > SUBMISSIONS_MIN =>
                {
                    entries /= 2;
                }
                made => break made?,
            }
        };
        let provided = ProvidedBuffers::register(&ring.submitter())?;
        let mut made = Self {
            ring,
            provided,
            sends: Slab::new(),
            posted: Vec::new(),
            followed: 0,
            refused: VecDeque::new(),
            answers: VecDeque::new(),
            receive_bytes_max: RECEIVE_BYTES_MAX,
        };
        if !made.knows_bounds()? {
            made.receive_bytes_max = 0;
        }
        Ok(made)
    }

    /// Whether the kernel takes a bound for a receive that goes on by itself (Linux 6.17). It looks
    /// at the bound first, and only then that there is no socket.
    fn knows_bounds(&mut self) -> io::Result<bool> {
        let no_socket = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        self.receive(&no_socket, Token::Cancel);
        self.enter(Some(Duration::ZERO))?;
        let answer = self.next();
        Ok(answer.is_some_and(|answer| answer.result == Err(libc::ENOTSOCK)))
    }

    /// Receives from the socket for as long as it is open or until it is cancelled.
    pub(super) fn receive(&mut self, fd: &OwnedFd, token: Token) {
        let entry = opcode::RecvMulti::new(Fd(fd.as_raw_fd()), GROUP).build();
        self.push(&bounded(entry, self.receive_bytes_max), token);
    }

    /// Tells once that one of these events is there; errors and hangups are told in any case.
    pub(super) fn poll(&mut self, fd: &OwnedFd, events: u32, token: Token) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), events).build();
        self.push(&entry, token);
    }

    /// Tells of these events each time they come.
    pub(super) fn poll_always(&mut self, fd: &OwnedFd, events: u32, token: Token) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), events).multi(true);
        self.push(&entry.build(), token);
    }

    /// Ends an operation; it gives its last answer soon.
    pub(super) fn cancel(&mut self, token: Token) {
        let entry = opcode::AsyncCancel::new(token.to_bits()).build();
        self.push(&entry, Token::Cancel);
    }

    /// Sends what is in the buffer behind the first `sent` bytes, which must not be all; the place
    /// of the send.
    pub(super) fn send(
        &mut self,
        fd: &OwnedFd,
        socket: SocketId,
        mut buffer: Vec<u8>,
        sent: usize,
    ) -> usize {
        if sent > 0 {
            shrink(&mut buffer);
        }
        let place = self.sends.insert(Send {
            socket,
            buffer,
            sent,
            is_posted: false,
            behind: Vec::new(),
        });
        self.submit_send(fd.as_raw_fd(), place);
        place
    }

    /// Sends the buffer, which must not be empty, with the next `enter`; there is an answer only if
    /// that is not possible at once and as a whole. The place of the send.
    pub(super) fn post(&mut self, fd: &OwnedFd, socket: SocketId, buffer: Vec<u8>) -> usize {
        let place = self.sends.insert(Send {
            socket,
            buffer,
            sent: 0,
            is_posted: true,
            behind: Vec::new(),
        });
        self.posted.push(place);
        self.submit_send(fd.as_raw_fd(), place);
        place
    }

    /// Has the buffer sent after what is in that place, which must have nothing behind it yet.
    pub(super) fn put_behind(&mut self, place: usize, buffer: Vec<u8>) {
        let send = &mut self.sends[place];
        assert!(
            send.behind.is_empty(),
            "a socket has at most one send in flight"
        );
        send.behind = buffer;
        self.followed += usize::from(send.is_followed());
    }

    /// Whether the caller takes it for done.
    pub(super) fn is_posted(&self, place: usize) -> bool {
        self.sends[place].is_posted
    }

    /// Whether something is to be sent once posted sends have gone, of which there is no answer.
    pub(super) fn is_followed(&self) -> bool {
        self.followed > 0
    }

    /// Sends the rest of what was sent in part.
    pub(super) fn go_on(&mut self, fd: &OwnedFd, place: usize) {
        shrink(&mut self.sends[place].buffer);
        self.submit_send(fd.as_raw_fd(), place);
    }

    /// A posted send is told of instead: how many bytes it has, if it is what the caller is to be
    /// told of.
    pub(super) fn tell_of(&mut self, place: usize) -> Option<usize> {
        let send = &mut self.sends[place];
        self.followed -= usize::from(send.is_followed());
        let was_posted = std::mem::replace(&mut send.is_posted, false);
        (was_posted && send.behind.is_empty()).then_some(send.buffer.len())
    }

    fn submit_send(&mut self, fd: RawFd, place: usize) {
        let Send {
            buffer,
            sent,
            is_posted,
            ..
        } = &self.sends[place];
        let rest = &buffer[*sent..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let send = opcode::Send::new(Fd(fd), rest.as_ptr(), length);
        let entry = if *is_posted {
            // At once and as a whole, or there is an answer with what was sent.
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
            let entry = send.flags(flags).build();
            entry.flags(squeue::Flags::SKIP_SUCCESS)
        } else {
            send.flags(libc::MSG_NOSIGNAL).build()
        };
        self.push(&entry, Token::Send(place));
    }

    /// The next answer of a posted send: its place, and what came of it.
    pub(super) fn next_refused(&mut self) -> Option<(usize, Result<usize, i32>)> {
        self.refused.pop_front()
    }

    /// The next posted send that has gone out.
    pub(super) fn next_settled(&mut self) -> Option<Ended> {
        while let Some(place) = self.posted.pop() {
            if self.sends.get(place).is_some_and(|send| send.is_posted) {
                return Some(self.end(place));
            }
        }
        None
    }

    /// Whether the end of each posted send is known: the kernel has them, and all its answers are
    /// here.
    pub(super) fn is_settled(&mut self) -> bool {
        let submissions = self.ring.submission();
        let is_submitted = submissions.is_empty() && !submissions.cq_overflow();
        drop(submissions);
        is_submitted && self.ring.completion().is_empty()
    }

    /// Takes note of bytes of a send that were sent.
    pub(super) fn sent(&mut self, place: usize, bytes: usize) -> Sent {
        let send = &mut self.sends[place];
        send.sent = (send.sent + bytes).min(send.buffer.len());
        if send.sent < send.buffer.len() {
            return Sent::Short(send.socket);
        }
        let mut ended = self.end(place);
        ended.buffer.clear();
        Sent::Whole(ended)
    }

    /// Ends a send with which the kernel is done; the buffer has what was not sent.
    pub(super) fn end(&mut self, place: usize) -> Ended {
        let send = self.sends.remove(place);
        self.followed -= usize::from(send.is_followed());
        let Send {
            socket,
            mut buffer,
            sent,
            behind,
            ..
        } = send;
        buffer.drain(..sent);
        Ended {
            socket,
            buffer,
            behind,
        }
    }

    /// Bytes of a send that were not sent, as far as is known.
    pub(super) fn unsent_bytes(&self, place: usize) -> usize {
        let send = self.sends.get(place);
        send.map_or(0, |send| send.buffer.len() - send.sent + send.behind.len())
    }

    /// Submits all that was pushed and waits for an answer, `timeout` at most; None is without end.
    /// Without a wait it looks.
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.provided.begin_turn();
        let result = self.enter_once(timeout);
        self.take_answers();
        match result.err().and_then(|error| error.raw_os_error()) {
            // The time is over, a signal came, or answers must be taken before more can be
            // submitted, which the caller does next.
            None | Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn enter_once(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.ring.completion().sync();
        let is_answered = !self.answers.is_empty() || !self.ring.completion().is_empty();
        let want = u32::from(!is_answered && timeout != Some(Duration::ZERO));
        let timespec = timeout.map(|timeout| {
            Timespec::new()
                .sec(timeout.as_secs())
                .nsec(timeout.subsec_nanos())
        });
        let mut args = SubmitArgs::new();
        if let Some(timespec) = &timespec {
            args = args.timespec(timespec);
        }
        let submitted = self.ring.submission().len() as u32;
        // Also without a wait: only so does the kernel do what it has put off until now.
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: the arguments live until the call returns, and what the submissions name is this
        // ring's or outlives the call.
        let submitter = self.ring.submitter();
        unsafe { submitter.enter(submitted, want, flags.bits(), Some(&args)) }
    }

    /// Those of posted sends apart: what they are about comes before what was received since.
    fn take_answers(&mut self) {
        let mut completions = self.ring.completion();
        while self.answers.len() < ANSWERS_MAX
            && let Some(completion) = completions.next()
        {
            if let Token::Send(place) = Token::from_bits(completion.user_data())
                && self.sends.get(place).is_some_and(|send| send.is_posted)
            {
                self.refused.push_back((place, outcome(&completion)));
            } else {
                self.answers.push_back(completion);
            }
        }
    }

    /// Whether the kernel has all that was pushed. While it has not, what is pushed names
    /// descriptors that must stay open.
    pub(super) fn is_submitted(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// The next answer of this turn.
    pub(super) fn next(&mut self) -> Option<Answer> {
        let completion = self.answers.pop_front()?;
        let flags = completion.flags();
        let result = outcome(&completion);
        let length = result.unwrap_or(0);
        let received = cqueue::buffer_select(flags).and_then(|index| {
            self.provided
                .take(index, length, cqueue::buffer_more(flags))
        });
        Some(Answer {
            token: Token::from_bits(completion.user_data()),
            result,
            is_more: cqueue::more(flags),
            received,
        })
    }

    /// Gives back what was received.
    pub(super) fn give_back(&mut self, part: Provided) {
        self.provided.give_back(part);
    }

    /// How many receives that found no buffer may be begun again.
    pub(super) fn receives_per_turn(&self) -> usize {
        self.provided.receives_per_turn()
    }

    /// Takes note of a receive that found no buffer.
    pub(super) fn starved(&mut self) {
        self.provided.grow();
    }

    fn push(&mut self, entry: &squeue::Entry, token: Token) {
        let entry = entry.clone().user_data(token.to_bits());
        loop {
            // SAFETY: entries name descriptors, which the kernel checks, and the bytes of `sends`,
            // which stay where they are until the answer is there.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // It is full: the kernel takes what is there. It fails only for want of memory.
            let _ = self.ring.submit();
        }
    }
}

/// What the call would have returned.
fn outcome(completion: &cqueue::Entry) -> Result<usize, i32> {
    let result = completion.result();
    usize::try_from(result).map_err(|_| -result)
}

/// Has a receive end after so many bytes (`optlen`, of which the crate does not know yet).
fn bounded(mut entry: squeue::Entry, bytes_max: u32) -> squeue::Entry {
    // SAFETY: an entry is what the kernel reads, 64 bytes of plain numbers (`io_uring_sqe`), and
    // this one is at an aligned place of it that a receive uses for nothing else.
    unsafe {
        let field = (&raw mut entry).cast::<u32>().add(OPTLEN_OFFSET_BYTES / 4);
        field.write(bytes_max);
    }
    entry
}

/// In `io_uring_sqe`, as io_uring(7) has it; also `splice_fd_in`.
const OPTLEN_OFFSET_BYTES: usize = 44;

const _: () = assert!(size_of::<squeue::Entry>() == 64 && align_of::<squeue::Entry>() >= 4);

/// The buffer may lie here for long, and may come from a pool of much larger ones.
fn shrink(buffer: &mut Vec<u8>) {
    if buffer.capacity() > 2 * buffer.len() {
        buffer.shrink_to_fit();
    }
}

impl Drop for Ring {
    /// The kernel must be done with the memory before it is freed.
    fn drop(&mut self) {
        let timeout = Some(Timespec::new().sec(CANCEL_TIMEOUT.as_secs()));
        let all = CancelBuilder::any().all();
        let _ = self.ring.submit();
        let cancelled = self.ring.submitter().register_sync_cancel(timeout, all);
        let is_none = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        let is_quiet = cancelled.is_ok() || cancelled.is_err_and(|error| is_none(&error));
        if !is_quiet {
            self.provided.leak();
            self.sends.drain().for_each(std::mem::forget);
        }
    }
}

/// As many as one turn pushes without a call of its own: two for each of 500 sockets.
const SUBMISSIONS: u32 = 1024;

/// Where memory is short, this much is asked for at least.
const SUBMISSIONS_MIN: u32 = 32;

/// After so much the receive of a socket is begun again, with the next call: until then it is the
/// turn of others. As much as one buffer holds.
const RECEIVE_BYTES_MAX: u32 = BUFFER_BYTES as u32;

/// Receives that go on by themselves give answers without submissions. Beyond the bound the kernel
/// keeps answers until there is room, and ends such receives, which are begun again.
const COMPLETIONS_PER_SUBMISSION: u32 = 4;

/// Answers that are out of the ring and were not taken. Those beyond it stay where they are.
const ANSWERS_MAX: usize = (SUBMISSIONS * COMPLETIONS_PER_SUBMISSION) as usize;

/// How long the end of a ring may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
