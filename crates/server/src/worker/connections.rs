//! The connections of one worker.

use std::cmp::Reverse;

use moonwire_lua::Handler;
use moonwire_net::{Session, SessionMemory, SocketId};

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
    /// What it holds in memory, as far as the counters and the worker's bound know of it.
    pub(crate) held: SessionMemory,
    /// Whether it is in the list of those to be flushed in this turn.
    pub(crate) is_dirty: bool,
    /// Whether a message was sent to it since it was flushed.
    pub(crate) was_sent_to: bool,
    /// Whether it is in the list of those that go on in the next turn.
    pub(crate) is_unread: bool,
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

impl Stage {
    /// The instance that is told of the connection's messages.
    pub(crate) fn listener(self) -> Option<Place> {
        self.served().map(|(place, _)| place)
    }

    /// The same, and the connection's name there.
    pub(crate) fn served(self) -> Option<(Place, Handler)> {
        match self {
            Self::Open {
                place,
                handler,
                is_closing: false,
            } => Some((place, handler)),
            Self::Open { .. } | Self::Handshake | Self::Leaving { .. } | Self::Over => None,
        }
    }
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
    /// Those of them that are `Stage::Open`.
    open: usize,
    /// Those of them that are `Stage::Handshake`. Invariant: open + handshakes <= len.
    handshakes: usize,
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
            held: SessionMemory::default(),
            is_dirty: false,
            was_sent_to: false,
            is_unread: false,
        };
        let before = self.slots[index].replace(Box::new(connection));
        debug_assert!(
            before.is_none(),
            "a socket's place is free before it is used again"
        );
        self.len += 1;
        self.count(stage);
    }

    /// Puts a connection into another stage; returns the one before.
    pub(crate) fn change(&mut self, socket: SocketId, stage: Stage) -> Option<Stage> {
        let connection = self.of_socket(socket)?;
        let before = std::mem::replace(&mut connection.stage, stage);
        self.uncount(before);
        self.count(stage);
        Some(before)
    }

    fn count(&mut self, stage: Stage) {
        match stage {
            Stage::Handshake => self.handshakes += 1,
            Stage::Open { .. } => self.open += 1,
            Stage::Leaving { .. } | Stage::Over => {}
        }
    }

    fn uncount(&mut self, stage: Stage) {
        match stage {
            Stage::Handshake => self.handshakes -= 1,
            Stage::Open { .. } => self.open -= 1,
            Stage::Leaving { .. } | Stage::Over => {}
        }
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
        self.uncount(connection.stage);
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

    /// What connections hold that do not leave, those first that hold most.
    pub(crate) fn largest_first(&self) -> Vec<(usize, SocketId)> {
        let connections = self.slots.iter().flatten();
        let mut holders: Vec<_> = connections
            .filter(|connection| !matches!(connection.stage, Stage::Leaving { .. }))
            .map(|connection| (connection.held.total(), connection.socket))
            .filter(|(held, _)| *held > 0)
            .collect();
        holders.sort_unstable_by_key(|(held, _)| Reverse(*held));
        holders
    }

    /// How many belong to a service.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// How many have not made a request yet.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
