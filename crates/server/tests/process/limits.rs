//! Limits of `[limits]`, each at its bound and one past it, as clients meet them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use moonwire_server::Server;
use socket2::{Domain, Socket, Type};

use crate::client::{BINARY, Client, TEXT, frame};
use crate::fixture::{Fixture, Folder};
use crate::tls::{secured, trusting};

fn limited(limits: &str) -> Fixture {
    Folder::new(&format!(
        "[server]\nworkers = 1\n[limits]\n{limits}[services.echo]\ntarget = '/echo'\n"
    ))
    .start()
}

fn refusals(server: &Fixture, reason: &str) -> u64 {
    let label = format!("reason=\"{reason}\"");
    server.metric("moonwire_handshake_failures_total", &label)
}

/// A connection from this address of ours; None if it is reset before it can say anything.
fn connect_from(source: Ipv4Addr, server: SocketAddr) -> Option<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut head = [0; 12];
    let asked = stream.write_all(UPGRADE.as_bytes());
    match asked.and_then(|()| stream.read_exact(&mut head)) {
        Ok(()) => assert_eq!(&head, b"HTTP/1.1 101"),
        Err(error) => {
            let is_reset = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            assert!(is_reset.contains(&error.kind()), "{error}");
            return None;
        }
    }
    Some(stream)
}

const UPGRADE: &str = "GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

/// FIN and opcode of a frame, and its bytes.
type Fragment = (u8, usize);

#[test]
fn a_message_has_so_many_bytes_and_frames() {
    let server = limited("message_bytes_max = 1000\nframes_per_message_max = 3\n");
    let cases: [(&[Fragment], Option<u16>); 6] = [
        (&[(0x82, 1000)], None),
        (&[(0x82, 1001)], Some(1009)),
        (&[(0x02, 999), (0x80, 1)], None),
        (&[(0x02, 999), (0x80, 2)], Some(1009)),
        (&[(0x02, 1), (0x00, 1), (0x80, 1)], None),
        (&[(0x02, 1), (0x00, 1), (0x00, 1), (0x80, 1)], Some(1008)),
    ];
    for (frames, code) in cases {
        let mut client = server.connect("/echo");
        for (first, bytes) in frames {
            let mut frame = frame(BINARY, &vec![7; *bytes]);
            frame[0] = *first;
            client.write(&frame);
        }
        let answer = client.receive();
        match code {
            None => assert_eq!(answer.opcode, BINARY, "{frames:?}"),
            Some(code) => assert_eq!(answer.code(), code, "{frames:?}"),
        }
    }
}

#[test]
fn a_head_has_so_many_bytes_and_fields() {
    let server = limited("header_bytes_max = 400\nheaders_max = 8\n");
    let status = |request: &str| {
        let mut client = Client::open(server.address);
        client.write(request.as_bytes());
        client.status_line()
    };
    let (head, end) = UPGRADE.split_at(UPGRADE.len() - 2);
    for (bytes, wanted) in [(400, "101"), (401, "431")] {
        let filler = bytes - UPGRADE.len() - "X: \r\n".len();
        let request = format!("{head}X: {}\r\n{end}", "x".repeat(filler));
        assert_eq!(request.len(), bytes);
        assert!(status(&request).starts_with(&format!("HTTP/1.1 {wanted}")));
    }
    // Five fields are there already.
    for (fields, wanted) in [(3, "101"), (4, "431")] {
        let request = format!("{head}{}{end}", "X: y\r\n".repeat(fields));
        assert!(status(&request).starts_with(&format!("HTTP/1.1 {wanted}")));
    }
}

#[test]
fn a_message_that_does_not_end_is_ended() {
    let server = limited("message_timeout_ms = 300\n");
    let mut client = server.connect("/echo");
    let mut begin = frame(TEXT, b"it goes on");
    begin[0] = TEXT;
    let began = Instant::now();
    client.write(&begin);
    assert_eq!(client.receive().code(), 1008);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(client.is_ended());
    server.await_metric("moonwire_failures_total", "kind=\"timeout\"", 1);
}

#[test]
fn a_source_has_so_many_connections() {
    let server = limited("connections_per_source_max = 2\nsource_limits_exempt = ['127.0.0.1']\n");
    let [one, other] = [2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let first = connect_from(one, server.address).unwrap();
    let second = connect_from(one, server.address).unwrap();
    for _ in 0..3 {
        assert!(connect_from(one, server.address).is_none());
    }
    assert_eq!(refusals(&server, "source_connections"), 3);
    let neighbour = connect_from(other, server.address);
    assert!(neighbour.is_some(), "another source is not concerned");
    // The exempt one, for which this test looks at the counters, has none of these bounds.
    let many: Vec<_> = (0..5).map(|_| server.connect("/echo")).collect();
    drop(first);
    server.await_metric("moonwire_connected", "echo", 1 + 1 + many.len() as u64);
    assert!(
        connect_from(one, server.address).is_some(),
        "a place is free"
    );
    drop(second);
}

/// A connection that another worker takes over still counts, and no longer when it has gone there.
#[test]
fn a_source_is_counted_over_all_workers() {
    let server = Folder::new(
        "[server]\nworkers = 2\n[limits]\nconnections_per_source_max = 20\n\
         source_limits_exempt = ['127.0.0.1']\n[services.echo]\ntarget = '/echo'\ninstances = 1\n",
    )
    .start();
    let source = Ipv4Addr::new(127, 0, 0, 2);
    for round in 0..3 {
        let open: Vec<_> = (0..20)
            .map(|_| connect_from(source, server.address).unwrap())
            .collect();
        assert!(connect_from(source, server.address).is_none(), "{round}");
        assert_eq!(refusals(&server, "source_connections"), round + 1);
        drop(open);
        server.await_metric("moonwire_connected", "echo", 0);
        server.await_metric("moonwire_sockets", "worker", 1);
    }
    assert!(server.metric("moonwire_handed_over_total", "worker") > 0);
}

#[test]
fn a_source_has_so_many_handshakes_in_a_second() {
    let server =
        limited("handshakes_per_source_per_s_max = 3\nsource_limits_exempt = ['127.0.0.1']\n");
    let source = Ipv4Addr::new(127, 0, 0, 2);
    let began = Instant::now();
    let accepted: Vec<_> = (0..20)
        .map(|_| connect_from(source, server.address))
        .collect();
    let count = accepted.iter().flatten().count();
    // As many as come at once, and those for which there was time since.
    let most = 3 + usize::try_from(began.elapsed().as_millis() * 3 / 1000 + 1).unwrap();
    assert!((3..most).contains(&count), "{count} of {most}");
    assert!(
        accepted[..3].iter().all(Option::is_some),
        "a second's worth at once"
    );
    assert_eq!(refusals(&server, "source_rate"), 20 - count as u64);
}

/// Four that say nothing fill the worker. The fifth waits where the kernel keeps it until the first
/// has had its second, and takes its place.
#[test]
fn a_worker_has_so_many_handshakes_and_ends_the_oldest() {
    let server = limited("handshakes_per_worker_max = 4\nhandshake_timeout_ms = 60000\n");
    let began = Instant::now();
    let mut silent: Vec<_> = (0..3).map(|_| Client::open(server.address)).collect();
    for _ in 0..5 {
        assert_eq!(server.connect("/echo").ask("room").text(), "room");
    }
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waited");
    assert_eq!(refusals(&server, "crowded_out"), 0);
    silent.push(Client::open(server.address));
    // With something said it is told why it ends.
    let mut talking = Client::open(server.address);
    talking.write(b"GET ");
    let mut last = server.connect("/echo");
    assert!(began.elapsed() >= Duration::from_millis(900), "it waited");
    assert_eq!(last.ask("at last").text(), "at last");
    assert!(!silent[0].is_alive(), "the oldest has gone");
    assert!(refusals(&server, "crowded_out") >= 2);
    assert!(server.metric("moonwire_accept_pauses_total", "worker") > 0);
    // Each of these takes the place of the oldest, until it is the turn of the one that talks.
    while server.metric("moonwire_handshakes", "worker") < 4 {
        silent.push(Client::open(server.address));
    }
    for _ in 0..6 {
        silent.push(Client::open(server.address));
        assert_eq!(server.connect("/echo").ask("and on").text(), "and on");
    }
    assert_eq!(talking.status_line(), "HTTP/1.1 408 Request Timeout");
}

/// From accept to the 101 there is one time, whether TLS has begun, goes on or is done.
#[test]
fn a_handshake_over_tls_has_no_more_time() {
    const TIME: Duration = Duration::from_millis(400);
    let folder = Folder::new(&format!(
        "[server]\nworkers = 1\n[tls]\ndev = true\n[limits]\nhandshake_timeout_ms = {}\n\
         [services.echo]\ntarget = '/echo'\n",
        TIME.as_millis()
    ));
    let server = Server::start(folder.load().unwrap()).unwrap();
    let address = server.addresses()[0];
    for said in [&b""[..], &[0x16, 3, 1], &[0x16, 3, 1, 2, 0, 1]] {
        let began = Instant::now();
        let mut client = Client::open(address);
        client.write(said);
        assert!(!client.is_alive());
        assert!(began.elapsed() >= TIME, "{said:?}");
    }
    let config = trusting(server.certificate().unwrap());
    let began = Instant::now();
    let mut late = secured(address, &config);
    late.write_all(b"GET /echo").unwrap();
    // Signs of life put nothing off.
    let mut answer = [0; 12];
    while began.elapsed() < TIME.mul_f32(0.8) {
        std::thread::sleep(TIME / 10);
        late.write_all(b"o").unwrap();
    }
    late.read_exact(&mut answer).unwrap();
    assert!(began.elapsed() >= TIME);
    assert_eq!(&answer, b"HTTP/1.1 408");
    server.stopper().stop();
    let table = server.wait().unwrap();
    assert!(table.contains("handshake timeout 4"), "{table}");
}

/// What none of them may do alone, many unfinished messages do together: the bound of the worker
/// holds at every moment, and a neighbour notices nothing.
#[test]
fn unfinished_messages_together_meet_the_bound_of_their_worker() {
    const BOUND: u64 = 4 << 20;
    const MESSAGE: usize = 1 << 20;
    let server = limited(&format!(
        "message_bytes_max = {MESSAGE}\nmemory_bytes_per_worker_max = {BOUND}\n\
         write_queue_bytes_max = {}\n",
        MESSAGE + 14
    ));
    let mut neighbour = server.connect("/echo");
    let mut hoarders: Vec<_> = (0..12).map(|_| server.connect("/echo")).collect();
    let mut begin = frame(BINARY, &vec![7; MESSAGE]);
    begin.truncate(MESSAGE - 1000);
    for (number, hoarder) in hoarders.iter_mut().enumerate() {
        // The server may cut it while it is still talking.
        hoarder.try_write(&begin);
        assert_eq!(neighbour.ask("still here").text(), "still here");
        let held = || server.metric("moonwire_memory_bytes", "part=\"message\"");
        let waiting = Instant::now();
        while number < 3 && held() < (number as u64 + 1) * (MESSAGE as u64 - 1100) {
            assert!(waiting.elapsed() < Duration::from_secs(20), "{} B", held());
        }
        assert!(held() <= BOUND, "{} B are held after {number}", held());
    }
    drop(hoarders);
    server.await_metric("moonwire_connected", "echo", 1);
    server.await_metric("moonwire_memory_bytes", "part=\"message\"", 0);
    // The others went by themselves.
    let cut = server.metric("moonwire_failures_total", "kind=\"memory\"");
    let lost = server.metric("moonwire_failures_total", "kind=\"lost\"");
    assert_eq!(cut + lost, 12);
    assert!(cut >= 12 - 4, "{cut} were cut");
    // Beyond the bound there is what one read can add, before those go that hold most.
    let peak = server.metric("moonwire_memory_peak_bytes", "worker");
    assert!(
        peak > BOUND - (1 << 20) && peak < BOUND + (1 << 20),
        "{peak} B"
    );
    neighbour.close();
    let table = server.stop();
    assert!(
        table.contains(&format!("held at most {peak} bytes")),
        "{table}"
    );
}

/// What a worker keeps of the buffers from which it sent.
#[test]
fn a_worker_keeps_so_many_buffers_of_so_many_bytes() {
    const MESSAGE: usize = 10_000;
    let frame = MESSAGE + 4;
    for (keys, kept) in [
        ("", frame..=131_072),
        ("spare_buffers_per_worker_max = 0\n", 0..=0),
        // The buffer of a message grows to its frame, and not to less.
        ("spare_buffer_bytes_max = 10003\n", 0..=10_003),
        ("spare_buffer_bytes_max = 20008\n", frame..=20_008),
    ] {
        let server = limited(keys);
        let mut client = server.connect("/echo");
        client.ask(&"x".repeat(MESSAGE));
        // A page is sent from a buffer as well, which may be the one of the message.
        let bytes = server.metric("moonwire_spare_buffer_bytes", "worker");
        assert!(kept.contains(&(bytes as usize)), "{keys}: {bytes}");
    }
}

/// A page of another site may connect, but not in the name of a user of this one.
#[test]
fn cookies_of_another_site_are_refused() {
    let server = Folder::new(
        "[server]\nworkers = 1\nallowed_origins = ['https://app.example.com']\n\
         [services.echo]\ntarget = '/echo'\n[services.amplify]\ntarget = '/amplify'\n\
         allowed_origins = ['https://other.example.com', 'http://localhost:3000']\n",
    )
    .start();
    let own = format!("http://{}", server.address);
    for (target, origin, cookie, status) in [
        ("/echo", &*own, "Cookie: session=1\r\n", 101),
        (
            "/echo",
            "https://app.example.com",
            "Cookie: session=1\r\n",
            101,
        ),
        ("/echo", "https://evil.example", "", 101),
        (
            "/echo",
            "https://evil.example",
            "Cookie: session=1\r\n",
            403,
        ),
        ("/echo", "https://evil.example", "cookie:\r\n", 403),
        ("/echo", "null", "Cookie: session=1\r\n", 403),
        (
            "/echo",
            "https://other.example.com",
            "Cookie: session=1\r\n",
            403,
        ),
        (
            "/amplify",
            "https://other.example.com",
            "Cookie: session=1\r\n",
            101,
        ),
        (
            "/amplify",
            "http://localhost:3000",
            "Cookie: session=1\r\n",
            101,
        ),
        (
            "/amplify",
            "https://app.example.com",
            "Cookie: session=1\r\n",
            403,
        ),
    ] {
        let fields = format!("Origin: {origin}\r\n{cookie}");
        let answer = match Client::upgrade(server.address, target, &fields) {
            Ok(_) => 101,
            Err(response) => {
                assert_eq!(response.body.lines().count(), 1, "{response:?}");
                assert!(response.body.contains("allowed_origins"), "{response:?}");
                response.status
            }
        };
        assert_eq!(answer, status, "{target} {fields}");
    }
    assert_eq!(refusals(&server, "cross_site"), 5);
}
