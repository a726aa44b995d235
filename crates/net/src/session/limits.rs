//! The bounds of one connection.

use std::time::Duration;

use moonwire_proto::Limits;

/// Bounds and timeouts, shared by all connections of a listener or a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// What one peer may make us keep or do at the level of the protocol.
    pub protocol: Limits,
    /// Most bytes that may wait to be written, a further message included; beyond it
    /// [`crate::SendError::QueueFull`]. A message that finds nothing waiting is always taken.
    pub write_queue_bytes_max: usize,
    /// Server: while more than this waits to be written, nothing is received from the peer, so one
    /// that does not read its answers does not get more of them. A client always reads: if both
    /// ends stopped, neither would go on.
    pub write_queue_pause_bytes: usize,
    /// Most bytes that one connection may hold in memory ([`crate::SessionMemory`]): a peer whose
    /// unfinished message would take more is sent 1008, and a message that would have to wait
    /// beyond it is [`crate::SendError::QueueFull`].
    pub memory_bytes_max: usize,
    /// From accept or connect to the 101, TLS included. Absolute: it is not put off by bytes that
    /// trickle in.
    pub handshake_timeout: Duration,
    /// A peer that was silent for so long is sent a ping; None: never.
    pub idle_timeout: Option<Duration>,
    /// A peer that stays silent for so long after such a ping has failed; None: pings only keep
    /// the path open, and are repeated.
    pub pong_timeout: Option<Duration>,
    /// An open connection is sent a ping in this interval, whether it is idle or not, so that its
    /// round trip is measured again and again; None: only those of `idle_timeout`.
    pub ping_interval: Option<Duration>,
    /// From the first byte of a message to its last one, however many bytes trickle in between;
    /// then the peer is sent 1008. While it is not received from the time does not run. None: a
    /// message may take as long as it likes.
    pub message_timeout: Option<Duration>,
    /// Server: a peer that is not received from, because too much waits for it, has failed when it
    /// takes nothing for so long. Never off: nothing else ends it.
    pub write_timeout: Duration,
    /// How long the peer may take to answer a close frame, to read the last bytes and to close;
    /// it begins anew while the peer takes what is queued, but ten times this is the end.
    pub close_timeout: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            protocol: Limits::default(),
            write_queue_bytes_max: 16 * 1024 * 1024,
            write_queue_pause_bytes: 1024 * 1024,
            memory_bytes_max: usize::MAX,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(120)),
            pong_timeout: Some(Duration::from_secs(30)),
            ping_interval: None,
            message_timeout: None,
            write_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(5),
        }
    }
}
