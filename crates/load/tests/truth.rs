//! Latencies are those that a user would have waited, in miniature.

mod peer;

use std::time::Duration;

use moonwire_load::{Pacing, Stop, TimeUnit, Workload};
use peer::{Fault, Peer, closed, open};

/// A server that does nothing for 200 ms in every second: a fifth of all messages is due
/// meanwhile, evenly, so that the 90th percentile of all is the middle of those. Rates and bounds
/// are wide enough for a machine that does something else as well.
#[test]
fn a_stall_is_in_the_response_time_with_and_without_a_limit_in_flight() {
    for in_flight in [None, Some(1)] {
        let peer = Peer::start(Fault::Stall(
            Duration::from_secs(1),
            Duration::from_millis(200),
        ));
        let outcome = peer.load(|settings| {
            settings.pacing = open(500.0, in_flight);
            settings.stop = Stop::After(Duration::from_secs(4));
            settings.drain = Duration::from_secs(2);
        });
        let cell = &outcome.cell;
        assert_eq!((cell.messages.sent, cell.messages.lost), (2000, 0));
        let p90_ms = cell.latency.response.quantile_ns(0.9).unwrap() as f64 / 1e6;
        assert!(
            (85.0..150.0).contains(&p90_ms),
            "p90 {p90_ms} ms, in flight {in_flight:?}"
        );
        let slow = cell.latency.service.count_above(50_000_000);
        let waited = cell.latency.slot_wait.count_above(50_000_000);
        if in_flight.is_some() {
            // Each of ten connections has one message in flight when a stall begins; the others
            // wait for the slot.
            assert!(slow <= 50, "{slow} slow services");
            assert!(waited > 150, "{waited} waited for a slot");
        } else {
            assert!(slow > 200, "{slow} slow services");
            assert_eq!(waited, 0);
        }
    }
}

#[test]
fn the_stand_in_link_delays_both_ways() {
    let peer = Peer::start(Fault::Amplify(4, false));
    let delay = Duration::from_millis(20);
    let outcome = peer.load(|settings| {
        settings.workload = Workload::Amplify {
            size: 1024,
            time_unit: TimeUnit::Microseconds,
        };
        settings.replies = 4;
        settings.pacing = Pacing::Batches {
            batch: 2,
            wait: Duration::from_millis(50),
            batches: 5,
            in_flight: None,
        };
        settings.stop = Stop::Schedule;
        settings.link_delay = Some(delay);
    });
    let cell = &outcome.cell;
    assert_eq!(
        (
            cell.messages.sent,
            cell.messages.lost,
            cell.messages.corrupt
        ),
        (100, 0, 0)
    );
    let one_way = cell.latency.one_way.histogram().unwrap();
    assert!(one_way.min_ns().unwrap() >= 20_000_000);
    assert!(cell.latency.round_trip_seed.min_ns().unwrap() >= 40_000_000);
    assert!(cell.latency.response.quantile_ns(0.5).unwrap() < 60_000_000);
    assert_eq!(cell.link.as_ref().unwrap().kind, "stand-in");
}

/// The server reads its clock 20 ms after a message came, and answers 30 ms after that: no message
/// can have been faster, and none has a round trip less than 30 ms longer than its one way.
#[test]
fn one_way_ends_at_the_clock_of_the_server_and_the_round_trip_at_the_reply() {
    let (before, after) = (Duration::from_millis(20), Duration::from_millis(30));
    let peer = Peer::start(Fault::AmplifyLate(2, before, after));
    let outcome = peer.load(|settings| {
        settings.workload = Workload::Amplify {
            size: 300,
            time_unit: TimeUnit::Microseconds,
        };
        settings.replies = 2;
        settings.stop = Stop::Messages(100);
    });
    let latency = &outcome.cell.latency;
    let one_way = latency.one_way.histogram().unwrap();
    let round_trip = &latency.round_trip_seed;
    assert_eq!((one_way.count(), round_trip.count()), (100, 200));
    assert!(one_way.min_ns().unwrap() >= 20_000_000);
    assert!(round_trip.min_ns().unwrap() >= 50_000_000);
    // Each message has two of these, so that mean and percentiles can be compared, too. Values of
    // the histograms are good to a thousandth.
    let gap_ns: u32 = 29_500_000;
    assert!(round_trip.mean_ns().unwrap() >= one_way.mean_ns().unwrap() + f64::from(gap_ns));
    let gap_ns = u64::from(gap_ns);
    for share in [0.5, 0.9, 0.99] {
        let found = [round_trip, one_way].map(|it| it.quantile_ns(share).unwrap());
        assert!(found[0] >= found[1] + gap_ns, "{share}: {found:?}");
    }
    assert!(round_trip.max_ns().unwrap() >= one_way.max_ns().unwrap() + gap_ns);
}

#[test]
fn the_stand_in_link_slows_a_closed_loop() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.stop = Stop::Messages(50);
        settings.link_delay = Some(Duration::from_millis(10));
    });
    assert_eq!(
        (outcome.cell.messages.sent, outcome.cell.messages.lost),
        (50, 0)
    );
    assert!(
        outcome.cell.rate.duration_s >= 0.08,
        "{:?}",
        outcome.cell.rate
    );
}

/// Each of eight messages in flight waits for those before it, from when its slot was free.
#[test]
fn a_closed_loop_counts_the_wait_for_room_in_the_socket() {
    let peer = Peer::start(Fault::Stall(
        Duration::from_millis(300),
        Duration::from_millis(200),
    ));
    let outcome = peer.load(|settings| {
        settings.connections = 1;
        settings.workload = Workload::Echo {
            size: 4 << 20,
            binary: true,
        };
        settings.pacing = closed(8);
        settings.stop = Stop::Messages(24);
        settings.drain = Duration::from_secs(20);
    });
    let messages = &outcome.cell.messages;
    assert_eq!((messages.sent, messages.lost), (24, 0), "{messages:?}");
    assert!(
        messages.backpressured > 0 && messages.backpressured <= 24,
        "{messages:?}"
    );
    let waited_ns = outcome.cell.latency.slot_wait.max_ns().unwrap();
    assert!(waited_ns > 100_000_000, "{waited_ns} ns");
    let response = &outcome.cell.latency.response;
    assert!(response.max_ns().unwrap() >= waited_ns);
}

#[test]
fn a_full_socket_in_the_stand_in_link_holds_nobody_else_up() {
    let peer = Peer::start(Fault::DeafToFirst);
    let outcome = peer.load(|settings| {
        settings.connections = 2;
        settings.workload = Workload::Echo {
            size: 512 * 1024,
            binary: true,
        };
        settings.pacing = open(80.0, None);
        settings.stop = Stop::After(Duration::from_secs(2));
        settings.drain = Duration::from_secs(2);
        settings.link_delay = Some(Duration::from_millis(5));
    });
    let messages = &outcome.cell.messages;
    assert!(messages.backpressured > 0, "{messages:?}");
    assert_eq!(messages.received, messages.sent / 2, "{messages:?}");
}
