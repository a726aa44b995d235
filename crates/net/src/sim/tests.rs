//! Sessions of both roles in the simulated world. `SEED=n cargo test` reruns one seed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use fastrand::Rng;
use moonwire_proto::{CloseCode, Opcode};

use super::*;
use crate::tests::harness::{Happened, Loop};
use crate::{ClientTls, ServerTls, SessionLimits, SocketId, Trust};

/// Runs the story with 100 seeds, or with the one that SEED names, and says which one failed.
fn each_seed(story: impl Fn(u64)) {
    let chosen = std::env::var("SEED")
        .ok()
        .map(|seed| seed.parse().expect("SEED is a number"));
    let seeds = chosen.map_or(0..100, |seed: u64| seed..seed + 1);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| story(seed))) {
            println!("failed with SEED={seed}");
            resume_unwind(panic);
        }
    }
}

fn addr() -> SocketAddr {
    ([10, 0, 0, 1], 5083).into()
}

/// A server and a client, each with its own loop.
struct Pair {
    network: SimNetwork,
    server: Loop<SimDriver>,
    client: Loop<SimDriver>,
}

impl Pair {
    fn new(seed: u64, conditions: SimConditions) -> Self {
        let network = SimNetwork::new(seed, conditions);
        let mut server = Loop::new(network.driver());
        server.listen(network.listener(addr()));
        let client = Loop::new(network.driver());
        Self {
            network,
            server,
            client,
        }
    }

    fn limits(&mut self, limits: SessionLimits) {
        let limits = Arc::new(limits);
        self.server.limits = Arc::clone(&limits);
        self.client.limits = limits;
    }

    /// Turns and time until `done`, or until nothing more can happen.
    fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..TURNS_MAX {
            self.server.turn(None);
            self.client.turn(None);
            if done(self) {
                return true;
            }
            if !self.network.advance() {
                return false;
            }
        }
        panic!("no end after {TURNS_MAX} turns");
    }

    fn connected(&mut self) -> (SocketId, SocketId) {
        let client = self.client.connect(addr(), None);
        assert!(self.run_until(|pair| pair.client.session(client).is_open()));
        (client, self.server.happened[0].0)
    }
}

/// Messages of many lengths, few of them large.
fn messages(rng: &mut Rng) -> Vec<Vec<u8>> {
    let length = |rng: &mut Rng| match rng.u32(0..10) {
        0 => rng.usize(20_000..80_000),
        1..4 => rng.usize(100..2000),
        _ => rng.usize(0..130),
    };
    (0..rng.usize(1..12))
        .map(|_| {
            let length = length(rng);
            std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
        })
        .collect()
}

/// Several clients echo and close; every byte is there although each read and write may be short.
fn echoed(seed: u64, tls: Option<&(ServerTls, ClientTls)>) {
    let mut rng = Rng::with_seed(seed ^ 0xec40);
    let mut pair = Pair::new(seed, SimConditions::default());
    pair.server.server_tls = tls.map(|tls| tls.0.clone());
    let clients: Vec<SocketId> = (0..rng.usize(1..4))
        .map(|_| pair.client.connect(addr(), tls.map(|tls| &tls.1)))
        .collect();
    assert!(pair.run_until(|pair| clients.iter().all(|c| pair.client.session(*c).is_open())));
    let mut sent = Vec::new();
    for client in &clients {
        let payloads = messages(&mut rng);
        for payload in &payloads {
            let fragment_bytes = rng.usize(1..5000);
            let session = pair.client.session(*client);
            if rng.bool() {
                session.send(Opcode::Binary, payload).unwrap();
            } else {
                session
                    .send_fragmented(Opcode::Binary, payload, fragment_bytes)
                    .unwrap();
            }
        }
        sent.push(payloads);
    }
    assert!(pair.run_until(|pair| {
        let heard = |(client, sent): (&SocketId, &Vec<_>)| {
            pair.client.messages(*client).len() == sent.len()
        };
        clients.iter().zip(&sent).all(heard)
    }));
    for (client, sent) in clients.iter().zip(&sent) {
        assert!(pair.client.messages(*client) == *sent, "another echo");
        pair.client.session(*client).close(CloseCode::NORMAL, "");
    }
    assert!(pair.run_until(|p| p.client.sessions.is_empty() && p.server.sessions.is_empty()));
    let closed = pair.client.happened.iter().chain(&pair.server.happened);
    let closed = closed.filter(|(_, what)| matches!(what, Happened::Closed(Some(1000), ..)));
    assert_eq!(closed.count(), 2 * clients.len());
}

#[test]
fn every_echo_comes_back_through_short_reads_and_writes() {
    each_seed(|seed| echoed(seed, None));
}

#[test]
fn every_echo_comes_back_over_tls() {
    let tls = (
        ServerTls::self_signed().unwrap(),
        ClientTls::new(&Trust::Anyone).unwrap(),
    );
    each_seed(|seed| echoed(seed, Some(&tls)));
}

#[test]
fn resets_end_connections_and_nothing_else() {
    each_seed(|seed| {
        let resets_per_10_000 = 400;
        let mut pair = Pair::new(
            seed,
            SimConditions {
                resets_per_10_000,
                ..Default::default()
            },
        );
        let mut rng = Rng::with_seed(seed);
        let clients: Vec<SocketId> = (0..8).map(|_| pair.client.connect(addr(), None)).collect();
        for _ in 0..10 {
            for client in &clients {
                if pair
                    .client
                    .sessions
                    .get(client)
                    .is_some_and(|session| session.is_open())
                {
                    let payload = vec![1; rng.usize(0..5000)];
                    pair.client
                        .session(*client)
                        .send(Opcode::Binary, &payload)
                        .unwrap();
                }
            }
            let until = pair.network.now() + Duration::from_millis(20);
            pair.run_until(|pair| pair.network.now() >= until);
        }
        for client in &clients {
            if pair.client.sessions.contains_key(client) {
                pair.client.session(*client).close(CloseCode::NORMAL, "");
            }
        }
        let all_gone = pair
            .run_until(|pair| pair.client.sessions.is_empty() && pair.server.sessions.is_empty());
        assert!(all_gone, "{:?}", pair.client.sessions);
        for (of, side) in [(&clients, &pair.client)] {
            for socket in of {
                let story = side.story(*socket);
                let ends =
                    |what: &&Happened| matches!(what, Happened::Closed(..) | Happened::Failed(_));
                assert_eq!(story.iter().filter(ends).count(), 1, "{story:?}");
                assert_eq!(story.last(), Some(&Happened::Finished));
            }
        }
    });
}

#[test]
fn a_silent_peer_is_pinged_and_stays() {
    let mut pair = Pair::new(1, SimConditions::default());
    pair.limits(SessionLimits {
        idle_timeout: Some(Duration::from_secs(10)),
        pong_timeout: Some(Duration::from_secs(3)),
        ..SessionLimits::default()
    });
    let (client, server) = pair.connected();
    let hour = pair.network.now() + Duration::from_secs(3600);
    pair.run_until(|pair| pair.network.now() >= hour);
    assert!(pair.client.session(client).is_open() && pair.server.session(server).is_open());
    let pings = pair
        .client
        .story(client)
        .iter()
        .filter(|what| **what == Happened::Ping)
        .count();
    assert!((150..=360).contains(&pings), "{pings}");
}

#[test]
fn a_peer_that_does_not_answer_a_ping_has_failed() {
    let mut pair = Pair::new(1, SimConditions::default());
    pair.server.limits = Arc::new(SessionLimits {
        idle_timeout: Some(Duration::from_secs(10)),
        pong_timeout: Some(Duration::from_secs(3)),
        ..SessionLimits::default()
    });
    let (client, server) = pair.connected();
    let start = pair.network.now();
    crate::Driver::pause_receive(&mut pair.client.driver, client);
    assert!(pair.run_until(|pair| pair.server.sessions.is_empty()));
    let took = pair.network.now() - start;
    assert!(
        took > Duration::from_millis(12_990) && took < Duration::from_millis(13_200),
        "{took:?} {:?}",
        pair.server.story(server)
    );
    let story = pair.server.story(server);
    assert!(story.contains(&Happened::Failed(
        "the peer did not answer a ping in time".into()
    )));
}

/// A server has sent `bytes` at once to a client that reads one window of them now and then.
/// Ends when it has them all, or the server's end is gone.
fn read_slowly(limits: SessionLimits, bytes: usize, every: Duration, closes: bool) -> SlowRead {
    let conditions = SimConditions {
        short_per_mille: 0,
        ..SimConditions::default()
    };
    let mut pair = Pair::new(1, conditions);
    pair.server.limits = Arc::new(limits);
    let (client, server) = pair.connected();
    let start = pair.network.now();
    let mut waker = pair.network.driver();
    let mut next = start;
    crate::Driver::pause_receive(&mut pair.client.driver, client);
    let session = pair.server.session(server);
    session.send(Opcode::Binary, &vec![7; bytes]).unwrap();
    if closes {
        session.close(CloseCode::NORMAL, "");
    }
    pair.run_until(|pair| {
        use crate::Driver;
        if pair.network.now() >= next {
            next = pair.network.now() + every;
            pair.client.driver.resume_receive(client);
            pair.client.turn(None);
            pair.client.driver.pause_receive(client);
        }
        waker.wait(Some(next)).unwrap();
        let is_over = pair.server.sessions.is_empty();
        is_over || !pair.client.messages(client).is_empty()
    });
    let is_complete = !pair.client.messages(client).is_empty();
    SlowRead {
        is_complete,
        took: pair.network.now() - start,
        server: pair.server.story(server),
    }
}

#[derive(Debug)]
struct SlowRead {
    is_complete: bool,
    took: Duration,
    server: Vec<Happened>,
}

#[test]
fn a_slow_reader_of_much_is_not_taken_for_a_stalled_one() {
    let limits = SessionLimits {
        idle_timeout: None,
        write_timeout: Duration::from_secs(5),
        write_queue_pause_bytes: 100_000,
        ..SessionLimits::default()
    };
    let read = read_slowly(limits, 500_000, Duration::from_secs(3), false);
    assert!(read.is_complete, "{read:?}");
    assert!(!read.server.contains(&Happened::Finished), "{read:?}");
    assert!(read.took > Duration::from_secs(60), "{read:?}");
}

#[test]
fn a_ping_that_waits_behind_data_does_not_fail_who_takes_the_data() {
    let limits = SessionLimits {
        idle_timeout: Some(Duration::from_secs(10)),
        pong_timeout: Some(Duration::from_secs(3)),
        ..SessionLimits::default()
    };
    let read = read_slowly(limits, 500_000, Duration::from_secs(2), false);
    assert!(read.is_complete, "{read:?}");
    assert!(read.took > Duration::from_secs(40), "{read:?}");
}

#[test]
fn a_close_behind_much_data_waits_for_who_takes_it() {
    let limits = SessionLimits {
        close_timeout: Duration::from_secs(5),
        ..SessionLimits::default()
    };
    let read = read_slowly(limits, 150_000, Duration::from_secs(3), true);
    assert!(read.is_complete, "{read:?}");
    assert!(read.took > Duration::from_secs(20), "{read:?}");
}

#[test]
fn a_close_that_trickles_is_cut_off() {
    let limits = SessionLimits {
        close_timeout: Duration::from_secs(5),
        ..SessionLimits::default()
    };
    let read = read_slowly(limits, 500_000, Duration::from_secs(3), true);
    assert!(!read.is_complete, "{read:?}");
    let took = read.took.as_secs();
    assert!((49..52).contains(&took), "{read:?}");
}

#[test]
fn a_peer_that_never_reads_has_failed_even_without_an_idle_timeout() {
    let limits = SessionLimits {
        idle_timeout: None,
        write_queue_pause_bytes: 100_000,
        ..SessionLimits::default()
    };
    let read = read_slowly(limits, 500_000, Duration::from_secs(3600), false);
    let stalled = Happened::Failed("the peer does not take what is sent to it".into());
    assert!(read.server.contains(&stalled), "{read:?}");
    assert!(read.took < Duration::from_secs(130), "{read:?}");
}

#[test]
fn a_quiet_reader_is_given_all_its_time_to_take_what_waits_for_it() {
    let mut pair = Pair::new(1, SimConditions::default());
    pair.server.limits = Arc::new(SessionLimits {
        idle_timeout: Some(Duration::from_secs(10)),
        write_timeout: Duration::from_secs(10),
        write_queue_pause_bytes: 100_000,
        ..SessionLimits::default()
    });
    let (client, server) = pair.connected();
    let quiet = pair.network.now() + Duration::from_millis(9_900);
    let mut waker = pair.network.driver();
    pair.run_until(|pair| {
        crate::Driver::wait(&mut waker, Some(quiet)).unwrap();
        pair.network.now() >= quiet
    });
    // It says nothing and is slow for a moment just before its silence counts.
    crate::Driver::pause_receive(&mut pair.client.driver, client);
    let session = pair.server.session(server);
    session.send(Opcode::Binary, &[7; 200_000]).unwrap();
    let slow = pair.network.now() + Duration::from_secs(3);
    pair.run_until(|pair| {
        crate::Driver::wait(&mut waker, Some(slow)).unwrap();
        pair.network.now() >= slow
    });
    crate::Driver::resume_receive(&mut pair.client.driver, client);
    assert!(pair.run_until(|pair| !pair.client.messages(client).is_empty()));
    assert!(pair.server.session(server).is_open());
}

#[test]
fn a_handshake_that_trickles_is_cut_off_at_an_absolute_time() {
    let mut pair = Pair::new(1, SimConditions::default());
    let mut trickle = pair.network.driver();
    let socket = crate::Driver::connect(&mut trickle, &addr().into()).unwrap();
    let mut sent = 0;
    let limits = SessionLimits::default();
    let timeout = limits.handshake_timeout;
    pair.run_until(|pair| {
        use crate::Driver;
        // One more byte each second.
        let now = trickle.now();
        trickle
            .wait(Some(Time::from_nanos((sent + 1) * 1_000_000_000)))
            .unwrap();
        while trickle.next().is_some() {}
        if now.as_nanos() >= sent * 1_000_000_000 {
            sent += 1;
            let _ = trickle.send(socket, b"G".to_vec());
        }
        pair.server
            .happened
            .iter()
            .any(|(_, what)| matches!(what, Happened::Finished))
            || now > Time::default() + 3 * timeout
    });
    let server = pair.server.happened[0].0;
    let story = pair.server.story(server);
    assert_eq!(
        story[1],
        Happened::Failed("the handshake took too long".into()),
        "{story:?}"
    );
    let took = pair.network.now() - Time::default();
    // It is told so, and has no more than the time of a close to go.
    let end = timeout + limits.close_timeout;
    assert!(
        took >= timeout && took < end + Duration::from_secs(1),
        "{took:?}"
    );
}

#[test]
fn a_close_that_is_not_answered_ends_in_time() {
    let mut pair = Pair::new(1, SimConditions::default());
    let (client, server) = pair.connected();
    crate::Driver::pause_receive(&mut pair.client.driver, client);
    let start = pair.network.now();
    pair.server.session(server).close(CloseCode::NORMAL, "");
    assert!(pair.run_until(|pair| pair.server.sessions.is_empty()));
    let took = pair.network.now() - start;
    let timeout = SessionLimits::default().close_timeout;
    assert!(
        took >= timeout && took < timeout + Duration::from_millis(100),
        "{took:?}"
    );
    let failed = Happened::Failed("the peer did not answer the close in time".into());
    assert!(pair.server.story(server).contains(&failed));
}

mod limits;

/// No test needs nearly as many turns.
const TURNS_MAX: usize = 200_000;
