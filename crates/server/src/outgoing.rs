//! Connections of services to other servers: what `cws` of the Lua room asks for, over the net
//! room.
//!
//! Each instance that connects has a driver of its own, on its own thread, which runs only while
//! the service calls `cws:eventLoop`.

mod connections;
mod dial;
mod link;
#[cfg(test)]
mod tests;
mod trust;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moonwire_lua::{Client, Connector, Handler};
use moonwire_net::{SessionLimits, TlsError};

use crate::config::OutgoingTls;
use crate::handler;
use connections::Connections;
use trust::Trusted;

/// What the connections of all instances have in common.
#[derive(Debug)]
pub(crate) struct Outgoing {
    trusted: Trusted,
    limits: Arc<SessionLimits>,
    /// Of one instance.
    connections_max: usize,
    /// How many handlers were given.
    handlers: AtomicU64,
}

impl Outgoing {
    /// With these rules for wss://; an authority that cannot be read is an error.
    pub(crate) fn new(tls: &OutgoingTls) -> Result<Self, TlsError> {
        Ok(Self {
            trusted: Trusted::new(tls)?,
            ..Self::default()
        })
    }

    /// A handler that no connection has had; none of a client of ours has it either.
    fn handler(&self) -> Option<Handler> {
        let number = self.handlers.fetch_add(1, Ordering::Relaxed);
        Handler::new(handler::OUTGOING_FIRST.checked_add(number)?)
    }
}

impl Default for Outgoing {
    fn default() -> Self {
        Self {
            trusted: Trusted::default(),
            limits: Arc::new(session_limits()),
            connections_max: CONNECTIONS_MAX,
            handlers: AtomicU64::new(0),
        }
    }
}

impl Connector for Outgoing {
    fn client(self: Arc<Self>) -> Result<Box<dyn Client>, String> {
        let connections = Connections::new(self);
        let connections =
            connections.map_err(|error| format!("no connections can be made: {error}"))?;
        Ok(Box::new(connections))
    }
}

fn session_limits() -> SessionLimits {
    SessionLimits {
        protocol: moonwire_proto::Limits {
            message_bytes_max: MESSAGE_BYTES_MAX,
            ..moonwire_proto::Limits::default()
        },
        write_queue_bytes_max: WRITE_QUEUE_BYTES_MAX,
        memory_bytes_max: MEMORY_BYTES_MAX,
        handshake_timeout: HANDSHAKE_TIMEOUT,
        idle_timeout: Some(IDLE_TIMEOUT),
        pong_timeout: Some(PONG_TIMEOUT),
        close_timeout: CLOSE_TIMEOUT,
        // The rest is for servers.
        ..SessionLimits::default()
    }
}

/// Largest message of a server, as LAppS has it. Beyond it: close code 1009, and `onerror`.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that may wait in one connection to be written. Beyond it `cws:send` gives false. A message
/// that waits for nothing is always taken.
const WRITE_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that one connection may hold: a message that is not complete, the write queue (twice, as
/// its buffer grows by doubling), TLS.
const MEMORY_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 2 * WRITE_QUEUE_BYTES_MAX + 1024 * 1024;

/// Connections of one instance, those included that are being closed. Beyond it `cws:new` gives
/// nil.
const CONNECTIONS_MAX: usize = 65_536;

/// Until TCP has a connection, over all addresses of the host together. The look-up of the host
/// comes before, and takes as long as the system lets it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// From there to the answer of the server, TLS included.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence after which the server is pinged, and after that ping, after which it counts as gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const PONG_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the server may take to answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
