//! Attacks of recent years, each with its public reference, and how a server must end them.

use super::wire::{bomb, declared, frame, open, open_deflate, upgrade};

/// One attack: bytes on a fresh connection.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Where it was published, or the rule that it breaks.
    pub(crate) reference: &'static str,
    pub(crate) bytes: fn() -> Vec<u8>,
    pub(crate) end: End,
    /// Connections per second at which the benchmark attacks with it.
    pub(crate) per_s: u32,
}

/// How the server ends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// With this response, and nothing after it.
    Status(u16),
    /// After the 101, with this code.
    Close(u16),
}

/// All that the server ends at once.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "inflate bomb",
        reference: "GHSA-qrvq-68c2-7grw (NATS), CVE-2026-1526 (undici)",
        // 64 MiB in 64 KiB, for a limit of 16 MiB.
        bytes: || open_deflate("", &frame(0xc2, &bomb(64 << 20))),
        end: End::Close(1009),
        per_s: 5,
    },
    Attack {
        name: "inflate bomb in fragments",
        reference: "cowlib#139: the limit must hold across the frames of a message",
        bytes: || {
            let bomb = bomb(64 << 20);
            let (first, rest) = bomb.split_at(100);
            open_deflate("", &[frame(0x42, first), frame(0x80, rest)].concat())
        },
        end: End::Close(1009),
        per_s: 5,
    },
    Attack {
        name: "bytes that do not inflate",
        reference: "RFC 7692, 7.2.2",
        bytes: || open_deflate("", &frame(0xc1, &[0xff; 64])),
        end: End::Close(1007),
        per_s: 100,
    },
    Attack {
        name: "many final blocks",
        reference: "RFC 7692, 7.2.3.4: each lays out a window anew",
        bytes: || open_deflate("", &frame(0xc2, &[3, 0].repeat(30_000))),
        end: End::Close(1007),
        per_s: 20,
    },
    Attack {
        name: "window bits out of range",
        reference: "CVE-2026-2229 (undici), CVE-2026-29035 (CivetWeb)",
        bytes: || open_deflate("; server_max_window_bits=16", &frame(0xc1, &[0])),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "window bits of zero",
        reference: "CVE-2026-2229 (undici), CVE-2026-29035 (CivetWeb)",
        bytes: || open_deflate("; client_max_window_bits=0", &frame(0xc1, &[0])),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "length with the top bit",
        reference: "CVE-2026-27889 (NATS), CVE-2026-1528 (undici)",
        bytes: || open(&declared(0x82, 127, &[0xff; 8])),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "length not minimal",
        reference: "RFC 6455, 5.2",
        bytes: || open(&declared(0x82, 127, &[0, 0, 0, 0, 0, 0, 0, 5])),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "short length not minimal",
        reference: "RFC 6455, 5.2",
        bytes: || open(&declared(0x82, 126, &[0, 125])),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "declared length beyond the limit",
        reference: "CWIST#119: memory from a declared length",
        bytes: || open(&declared(0x82, 127, &(1_u64 << 62).to_be_bytes())),
        end: End::Close(1009),
        per_s: 100,
    },
    Attack {
        name: "fragment flood",
        reference: "GHSA-96hv-2xvq-fx4p and ws#2331",
        bytes: || {
            let flood = frame(0x00, b"a").repeat(131_072);
            open(&[frame(0x01, b"a"), flood].concat())
        },
        end: End::Close(1008),
        per_s: 2,
    },
    Attack {
        name: "header flood",
        reference: "CVE-2024-37890 (ws)",
        bytes: || upgrade(&"a: b\r\n".repeat(2000)),
        end: End::Status(431),
        per_s: 100,
    },
    Attack {
        name: "long header",
        reference: "CVE-2023-43669 (tungstenite)",
        bytes: || upgrade(&format!("a: {}\r\n", "b".repeat(1 << 20))),
        end: End::Status(431),
        per_s: 20,
    },
    Attack {
        name: "bare LF",
        reference: "CVE-2026-1525 (undici), RFC 9112, 2.2",
        bytes: || upgrade("a: b\nc: d\r\n"),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "bare CR",
        reference: "CVE-2026-1527 (undici), RFC 9112, 2.2",
        bytes: || upgrade("a: b\rc: d\r\n"),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "Content-Length with Transfer-Encoding",
        reference: "RFC 9112, 6.1: request smuggling",
        bytes: || upgrade("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "two lengths",
        reference: "RFC 9112, 6.3; uWebSockets, August 2026",
        bytes: || upgrade("Content-Length: 4\r\nContent-Length: 5\r\n"),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "a coding on an upgrade",
        reference: "RFC 9112, 6.1: request smuggling",
        bytes: || upgrade("Transfer-Encoding: chunked\r\n"),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "an empty Host",
        reference: "uWebSockets, August 2026; RFC 9110, 4.2.1",
        bytes: || {
            let upgrade = String::from_utf8(upgrade("")).expect("ASCII");
            upgrade.replace("Host: localhost", "Host:").into_bytes()
        },
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "two Hosts",
        reference: "RFC 9112, 3.2",
        bytes: || upgrade("Host: other\r\n"),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "body on an upgrade",
        reference: "RFC 6455, 4.1; request smuggling",
        bytes: || [&*upgrade("Content-Length: 5\r\n"), b"hello"].concat(),
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "a request behind a refused one",
        reference: "request smuggling: one connection, one request",
        bytes: || {
            let refused = upgrade("Content-Length: 5\r\n");
            [
                &*refused,
                b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            ]
            .concat()
        },
        end: End::Status(400),
        per_s: 100,
    },
    Attack {
        name: "a request behind an upgrade",
        reference: "request smuggling: bytes before the 101 are frames or nothing",
        bytes: || open(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "wrong version",
        reference: "RFC 6455, 4.4",
        bytes: || {
            let upgrade = String::from_utf8(upgrade("")).expect("ASCII");
            upgrade.replace("Version: 13", "Version: 8").into_bytes()
        },
        end: End::Status(426),
        per_s: 100,
    },
    Attack {
        name: "cross-site hijack",
        reference: "GHSA-p773-8mf4-rjm5 (farmfe), GHSA-q355-h244-969h (Komari)",
        bytes: || upgrade("Origin: https://evil.example\r\nCookie: session=1\r\n"),
        end: End::Status(403),
        per_s: 100,
    },
    Attack {
        name: "reserved bits",
        reference: "RFC 6455, 5.2",
        bytes: || open(&frame(0xf1, b"hello")),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "reserved opcode",
        reference: "RFC 6455, 5.2",
        bytes: || open(&frame(0x83, b"hello")),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "compressed control frame",
        reference: "RFC 7692, 6.1",
        bytes: || open_deflate("", &frame(0xc9, b"hello")),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "unmasked frame",
        reference: "RFC 6455, 5.1: cache poisoning",
        bytes: || open(b"\x81\x05hello"),
        end: End::Close(1002),
        per_s: 100,
    },
    Attack {
        name: "invalid text in a fragment that never ends",
        reference: "RFC 6455, 8.1; Autobahn 6.4",
        bytes: || {
            open(&frame(
                0x01,
                b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90",
            ))
        },
        end: End::Close(1007),
        per_s: 100,
    },
];

/// Connections that the attacker leaves open, and on which it reads nothing.
pub(crate) struct Siege {
    pub(crate) name: &'static str,
    /// Where it was published, or the rule that it leans on.
    pub(crate) reference: &'static str,
    pub(crate) bytes: fn() -> Vec<u8>,
    /// Connections per second at which the benchmark attacks with it.
    pub(crate) per_s: u32,
}

/// All that the server must bear, for as long as its limits allow.
pub(crate) const SIEGES: &[Siege] = &[
    Siege {
        name: "slow handshake",
        reference: "axum#2741, hyper#3756",
        bytes: || b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: web".to_vec(),
        per_s: 100,
    },
    Siege {
        name: "slow reader",
        reference: "socket.io#4435, ws#2263",
        bytes: || open(&frame(0x82, &[7; 60_000]).repeat(100)),
        per_s: 5,
    },
    Siege {
        name: "ping flood",
        reference: "RFC 6455, 5.5.3: a pong for each would pile up",
        bytes: || open(&frame(0x89, &[7; 125]).repeat(10_000)),
        per_s: 5,
    },
    Siege {
        name: "close without an answer",
        reference: "RFC 6455, 7.1.1: a peer that is told to go may stay",
        bytes: || open(&frame(0x83, b"reserved")),
        per_s: 50,
    },
    Siege {
        name: "declared length that never comes",
        reference: "CWIST#119: memory from a declared length",
        bytes: || open(&declared(0x82, 127, &(1_u64 << 20).to_be_bytes())),
        per_s: 100,
    },
    Siege {
        name: "fragments without an end",
        reference: "GHSA-96hv-2xvq-fx4p and ws#2331",
        bytes: || {
            let flood = frame(0x00, b"a").repeat(131_000);
            open(&[frame(0x01, b"a"), flood].concat())
        },
        per_s: 2,
    },
    Siege {
        name: "inflated fragments without an end",
        reference: "GHSA-qrvq-68c2-7grw (NATS), within the limit of 1 MiB",
        bytes: || open_deflate("", &frame(0x42, &bomb(1 << 20))),
        per_s: 50,
    },
];
