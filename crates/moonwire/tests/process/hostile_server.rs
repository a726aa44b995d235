//! Attacks of servers on their clients: each ends the client with a sentence about what is wrong.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::attacks::wire::{bomb, frame};
use crate::harness::{Outcome, PATIENCE, Running, memory_bytes, moonwire};

/// One attack on a client that asks for an upgrade.
struct Attack {
    name: &'static str,
    /// Where it was published, or the rule that it breaks.
    reference: &'static str,
    /// What the server answers, with the value of Sec-WebSocket-Accept.
    answer: fn(&str) -> Vec<u8>,
    end: End,
}

/// How the client ends it.
enum End {
    /// Before anything is open, for this reason.
    Handshake(&'static str),
    /// With this close code.
    Close(u16),
}

const ATTACKS: &[Attack] = &[
    Attack {
        name: "inflate bomb",
        reference: "CVE-2026-1526 (undici)",
        answer: |accept| open(accept, DEFLATE, &server_frame(0xc2, &bomb(64 << 20))),
        end: End::Close(1009),
    },
    Attack {
        name: "bytes that do not inflate",
        reference: "RFC 7692, 7.2.2",
        answer: |accept| open(accept, DEFLATE, &server_frame(0xc1, &[0xff; 64])),
        end: End::Close(1007),
    },
    Attack {
        name: "window bits out of range",
        reference: "CVE-2026-2229 (undici)",
        answer: |accept| {
            let bits = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=16";
            open(accept, bits, &[])
        },
        end: End::Handshake("chose an extension that was not offered"),
    },
    Attack {
        name: "an extension that was not offered",
        reference: "RFC 6455, 9.1",
        answer: |accept| open(accept, "Sec-WebSocket-Extensions: evil", &[]),
        end: End::Handshake("chose an extension that was not offered"),
    },
    Attack {
        name: "a subprotocol that was not offered",
        reference: "RFC 6455, 4.1",
        answer: |accept| open(accept, "Sec-WebSocket-Protocol: evil", &[]),
        end: End::Handshake("chose a subprotocol that was not offered"),
    },
    Attack {
        name: "an answer to somebody else",
        reference: "RFC 6455, 4.1 and 10.3",
        answer: |_| open("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "a: b", &[]),
        end: End::Handshake("no valid Sec-WebSocket-Accept"),
    },
    Attack {
        name: "length with the top bit",
        reference: "CVE-2026-1528 (undici)",
        answer: |accept| open(accept, "a: b", &[&[0x82, 127][..], &[0xff; 8]].concat()),
        end: End::Close(1002),
    },
    Attack {
        name: "declared length beyond the limit",
        reference: "CWIST#119: memory from a declared length",
        answer: |accept| {
            let length = (1_u64 << 62).to_be_bytes();
            open(accept, "a: b", &[&[0x82, 127][..], &length].concat())
        },
        end: End::Close(1009),
    },
    Attack {
        name: "fragment flood",
        reference: "GHSA-96hv-2xvq-fx4p and ws#2331",
        answer: |accept| {
            let flood = server_frame(0x00, b"a").repeat(131_072);
            open(accept, "a: b", &[server_frame(0x01, b"a"), flood].concat())
        },
        end: End::Close(1008),
    },
    Attack {
        name: "masked frame",
        reference: "RFC 6455, 5.1",
        answer: |accept| open(accept, "a: b", &frame(0x81, b"hello")),
        end: End::Close(1002),
    },
    Attack {
        name: "long header",
        reference: "CVE-2023-43669 (tungstenite)",
        answer: |accept| open(accept, &format!("a: {}", "b".repeat(1 << 20)), &[]),
        end: End::Handshake("head is too large"),
    },
    Attack {
        name: "bare LF",
        reference: "CVE-2026-1525 (undici), RFC 9112, 2.2",
        answer: |accept| open(accept, "a: b\nc: d", &[]),
        end: End::Handshake("not an HTTP/1.1 response"),
    },
];

const DEFLATE: &str = "Sec-WebSocket-Extensions: permessage-deflate";

/// What an attack may make of a client: a largest message, and what it takes without one.
const PEAK_BYTES_MAX: u64 = 64 << 20;

#[test]
fn each_attack_of_a_server_ends_its_client_with_a_sentence() {
    for attack in ATTACKS {
        let (outcome, said) = attacked(attack.answer);
        let context = format!(
            "{} ({}): {outcome:?}, {}",
            attack.name,
            attack.reference,
            said.escape_ascii()
        );
        match attack.end {
            End::Handshake(sentence) => {
                assert!(outcome.stderr.contains(sentence), "{context}");
                assert_eq!(said, b"", "{context}");
                assert_eq!(outcome.code, Some(104), "{context}");
            }
            End::Close(code) => {
                // The sentence is behind what it had echoed.
                assert!(outcome.stdout.starts_with("0 echoed"), "{context}");
                assert!(outcome.stdout.contains("; a "), "{context}");
                let &[0x88, 0x82, a, b, _, _, x, y] = said.as_slice() else {
                    panic!("{context}");
                };
                assert_eq!(u16::from_be_bytes([a ^ x, b ^ y]), code, "{context}");
            }
        }
    }
}

/// axum#2741, hyper#3756: the deadline from the first SYN to the 101 is absolute.
#[test]
fn an_answer_that_trickles_is_given_up_in_time() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let begin = Instant::now();
    let mut client = moonwire();
    client.args(["load", &url, "-c", "1", "-n", "1"]);
    let client = Running::start(client.args(["--handshake-timeout", "500ms"]));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"HTTP/1.1 101 Switching").unwrap();
    // Each byte would put off a deadline that is not absolute.
    while stream.write_all(b"a").is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it still waits");
        thread::sleep(Duration::from_millis(50));
    }
    let outcome = client.finish();
    assert!(
        outcome.stdout.contains("the handshake took too long"),
        "{outcome:?}"
    );
}

/// What an echo client does and says when a server answers like this.
fn attacked(answer: fn(&str) -> Vec<u8>) -> (Outcome, Vec<u8>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let mut client = moonwire();
    let client = Running::start(client.args(["load", "--echo", "--deflate", &url]));
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let accept = accept(&head(&stream));
    let said = thread::scope(|scope| {
        let mut writer = &stream;
        // Fails where the client ends it early.
        scope.spawn(move || writer.write_all(&answer(&accept)).ok());
        said_by(&stream)
    });
    if !said.is_empty() {
        // It waits for the end of the stream.
        let peak_bytes = memory_bytes(client.id(), "VmHWM");
        assert!(peak_bytes < PEAK_BYTES_MAX, "{peak_bytes} bytes");
    }
    drop(stream);
    (client.finish(), said)
}

/// The head of the client's request.
fn head(mut stream: &TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// The value of Sec-WebSocket-Accept that answers this request.
fn accept(head: &str) -> String {
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    derive_accept_key(key.unwrap().as_bytes())
}

/// The client's frame after its request, if it sends one: it waits for the server to close
/// (RFC 6455, 7.1.1), so there is no end of the stream to read to.
fn said_by(mut stream: &TcpStream) -> Vec<u8> {
    let mut said = vec![0; 6 + 2];
    let mut taken = 0;
    while let Some(room) = said.get_mut(taken..).filter(|room| !room.is_empty()) {
        match stream.read(room) {
            Ok(0) => break,
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    said.truncate(taken);
    said
}

/// A good answer with one more line, and bytes behind it.
fn open(accept: &str, line: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{line}\r\n\r\n"
    );
    [head.as_bytes(), bytes].concat()
}

/// A frame without a mask.
fn server_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..=125 => frame.push(short as u8),
        medium @ 126..=0xffff => {
            frame.push(126);
            frame.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    [&*frame, payload].concat()
}
