//! Connections that services open themselves: what `cws` asks of the server.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use moonwire_proto::Opcode;

use crate::live::Handler;

/// Makes clients, on any thread.
pub trait Connector: Debug + Send + Sync {
    /// A client for one instance, which stays on the thread that asks for it; or why there is none.
    fn client(self: Arc<Self>) -> Result<Box<dyn Client>, String>;
}

/// The connections of one instance to other servers.
///
/// What happens to them is told in turns: [`begin`](Self::begin), then [`next`](Self::next) until
/// it is false or often enough, then [`end`](Self::end). Between any two of these calls connections
/// may be made, written to and closed. Each ends with one [`ClientEvent::Closed`] or
/// [`ClientEvent::Failed`], unless the service closed it: then nothing of it is told any more.
pub trait Client {
    /// Connects to a ws:// or wss:// URL, and waits until there is a connection; the handshakes
    /// of TLS and WebSocket are left to the turns. Its handler, which no other connection has had,
    /// or one sentence that says why there is none.
    fn connect(&mut self, url: &str) -> Result<Handler, String>;

    /// Queues a message; within a turn it leaves at its end at the latest, otherwise at once. The
    /// payload of a text must be UTF-8. An error says why it was not queued.
    fn send(&mut self, handler: Handler, opcode: Opcode, payload: &[u8]) -> Result<(), String>;

    /// Closes a connection, with a close frame if it is open. Does nothing if it is gone.
    fn close(&mut self, handler: Handler);

    /// Begins a turn: waits until something has happened, but not longer than this.
    fn begin(&mut self, wait_max: Duration);

    /// Tells one thing that happened; false if there is nothing more to tell in this turn.
    fn next(&mut self, tell: &mut dyn FnMut(Handler, ClientEvent<'_>)) -> bool;

    /// Ends a turn: writes what was queued.
    fn end(&mut self);
}

/// What happens to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// Messages can be sent.
    Opened,
    /// A message came.
    Message {
        /// Text, which is valid UTF-8, or binary.
        opcode: Opcode,
        /// All of it.
        payload: &'a [u8],
    },
    /// The server closed the connection.
    Closed {
        /// The payload of its close frame: nothing, or two bytes of code and the reason.
        payload: Vec<u8>,
    },
    /// The connection did not come about, or is gone without a close frame.
    Failed {
        /// Why, in one sentence.
        reason: String,
    },
}
