//! The link on this machine: real packets between two namespaces. Without root or a TUN device
//! there is nothing to test, and the tests say so.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers are tests too"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use moonwire_lab::{ChildProcess, ChildSpec, Link, LinkError, LinkKind, LinkSpec, Ready};

const DELAY: Duration = Duration::from_millis(20);

/// A TUN link, or `None` with the reason printed where this machine offers none.
fn tun(spec: LinkSpec) -> Option<Link> {
    match Link::establish(&LinkSpec {
        kind: Some(LinkKind::Tun),
        ..spec
    }) {
        Ok(link) => Some(link),
        Err(LinkError::Unavailable { reason, .. }) => {
            println!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn listen(link: &Link) -> (TcpListener, SocketAddr) {
    let listener = link
        .in_server(|| TcpListener::bind((link.server_address(), 0)))
        .unwrap();
    let listener = listener.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn the_delay_is_never_less_than_asked_and_hardly_more() {
    let Some(link) = tun(LinkSpec {
        delay: DELAY,
        ..LinkSpec::default()
    }) else {
        return;
    };
    let mark = link.mark();
    let idle = link
        .measure_idle(20, &AtomicBool::new(false))
        .unwrap()
        .expect("a TUN link can be measured");
    println!("{idle:?}");
    assert!(idle.up.min_ns >= 20_000_000, "{:?}", idle.up);
    assert!(idle.down.min_ns >= 20_000_000, "{:?}", idle.down);
    assert!(
        idle.round_trip.min_ns >= 40_000_000,
        "{:?}",
        idle.round_trip
    );
    // On a quiet machine the median is below 40.5 ms; a busy one may be late, never early.
    assert!(idle.round_trip.p50_ns < 45_000_000, "{:?}", idle.round_trip);
    let stats = link.stats_since(&mark).expect("a TUN link counts");
    assert!(
        stats.up.packets >= 21 && stats.down.packets >= 21,
        "{stats:?}"
    );
    assert_eq!(stats.dropped_packets(), 0, "{stats:?}");
    assert!(stats.cpu_ns > 0 && stats.cpu_share() < 0.5, "{stats:?}");
}

#[test]
fn large_transfers_arrive_whole_in_both_directions() {
    let delay = Duration::from_millis(2);
    let Some(link) = tun(LinkSpec {
        delay,
        ..LinkSpec::default()
    }) else {
        return;
    };
    let (listener, address) = listen(&link);
    let pattern: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = vec![0; pattern.len()];
            stream.read_exact(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let echoed = link.in_client(|| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&pattern).unwrap();
            let mut echoed = vec![0; pattern.len()];
            stream.read_exact(&mut echoed).unwrap();
            echoed
        });
        assert!(
            echoed.unwrap() == pattern,
            "the echo differs from what was sent"
        );
    });
}

#[test]
fn a_full_queue_drops_and_counts() {
    let spec = LinkSpec {
        delay: DELAY,
        queue_bytes: 10_000,
        ..LinkSpec::default()
    };
    let Some(link) = tun(spec) else { return };
    let mark = link.mark();
    link.in_client(|| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        for _ in 0..50 {
            socket
                .send_to(&[0; 1000], (link.server_address(), 9))
                .unwrap();
        }
    })
    .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while link.stats_since(&mark).unwrap().up.dropped_queue < 30 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let up = link.stats_since(&mark).unwrap().up;
    // A stalled forwarder may have let out some of the first before it read the last.
    assert!((30..=41).contains(&up.dropped_queue), "{up:?}");
    assert!(up.queue_bytes_max <= 10_000, "{up:?}");
}

#[test]
fn a_lossy_link_loses_packets_and_tcp_goes_on() {
    let delay = Duration::from_millis(1);
    let Some(link) = tun(LinkSpec {
        delay,
        loss: 0.02,
        ..LinkSpec::default()
    }) else {
        return;
    };
    let (listener, address) = listen(&link);
    let mark = link.mark();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut received = Vec::new();
            listener
                .accept()
                .unwrap()
                .0
                .read_to_end(&mut received)
                .unwrap();
            assert_eq!(received.len(), 1_000_000);
        });
        link.in_client(|| {
            TcpStream::connect(address)
                .unwrap()
                .write_all(&[7; 1_000_000])
                .unwrap()
        })
        .unwrap();
    });
    let stats = link.stats_since(&mark).unwrap();
    assert!(stats.up.dropped_loss > 0, "{stats:?}");
}

#[test]
fn a_child_at_the_servers_end_sees_that_end_only() {
    let Some(link) = tun(LinkSpec {
        delay: DELAY,
        ..LinkSpec::default()
    }) else {
        return;
    };
    let child = ChildProcess::start(&ChildSpec {
        program: "/bin/sh".into(),
        args: vec![
            "-c".into(),
            "cat /proc/net/dev; echo ready; exec sleep 60".into(),
        ],
        env: Vec::new(),
        cpus: Vec::new(),
        group: None,
        at: link.server_end(),
        pauses: None,
        ready: Ready::Line("ready".to_owned()),
        ready_timeout: Duration::from_secs(20),
    })
    .unwrap();
    let devices = child.output_tail().join("\n");
    assert!(
        devices.contains("mw1") && !devices.contains("mw0"),
        "{devices}"
    );
}

#[test]
fn a_link_without_delay_is_plain_loopback() {
    let link = Link::establish(&LinkSpec::default()).unwrap();
    assert_eq!(link.kind(), LinkKind::Loopback);
    assert!(link.server_address().is_loopback());
    assert!(link.stats_since(&link.mark()).is_none());
    let idle = link
        .measure_idle(20, &AtomicBool::new(false))
        .unwrap()
        .expect("loopback can be measured");
    assert_eq!(idle.exchanges, 20);
}

#[test]
fn a_stand_in_is_named_and_leaves_the_delay_to_the_generator() {
    let kind = Some(LinkKind::StandIn);
    let link = Link::establish(&LinkSpec {
        delay: DELAY,
        kind,
        ..LinkSpec::default()
    })
    .unwrap();
    assert_eq!(link.stand_in_delay(), Some(DELAY));
    assert!(
        link.measure_idle(1, &AtomicBool::new(false))
            .unwrap()
            .is_none()
    );
    assert!(link.kind().to_string().starts_with("stand-in"));
}

#[test]
fn links_that_cannot_be_are_refused() {
    for spec in [
        LinkSpec {
            loss: 1.0,
            ..LinkSpec::default()
        },
        LinkSpec {
            loss: f64::NAN,
            ..LinkSpec::default()
        },
        LinkSpec {
            rate_bytes_per_s: Some(0),
            ..LinkSpec::default()
        },
        LinkSpec {
            delay: Duration::from_secs(61),
            ..LinkSpec::default()
        },
    ] {
        let error = Link::establish(&spec).unwrap_err();
        assert!(matches!(error, LinkError::BadSpec(_)), "{spec:?}: {error}");
    }
}

#[test]
fn the_best_kind_says_why_nothing_better_was_to_be_had() {
    let link = Link::establish(&LinkSpec {
        delay: DELAY,
        ..LinkSpec::default()
    })
    .unwrap();
    println!("{}: {:?}", link.kind(), link.notes());
    if link.kind() != LinkKind::Netem {
        assert!(
            link.notes()
                .iter()
                .any(|note| note.starts_with("no netem: "))
        );
    }
}
