//! Known attacks bounce off: each is answered as it must be, a well-behaved neighbour loses nothing
//! beside it, and the server's memory stays below a cap.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Server};
use crate::hostile::echo_until;
use catalogue::{ATTACKS, Attack, End, SIEGES};
use strike::{Besieger, connect};
use wire::{bomb, declared, frame, open, open_deflate, upgrade};

#[path = "attacks/catalogue.rs"]
#[expect(dead_code, reason = "the rates are for the benchmark")]
mod catalogue;
#[path = "attacks/strike.rs"]
pub(crate) mod strike;
#[path = "attacks/wire.rs"]
pub(crate) mod wire;

/// Connections of a siege at a time; what waits for each may take 2 MiB, as a queue of 1 MiB grows
/// by doubling.
const BESIEGERS: usize = 10;

/// Messages that are to be compressed at the same moment.
const MESSAGES: u64 = 8;

/// How often each attack is made.
const STRIKES: u64 = 3;

/// What an attack may add to the server's peak of resident memory.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

#[test]
fn each_attack_of_the_catalogue_ends_as_it_must() {
    // A bomb of 64 MiB may cost what the largest message may.
    let server = configured("[limits]\nmessage_bytes_max = 1048576\n");
    beside_a_neighbour(&server, |address| {
        for attack in ATTACKS {
            let bytes = (attack.bytes)();
            for _ in 0..STRIKES {
                let answer = answer_to(address, &bytes);
                let Attack {
                    name,
                    reference,
                    end,
                    ..
                } = attack;
                assert_eq!(
                    ended(&answer),
                    Some(*end),
                    "{name} ({reference}): {}",
                    answer.escape_ascii()
                );
            }
        }
    });
}

#[test]
fn each_siege_of_the_catalogue_is_held_in_bounds() {
    for siege in SIEGES {
        let server = configured("[limits]\nmessage_bytes_max = 1048576\n");
        let bytes = (siege.bytes)();
        eprintln!("{} ({})", siege.name, siege.reference);
        beside_a_neighbour(&server, |address| {
            let mut besiegers = besiegers(&server, address);
            // Until neither kernel nor server takes any more of any.
            let mut refused = 0;
            while refused < 20 {
                let mut taken = false;
                for besieger in &mut besiegers {
                    taken |= besieger.go_on(&bytes, usize::MAX);
                }
                refused = if taken { 0 } else { refused + 1 };
                thread::sleep(Duration::from_millis(2));
            }
            assert!(server.gauge("moonwire_sockets") > besiegers.len() as u64);
        });
    }
}

/// Messages are compressed in one go. Many at the same moment must not keep others waiting until
/// the last of them is done: they come in turns.
#[test]
fn answers_that_take_long_to_compress_come_in_turns() {
    let server = configured("[server]\nworkers = 1\n");
    let mut rng = fastrand::Rng::with_seed(1);
    beside_a_neighbour(&server, |address| {
        // All but the last byte of each message, then the last bytes of all.
        let mut streams: Vec<_> = (0..MESSAGES)
            .map(|_| {
                let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..))
                    .take(1 << 20)
                    .collect();
                let bytes = open_deflate("", &frame(0x82, &noise));
                let (last, rest) = bytes.split_last().unwrap();
                (open_with(address, rest), *last)
            })
            .collect();
        let before = server.gauge("moonwire_turns_total");
        for (stream, last) in &mut streams {
            stream.write_all(&[*last]).unwrap();
        }
        for (stream, _) in &mut streams {
            let mut echo = vec![0; 1 << 20];
            stream.read_exact(&mut echo).unwrap();
        }
        let turns = server.gauge("moonwire_turns_total") - before;
        assert!(turns >= MESSAGES, "{MESSAGES} messages in {turns} turns");
    });
}

/// RFC 6455, 4.4: the versions that the server speaks.
#[test]
fn a_wrong_version_is_told_the_right_one() {
    let server = Server::moonwire(&[]);
    let request = String::from_utf8(upgrade("")).unwrap();
    let request = request.replace("Version: 13", "Version: 99");
    let answer = answer_to(address_of(&server), request.as_bytes());
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.contains("\r\nSec-WebSocket-Version: 13\r\n"),
        "{answer}"
    );
}

#[test]
fn as_many_fragments_as_allowed_are_one_message() {
    let server = Server::moonwire(&[]);
    let flood = frame(0x00, b"a").repeat(131_070);
    let close = frame(0x88, &1000_u16.to_be_bytes());
    let bytes = open(&[frame(0x01, b"a"), flood, frame(0x80, b"a"), close].concat());
    beside_a_neighbour(&server, |address| {
        let answer = answer_to(address, &bytes);
        assert_eq!(ended(&answer), Some(End::Close(1000)));
        let echo = [&b"\x81\x7f"[..], &131_072_u64.to_be_bytes(), b"aaa"].concat();
        let has_echo = answer.windows(echo.len()).any(|window| window == echo);
        assert!(has_echo, "no echo of 131,072 bytes");
    });
}

/// CWIST#119, and memory that a client need not pay for.
#[test]
fn a_declared_length_costs_the_server_nothing() {
    let server = Server::moonwire(&[]);
    let declared = open(&declared(0x82, 127, &(16_u64 << 20).to_be_bytes()));
    beside_a_neighbour(&server, |address| {
        let held: Vec<_> = (0..500).map(|_| open_with(address, &declared)).collect();
        for mut stream in held {
            stream.write_all(b"a").unwrap();
        }
    });
}

/// axum#2741, hyper#3756: the deadline from accept to 101 is absolute.
#[test]
fn a_handshake_that_trickles_is_ended_in_time() {
    let server = configured("[limits]\nhandshake_timeout_ms = 500\n");
    beside_a_neighbour(&server, |address| {
        let begin = Instant::now();
        let mut held: Vec<_> = (0..200).map(|_| open_with(address, b"GET /echo")).collect();
        for stream in &held {
            stream.set_nonblocking(true).unwrap();
        }
        while !held.is_empty() {
            let waited = begin.elapsed();
            assert!(
                waited < Duration::from_secs(5),
                "{} are still open",
                held.len()
            );
            thread::sleep(Duration::from_millis(50));
            held.retain_mut(|stream| {
                let mut answer = [0; 12];
                let answered = stream.read(&mut answer).is_ok();
                assert!(!answered || &answer == b"HTTP/1.1 408");
                // Each byte would put off a deadline that is not absolute.
                !answered && stream.write_all(b"/").is_ok()
            });
        }
    });
}

/// socket.io#4435, ws#2263: who takes nothing is cut in time, and what waits for it freed.
#[test]
fn clients_that_never_read_are_cut_in_time() {
    let server = configured("[limits]\nwrite_timeout_ms = 500\nmessage_bytes_max = 1048576\n");
    let bytes = open(&frame(0x82, &[7; 60_000]).repeat(300));
    beside_a_neighbour(&server, |address| {
        let mut held = besiegers(&server, address);
        let begin = Instant::now();
        loop {
            for besieger in &mut held {
                besieger.go_on(&bytes, usize::MAX);
            }
            // The neighbour, and who asks.
            if server.gauge("moonwire_sockets") <= 2 {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "they are still there");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(begin.elapsed() > Duration::from_millis(500));
        drop(held);
    });
}

/// RFC 6455, 5.5.3: pongs that nobody reads must not pile up either.
#[test]
fn a_flood_of_pings_is_held_in_bounds() {
    let server = Server::moonwire(&[]);
    let flood = frame(0x89, &[7; 125]).repeat(10_000);
    beside_a_neighbour(&server, |address| {
        let held: Vec<_> = (0..10)
            .map(|_| {
                let mut stream = open_with(address, &upgrade(""));
                stream
                    .set_write_timeout(Some(Duration::from_millis(200)))
                    .unwrap();
                for _ in 0..5 {
                    // It may be stopped: then it is.
                    if stream.write_all(&flood).is_err() {
                        break;
                    }
                }
                stream
            })
            .collect();
        drop(held);
    });
}

/// GHSA-qrvq-68c2-7grw (NATS), in many messages: each is within the limit, and one read holds them
/// all.
#[test]
fn what_inflates_to_much_gets_only_a_part_of_a_turn() {
    let server = configured("[server]\nworkers = 1\n");
    let messages = frame(0xc2, &bomb(1 << 20)).repeat(80);
    // The same with something to be told after every 32 KiB of one message.
    let bomb = bomb(6 << 20);
    let parts = bomb.chunks(32).map(|part| frame(0x00, part));
    let pings: Vec<_> = parts.flat_map(|part| [part, frame(0x89, b"")]).collect();
    let pings = [frame(0x42, b""), pings.concat(), frame(0x80, b"")].concat();
    let close = frame(0x88, &1000_u16.to_be_bytes());
    for (frames, mebibytes) in [(messages, 80), (pings, 6)] {
        let bytes = open_deflate("", &[&*frames, &close].concat());
        beside_a_neighbour(&server, |address| {
            let answer = answer_to(address, &bytes);
            assert_eq!(ended(&answer), Some(End::Close(1000)));
        });
        let before = server.gauge("moonwire_turns_total");
        answer_to(address_of(&server), &bytes);
        let turns = server.gauge("moonwire_turns_total") - before;
        assert!(turns >= mebibytes * 16, "{mebibytes} MiB in {turns} turns");
    }
}

/// RFC 6455, 7.1.1: a peer that is told to go and stays is cut off.
#[test]
fn a_close_without_an_answer_ends_in_time() {
    let server = configured("[limits]\nclose_timeout_ms = 300\n");
    beside_a_neighbour(&server, |address| {
        let mut held: Vec<_> = (0..100)
            .map(|_| open_with(address, &open(&frame(0x83, b"reserved"))))
            .collect();
        for stream in &mut held {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).ok();
            assert_eq!(ended(&rest), Some(End::Close(1002)));
        }
        // None of them closes; soon the server has forgotten all but the neighbour.
        let begin = Instant::now();
        while server.gauge("moonwire_sockets") > 2 {
            assert!(begin.elapsed() < PATIENCE, "they are still there");
            thread::sleep(Duration::from_millis(20));
        }
        drop(held);
    });
}

/// Connections that the server has accepted.
fn besiegers(server: &Server, address: SocketAddr) -> Vec<Besieger> {
    let connected = |_| Besieger::new(connect(address, Ipv4Addr::LOCALHOST)?);
    let besiegers: Result<Vec<_>, _> = (0..BESIEGERS).map(connected).collect();
    let begin = Instant::now();
    while server.gauge("moonwire_sockets") <= BESIEGERS as u64 {
        assert!(begin.elapsed() < PATIENCE, "they are not accepted");
        thread::sleep(Duration::from_millis(2));
    }
    besiegers.unwrap()
}

/// Does something to a server beside a client that echoes without a loss, and looks at memory.
fn beside_a_neighbour(server: &Server, attack: impl FnOnce(SocketAddr)) {
    let address = address_of(server);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| echo_until(&over, address));
        // The neighbour is served before anything else happens.
        server.await_messages();
        let before = server.memory_bytes("VmRSS");
        let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attack(address)));
        over.store(true, Ordering::Relaxed);
        let echoed = neighbour.join().unwrap();
        if let Err(panic) = attacked {
            std::panic::resume_unwind(panic);
        }
        assert!(echoed > 0, "the neighbour was not served");
        let growth = server.memory_bytes("VmHWM").saturating_sub(before);
        assert!(
            growth < GROWTH_BYTES_MAX,
            "the server's memory grew by {growth} bytes"
        );
    });
}

fn configured(limits: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moonwire.toml");
    let services = "[services.echo]\ntarget = \"/echo\"\n[services.echo.deflate]\n";
    std::fs::write(&file, format!("{limits}{services}")).unwrap();
    Server::moonwire(&["--config", file.to_str().unwrap()])
}

fn address_of(server: &Server) -> SocketAddr {
    server.address().parse().unwrap()
}

/// A connection on which `bytes` were sent.
fn open_with(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(address, Ipv4Addr::new(127, 0, 2, 1)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// What the server says to an attack.
fn answer_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let stream = connect(address, Ipv4Addr::new(127, 0, 2, 2)).unwrap();
    strike::strike(&stream, bytes)
}

/// How an answer says that the connection is over; `None`: it does not, or says more after it.
fn ended(answer: &[u8]) -> Option<End> {
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status: u16 = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    if status != 101 {
        let again = answer
            .windows(9)
            .filter(|window| window.starts_with(b"HTTP/1.1 "))
            .count();
        return (again == 1).then_some(End::Status(status));
    }
    let mut frames = answer.get(head + 4..)?;
    loop {
        let (&[first, short], rest) = frames.split_first_chunk()?;
        let (length, rest) = match short {
            126 => rest
                .split_first_chunk()
                .map(|(&length, rest)| (u64::from(u16::from_be_bytes(length)), rest))?,
            127 => rest
                .split_first_chunk()
                .map(|(&length, rest)| (u64::from_be_bytes(length), rest))?,
            short => (u64::from(short), rest),
        };
        let (payload, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        if first == 0x88 {
            let code = payload
                .first_chunk()
                .map(|code| u16::from_be_bytes(*code))?;
            return after.is_empty().then_some(End::Close(code));
        }
        frames = after;
    }
}
