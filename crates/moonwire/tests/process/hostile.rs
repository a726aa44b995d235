//! What the open internet sends: thousands of broken handshakes and frames beside a good client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;

use crate::attacks::strike::connect;
use crate::harness::{PATIENCE, Server, signal};

mod attack;

/// Broken connections in all, over [`ATTACKERS`] threads.
const ATTACKS: u64 = 20_000;
const ATTACKERS: u64 = 4;

#[test]
fn a_good_client_loses_nothing_beside_hostile_ones() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"));
    let mut server = Server::moonwire(&[]);
    let address: SocketAddr = server.address().parse().unwrap();
    let over = AtomicBool::new(false);
    let echoed = thread::scope(|scope| {
        let good = scope.spawn(|| echo_until(&over, address));
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|index| scope.spawn(move || attack_often(address, index, seed)))
            .collect();
        let failures: Vec<String> = attackers
            .into_iter()
            .filter_map(|attacker| attacker.join().unwrap().err())
            .collect();
        over.store(true, Ordering::Relaxed);
        let echoed = good.join().unwrap();
        assert!(failures.is_empty(), "SEED={seed}: {failures:#?}");
        echoed
    });
    assert!(
        echoed > 100,
        "only {echoed} messages were echoed beside the attacks"
    );
    assert!(server.is_running(), "SEED={seed}: the server is gone");
    assert_eq!(server.terminate().code(), Some(0), "SEED={seed}");
}

#[test]
fn a_server_in_use_ends_with_1001_and_0() {
    let server = Server::moonwire(&[]);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(attack::handshake("/echo").as_bytes())
        .unwrap();
    let mut head = [0; 1024];
    let taken = stream.read(&mut head).unwrap();
    assert!(
        head[..taken].starts_with(b"HTTP/1.1 101 "),
        "{:?}",
        head[..taken].escape_ascii()
    );
    signal(server.id(), Signal::TERM);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).ok();
    // A close frame of at least a code: 0x88, its length, 1001.
    assert!(rest.starts_with(&[0x88]), "{rest:?}");
    assert_eq!(
        rest.get(2..4),
        Some(1001_u16.to_be_bytes().as_slice()),
        "{rest:?}"
    );
}

/// One attacker: connection after connection, each brought to its end.
fn attack_often(server: SocketAddr, index: u64, seed: u64) -> Result<(), String> {
    let source = Ipv4Addr::new(127, 0, 1, u8::try_from(index).unwrap() + 1);
    for number in 0..ATTACKS / ATTACKERS {
        let seed = seed
            .wrapping_mul(1_000_003)
            .wrapping_add(index * ATTACKS + number);
        let mut rng = Rng::with_seed(seed);
        let (name, bytes) = attack::draw(&mut rng);
        let failed = |error: std::io::Error| format!("{name} (seed {seed}): {error}");
        let stream = connect(server, source).map_err(failed)?;
        send(stream, &bytes, &mut rng).map_err(failed)?;
    }
    Ok(())
}

/// Sends in random pieces, then ends its side and waits until the server has ended its own.
fn send(mut stream: TcpStream, bytes: &[u8], rng: &mut Rng) -> std::io::Result<()> {
    let cut = rng.usize(0..=bytes.len());
    for piece in [&bytes[..cut], &bytes[cut..]] {
        if let Err(error) = stream.write_all(piece) {
            return gone(error);
        }
    }
    if rng.u8(0..8) == 0 {
        // A reset instead of an end: what the server still sends meets no socket.
        return socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    }
    if let Err(error) = stream.shutdown(Shutdown::Write) {
        return gone(error);
    }
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return gone(error),
        }
    }
}

/// The server may end a hostile connection at any time; it may not leave it hanging.
fn gone(error: std::io::Error) -> std::io::Result<()> {
    let ended = [
        ErrorKind::ConnectionReset,
        ErrorKind::BrokenPipe,
        ErrorKind::NotConnected,
    ];
    if ended.contains(&error.kind()) {
        Ok(())
    } else {
        Err(error)
    }
}

/// A client that behaves: one message after the other, each of which must come back as it was.
pub(crate) fn echo_until(over: &AtomicBool, server: SocketAddr) -> u64 {
    let stream = connect(server, Ipv4Addr::LOCALHOST).unwrap();
    let url = format!("ws://{server}/echo");
    let (mut socket, _) = tokio_tungstenite::tungstenite::client(url, stream).unwrap();
    let mut echoed = 0;
    while !over.load(Ordering::Relaxed) {
        let message = tokio_tungstenite::tungstenite::Message::text(format!("message {echoed}"));
        socket.send(message.clone()).unwrap();
        let reply = socket
            .read()
            .unwrap_or_else(|error| panic!("after {echoed}: {error}"));
        assert_eq!(reply, message);
        echoed += 1;
    }
    socket.close(None).unwrap();
    echoed
}
