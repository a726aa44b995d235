//! Bounds of one connection, each at its last moment or byte and one past it.

mod round_trip;

use std::time::Duration;

use super::*;
use crate::{Driver, SendError, Session, Time};

/// A server, and a peer of it that says whatever the test wants said.
struct Raw {
    pair: Pair,
    peer: SimDriver,
    socket: SocketId,
    received: Vec<u8>,
}

impl Raw {
    /// Bytes take no time; the connection is accepted at the beginning of time.
    fn connect(limits: SessionLimits) -> Self {
        let conditions = SimConditions {
            delay_max: Duration::ZERO,
            short_per_mille: 0,
            window_bytes: WINDOW_BYTES,
            ..SimConditions::default()
        };
        let mut pair = Pair::new(1, conditions);
        pair.limits(limits);
        let mut peer = pair.network.driver();
        let socket = peer.connect(&addr().into()).unwrap();
        let mut raw = Self {
            pair,
            peer,
            socket,
            received: Vec::new(),
        };
        raw.settle();
        raw
    }

    /// The same after the handshake.
    fn upgraded(limits: SessionLimits) -> Self {
        let mut raw = Self::connect(limits);
        raw.send(REQUEST);
        assert!(raw.received.starts_with(b"HTTP/1.1 101 "));
        raw.received.clear();
        raw
    }

    /// Everything that happens without time going on.
    fn settle(&mut self) {
        for _ in 0..10 {
            self.pair.server.turn(Some(Time::default()));
            self.take();
        }
    }

    fn take(&mut self) {
        self.peer.wait(Some(Time::MAX)).unwrap();
        while let Some(completion) = self.peer.next() {
            if let crate::Completion::Received { buffer, .. } = completion {
                self.received.extend_from_slice(&buffer);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let sent = self.peer.send(self.socket, bytes.to_vec());
        assert!(matches!(sent, crate::Submission::Done(_)));
        self.settle();
    }

    /// Lets time go on until `at` after the beginning.
    fn until(&mut self, at: Duration) {
        let at = Time::default() + at;
        let mut clock = self.pair.network.driver();
        for _ in 0..TURNS_MAX {
            self.pair.server.turn(None);
            self.take();
            if self.pair.network.now() >= at {
                return;
            }
            clock.wait(Some(at)).unwrap();
            assert!(self.pair.network.advance());
        }
        panic!("no end after {TURNS_MAX} turns");
    }

    fn session(&mut self) -> &mut Session {
        let socket = self.pair.server.happened[0].0;
        self.pair.server.session(socket)
    }

    fn is_open(&self) -> bool {
        let mut sessions = self.pair.server.sessions.values();
        sessions.next().is_some_and(Session::is_open)
    }

    /// How the server's end failed, in its words.
    fn failure(&self) -> Option<String> {
        let happened = self.pair.server.happened.iter();
        let mut failures = happened.filter_map(|(_, what)| {
            let Happened::Failed(why) = what else {
                return None;
            };
            Some(why.clone())
        });
        failures.next()
    }

    fn messages(&self) -> usize {
        let happened = self.pair.server.happened.iter();
        let is_message = |what: &Happened| matches!(what, Happened::Message(..));
        happened.filter(|(_, what)| is_message(what)).count()
    }

    /// The code of the close frame that the server ended with.
    fn close_code(&self) -> u16 {
        let frame = &self.received[self.received.len() - usize::from(self.received[1]) - 2..];
        assert_eq!(frame[0], 0x88, "{frame:?}");
        u16::from_be_bytes([frame[2], frame[3]])
    }
}

/// A frame of a client, masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![first];
    match payload.len() {
        0..126 => frame.push(0x80 | length[1]),
        _ => frame.extend([0x80 | 126, length[0], length[1]]),
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

#[test]
fn a_request_may_end_with_the_last_moment_of_its_time() {
    let (head, end) = REQUEST.split_at(REQUEST.len() - 1);
    for (at, status) in [(LAST_MOMENT, "101"), (TIMEOUT, "408")] {
        let mut raw = Raw::connect(SessionLimits {
            handshake_timeout: TIMEOUT,
            ..SessionLimits::default()
        });
        raw.send(head);
        raw.until(at);
        raw.send(end);
        let answer = String::from_utf8(raw.received.clone()).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert_eq!(raw.is_open(), status == "101");
    }
}

/// Which of the two it waits for does not matter: the TLS handshake is a part of the handshake.
#[test]
fn a_tls_handshake_has_no_time_of_its_own() {
    for hello in [&[][..], &[0x16, 3, 1, 2, 0, 1]] {
        let mut raw = Raw::connect(SessionLimits::default());
        raw.pair.server.server_tls = Some(ServerTls::self_signed().unwrap());
        raw.pair.limits(SessionLimits {
            handshake_timeout: TIMEOUT,
            ..SessionLimits::default()
        });
        raw.socket = raw.peer.connect(&addr().into()).unwrap();
        raw.settle();
        if !hello.is_empty() {
            raw.send(hello);
        }
        raw.until(LAST_MOMENT);
        assert_eq!(raw.failure(), None);
        raw.until(TIMEOUT);
        assert_eq!(raw.failure().unwrap(), "the handshake took too long");
    }
}

#[test]
fn a_ping_is_sent_when_the_idle_time_is_over_and_answered_within_its_own() {
    let limits = SessionLimits {
        idle_timeout: Some(TIMEOUT),
        pong_timeout: Some(TIMEOUT),
        ..SessionLimits::default()
    };
    for is_answered in [true, false] {
        let mut raw = Raw::upgraded(limits.clone());
        raw.until(LAST_MOMENT);
        assert_eq!(raw.received, [], "not yet");
        raw.until(TIMEOUT);
        assert_eq!(
            (raw.received.len(), &raw.received[..2]),
            (10, &[0x89, 8][..])
        );
        raw.until(TIMEOUT + LAST_MOMENT);
        if is_answered {
            raw.send(&frame(0x8a, b""));
        }
        raw.until(TIMEOUT + TIMEOUT);
        assert_eq!(raw.is_open(), is_answered);
        let failure = raw.failure();
        assert_eq!(failure.is_none(), is_answered, "{failure:?}");
    }
}

#[test]
fn a_message_may_end_with_the_last_moment_of_its_time_however_it_trickles() {
    for (end, is_in_time) in [(LAST_MOMENT, true), (TIMEOUT, false)] {
        let mut raw = Raw::upgraded(timed_messages());
        raw.send(&frame(0x02, b"b"));
        // Signs of life do not put it off, and neither do further fragments.
        for at in 1..10 {
            raw.until(Duration::from_secs(at));
            raw.send(&frame(0x00, b"."));
            raw.send(&frame(0x8a, b""));
        }
        raw.until(end);
        raw.send(&frame(0x80, b"e"));
        assert_eq!(raw.messages(), usize::from(is_in_time));
        assert_eq!(raw.is_open(), is_in_time);
        if !is_in_time {
            assert_eq!(raw.failure().unwrap(), "a message took too long to arrive");
            assert_eq!(raw.close_code(), 1008);
            let held = raw.session().memory_bytes();
            assert_eq!((held.message, held.received), (0, 0), "given up at once");
        }
    }
}

#[test]
fn each_message_has_its_own_time() {
    let mut raw = Raw::upgraded(timed_messages());
    raw.send(&frame(0x02, b"one"));
    raw.until(LAST_MOMENT);
    // The end of the first and the beginning of the second in one read.
    raw.send(&[frame(0x80, b""), frame(0x02, b"two")].concat());
    raw.until(LAST_MOMENT + LAST_MOMENT);
    assert!(raw.is_open());
    raw.until(LAST_MOMENT + TIMEOUT);
    assert!(!raw.is_open());
    assert_eq!(raw.messages(), 1);
}

/// Its peer can do nothing about its message while nothing is received.
#[test]
fn the_time_of_a_message_does_not_run_while_the_session_is_paused() {
    let mut raw = Raw::upgraded(SessionLimits {
        write_queue_pause_bytes: 10,
        write_timeout: Duration::from_secs(1000),
        ..timed_messages()
    });
    raw.send(&frame(0x02, b"begins"));
    raw.peer.pause_receive(raw.socket);
    let much = vec![7; 2 * WINDOW_BYTES];
    raw.session().send(Opcode::Binary, &much).unwrap();
    raw.until(TIMEOUT + TIMEOUT);
    assert!(raw.is_open(), "{:?}", raw.failure());
    raw.peer.resume_receive(raw.socket);
    raw.until(TIMEOUT + TIMEOUT + LAST_MOMENT);
    raw.send(&frame(0x80, b"ends"));
    assert_eq!((raw.is_open(), raw.messages()), (true, 1));
}

/// Otherwise a peer could keep a message open for ever by having much sent to it now and then.
#[test]
fn a_pause_puts_the_end_of_a_message_off_by_its_own_length() {
    for (end, is_in_time) in [(LAST_MOMENT, true), (TIMEOUT, false)] {
        let pauses = 3 * Duration::from_secs(2);
        let mut raw = Raw::upgraded(SessionLimits {
            write_queue_pause_bytes: 10,
            ..timed_messages()
        });
        raw.send(&frame(0x02, b"begins"));
        for start in [2, 5, 8] {
            raw.until(Duration::from_secs(start));
            raw.peer.pause_receive(raw.socket);
            let much = vec![7; 2 * WINDOW_BYTES];
            raw.session().send(Opcode::Binary, &much).unwrap();
            raw.until(Duration::from_secs(start + 2));
            raw.peer.resume_receive(raw.socket);
        }
        raw.until(end + pauses);
        raw.send(&frame(0x80, b"ends"));
        assert_eq!(
            (raw.is_open(), raw.messages() == 1),
            (is_in_time, is_in_time)
        );
    }
}

#[test]
fn a_peer_that_takes_nothing_has_failed_when_the_write_time_is_over() {
    let mut raw = Raw::upgraded(SessionLimits {
        write_queue_pause_bytes: 10,
        write_timeout: TIMEOUT,
        idle_timeout: None,
        ..SessionLimits::default()
    });
    raw.peer.pause_receive(raw.socket);
    let much = vec![7; 2 * WINDOW_BYTES];
    raw.session().send(Opcode::Binary, &much).unwrap();
    raw.until(LAST_MOMENT);
    assert!(raw.is_open());
    raw.until(TIMEOUT);
    assert_eq!(
        raw.failure().unwrap(),
        "the peer does not take what is sent to it"
    );
}

#[test]
fn a_message_may_take_all_the_memory_of_its_connection_and_no_more() {
    let (begin, end) = (frame(0x02, &[7; 10_000]), frame(0x80, &[7; 10_000]));
    let held = |memory_bytes_max| {
        let mut raw = Raw::upgraded(SessionLimits {
            memory_bytes_max,
            ..SessionLimits::default()
        });
        raw.send(&begin);
        let held = raw.is_open().then(|| raw.session().memory_bytes());
        raw.send(&end);
        (held, raw)
    };
    let (memory, raw) = held(usize::MAX);
    let memory = memory.unwrap();
    assert!(memory.message >= 10_000, "{memory:?}");
    assert_eq!(memory.total(), memory.message);
    assert_eq!(raw.messages(), 1);
    let (_, mut raw) = held(memory.total());
    assert_eq!((raw.is_open(), raw.messages()), (true, 1));
    assert_eq!(
        raw.session().memory_bytes().total(),
        0,
        "given up when it is over"
    );
    let (_, raw) = held(memory.total() - 1);
    assert_eq!((raw.is_open(), raw.messages()), (false, 0));
    assert_eq!(
        raw.failure().unwrap(),
        "the peer's message takes more memory than a connection may hold"
    );
    assert_eq!(raw.close_code(), 1008);
}

#[test]
fn a_write_queue_takes_all_that_it_may_hold_and_no_more() {
    let (first, header) = (100, 14);
    for (second, is_taken) in [(WRITE_QUEUE_BYTES, true), (WRITE_QUEUE_BYTES + 1, false)] {
        let mut raw = Raw::upgraded(SessionLimits {
            write_queue_bytes_max: WRITE_QUEUE_BYTES,
            ..SessionLimits::default()
        });
        let session = raw.session();
        session.send(Opcode::Binary, &vec![7; first]).unwrap();
        let waiting = session.write_queue_bytes();
        let sent = session.send(Opcode::Binary, &vec![7; second - waiting - header]);
        assert_eq!(sent.is_ok(), is_taken, "{sent:?}");
    }
}

#[test]
fn a_write_queue_is_also_held_to_the_memory_of_its_connection() {
    let mut raw = Raw::upgraded(SessionLimits {
        memory_bytes_max: 10_000,
        ..SessionLimits::default()
    });
    let session = raw.session();
    session.send(Opcode::Binary, &[7; 5000]).unwrap();
    let room = 10_000 - session.memory_bytes().total() - 14;
    let beyond = session.send(Opcode::Binary, &vec![7; room + 1]);
    assert_eq!(beyond, Err(SendError::QueueFull));
    session.send(Opcode::Binary, &vec![7; room]).unwrap();
}

/// Each part of the ledger, when it holds something and when it does not.
#[test]
fn the_ledger_names_what_a_connection_holds() {
    let mut raw = Raw::connect(SessionLimits::default());
    let fixed = raw.session().memory_bytes().handshake;
    raw.send(&REQUEST[..50]);
    let memory = raw.session().memory_bytes();
    assert!(memory.handshake >= fixed + 50, "{memory:?}");
    raw.send(&REQUEST[50..]);
    assert_eq!(raw.session().memory_bytes().total(), 0);
    raw.peer.pause_receive(raw.socket);
    let much = vec![7; 2 * WINDOW_BYTES];
    raw.session().send(Opcode::Binary, &much).unwrap();
    raw.settle();
    let memory = raw.session().memory_bytes();
    assert!(memory.write_queue >= much.len(), "{memory:?}");
    assert_eq!(memory.total(), memory.write_queue);
    let names = crate::SessionMemory::NAMES.iter().zip(memory.parts());
    assert_eq!(names.map(|(_, bytes)| bytes).sum::<usize>(), memory.total());
}

fn timed_messages() -> SessionLimits {
    SessionLimits {
        message_timeout: Some(TIMEOUT),
        idle_timeout: None,
        ..SessionLimits::default()
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);
const LAST_MOMENT: Duration = Duration::from_nanos(9_999_999_999);
const WINDOW_BYTES: usize = 64 * 1024;
const WRITE_QUEUE_BYTES: usize = 1000;

const REQUEST: &[u8] = b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";
