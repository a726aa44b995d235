//! When connections are made, and when the first message leaves, as the server sees it.

mod peer;

use std::time::{Duration, Instant};

use moonwire_load::{ConnectGroup, Pacing, Stop};
use peer::{Fault, Peer, closed, open};

#[test]
fn no_more_handshakes_are_under_way_than_asked_for() {
    for (threads, limit) in [(1, 1), (1, 4), (3, 4)] {
        let peer = Peer::start(Fault::Gate(limit));
        let outcome = peer.load(|settings| {
            settings.connections = 24;
            settings.threads = threads;
            settings.connect_concurrency = u32::try_from(limit).unwrap();
        });
        assert_eq!(outcome.cell.connects.ok, 24, "{:?}", outcome.cell.errors);
        assert_eq!(peer.under_way_max(), limit as u64, "{threads} threads");
    }
}

/// One handshake after the other, though all are due at once.
#[test]
fn the_wait_for_a_place_is_in_the_response_of_a_handshake_and_in_nothing_else() {
    for rate in [Some(100_000.0), None] {
        let peer = Peer::start(Fault::Gate(1));
        let outcome = peer.load(|settings| {
            settings.connections = 20;
            settings.connect_concurrency = 1;
            settings.connect_rate = rate;
        });
        let handshake = outcome.cell.handshake;
        assert_eq!(handshake.total.count(), 20);
        let all_ns = 20.0 * handshake.total.mean_ns().unwrap();
        match rate {
            Some(_) => {
                assert_eq!(handshake.response.count(), 20);
                let last_ns = handshake.response.max_ns().unwrap();
                // The histogram is good to a thousandth, and the last one was due within a ms.
                assert!(last_ns as f64 > 0.95 * all_ns, "{last_ns} of {all_ns}");
            }
            None => {
                assert!(handshake.response.is_empty());
                let online_ms = outcome.cell.connects.all_online_ms.unwrap();
                assert!(online_ms * 1e6 > 0.95 * all_ns, "{online_ms} of {all_ns}");
            }
        }
    }
}

#[test]
fn nothing_is_sent_before_all_are_connected() {
    for pacing in [closed(2), open(2000.0, None)] {
        let peer = Peer::start(Fault::LastIsLate(10, Duration::from_millis(300)));
        let outcome = peer.load(|settings| {
            settings.pacing = pacing;
            settings.threads = 2;
            settings.stop = Stop::Messages(100);
        });
        let cell = &outcome.cell;
        assert_eq!((cell.connects.ok, cell.messages.received), (10, 100));
        assert_eq!(peer.early(), 0);
    }
}

/// The last connection is answered because the others do not wait for it.
#[test]
fn without_a_barrier_each_sends_as_soon_as_it_is_open() {
    let patience = Duration::from_secs(25);
    for pacing in [closed(2), open(2000.0, None)] {
        let peer = Peer::start(Fault::LastIsLate(10, patience));
        let begun = Instant::now();
        let outcome = peer.load(|settings| {
            settings.pacing = pacing;
            settings.threads = 2;
            settings.barrier = false;
            settings.stop = Stop::Messages(100);
        });
        let cell = &outcome.cell;
        assert_eq!((cell.connects.failed, cell.messages.received), (0, 100));
        assert!(peer.early() > 0);
        assert!(begun.elapsed() < patience, "{:?}", begun.elapsed());
    }
}

/// Neither is the time that others of its thread are not due for yet, nor does it last longer.
#[test]
fn without_a_barrier_a_thread_whose_connections_come_late_is_not_late() {
    let peer = Peer::start(Fault::None);
    let begun = Instant::now();
    let outcome = peer.load(|settings| {
        settings.connections = 2;
        settings.threads = 2;
        settings.barrier = false;
        settings.connect_group = Some(ConnectGroup {
            connections: 1,
            every: Duration::from_secs(30),
        });
        settings.stop = Stop::After(Duration::from_secs(2));
    });
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(outcome.cell.connects.ok, 1);
    let seconds = outcome.cell.intervals.iter().map(|it| it.length_s);
    assert!(seconds.clone().all(|length_s| length_s < 1.5), "{:?}", {
        seconds.collect::<Vec<_>>()
    });
}

#[test]
fn groups_of_connections_are_made_one_after_the_other() {
    let every = Duration::from_millis(800);
    let peer = Peer::start(Fault::None);
    let begun = Instant::now();
    let outcome = peer.load(|settings| {
        settings.connections = 16;
        settings.threads = 2;
        settings.connect_group = Some(ConnectGroup {
            connections: 5,
            every,
        });
        settings.stop = Stop::Messages(16);
    });
    assert_eq!(outcome.cell.connects.ok, 16);
    let arrivals = peer.arrivals();
    let after = |number: usize| arrivals[number].duration_since(begun);
    for (number, group) in [(5, 1), (10, 2), (15, 3)] {
        assert!(after(number) >= every * group, "{number}: {arrivals:?}");
    }
    // A steady rate as high as this would have the last one of a group four fifths later.
    for (number, group) in [(4, 0), (9, 1), (14, 2)] {
        let due = every * group;
        assert!(
            after(number) < due + every * 3 / 5,
            "{number}: {arrivals:?}"
        );
    }
}

#[test]
fn a_random_delay_spreads_the_connections_over_its_time() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.connections = 40;
        settings.start_delay = Some(Duration::from_millis(800));
        settings.pacing = Pacing::Hold;
        settings.stop = Stop::After(Duration::from_millis(1));
    });
    assert_eq!(outcome.cell.connects.ok, 40);
    let arrivals = peer.arrivals();
    let span = arrivals[39].duration_since(arrivals[0]);
    assert!(span >= Duration::from_millis(600), "{span:?}");
    // Neither all at the beginning nor all at the end of it.
    let middle = arrivals[20].duration_since(arrivals[0]);
    let least = Duration::from_millis(200);
    assert!(middle > least && span - middle > least, "{arrivals:?}");
}
