//! What the server runs on: every value checked, nothing to be decided later.
//!
//! A [`Config`] is made from `moonwire.toml` and from what the command line says
//! ([`Overrides`]). Whatever is wrong becomes one sentence with its place in the file.

mod acl;
mod build;
mod deflate;
mod depends;
mod file;
mod lapps;
mod limits;
mod sentence;
mod service;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonwire_lua::{Module, Protocol, Sandbox};
use moonwire_net::{
    CertificateFiles, DriverChoice, ServerTlsRules, SpareBuffers, TlsRecords, TlsVersions,
};
use moonwire_proto::DeflatePolicy;

pub use build::check_log_filter;
pub use lapps::{LappsConversion, LappsHome};
pub(crate) use limits::{FRAME_HEADER_BYTES_MAX, REPLIES_EXPECTED};
pub use sentence::ConfigError;

use crate::acl::Acl;
use crate::cidr::Cidr;
use crate::origin::AllowedOrigins;
use crate::shipped::ShippedApps;
use limits::{MIB, memory_bytes, write_queue_bytes};

/// The whole configuration of one server.
#[derive(Debug)]
pub struct Config {
    /// Where to listen; at least one if there are workers. A port of 0 asks the kernel for one.
    pub listen: Vec<SocketAddr>,
    /// What is written in the file and has no effect: a sentence each, with its place.
    pub remarks: Vec<String>,
    /// Threads, each with its own driver, listeners and service instances; with 0 nobody can
    /// connect.
    pub workers: usize,
    /// Connections that are to be possible at once; None: as many as one table of descriptors
    /// holds.
    pub connections: Option<usize>,
    /// How workers ask the kernel for their sockets.
    pub driver: DriverChoice,
    /// What to log, as `RUST_LOG` says it (`info`, `moonwire_server=debug,warn`).
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Who may connect.
    pub acl: Acl,
    /// Whether and how to speak TLS.
    pub tls: Option<Tls>,
    /// Which versions of it, who seals records, and what clients have to show.
    pub tls_rules: ServerTlsRules,
    /// How services speak TLS with the servers that they connect to.
    pub client_tls: OutgoingTls,
    /// The bound of everything that a peer can make us keep or do.
    pub limits: Limits,
    /// What a service that cannot be started means for the others.
    pub on_broken_service: OnBrokenService,
    /// What a connection weighs against an event that waits, where workers are compared that could
    /// take a new one.
    pub connection_weight: f64,
    /// The services in the order in which they start; targets are all different.
    pub services: Vec<Service>,
    /// The services that run by themselves, in the order in which they start.
    pub standalone: Vec<StandaloneService>,
    /// The unpacked shipped apps, if a service is one of them: they are there until
    /// every virtual machine is loaded.
    pub(crate) shipped: Option<ShippedApps>,
}

/// What the server does when a service cannot be loaded or its `onStart` fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnBrokenService {
    /// It does not start, and says why.
    Stop,
    /// It logs why and serves the others; requests for this one are answered 503.
    Skip,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// One line each: time, level, message, fields.
    Text,
    /// The same without time and module, for a journal that adds its own.
    Compact,
}

/// Where the server's certificate comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Tls {
    /// PEM files, the certificate for clients that name no other server first.
    Files(Vec<CertificateFiles>),
    /// A certificate made at start, for development: clients cannot verify it.
    SelfSigned,
}

/// Whose certificates services accept when they connect to wss:// themselves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutgoingTls {
    /// The authorities in this PEM file; none: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Which versions of TLS are spoken.
    pub versions: TlsVersions,
    /// Whether a server at a loopback address has to show a certificate for its name, too. Others
    /// always have to.
    pub verify_loopback_name: bool,
}

impl Default for OutgoingTls {
    fn default() -> Self {
        Self {
            ca: None,
            versions: TlsVersions::Both,
            verify_loopback_name: true,
        }
    }
}

/// Every bound, with its unit in the name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest message of a client; a service may have its own. Beyond it: close code 1009.
    pub message_bytes_max: usize,
    /// Most frames of one message. Beyond it: close code 1008.
    pub frames_per_message_max: u32,
    /// Largest head of a request. Beyond it: status 431.
    pub header_bytes_max: usize,
    /// Most header fields of a request. Beyond it: status 431.
    pub headers_max: usize,
    /// From accept to the end of the handshake, TLS included. After it the connection is closed.
    pub handshake_timeout: Duration,
    /// Silence after which the server pings; zero: never.
    pub idle_timeout: Duration,
    /// Silence after that ping, after which the connection is closed.
    pub pong_timeout: Duration,
    /// How often each connection is pinged, idle or not, to measure its round trip; zero: only
    /// where it is idle.
    pub ping_interval: Duration,
    /// From our close frame to the peer's end of the connection; then it is cut.
    pub close_timeout: Duration,
    /// From the order to stop to the last connection; then the rest is cut.
    pub drain_timeout: Duration,
    /// From the first byte of a message to its last one; zero: no bound. After it: close code 1008.
    pub message_timeout: Duration,
    /// How long a client that is not received from, because too much waits for it, may take
    /// nothing of that; then it is cut.
    pub write_timeout: Duration,
    /// Bytes that may wait for a client that reads slowly; at least one largest message.
    pub write_queue_bytes_max: usize,
    /// What happens to a message that does not fit the queue of its connection.
    pub write_queue_policy: QueuePolicy,
    /// Bytes that one connection may hold in memory: the request, an unfinished message, the write
    /// queue, TLS. A message of the client that would take more ends it with close code 1008; a
    /// message to it that would have to wait beyond it does not fit the write queue.
    pub connection_memory_bytes_max: usize,
    /// Bytes that all connections of one worker may hold in memory. Beyond it those are cut that
    /// hold most.
    pub memory_bytes_per_worker_max: usize,
    /// Messages that services send to a connection go in frames of so many bytes of payload, the
    /// last one with what is left; zero: each in one frame. Broadcasts always go in one.
    pub fragment_bytes: usize,
    /// Connections of one worker. Beyond it: `busy_status`.
    pub connections_per_worker_max: usize,
    /// The status for a request that comes when there are too many connections: 503 or 403.
    pub busy_status: u16,
    /// Connections of one source, on all workers together: an address of IPv4 or 64 bits of IPv6.
    /// Zero: no bound. Beyond it they are reset.
    pub connections_per_source_max: usize,
    /// Connections of one source that are accepted per second, as many at once. Zero: no bound.
    /// Beyond it they are reset.
    pub handshakes_per_source_per_s_max: u32,
    /// Sources that have neither bound.
    pub source_limits_exempt: Vec<Cidr>,
    /// Handshakes of one worker that are not over. Beyond it the oldest that has had a second ends;
    /// as long as there is none, connections wait to be accepted.
    pub handshakes_per_worker_max: usize,
    /// Connections on their way to one worker from the others; they may hold a sixteenth of
    /// `memory_bytes_per_worker_max`. Beyond either: status 503.
    pub handovers_per_worker_max: usize,
    /// Connections that the kernel keeps for each listener until they are accepted.
    pub backlog: u32,
    /// The kernel's receive buffer of each connection; zero: the kernel chooses and adapts it.
    pub receive_buffer_bytes: usize,
    /// The kernel's send buffer of each connection; zero: the kernel chooses and adapts it.
    pub send_buffer_bytes: usize,
    /// The buffers for sending that each worker keeps for the next connection that says something.
    pub spare_buffers: SpareBuffers,
    /// Whether small writes leave at once (TCP_NODELAY).
    pub nodelay: bool,
}

impl Limits {
    /// Sockets of one worker: connections, handshakes, and those that are told that there are too
    /// many. Further ones are reset.
    pub(crate) fn sockets_per_worker_max(&self) -> usize {
        self.connections_per_worker_max + self.handshakes_per_worker_max + REFUSALS_MAX
    }

    /// Bytes in memory of the connections on their way to one worker. Beyond it: status 503.
    pub(crate) fn handover_bytes_max(&self) -> usize {
        self.memory_bytes_per_worker_max / HANDOVER_SHARE
    }
}

impl Default for Limits {
    fn default() -> Self {
        let message_bytes_max = 16 * MIB;
        let write_queue_bytes_max = write_queue_bytes(message_bytes_max);
        Self {
            message_bytes_max,
            frames_per_message_max: 131_072,
            header_bytes_max: 16 * 1024,
            headers_max: 64,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            pong_timeout: Duration::from_secs(20),
            ping_interval: Duration::ZERO,
            close_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            write_queue_bytes_max,
            write_queue_policy: QueuePolicy::Close,
            connection_memory_bytes_max: memory_bytes(message_bytes_max, write_queue_bytes_max),
            memory_bytes_per_worker_max: 1024 * MIB,
            fragment_bytes: 0,
            connections_per_worker_max: 250_000,
            busy_status: 503,
            connections_per_source_max: 4096,
            handshakes_per_source_per_s_max: 200,
            source_limits_exempt: vec![Cidr::LOOPBACK_V4, Cidr::LOOPBACK_V6],
            handshakes_per_worker_max: 16_384,
            handovers_per_worker_max: 4096,
            backlog: 4096,
            receive_buffer_bytes: 0,
            send_buffer_bytes: 0,
            spare_buffers: SpareBuffers::default(),
            nodelay: true,
        }
    }
}

/// Sockets beyond connections and handshakes that are kept long enough to be told 503.
const REFUSALS_MAX: usize = 1024;

/// One part in so many of the memory of a worker may be on its way to it, besides what it holds.
const HANDOVER_SHARE: usize = 16;

/// What happens to a message that does not fit the write queue of its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueuePolicy {
    /// The connection is closed with 1013.
    Close,
    /// The message is dropped, and counted.
    Drop,
}

/// On which thread the callbacks of an instance run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Execution {
    /// On that of the worker that has its connections: the fastest way, but while one runs, nobody
    /// else there is served.
    Inline,
    /// On one of its own.
    Threaded,
}

/// A service that the server answers itself, without Lua.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builtin {
    /// Sends each message back.
    Echo,
}

/// One service and where it is reached.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name of its file and of its table.
    pub name: String,
    /// The path of its URL, without query.
    pub target: String,
    /// What answers instead of Lua; None: its Lua file.
    pub builtin: Option<Builtin>,
    /// The folder of its Lua files; empty if it is built in.
    pub folder: PathBuf,
    /// Virtual machines, placed on the workers in turn; at least 1.
    pub instances: usize,
    /// Largest message of a client.
    pub message_bytes_max: usize,
    /// Bytes that each of its virtual machines may hold; None: as many as there are. Beyond it a
    /// callback fails.
    pub memory_bytes_max: Option<usize>,
    /// How long one of its callbacks may take; None: as long as it likes. After it the callback is
    /// stopped and its connection closed.
    pub callback_timeout: Option<Duration>,
    /// On which thread its callbacks run.
    pub execution: Execution,
    /// What its clients send.
    pub protocol: Protocol,
    /// Modules of LAppS that it finds as globals, each once.
    pub preload: Vec<Module>,
    /// What its code may do besides computing.
    pub sandbox: Sandbox,
    /// Whether its `onHandshake`, if it has one, is asked.
    pub has_handshake_hook: bool,
    /// The subprotocol to choose when the client offers it.
    pub subprotocol: Option<String>,
    /// Whether it is chosen for clients that do not offer it, too.
    pub is_subprotocol_forced: bool,
    /// How offers of permessage-deflate are answered; None: they are declined.
    pub deflate: Option<DeflatePolicy>,
    /// Whose pages may connect with cookies, besides the server's own.
    pub allowed_origins: AllowedOrigins,
    /// Who may connect, of those that the server lets in.
    pub acl: Acl,
    /// Fields added to the 101 response.
    pub extra_headers: Vec<(String, String)>,
    /// What the service reads as `moonwire.config`.
    pub config: serde_json::Value,
}

/// One service that serves no connections: `init` and then `run`, on a thread of its own.
#[derive(Clone, Debug)]
pub struct StandaloneService {
    /// The name of its file and of its table.
    pub name: String,
    /// The folder of its Lua files.
    pub folder: PathBuf,
    /// Virtual machines, each on its own thread; at least 1.
    pub instances: usize,
    /// Bytes that each of its virtual machines may hold; None: as many as there are.
    pub memory_bytes_max: Option<usize>,
    /// How long its file and `init` may take; None: as long as they like. `run` always may.
    pub callback_timeout: Option<Duration>,
    /// Modules of LAppS that it finds as globals, each once.
    pub preload: Vec<Module>,
    /// What its code may do besides computing.
    pub sandbox: Sandbox,
    /// What the service reads as `moonwire.config`.
    pub config: serde_json::Value,
    /// Whether it depends on a service with connections, and so starts behind those.
    pub is_late: bool,
}

/// What the command line says; it wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces `listen` when not empty.
    pub listen: Vec<String>,
    /// Replaces `workers`.
    pub workers: Option<usize>,
    /// Replaces `connections`.
    pub connections: Option<usize>,
    /// Replaces `driver`.
    pub driver: Option<DriverChoice>,
    /// Replaces `tls_records`.
    pub tls_records: Option<TlsRecords>,
    /// Adds the service NAME at /NAME from a folder, or replaces the folder of that service.
    pub apps: Vec<(String, PathBuf)>,
    /// Replaces `[tls]` by a self-signed certificate.
    pub dev_tls: bool,
}

impl Config {
    /// The configuration in `file`. Paths in it are relative to its folder.
    pub fn load(file: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            ConfigError::of_file(file, format!("the configuration cannot be read: {error}"))
        })?;
        build::config(
            &sentence::Text {
                file: Some(file),
                text: &text,
            },
            overrides,
        )
    }

    /// That of an installation of LAppS.
    pub fn lapps(conversion: &LappsConversion, overrides: &Overrides) -> Result<Self, ConfigError> {
        conversion.check(overrides)?;
        let text = sentence::Text {
            file: None,
            text: &conversion.toml,
        };
        build::config(&text, overrides)
    }

    /// Without a file: the shipped `echo` on /echo and `amplify` on /amplify, 127.0.0.1:5083, both
    /// with compression for clients that offer it.
    pub fn shipped(overrides: &Overrides) -> Result<Self, ConfigError> {
        build::config(
            &sentence::Text {
                file: None,
                text: SHIPPED,
            },
            overrides,
        )
    }
}

const SHIPPED: &str = "
[services.echo]
target = '/echo'
[services.echo.deflate]
[services.amplify]
target = '/amplify'
message_bytes_max = 262144
[services.amplify.deflate]
";

/// Paths that the server answers itself.
pub(crate) const HEALTH: &str = "/health";
/// The counters as Prometheus text.
pub(crate) const METRICS: &str = "/metrics";
