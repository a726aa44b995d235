//! Everything that can wake a worker. Adding a source of wake-ups is adding a variant here.

use moonwire_net::{Completion, DetachedSession, SocketId};

/// One reason for a worker to do something.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something happened to one of its sockets.
    Socket(Completion),
    /// Another thread wants something.
    Letter(Letter),
    /// A deadline of this connection may have come.
    Deadline(SocketId),
    /// The time to say good-bye is over.
    DrainTimeout,
}

/// What other threads want of a worker.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A connection whose request is for a service that has an instance here.
    Handover(Box<Handover>),
    /// Accept no more, say good-bye to all, end.
    Stop,
}

/// A connection between two workers.
#[derive(Debug)]
pub(crate) struct Handover {
    /// All of it, TLS included; its request waits for an answer.
    pub(crate) session: DetachedSession,
    /// The index of the service that it asked for.
    pub(crate) service: u16,
}
