//! What is measured: a load, and who is under it.

/// One load and its contenders, the rival first.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) connections: u32,
    pub(super) message_bytes: u32,
    pub(super) in_flight: u32,
    pub(super) is_tls: bool,
    /// Whether it is one of those that a target is set for.
    pub(super) is_acceptance: bool,
    pub(super) contenders: &'static [Kind],
}

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// uWebSockets in C++, as the lab has it.
    UWebSockets,
    /// moonwire's echo without Lua.
    Native(Driver),
    /// moonwire's echo in Lua.
    Lua(Driver),
    /// Bytes given back without a look.
    Floor(Driver),
    /// tokio-tungstenite.
    TokioTungstenite,
    /// npm `ws`.
    NodeWs,
    /// gorilla, in Go.
    Gorilla,
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
            Self::Native(driver) => format!("moonwire, {}", driver.name()),
            Self::Lua(driver) => format!("moonwire in Lua, {}", driver.name()),
            Self::Floor(driver) => format!("raw bytes, {}", driver.name()),
            Self::TokioTungstenite => "tokio-tungstenite".to_owned(),
            Self::NodeWs => "npm ws".to_owned(),
            Self::Gorilla => "gorilla".to_owned(),
        }
    }

    /// The driver of one of ours.
    pub(super) fn driver(self) -> Option<Driver> {
        match self {
            Self::Native(driver) | Self::Lua(driver) | Self::Floor(driver) => Some(driver),
            Self::UWebSockets | Self::TokioTungstenite | Self::NodeWs | Self::Gorilla => None,
        }
    }

    /// Its name in the lab; None for the floor, which is no server.
    pub(super) fn contestant(self) -> Option<&'static str> {
        match self {
            Self::UWebSockets => Some("uwebsockets-cpp"),
            Self::Native(_) => Some("moonwire/native"),
            Self::Lua(_) => Some("moonwire"),
            Self::Floor(_) => None,
            Self::TokioTungstenite => Some("tokio-tungstenite"),
            Self::NodeWs => Some("ws"),
            Self::Gorilla => Some("go-gorilla"),
        }
    }
}

use Driver::{Epoll, IoUring};
use Kind::{Floor, Gorilla, Lua, Native, NodeWs, TokioTungstenite, UWebSockets};

const EVERYBODY: &[Kind] = &[
    UWebSockets,
    Native(IoUring),
    Native(Epoll),
    Lua(IoUring),
    Lua(Epoll),
    Floor(IoUring),
    Floor(Epoll),
    TokioTungstenite,
    NodeWs,
    Gorilla,
];
const WITH_LUA_AND_FLOOR: &[Kind] = &[UWebSockets, Native(IoUring), Lua(IoUring), Floor(IoUring)];
const WITH_LUA: &[Kind] = &[UWebSockets, Native(IoUring), Lua(IoUring)];
const NATIVE: &[Kind] = &[UWebSockets, Native(IoUring)];
const OVER_TLS: &[Kind] = &[
    UWebSockets,
    Native(IoUring),
    Lua(IoUring),
    TokioTungstenite,
    NodeWs,
    Gorilla,
];

const fn plain(name: &'static str, load: (u32, u32, u32), contenders: &'static [Kind]) -> Row {
    let (connections, message_bytes, in_flight) = load;
    Row {
        name,
        connections,
        message_bytes,
        in_flight,
        is_tls: false,
        is_acceptance: true,
        contenders,
    }
}

const fn tls(name: &'static str, load: (u32, u32, u32), contenders: &'static [Kind]) -> Row {
    Row {
        is_tls: true,
        ..plain(name, load, contenders)
    }
}

const fn beyond(row: Row) -> Row {
    Row {
        is_acceptance: false,
        ..row
    }
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
    tls("tls-120x32", (120, 32, 1), WITH_LUA),
    tls("tls-120x1k", (120, 1024, 1), WITH_LUA),
    tls("tls-120x16k", (120, 16_384, 1), WITH_LUA),
    beyond(plain("120x16k", (120, 16_384, 1), EVERYBODY)),
    beyond(plain("all-120x32", (120, 32, 1), EVERYBODY)),
    beyond(plain("all-120x1k", (120, 1024, 1), EVERYBODY)),
    beyond(plain("all-1000x32", (1000, 32, 1), EVERYBODY)),
    beyond(plain("all-120x64k", (120, 65_536, 1), EVERYBODY)),
    beyond(tls("all-tls-120x32", (120, 32, 1), OVER_TLS)),
    beyond(tls("all-tls-120x16k", (120, 16_384, 1), OVER_TLS)),
    beyond(tls("tls-1000x32", (1000, 32, 1), WITH_LUA)),
    beyond(tls("tls-120x32x16", (120, 32, 16), WITH_LUA)),
];
