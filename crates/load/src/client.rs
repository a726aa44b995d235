//! One virtual client: a connection, and where it stands in its schedule.

use std::collections::VecDeque;

use moonwire_net::{HandshakeTimings, Session};

use crate::audience::Hearing;
use crate::desk::Held;
use crate::ledger::Ledger;
use crate::schedule::{Cursor, NEVER};

/// A connection of the scenario, over all of its incarnations.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number among all connections of the run.
    pub(crate) number: u32,
    /// The present connection; `None` while there is no socket.
    pub(crate) session: Option<Session>,
    pub(crate) state: State,
    /// Its handshake is over and it has asked to subscribe: what is to be recorded when it may.
    pub(crate) subscribing: Option<Upgrade>,
    pub(crate) track: Track,
}

/// What is recorded of a connection that comes up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upgrade {
    pub(crate) timings: HandshakeTimings,
    pub(crate) is_compressed: bool,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not attempted yet.
    Unborn,
    /// Handshake under way.
    Connecting,
    /// Messages can be sent.
    Up,
    /// It has sent all of its messages and closes.
    Leaving,
    /// The connection ended; its socket may still be closing.
    Ended,
    /// A new connection is made at this time.
    Retrying {
        /// When, on the driver's clock.
        at_ns: u64,
    },
    /// It stays down.
    Down,
}

/// The part of a client that messages change, apart from the session that lends them.
#[derive(Debug, Default)]
pub(crate) struct Track {
    pub(crate) ledger: Ledger,
    /// Messages that it may still send before it closes; [`NEVER`] where it stays open.
    pub(crate) quota: u64,
    /// When it was lost; [`NEVER`] while it is not.
    pub(crate) lost_ns: u64,
    /// Attempts to make it again since it was up last, or since the first one.
    pub(crate) retries: u32,
    /// The same over the whole run.
    pub(crate) retries_total: u32,
    /// Its place in the schedule; `None` until it was up for the first time after the start.
    pub(crate) cursor: Option<Cursor>,
    /// When it last could send again after it could not: a message that was due before waited
    /// for that and not for the generator.
    pub(crate) ready_ns: u64,
    /// When the present connection came up.
    pub(crate) up_ns: u64,
    /// The moment of its entry in the due queue; any other entry is stale. Unused in a closed
    /// loop.
    pub(crate) due_ns: u64,
    /// Its next message is due and cannot be sent: no slot, or no room in the socket.
    pub(crate) blocked: bool,
    /// Since when slots of a closed loop wait for room in the socket or in the ledger. Bounded by
    /// the messages in flight.
    pub(crate) owed: VecDeque<u64>,
    /// Whether it is the ledger that they wait for.
    pub(crate) is_ledger_full: bool,
    /// Whether it is room in the socket that its messages wait for.
    pub(crate) needs_room: bool,
    /// The message that was put off last, which is counted once; [`NEVER`] before the first.
    pub(crate) put_off_seq: u64,
    /// Messages that left the stand-in link and found no room in the socket, in order. Bounded by
    /// the ledger, which awaits a reply to each.
    pub(crate) parked: VecDeque<Held>,
    /// It is among the desk's unfinished.
    pub(crate) unfinished: bool,
    /// It was up before.
    pub(crate) was_up: bool,
    /// It has something to flush at the end of the turn.
    pub(crate) touched: bool,
    /// What it has heard of each publisher. Empty where each message has its own answer.
    pub(crate) hearings: Box<[Hearing]>,
}

impl Client {
    /// A client that may send `quota` messages, [`NEVER`] for no limit.
    pub(crate) fn new(number: u32, quota: u64) -> Self {
        Self {
            number,
            session: None,
            state: State::Unborn,
            subscribing: None,
            track: Track {
                quota,
                lost_ns: NEVER,
                put_off_seq: NEVER,
                ..Track::default()
            },
        }
    }

    /// False while it may still come up and find its place in the schedule.
    pub(crate) fn has_joined_or_never_will(&self) -> bool {
        self.track.cursor.is_some() || self.state == State::Down
    }
}
