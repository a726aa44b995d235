//! The session over the real drivers and sockets of the loopback interface.

use std::net::SocketAddr;
use std::time::Duration;

use moonwire_proto::{CloseCode, Opcode};

use super::*;
use crate::tests::harness::{Answer, Happened, Loop, run_until};
use crate::tests::on_each_driver;
use crate::{Driver, DriverChoice, Plaintext, SystemDriver, TlsRecords, Trust, listen_socket};

pub(crate) fn world(on: DriverChoice) -> (Loop<SystemDriver>, SocketAddr) {
    let mut world = Loop::new(SystemDriver::new(on).unwrap());
    let listener = listen_socket(([127, 0, 0, 1], 0).into(), false, 128).unwrap();
    let addr = listener.local_addr().unwrap();
    world.listen(listener.into());
    (world, addr)
}

fn tls_world(on: DriverChoice) -> (Loop<SystemDriver>, SocketAddr, ClientTls) {
    let (mut world, addr) = world(on);
    let server = ServerTls::self_signed().unwrap();
    world.server_tls = Some(server.with_records(TlsRecords::Own));
    (world, addr, ClientTls::new(&Trust::Anyone).unwrap())
}

fn upgraded(world: &mut Loop<SystemDriver>, client: SocketId) -> SocketId {
    run_until(world, "the upgrade", |world| {
        world.sessions.get(&client).is_some_and(Session::is_open)
    });
    let servers = world
        .happened
        .iter()
        .filter(|(_, what)| *what == Happened::Accepted);
    servers.map(|(socket, _)| *socket).next_back().unwrap()
}

fn echoes(world: &mut Loop<SystemDriver>, client: SocketId, payloads: &[Vec<u8>]) {
    let before = world.messages(client).len();
    for payload in payloads {
        world.session(client).send(Opcode::Binary, payload).unwrap();
    }
    run_until(world, "the echo", |world| {
        world.messages(client).len() == before + payloads.len()
    });
    assert_eq!(world.messages(client)[before..], *payloads);
}

fn finished(world: &mut Loop<SystemDriver>, sockets: &[SocketId]) {
    run_until(world, "the end", |world| {
        sockets
            .iter()
            .all(|socket| !world.sessions.contains_key(socket))
    });
    assert_eq!(world.driver.sockets(), world.sessions.len());
}

/// Sizes on both sides of every length encoding, of a TLS record and of the receive buffer.
fn payloads() -> Vec<Vec<u8>> {
    [0, 1, 125, 126, 65_535, 65_536, 16_384, 300_000, 3_000_000]
        .map(|length| (0..length).map(|i| (i % 251) as u8).collect())
        .to_vec()
}

fn whole_life(world: &mut Loop<SystemDriver>, client: SocketId) {
    let server = upgraded(world, client);
    echoes(world, client, &payloads());
    world.session(client).close(CloseCode::NORMAL, "bye");
    finished(world, &[client, server]);
    // The code comes back, the reason need not.
    let end = [
        Happened::Closed(Some(1000), String::new(), true),
        Happened::Finished,
    ];
    assert_eq!(world.story(client)[payloads().len() + 1..], end);
    let end = [
        Happened::Closed(Some(1000), "bye".to_owned(), false),
        Happened::Finished,
    ];
    assert!(world.story(server).ends_with(&end));
}

fn a_plain_connection_from_upgrade_to_close(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    whole_life(&mut world, client);
    let Happened::Upgraded(timings) = &world.story(client)[0] else {
        panic!("no upgrade")
    };
    assert_eq!(timings.tls, None);
    assert!(timings.tcp > Duration::ZERO && timings.upgrade > Duration::ZERO);
}

fn a_tls_connection_from_upgrade_to_close(on: DriverChoice) {
    let (mut world, addr, tls) = tls_world(on);
    let client = world.connect(addr, Some(&tls));
    whole_life(&mut world, client);
    let Happened::Upgraded(timings) = &world.story(client)[0] else {
        panic!("no upgrade")
    };
    assert!(timings.tls.unwrap() > Duration::ZERO);
}

fn the_server_may_begin_the_close(on: DriverChoice) {
    let (mut world, addr, tls) = tls_world(on);
    let client = world.connect(addr, Some(&tls));
    let server = upgraded(&mut world, client);
    world.session(server).close(CloseCode::GOING_AWAY, "");
    finished(&mut world, &[client, server]);
    let closed = |local| Happened::Closed(Some(1001), String::new(), local);
    assert!(world.story(client).contains(&closed(false)));
    assert!(world.story(server).contains(&closed(true)));
}

fn a_refusal_reaches_the_client_with_its_status(on: DriverChoice) {
    let (mut world, addr) = world(on);
    world.answer = Answer::Refuse;
    let client = world.connect(addr, None);
    run_until(&mut world, "the end", |world| world.sessions.is_empty());
    assert!(!world.happened.is_empty());
    assert_eq!(
        world.story(client),
        [Happened::Refused(404), Happened::Finished]
    );
}

fn a_request_can_be_answered_later_and_what_followed_it_is_kept(on: DriverChoice) {
    let (mut world, addr) = world(on);
    world.answer = Answer::Later;
    let mut peer = std::net::TcpStream::connect(addr).unwrap();
    let request = b"GET /later HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let frame = b"\x82\x83\0\0\0\0abc";
    io::Write::write_all(&mut peer, &[&request[..], &frame[..]].concat()).unwrap();
    run_until(&mut world, "the request", |world| world.happened.len() == 2);
    let server = world.happened[0].0;
    io::Write::write_all(&mut peer, frame).unwrap();
    for _ in 0..3 {
        world.turn(Some(Time::default()));
    }
    assert_eq!(world.session(server).request().unwrap().target(), "/later");
    world.accept(server);
    run_until(&mut world, "the messages", |world| {
        world.messages(server).len() == 2
    });
    assert_eq!(world.messages(server), [b"abc", b"abc"]);
}

fn an_invalid_request_is_answered_and_ends(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let mut peer = std::net::TcpStream::connect(addr).unwrap();
    io::Write::write_all(&mut peer, b"NONSENSE\r\n\r\n").unwrap();
    run_until(&mut world, "the failure", |world| world.happened.len() == 2);
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let reader = std::thread::spawn(move || io::read_to_string(&mut peer).unwrap());
    run_until(&mut world, "the answer", |_| reader.is_finished());
    let answer = reader.join().unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    run_until(&mut world, "the end", |world| world.sessions.is_empty());
}

fn a_connection_that_vanishes_is_a_failure(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    world.session(client).abort();
    finished(&mut world, &[client, server]);
    assert_eq!(world.story(client).last(), Some(&Happened::Finished));
    let story = world.story(server);
    assert!(
        matches!(&story[2], Happened::Failed(why) if why.contains("reset")),
        "{story:?}"
    );
}

fn a_certificate_that_nobody_signed_ends_both_ends_with_a_sentence(on: DriverChoice) {
    let (mut world, addr, _) = tls_world(on);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authority.pem");
    let other = ServerTls::self_signed().unwrap();
    std::fs::write(&path, other.self_signed_pem().unwrap()).unwrap();
    let client = world.connect(
        addr,
        Some(&ClientTls::new(&Trust::Authorities(path)).unwrap()),
    );
    run_until(&mut world, "the end", |world| world.sessions.is_empty());
    let failure = |socket| {
        let story = world.story(socket).into_iter();
        let mut failures = story.filter_map(|happened| {
            let Happened::Failed(why) = happened else {
                return None;
            };
            Some(why)
        });
        failures.next().unwrap()
    };
    let server = world
        .happened
        .iter()
        .find(|(_, what)| *what == Happened::Accepted)
        .unwrap()
        .0;
    assert!(failure(client).starts_with("the peer's certificate was not accepted: "));
    // The alert arrived before the end of the stream.
    assert!(failure(server).contains("alert"), "{}", failure(server));
}

fn keys_that_may_not_be_used_any_more_end_the_session(on: DriverChoice) {
    let (mut world, addr, _) = tls_world(on);
    let client = world.connect(addr, Some(&ClientTls::of_few_records(20)));
    upgraded(&mut world, client);
    let mut sent = 0;
    run_until(&mut world, "the end", |world| {
        if world.sessions.get(&client).is_some_and(Session::is_open) {
            assert!(sent < 100, "the keys may not be used so often");
            sent += 1;
            world.session(client).send(Opcode::Binary, b"x").unwrap();
        }
        !world.sessions.contains_key(&client)
    });
    let story = world.story(client);
    let text = format!("{story:?}");
    assert!(
        text.contains("Failed") && text.contains("connect again"),
        "{text}"
    );
}

/// A message that comes after our close frame is held to the same bound.
fn an_unfinished_message_has_its_bound_while_closing_too(on: DriverChoice) {
    let (mut world, addr) = world(on);
    world.limits = Arc::new(SessionLimits {
        memory_bytes_max: 100_000,
        ..SessionLimits::default()
    });
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    let now = world.driver.now();
    let session = world.sessions.get_mut(&server).unwrap();
    session.close(CloseCode::NORMAL, "");
    let mut scratch = Plaintext::new();
    // 1 MiB is announced, and a fifth of it comes.
    let mut received = b"\x82\xff\0\0\0\0\0\x10\0\0\0\0\0\0".to_vec();
    received.resize(200_000, 0);
    let mut input = session.open(&mut received, &mut scratch).unwrap();
    while session.poll(&mut input, now).is_some() {}
    let ended = session.settle(now);
    assert!(
        matches!(
            ended,
            Some(SessionEvent::Failed(SessionError::MemoryExceeded))
        ),
        "{ended:?}"
    );
}

fn nothing_listens(on: DriverChoice) {
    let (mut world, _) = world(on);
    let free = listen_socket(([127, 0, 0, 1], 0).into(), false, 1).unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let client = world.connect(addr, None);
    finished(&mut world, &[client]);
    let story = world.story(client);
    assert!(
        matches!(&story[0], Happened::Failed(why) if why.contains("refused")),
        "{story:?}"
    );
}

fn the_write_queue_has_a_bound_and_a_slow_peer_is_slowed_down(on: DriverChoice) {
    let (mut world, addr) = world(on);
    world.limits = Arc::new(SessionLimits {
        write_queue_bytes_max: 2_000_000,
        write_queue_pause_bytes: 100_000,
        ..SessionLimits::default()
    });
    world.echo = false;
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    world.driver.pause_receive(client);
    // More than any socket buffer: it cannot all leave.
    let payload = vec![7; 1_000_000];
    let mut sent = 0;
    let full = loop {
        match world.session(server).send(Opcode::Binary, &payload) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        world.turn(Some(Time::default()));
        assert!(sent < 100, "the queue has no bound");
    };
    assert_eq!(full, SendError::QueueFull);
    assert!(world.session(server).write_queue_bytes() <= 2_000_000 + 14);
    assert!(world.session(server).is_paused);
    world.driver.resume_receive(client);
    run_until(&mut world, "the rest", |world| {
        world.messages(client).len() == sent
    });
    assert!(!world.session(server).is_paused);
    assert_eq!(world.session(server).write_queue_bytes(), 0);
}

fn a_long_queue_is_sealed_part_by_part(on: DriverChoice) {
    let (mut world, addr, tls) = tls_world(on);
    world.echo = false;
    let client = world.connect(addr, Some(&tls));
    let server = upgraded(&mut world, client);
    world.driver.pause_receive(client);
    let payloads = [10_000_000, 3, 3_000_000].map(|length| vec![length as u8; length]);
    for payload in &payloads {
        let sent = world.session(server).send(Opcode::Binary, payload);
        sent.unwrap();
        world.turn(Some(Time::default()));
    }
    let session = world.session(server);
    let in_flight_bytes = session.in_flight_bytes;
    assert!((1..130_000).contains(&in_flight_bytes), "{in_flight_bytes}");
    let waiting_bytes = session.write_queue_bytes();
    assert!(
        (3_000_000..13_000_100).contains(&waiting_bytes),
        "{waiting_bytes}"
    );
    world.driver.resume_receive(client);
    run_until(&mut world, "the messages", |world| {
        world.messages(client).len() == payloads.len()
    });
    assert!(world.messages(client) == payloads);
    let session = world.session(server);
    assert_eq!((session.write_queue_bytes(), session.sealed_bytes), (0, 0));
}

/// What is left of an input that is out is seen by nobody but who has it.
fn a_pause_outlasts_a_write_in_the_middle_of_a_read(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    let now = world.driver.now();
    let session = world.sessions.get_mut(&server).unwrap();
    let driver = &mut world.driver;
    let (mut received, mut scratch) = (b"\x82\x81\0\0\0\0a".repeat(3), Plaintext::new());
    let input = session.open(&mut received, &mut scratch).unwrap();
    session.keep(input);
    assert!(session.settle(now).is_none());
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(session.is_paused);

    let mut input = session.unread();
    assert!(session.poll(&mut input, now).is_some());
    session.send(Opcode::Binary, b"an answer").unwrap();
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(session.is_paused, "two messages were not looked at");
    session.keep(input);
    assert!(session.settle(now).is_none());
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(session.is_paused);

    let mut input = session.unread();
    for _ in 0..2 {
        assert!(session.poll(&mut input, now).is_some());
    }
    assert!(session.poll(&mut input, now).is_none() && session.settle(now).is_none());
    assert!(matches!(session.flush(driver), Flushed::Open));
    run_until(&mut world, "the end of the pause", |world| {
        !world.session(server).is_paused
    });
}

/// Nothing is received beside what is still to be looked at, also once this end closes, and the
/// peer's time to take its answers does not run while there are none.
fn what_was_received_comes_first_while_closing_too(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    let now = world.driver.now();
    let session = world.sessions.get_mut(&server).unwrap();
    let driver = &mut world.driver;
    let (mut received, mut scratch) = (b"\x82\x81\0\0\0\0a".repeat(3), Plaintext::new());
    let input = session.open(&mut received, &mut scratch).unwrap();
    session.keep(input);
    assert!(session.settle(now).is_none());
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(session.is_paused && session.deadline().is_none());

    session.close(CloseCode::NORMAL, "");
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(session.is_paused && session.deadline().is_some());

    let mut input = session.unread();
    for _ in 0..3 {
        assert!(session.poll(&mut input, now).is_some());
    }
    assert!(session.poll(&mut input, now).is_none() && session.settle(now).is_none());
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(!session.is_paused);

    let (mut received, mut scratch) = (b"\x82\x81\0\0\0\0a".repeat(3), Plaintext::new());
    let input = session.open(&mut received, &mut scratch).unwrap();
    session.keep(input);
    assert!(session.settle(now).is_none());
    assert!(matches!(session.flush(driver), Flushed::Open));
    assert!(session.is_paused, "it was not before it closed");
}

/// The answer to what came before the end is still to be sent.
fn the_end_of_a_stream_waits_for_what_is_held(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    let now = world.driver.now();
    let session = world.sessions.get_mut(&server).unwrap();
    session.hold();
    assert!(session.on_end_of_stream(now).is_none());
    session.send(Opcode::Binary, b"an answer").unwrap();
    session.resume(now);
    assert!(session.has_unread());
    let mut input = session.unread();
    let end = session.poll(&mut input, now);
    assert!(
        matches!(end, Some(SessionEvent::Failed(SessionError::EndOfStream))),
        "{end:?}"
    );
}

fn an_idle_session_holds_no_buffers_and_is_small(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    echoes(&mut world, client, &payloads());
    for socket in [client, server] {
        let session = world.session(socket);
        assert_eq!(session.outbox.capacity(), 0);
        assert_eq!(session.kept.memory_bytes(), 0);
    }
    println!("size_of Session: {} B", size_of::<Session>());
    assert!(size_of::<Session>() <= 232, "{} B", size_of::<Session>());
}

/// What TLS holds for as long as the connection lives, and a record that is not whole.
fn the_ledger_knows_of_tls(on: DriverChoice) {
    let (mut world, addr, tls) = tls_world(on);
    let client = world.connect(addr, Some(&tls));
    let server = upgraded(&mut world, client);
    echoes(&mut world, client, &[vec![7; 100]]);
    let memory = world.session(server).memory_bytes();
    assert!(memory.tls > 0, "{memory:?}");
    assert_eq!(memory.total(), memory.tls);
    let session = world.sessions.get_mut(&server).unwrap();
    let mut begin = [[0x17, 3, 3, 0x40, 0].to_vec(), vec![0; 5000]].concat();
    session.open(&mut begin, &mut Plaintext::new()).unwrap();
    let with_record = session.memory_bytes();
    assert!(with_record.tls >= memory.tls + 5005, "{with_record:?}");
}

mod carried;

fn a_close_has_more_time_once_a_write_is_done(on: DriverChoice) {
    let (mut world, addr) = world(on);
    let client = world.connect(addr, None);
    let server = upgraded(&mut world, client);
    let session = world.sessions.get_mut(&server).unwrap();
    session.close(CloseCode::NORMAL, "");
    assert_eq!(session.flush(&mut world.driver), Flushed::Open);
    let timeout = session.limits.close_timeout;
    let began = session.heard;
    assert_eq!(session.deadline(), Some(began + timeout));
    let later = began + timeout / 2;
    assert!(session.on_sent(Vec::new(), Ok(()), later).is_none());
    assert_eq!(session.deadline(), Some(later + timeout));
}

on_each_driver! {
    a_plain_connection_from_upgrade_to_close,
    a_tls_connection_from_upgrade_to_close,
    the_server_may_begin_the_close,
    a_refusal_reaches_the_client_with_its_status,
    a_request_can_be_answered_later_and_what_followed_it_is_kept,
    an_invalid_request_is_answered_and_ends,
    a_connection_that_vanishes_is_a_failure,
    a_certificate_that_nobody_signed_ends_both_ends_with_a_sentence,
    keys_that_may_not_be_used_any_more_end_the_session,
    an_unfinished_message_has_its_bound_while_closing_too,
    nothing_listens,
    the_write_queue_has_a_bound_and_a_slow_peer_is_slowed_down,
    a_long_queue_is_sealed_part_by_part,
    a_pause_outlasts_a_write_in_the_middle_of_a_read,
    what_was_received_comes_first_while_closing_too,
    the_end_of_a_stream_waits_for_what_is_held,
    an_idle_session_holds_no_buffers_and_is_small,
    the_ledger_knows_of_tls,
    a_close_has_more_time_once_a_write_is_done,
}
