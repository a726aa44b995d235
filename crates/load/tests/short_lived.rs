//! Connections that close after their messages and make room for others.

mod peer;

use std::time::Duration;

use moonwire_load::{Control, Ending, Outcome, Progress, Reconnect, Scenario, Settings, Stop, run};
use moonwire_report::Verdict;
use peer::{Fault, Peer, closed};

fn short_lived(peer: &Peer, change: impl FnOnce(&mut Settings)) -> Outcome {
    peer.load(|settings| {
        settings.connections = 100;
        settings.messages_per_connection = Some(3);
        settings.open_max = Some(7);
        settings.barrier = false;
        settings.stop = Stop::Schedule;
        change(settings);
    })
}

#[test]
fn each_connection_sends_its_messages_and_closes() {
    for (threads, in_flight) in [(1, 1), (2, 1), (3, 2)] {
        let peer = Peer::start(Fault::None);
        let outcome = short_lived(&peer, |settings| {
            settings.threads = threads;
            settings.pacing = closed(in_flight);
        });
        let cell = &outcome.cell;
        assert_eq!(outcome.ending, Ending::Completed);
        assert_eq!((cell.messages.sent, cell.messages.received), (300, 300));
        assert_eq!((cell.messages.lost, cell.messages.unsent), (0, 0));
        assert_eq!((cell.connects.ok, cell.connects.disconnected), (100, 0));
        assert_eq!(cell.closes.get("1000"), Some(&100), "{:?}", cell.closes);
        let done = [((1000, "done".to_owned()), 100)];
        assert_eq!(peer.farewells(), done.into());
        assert!(cell.errors.is_empty(), "{:?}", cell.errors);
        assert!(cell.connects.all_online_ms.is_some());
        assert!(peer.open_max() <= 7, "{}", peer.open_max());
        assert!(cell.bytes.sent > 300 * 64 + 100 * 150, "{:?}", cell.bytes);
    }
}

#[test]
fn connections_that_time_does_not_come_to_are_not_missing() {
    let peer = Peer::start(Fault::None);
    let outcome = short_lived(&peer, |settings| {
        settings.connections = 10_000;
        settings.connect_rate = Some(200.0);
        settings.stop = Stop::After(Duration::from_millis(500));
    });
    let cell = &outcome.cell;
    assert!(
        (10..=101).contains(&cell.connects.ok),
        "{:?}",
        cell.connects
    );
    assert_eq!((cell.messages.lost, cell.messages.unsent), (0, 0));
    let reasons = cell.assessment.reasons().join(" ");
    assert!(!reasons.contains("were not up"), "{reasons}");
}

#[test]
fn a_connection_that_is_refused_makes_room_for_the_next() {
    let peer = Peer::start(Fault::RefuseAfter(20));
    let outcome = short_lived(&peer, |_| {});
    let cell = &outcome.cell;
    assert_eq!((cell.connects.ok, cell.connects.failed), (20, 80));
    assert_eq!((cell.messages.sent, cell.messages.unsent), (60, 240));
    assert_eq!(outcome.ending, Ending::Completed);
    let reasons = cell.assessment.reasons().join(" ");
    assert!(
        reasons.contains("80 of 100 connections were not up"),
        "{reasons}"
    );
}

#[test]
fn a_lost_connection_sends_the_rest_on_the_next_one() {
    let peer = Peer::start(Fault::CutFirstAfter(2));
    let outcome = short_lived(&peer, |settings| {
        settings.connections = 1;
        settings.messages_per_connection = Some(100);
        settings.reconnect = Reconnect::After(Duration::from_millis(20));
    });
    let cell = &outcome.cell;
    assert_eq!((cell.connects.ok, cell.connects.disconnected), (2, 1));
    assert_eq!((cell.messages.sent, cell.messages.unsent), (100, 0));
    assert_eq!(cell.messages.lost, 1);
    assert_eq!(cell.recovery.time.count(), 1);
    assert!(cell.recovery.time.min_ns() >= Some(20_000_000));
    assert_eq!(cell.recovery.attempts.get("1"), Some(&1));
    assert_eq!(cell.closes.get("1000"), Some(&1), "{:?}", cell.closes);
}

#[test]
fn a_first_connect_that_fails_is_made_again_and_is_no_recovery() {
    let peer = Peer::start(Fault::RefuseFirst(5));
    let outcome = short_lived(&peer, |settings| {
        settings.connections = 2;
        settings.reconnect = Reconnect::Exponential {
            first: Duration::from_millis(10),
            max: Duration::from_millis(40),
            jitter: true,
        };
    });
    let cell = &outcome.cell;
    assert_eq!((cell.connects.ok, cell.connects.failed), (2, 5));
    assert_eq!((cell.connects.retried, cell.connects.reconnected), (5, 0));
    assert!(cell.recovery.time.is_empty());
    assert_eq!((cell.messages.sent, cell.messages.unsent), (6, 0));
}

#[test]
fn the_wait_for_a_slot_is_in_the_response_of_a_handshake() {
    let peer = Peer::start(Fault::None);
    let outcome = short_lived(&peer, |settings| {
        // All are due within a tenth of a second, and one after the other takes longer.
        settings.connections = 200;
        settings.messages_per_connection = Some(20);
        settings.open_max = Some(1);
        settings.connect_rate = Some(100_000.0);
    });
    let handshake = &outcome.cell.handshake;
    assert_eq!(handshake.response.count(), 200);
    assert_eq!(handshake.total.count(), 200);
    assert!(handshake.response.mean_ns() > handshake.total.mean_ns());
    assert!(handshake.response.max_ns() > handshake.total.max_ns());
}

#[test]
fn a_silent_server_does_not_hold_the_run_up() {
    let peer = Peer::start(Fault::Silent);
    let outcome = short_lived(&peer, |_| {});
    let Ending::Died(sentence) = &outcome.ending else {
        panic!("{:?}", outcome.ending);
    };
    assert!(sentence.contains("no reply came for 10 s"), "{sentence}");
    assert_eq!(outcome.verdict(), Verdict::Invalid);
}

#[test]
fn progress_tells_how_many_were_made_and_not_only_how_many_are_open() {
    let peer = Peer::start(Fault::None);
    let scenario = Scenario::new(Settings {
        connections: 150,
        messages_per_connection: Some(1),
        connect_rate: Some(50.0),
        barrier: false,
        stop: Stop::Schedule,
        ..peer.settings()
    });
    let mut told = Vec::new();
    let mut on_progress = |progress: &Progress| told.push((progress.made, progress.connected));
    let mut control = Control {
        on_progress: Some(&mut on_progress),
        ..Control::default()
    };
    let settings = scenario.unwrap();
    assert_eq!(run(&settings, &mut control).unwrap().cell.connects.ok, 150);
    assert!(told.is_sorted_by_key(|(made, _)| *made), "{told:?}");
    // Between the first and the last connection is time for a report.
    let between = told.iter().filter(|(made, connected)| {
        let made = made.expect("each connection makes room for the next one");
        (1..150).contains(&made) && *connected < made
    });
    assert!(between.count() >= 1, "{told:?}");
}
