//! Counters. Each worker has its own shard, written by its thread alone and read by anyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moonwire_net::SessionMemory;
use moonwire_proto::CloseCode;

/// The counters of the whole server.
#[derive(Debug)]
pub(crate) struct Stats {
    /// The names of the services; `WorkerStats::services` has the same order.
    pub(crate) services: Vec<String>,
    /// One shard for each worker, each an allocation of its own so that no two threads write to
    /// one cache line.
    pub(crate) workers: Vec<Arc<WorkerStats>>,
    /// When the server started.
    pub(crate) started: Instant,
}

impl Stats {
    /// All zero.
    pub(crate) fn new(services: Vec<String>, workers: usize) -> Self {
        let shard = || Arc::new(WorkerStats::new(services.len()));
        Self {
            workers: (0..workers).map(|_| shard()).collect(),
            services,
            started: Instant::now(),
        }
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerStats {
    /// Sockets that are open, handshakes included.
    pub(crate) sockets: Counter,
    /// Sockets that were accepted.
    pub(crate) accepted: Counter,
    /// Times that accepting failed, usually for want of descriptors.
    pub(crate) accept_failed: Counter,
    /// Connections given to another worker.
    pub(crate) handed_over: Counter,
    /// Connections taken from another worker.
    pub(crate) taken_over: Counter,
    /// Connections with input that waits for a later turn.
    pub(crate) waiting_events: Counter,
    /// Turns of the loop.
    pub(crate) turns: Counter,
    /// Handshakes that are not over.
    pub(crate) handshakes: Counter,
    /// Times that accepting was put off because too many handshakes were not over.
    pub(crate) accept_pauses: Counter,
    /// Bytes that its connections hold in memory, by part, in the order of `SessionMemory::NAMES`.
    pub(crate) memory_bytes: [Counter; SessionMemory::NAMES.len()],
    /// The most that they held at once, all parts together.
    pub(crate) memory_peak_bytes: Counter,
    /// Bytes that its compressors hold, which all of its connections share.
    pub(crate) compressor_bytes: Counter,
    /// Bytes of the buffers that it keeps for what its connections send next.
    pub(crate) spare_buffer_bytes: Counter,
    /// Plain requests that the server answered itself: /health and /metrics.
    pub(crate) requests: Counter,
    /// Handshakes that did not end in a connection, by reason.
    pub(crate) handshake_failures: [Counter; HandshakeFailure::ALL.len()],
    /// By service.
    pub(crate) services: Vec<ServiceStats>,
}

impl WorkerStats {
    fn new(services: usize) -> Self {
        let services = std::iter::repeat_with(ServiceStats::default)
            .take(services)
            .collect();
        Self {
            services,
            ..Self::default()
        }
    }

    /// Counts a handshake that failed.
    pub(crate) fn handshake_failed(&self, reason: HandshakeFailure) {
        self.handshake_failures[reason as usize].add(1);
    }
}

/// The counters of one service on one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ServiceStats {
    /// Connections now.
    pub(crate) connected: Counter,
    /// Connections ever.
    pub(crate) connections: Counter,
    /// Messages of clients, all fragments as one.
    pub(crate) messages_in: Counter,
    /// Payload of those.
    pub(crate) bytes_in: Counter,
    /// Messages to clients that entered a write queue.
    pub(crate) messages_out: Counter,
    /// Payload of those.
    pub(crate) bytes_out: Counter,
    /// Bytes that wait in write queues now.
    pub(crate) write_queue_bytes: Counter,
    /// How long pings took to be answered.
    pub(crate) ping_rtt: RoundTripCounters,
    /// What went wrong, by kind.
    pub(crate) failures: [Counter; Failure::ALL.len()],
}

impl ServiceStats {
    /// Counts a message of a client.
    pub(crate) fn received(&self, bytes: usize) {
        self.messages_in.add(1);
        self.bytes_in.add(bytes as u64);
    }

    /// Counts a failure.
    pub(crate) fn failed(&self, failure: Failure) {
        self.failures[failure as usize].add(1);
    }
}

/// A histogram of round trips.
#[derive(Debug, Default)]
pub(crate) struct RoundTripCounters {
    /// Those that took no longer than the bound, and longer than the one before; at last the rest.
    pub(crate) buckets: [Counter; ROUND_TRIP_BOUNDS_MS.len() + 1],
    /// All of them together.
    pub(crate) sum_ns: Counter,
}

impl RoundTripCounters {
    /// Counts one.
    pub(crate) fn note(&self, took: Duration) {
        let is_within = |bound_ms: &u64| took <= Duration::from_millis(*bound_ms);
        let bucket = ROUND_TRIP_BOUNDS_MS.iter().position(is_within);
        self.buckets[bucket.unwrap_or(ROUND_TRIP_BOUNDS_MS.len())].add(1);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.add(ns);
    }
}

/// From the same machine to the other side of the world and a path that is full.
pub(crate) const ROUND_TRIP_BOUNDS_MS: [u64; 8] = [1, 3, 10, 30, 100, 300, 1000, 3000];

/// A number that one thread writes and any thread reads. It is not a read-modify-write: a plain
/// load and store are enough for a single writer and cost no lock prefix.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; by the owning thread only.
    pub(crate) fn add(&self, amount: u64) {
        self.set(self.value().wrapping_add(amount));
    }

    /// Takes away; by the owning thread only.
    pub(crate) fn sub(&self, amount: u64) {
        self.set(self.value().saturating_sub(amount));
    }

    /// Replaces; by the owning thread only.
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a handshake did not end in a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HandshakeFailure {
    /// Its service could not be started (503).
    Broken,
    /// An access control list keeps its address out (403).
    Acl,
    /// Not a request that HTTP/1.1 or RFC 6455 allows.
    BadRequest,
    /// The worker or the mailbox was full (503).
    Busy,
    /// The page of a site that is not allowed, with cookies (403).
    CrossSite,
    /// It was the oldest when others needed its place, in number or in memory.
    CrowdedOut,
    /// The peer went away.
    Gone,
    /// `onHandshake` raised an error (500) or was stopped (503).
    HookFailed,
    /// A path without a service (404).
    NotFound,
    /// `onHandshake` said so, with a status of its own.
    Refused,
    /// Its source address had too many connections.
    SourceConnections,
    /// Its source address asked for connections too fast.
    SourceRate,
    /// The server was about to stop (503).
    Stopping,
    /// Not done in time.
    Timeout,
    /// The TLS handshake.
    Tls,
    /// A plain GET of a service (426).
    UpgradeRequired,
}

impl HandshakeFailure {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 16] = [
        Self::Broken,
        Self::Acl,
        Self::BadRequest,
        Self::Busy,
        Self::CrossSite,
        Self::CrowdedOut,
        Self::Gone,
        Self::HookFailed,
        Self::NotFound,
        Self::Refused,
        Self::SourceConnections,
        Self::SourceRate,
        Self::Stopping,
        Self::Timeout,
        Self::Tls,
        Self::UpgradeRequired,
    ];

    /// As labels and tables show it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Acl => "acl",
            Self::BadRequest => "bad_request",
            Self::Busy => "busy",
            Self::CrossSite => "cross_site",
            Self::CrowdedOut => "crowded_out",
            Self::Gone => "gone",
            Self::HookFailed => "hook_failed",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::SourceConnections => "source_connections",
            Self::SourceRate => "source_rate",
            Self::Stopping => "stopping",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::UpgradeRequired => "upgrade_required",
        }
    }
}

/// What can go wrong with a connection after its handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// A broadcast was not sent to the subscribers on one worker, where too many waited already.
    BroadcastDropped,
    /// A message to a connection that is gone, or that belongs to another instance. One that is
    /// being closed is not gone yet.
    DeadHandler,
    /// A callback raised an error; its connection was closed with 1011.
    LuaError,
    /// It held too much memory: more than a connection may (1008), or more than any other when the
    /// worker held too much.
    Memory,
    /// A message that is none of its service's protocol (1002, 1003 or 1007).
    Message,
    /// The peer broke the protocol (1002).
    Protocol,
    /// Text that is not UTF-8 (1007).
    ProtocolUtf8,
    /// Too many fragments (1008).
    ProtocolPolicy,
    /// A message beyond the limit (1009).
    ProtocolTooBig,
    /// A message did not fit the write queue.
    QueueFull,
    /// The connection was lost without a closing handshake.
    Lost,
    /// The peer was silent for too long, or did not end a message or the connection in time.
    Timeout,
}

impl Failure {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 12] = [
        Self::BroadcastDropped,
        Self::DeadHandler,
        Self::LuaError,
        Self::Memory,
        Self::Message,
        Self::Protocol,
        Self::ProtocolUtf8,
        Self::ProtocolPolicy,
        Self::ProtocolTooBig,
        Self::QueueFull,
        Self::Lost,
        Self::Timeout,
    ];

    /// The failure that ends with this close code.
    pub(crate) fn of_close_code(code: CloseCode) -> Self {
        if code == CloseCode::INVALID_PAYLOAD {
            Self::ProtocolUtf8
        } else if code == CloseCode::POLICY_VIOLATION {
            Self::ProtocolPolicy
        } else if code == CloseCode::MESSAGE_TOO_BIG {
            Self::ProtocolTooBig
        } else {
            Self::Protocol
        }
    }

    /// As labels and tables show it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BroadcastDropped => "broadcast_dropped",
            Self::DeadHandler => "dead_handler",
            Self::LuaError => "lua_error",
            Self::Memory => "memory",
            Self::Message => "message",
            Self::Protocol => "protocol_1002",
            Self::ProtocolUtf8 => "protocol_1007",
            Self::ProtocolPolicy => "protocol_1008",
            Self::ProtocolTooBig => "protocol_1009",
            Self::QueueFull => "queue_full",
            Self::Lost => "lost",
            Self::Timeout => "timeout",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_kinds_are_their_places() {
        for (place, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, place);
        }
        for (place, reason) in HandshakeFailure::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }

    #[test]
    fn shards_do_not_share_a_cache_line() {
        let stats = Stats::new(vec!["echo".to_owned(), "amplify".to_owned()], 2);
        let address = |w: usize| Arc::as_ptr(&stats.workers[w]) as usize;
        assert_eq!(address(0) % 128, 0);
        assert!(address(0).abs_diff(address(1)) >= 128);
        stats.workers[1].services[1].failed(Failure::LuaError);
        assert_eq!(
            stats.workers[1].services[1].failures[Failure::LuaError as usize].value(),
            1
        );
        assert_eq!(
            stats.workers[0].services[1].failures[Failure::LuaError as usize].value(),
            0
        );
    }
}
