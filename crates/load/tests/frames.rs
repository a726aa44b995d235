//! What is in the frames that leave, as a server sees it that takes them apart itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod peer;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use moonwire_load::{
    Control, FragmentShare, PayloadSource, Scenario, Settings, Stop, Target, Workload, run,
};
use peer::{Fault, Peer};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

#[test]
fn messages_go_in_as_many_frames_as_their_shares_say() {
    let (address, counts) = counting_server();
    let scenario = Scenario::new(Settings {
        targets: vec![Target::parse(&format!("ws://{address}/")).unwrap()],
        connections: 1,
        workload: Workload::Echo {
            size: 275,
            binary: true,
        },
        fragments: FragmentShare::parse_all("40:1,40:2,20:3").unwrap(),
        stop: Stop::Messages(1000),
        ..Settings::default()
    })
    .unwrap();
    let outcome = run(&scenario, &mut Control::default()).unwrap();
    let messages = outcome.cell.messages;
    assert_eq!((messages.received, messages.corrupt), (1000, 0));
    let counts = counts.recv().unwrap();
    assert_eq!(counts.values().sum::<u64>(), 1000);
    // Five standard deviations of the binomial distribution.
    for (frames, expected) in [(1, 400), (2, 400), (3, 200)] {
        let count = counts.get(&(frames, 275)).copied().unwrap_or(0);
        assert!(u64::abs_diff(count, expected) < 80, "{frames}: {counts:?}");
    }
}

#[test]
fn a_program_is_told_what_is_wanted_and_its_messages_are_sent() {
    let program = r#"
        read -r size kind count seed
        test "$count" -ge 1 && test "$seed" = 42 || exit 1
        for number in 1 2 3; do printf '\000\000\000\012%-10s' "$kind$size$number"; done"#;
    for (is_binary, kind) in [(false, "text"), (true, "binary")] {
        let peer = Peer::start(Fault::Keep);
        let outcome = peer.load(|settings| {
            settings.workload = Workload::Echo {
                size: 16,
                binary: is_binary,
            };
            settings.payloads = Some(PayloadSource::Command(program.to_owned()));
            settings.seed = 42;
            settings.stop = Stop::Messages(90);
        });
        let messages = outcome.cell.messages;
        assert_eq!((messages.received, messages.corrupt), (90, 0));
        let message = |number| format!("{:<10}", format!("{kind}16{number}")).into_bytes();
        let expected = [1, 2, 3].map(|number| (!is_binary, message(number)));
        let sent = peer.messages();
        assert!(sent.keys().eq(&expected), "{sent:?}");
        assert_eq!(sent.values().sum::<u64>(), 90);
    }
}

/// An echo for one connection.
fn counting_server() -> (std::net::SocketAddr, Receiver<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, counts) = channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        sender.send(count_frames(stream)).unwrap();
    });
    (address, counts)
}

fn count_frames(mut stream: TcpStream) -> Counts {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut key = String::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").unwrap_or_default();
        if name.eq_ignore_ascii_case("sec-websocket-key") {
            value.trim().clone_into(&mut key);
        }
    }
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut counts = BTreeMap::new();
    let (mut message, mut frames) = (Vec::new(), 0);
    loop {
        let (first, payload) = frame(&mut input);
        if first & 0x0f == CLOSE {
            write_frame(&mut stream, 0x80 | CLOSE, &payload);
            return counts;
        }
        // The first frame says what it is, and those behind it that they go on.
        assert_eq!(first & 0x0f, if frames == 0 { BINARY } else { 0 });
        frames += 1;
        message.extend(payload);
        if first & 0x80 != 0 {
            *counts.entry((frames, message.len())).or_default() += 1;
            write_frame(&mut stream, 0x80 | BINARY, &message);
            message.clear();
            frames = 0;
        }
    }
}

/// The first byte of a masked frame of less than 64 KiB, and its payload.
fn frame(input: &mut impl Read) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    input.read_exact(&mut head).unwrap();
    assert!(head[1] & 0x80 != 0, "a client masks");
    let mut length = usize::from(head[1] & 0x7f);
    if length == 126 {
        let mut long = [0; 2];
        input.read_exact(&mut long).unwrap();
        length = usize::from(u16::from_be_bytes(long));
    }
    let mut mask = [0; 4];
    input.read_exact(&mut mask).unwrap();
    let mut payload = vec![0; length];
    input.read_exact(&mut payload).unwrap();
    let masks = mask.iter().cycle();
    payload
        .iter_mut()
        .zip(masks)
        .for_each(|(it, mask)| *it ^= mask);
    (head[0], payload)
}

fn write_frame(stream: &mut TcpStream, first: u8, payload: &[u8]) {
    let mut frame = vec![first];
    match u8::try_from(payload.len()) {
        Ok(length) if length < 126 => frame.push(length),
        _ => {
            frame.push(126);
            frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
    }
    frame.extend(payload);
    stream.write_all(&frame).unwrap();
}

/// How often a message came in so many frames and with so many bytes.
type Counts = BTreeMap<(usize, usize), u64>;

const BINARY: u8 = 2;
const CLOSE: u8 = 8;
