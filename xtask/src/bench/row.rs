//! What is measured: a load, and who is under it.

use super::figures::Column;

/// One load and its contenders, the rival first.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) work: Work,
    pub(super) is_tls: bool,
    /// Whether it is one of those that a target is set for.
    pub(super) is_acceptance: bool,
    pub(super) contenders: &'static [Kind],
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Messages as fast as they are answered.
    Echo(Echo),
    /// Nothing, on so many connections.
    Idle { connections: u32 },
    /// So many connections that say one thing each, at most `open_max` of them at once.
    Handshakes {
        connections: u32,
        open_max: u32,
        /// Whether sessions of TLS are resumed.
        is_resumed: bool,
    },
    /// Messages at a rate that all contenders can answer.
    Paced(Echo),
    /// Messages as fast as one server of ours answers them, by generators that take turns; each has
    /// its own number in flight.
    Generate(Echo),
}

/// Connections, bytes of a message, messages in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) connections: u32,
    pub(super) message_bytes: u32,
    pub(super) in_flight: u32,
}

impl Work {
    /// What is told of it.
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Echo(_) | Self::Generate(_) => ECHO,
            Self::Idle { .. } => IDLE,
            Self::Handshakes { .. } => HANDSHAKES,
            Self::Paced(_) => PACED,
        }
    }
}

const ECHO: &[Column] = &[
    Column::compared("messages_per_s", "messages/s"),
    Column::compared("cpu_ns", "CPU, ns a message"),
    Column::told("p99_us", "p99, us"),
    Column::share("server_share", "busy"),
    Column::share("generator_share", "generator"),
];
const IDLE: &[Column] = &[
    Column::compared("bytes_each", "bytes each"),
    Column::told("empty_kib", "empty, KiB"),
];
const HANDSHAKES: &[Column] = &[
    Column::compared("connections_per_s", "connections/s"),
    Column::share("resumed_share", "resumed"),
    Column::compared("cpu_us", "CPU, us each"),
    Column::told("p99_us", "p99, us"),
    Column::share("server_share", "busy"),
    Column::share("generator_share", "generator"),
];
const PACED: &[Column] = &[
    Column::told("messages_per_s", "messages/s"),
    Column::compared("p50_us", "p50, us"),
    Column::compared("p99_us", "p99, us"),
    Column::compared("p99_9_us", "p99.9, us"),
    Column::share("server_share", "busy"),
    Column::share("generator_share", "generator"),
];

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// uWebSockets in C++, built from source, with OpenSSL if there is TLS.
    UWebSockets,
    /// The same with BoringSSL.
    UWebSocketsBoring,
    /// moonwire's echo without Lua.
    Native(Driver),
    /// moonwire's echo in Lua.
    Lua(Driver),
    /// Bytes given back without a look.
    Floor(Driver),
    /// Another contestant of the lab.
    Other(&'static str),
    /// The generator that comes with uWebSockets.
    LoadTest,
    /// Our own generator, with so many messages in flight on each connection.
    Generator(u32),
}

/// How one of ours asks the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    Epoll,
    IoUring,
}

impl Driver {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }
}

impl Kind {
    pub(super) fn name(self) -> String {
        match self {
            Self::UWebSockets => "uWebSockets".to_owned(),
            Self::UWebSocketsBoring => "uWebSockets, BoringSSL".to_owned(),
            Self::Native(driver) => format!("moonwire, {}", driver.name()),
            Self::Lua(driver) => format!("moonwire in Lua, {}", driver.name()),
            Self::Floor(driver) => format!("raw bytes, {}", driver.name()),
            Self::Other(name) => name.to_owned(),
            Self::LoadTest => "load_test of uWebSockets".to_owned(),
            Self::Generator(in_flight) => format!("moonwire load, {in_flight} in flight"),
        }
    }

    /// The driver of one of ours.
    pub(super) fn driver(self) -> Option<Driver> {
        match self {
            Self::Native(driver) | Self::Lua(driver) | Self::Floor(driver) => Some(driver),
            Self::Generator(_) => Some(IoUring),
            Self::UWebSockets | Self::UWebSocketsBoring | Self::Other(_) | Self::LoadTest => None,
        }
    }

    /// Its name in the lab; None for the floor, which is no server.
    pub(super) fn contestant(self) -> Option<&'static str> {
        match self {
            // What has the generator is its folder.
            Self::UWebSockets | Self::LoadTest => Some("uwebsockets-epoll"),
            Self::Generator(_) => None,
            Self::UWebSocketsBoring => Some("uwebsockets-epoll/boringssl"),
            Self::Native(_) => Some("moonwire/native"),
            Self::Lua(_) => Some("moonwire"),
            Self::Floor(_) => None,
            Self::Other(name) => Some(name),
        }
    }
}

use Driver::{Epoll, IoUring};
use Kind::{Floor, Generator, LoadTest, Lua, Native, Other, UWebSockets, UWebSocketsBoring};

const EVERYBODY: &[Kind] = &[
    UWebSockets,
    Native(IoUring),
    Native(Epoll),
    Lua(IoUring),
    Lua(Epoll),
    Floor(IoUring),
    Floor(Epoll),
    Other("uwebsockets-cpp"),
    Other("fastwebsockets"),
    Other("tokio-tungstenite"),
    Other("ws"),
    Other("go-gorilla"),
];
const WITH_LUA_AND_FLOOR: &[Kind] = &[UWebSockets, Native(IoUring), Lua(IoUring), Floor(IoUring)];
const WITH_LUA: &[Kind] = &[UWebSocketsBoring, Native(IoUring), Lua(IoUring)];
const BORINGSSL: &[Kind] = &[UWebSocketsBoring, Native(IoUring)];
const NATIVE: &[Kind] = &[UWebSockets, Native(IoUring)];
const SERVERS: &[Kind] = &[
    UWebSocketsBoring,
    UWebSockets,
    Native(IoUring),
    Native(Epoll),
    Lua(IoUring),
    Other("fastwebsockets"),
    Other("tokio-tungstenite"),
    Other("ws"),
    Other("go-gorilla"),
];
const BESIDE_PROXIES: &[Kind] = &[
    UWebSockets,
    Native(IoUring),
    Native(Epoll),
    Other("nginx"),
    Other("haproxy"),
];

const BESIDE_RESUMING_PROXIES: &[Kind] = &[
    UWebSockets,
    Native(IoUring),
    Native(Epoll),
    Other("nginx/tickets"),
    Other("haproxy/tickets"),
];

const GENERATORS: &[Kind] = &[LoadTest, Generator(1), Generator(16)];

const fn row(name: &'static str, work: Work, contenders: &'static [Kind]) -> Row {
    Row {
        name,
        work,
        is_tls: false,
        is_acceptance: true,
        contenders,
    }
}

const fn plain(name: &'static str, load: (u32, u32, u32), contenders: &'static [Kind]) -> Row {
    row(name, Work::Echo(echo(load)), contenders)
}

const fn echo((connections, message_bytes, in_flight): (u32, u32, u32)) -> Echo {
    Echo {
        connections,
        message_bytes,
        in_flight,
    }
}

const fn over_tls(row: Row) -> Row {
    Row {
        is_tls: true,
        ..row
    }
}

const fn beyond(row: Row) -> Row {
    Row {
        is_acceptance: false,
        ..row
    }
}

const fn idle(name: &'static str, connections: u32, contenders: &'static [Kind]) -> Row {
    row(name, Work::Idle { connections }, contenders)
}

const fn handshakes(name: &'static str, connections: u32) -> Row {
    let work = Work::Handshakes {
        connections,
        open_max: 100,
        is_resumed: false,
    };
    row(name, work, BESIDE_PROXIES)
}

/// No more at once than the generator keeps tickets of a server.
const fn resumed(name: &'static str, connections: u32) -> Row {
    let work = Work::Handshakes {
        connections,
        open_max: 8,
        is_resumed: true,
    };
    over_tls(row(name, work, BESIDE_RESUMING_PROXIES))
}

const fn paced(name: &'static str) -> Row {
    row(name, Work::Paced(echo((120, 32, 1))), SERVERS)
}

/// Connections, bytes of a message, messages in flight on each.
pub(super) const ROWS: &[Row] = &[
    plain("120x32", (120, 32, 1), WITH_LUA_AND_FLOOR),
    plain("120x1k", (120, 1024, 1), WITH_LUA_AND_FLOOR),
    plain("1000x32", (1000, 32, 1), NATIVE),
    plain("1000x1k", (1000, 1024, 1), NATIVE),
    plain("120x64k", (120, 65_536, 1), NATIVE),
    plain("120x256k", (120, 262_144, 1), NATIVE),
    plain("1x32", (1, 32, 1), NATIVE),
    plain("1x1k", (1, 1024, 1), NATIVE),
    plain("120x32x16", (120, 32, 16), NATIVE),
    plain("120x1kx16", (120, 1024, 16), NATIVE),
    over_tls(plain("tls-120x32", (120, 32, 1), WITH_LUA)),
    over_tls(plain("tls-120x1k", (120, 1024, 1), WITH_LUA)),
    over_tls(plain("tls-120x16k", (120, 16_384, 1), WITH_LUA)),
    over_tls(plain("openssl-120x32", (120, 32, 1), NATIVE)),
    over_tls(plain("openssl-120x1k", (120, 1024, 1), NATIVE)),
    over_tls(plain("openssl-120x16k", (120, 16_384, 1), NATIVE)),
    idle("idle", 10_000, NATIVE),
    over_tls(idle("tls-idle", 5000, BORINGSSL)),
    row("generators", Work::Generate(echo((120, 32, 1))), GENERATORS),
    beyond(plain("120x16k", (120, 16_384, 1), EVERYBODY)),
    beyond(plain("all-120x32", (120, 32, 1), EVERYBODY)),
    beyond(plain("all-120x1k", (120, 1024, 1), EVERYBODY)),
    beyond(plain("all-1000x32", (1000, 32, 1), EVERYBODY)),
    beyond(plain("all-120x64k", (120, 65_536, 1), EVERYBODY)),
    beyond(over_tls(plain("all-tls-120x32", (120, 32, 1), SERVERS))),
    beyond(over_tls(plain(
        "all-tls-120x16k",
        (120, 16_384, 1),
        SERVERS,
    ))),
    beyond(over_tls(plain("tls-1000x32", (1000, 32, 1), WITH_LUA))),
    beyond(over_tls(plain("tls-120x32x16", (120, 32, 16), WITH_LUA))),
    beyond(idle("all-idle", 10_000, SERVERS)),
    beyond(over_tls(idle("all-tls-idle", 5000, SERVERS))),
    beyond(handshakes("handshakes", 20_000)),
    beyond(over_tls(handshakes("tls-handshakes", 5000))),
    beyond(resumed("tls-resumed-handshakes", 5000)),
    beyond(paced("latency")),
    beyond(over_tls(paced("tls-latency"))),
];
