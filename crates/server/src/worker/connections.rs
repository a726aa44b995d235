//! The connections of one worker.

use moonwire_lua::Handler;
use moonwire_net::{Session, SocketId};

use super::scripts::Place;
use crate::handler;

/// One connection, in the place of the driver's table that its socket has.
pub(crate) struct Connection {
    /// Its socket; a completion with another generation is about an earlier one.
    pub(crate) socket: SocketId,
    /// The bytes' side of it.
    pub(crate) session: Session,
    /// The services' side of it.
    pub(crate) stage: Stage,
    /// Bytes of its write queue that the counters and the worker's bound know of.
    pub(crate) queued_bytes: usize,
    /// Whether it is in the list of those to be flushed in this turn.
    pub(crate) is_dirty: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// No request yet.
    Handshake,
    /// It leaves for a worker that owns an instance of this service, where a place is reserved.
    Leaving {
        /// The other worker.
        worker: usize,
        /// The service that it asked for.
        service: u16,
    },
    /// It belongs to an instance, which has been or will be told of its messages and, exactly
    /// once, of its end.
    Open {
        /// The instance.
        place: Place,
        /// Its name there.
        handler: Handler,
        /// Whether this end began to close: its messages are not delivered any more.
        is_closing: bool,
    },
    /// There is nothing more to do than to send the last bytes.
    Over,
}

/// The table. Boxes, because the table doubles when it grows and most of it may be empty.
#[derive(Default)]
pub(crate) struct Connections {
    /// By the index of the socket.
    slots: Vec<Option<Box<Connection>>>,
    /// How often a handler was given in each place; the next one gets the next number.
    generations: Vec<u32>,
    /// Connections in `slots`.
    len: usize,
    /// Those of them that are `Stage::Open`. Invariant: open <= len.
    pub(crate) open: usize,
}

impl Connections {
    /// Puts a connection where its socket is.
    pub(crate) fn insert(&mut self, socket: SocketId, session: Session, stage: Stage) {
        let index = socket.index();
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
            self.generations.resize(index + 1, 0);
        }
        let connection = Connection {
            socket,
            session,
            stage,
            queued_bytes: 0,
            is_dirty: false,
        };
        let before = self.slots[index].replace(Box::new(connection));
        debug_assert!(
            before.is_none(),
            "a socket's place is free before it is used again"
        );
        self.len += 1;
    }

    /// The connection of this socket.
    pub(crate) fn of_socket(&mut self, socket: SocketId) -> Option<&mut Connection> {
        let connection = self.slots.get_mut(socket.index())?.as_deref_mut()?;
        (connection.socket == socket).then_some(connection)
    }

    /// The connection that a service knows by this handler, if it is open and belongs to `place`:
    /// instances share no clients.
    pub(crate) fn of_handler(&mut self, name: Handler, place: Place) -> Option<&mut Connection> {
        let connection = self.slots.get_mut(handler::slot(name))?.as_deref_mut()?;
        match connection.stage {
            Stage::Open {
                place: owner,
                handler,
                ..
            } if owner == place && handler == name => Some(connection),
            Stage::Open { .. } | Stage::Handshake | Stage::Leaving { .. } | Stage::Over => None,
        }
    }

    /// Takes it out.
    pub(crate) fn remove(&mut self, socket: SocketId) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(socket.index())?;
        let connection = slot.take_if(|connection| connection.socket == socket)?;
        self.len -= 1;
        Some(connection)
    }

    /// A handler for the connection of this socket, unique among live connections; None when the
    /// place is beyond what a handler can name.
    pub(crate) fn name(&mut self, worker: usize, socket: SocketId) -> Option<Handler> {
        let generation = self.generations.get_mut(socket.index())?;
        *generation = generation.wrapping_add(1);
        handler::pack(worker, socket.index(), *generation)
    }

    /// All sockets.
    pub(crate) fn sockets(&self) -> Vec<SocketId> {
        self.slots
            .iter()
            .flatten()
            .map(|connection| connection.socket)
            .collect()
    }

    /// The connection for which most bytes wait, of those that do not leave; None: nothing waits.
    pub(crate) fn longest_queue(&mut self) -> Option<&mut Connection> {
        let connections = self.slots.iter_mut().flatten().map(Box::as_mut);
        connections
            .filter(|connection| !matches!(connection.stage, Stage::Leaving { .. }))
            .max_by_key(|connection| connection.queued_bytes)
            .filter(|connection| connection.queued_bytes > 0)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
