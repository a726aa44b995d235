//! Every message is accounted for, whatever the server does to it.

mod peer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use moonwire_load::{Arrival, Ending, Pacing, RateStages, Stop, TimeUnit, Workload};
use moonwire_report::{Histogram, OneWay, Verdict};
use peer::{Fault, Peer, closed, open};

#[test]
fn an_echo_answers_everything_once() {
    let peer = Peer::start(Fault::None);
    for (pacing, threads) in [
        (closed(1), 1),
        (closed(5), 3),
        (open(5000.0, None), 2),
        (open(5000.0, Some(1)), 1),
    ] {
        let outcome = peer.load(|settings| {
            settings.pacing = pacing.clone();
            settings.threads = threads;
        });
        let messages = outcome.cell.messages;
        assert_eq!(
            (messages.sent, messages.received),
            (1000, 1000),
            "{pacing:?}"
        );
        assert_eq!(
            (messages.lost, messages.duplicate, messages.corrupt),
            (0, 0, 0)
        );
        assert_eq!(
            (messages.reordered, messages.unexpected, messages.unsent),
            (0, 0, 0)
        );
        assert_eq!(outcome.ending, Ending::Completed);
        assert_eq!(outcome.cell.connects.ok, 10);
        assert_eq!(
            outcome.cell.closes.get("1000"),
            Some(&10),
            "{:?}",
            outcome.cell.closes
        );
        assert!(outcome.cell.errors.is_empty(), "{:?}", outcome.cell.errors);
        assert_eq!(outcome.cell.latency.response.count(), 1000);
        let mut of_blocks = Histogram::new();
        for block in &outcome.cell.blocks {
            of_blocks.merge(&block.histogram());
        }
        assert_eq!(of_blocks, outcome.cell.latency.response);
        assert_eq!(outcome.cell.handshake.total.count(), 10);
    }
}

#[test]
fn the_rates_of_the_clients_with_the_least_and_the_most_are_told() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.connections = 4;
        settings.threads = 2;
        settings.pacing = open(500.0, None);
        // They take turns: 13, 13, 12 and 12.
        settings.stop = Stop::Messages(50);
    });
    let rate = outcome.cell.rate;
    let each = [rate.least_each_per_s, rate.most_each_per_s];
    let sent = each.map(|per_s| per_s.map(|per_s| (per_s * rate.duration_s).round()));
    assert_eq!(sent, [Some(12.0), Some(13.0)]);
    // Where each sends a set number there is nothing to tell.
    let short = peer.load(|settings| {
        settings.pacing = closed(1);
        settings.messages_per_connection = Some(2);
        settings.stop = Stop::Schedule;
    });
    assert_eq!(short.cell.rate.most_each_per_s, None);
}

#[test]
fn batches_poisson_and_sizes_down_to_nothing() {
    let peer = Peer::start(Fault::None);
    let batches = Pacing::Batches {
        batch: 4,
        wait: Duration::from_millis(20),
        batches: 5,
        in_flight: None,
    };
    let outcome = peer.load(|settings| {
        settings.pacing = batches;
        settings.stop = Stop::Schedule;
        settings.stagger = Some(Duration::from_millis(7));
    });
    assert_eq!(
        (outcome.cell.messages.sent, outcome.cell.messages.lost),
        (200, 0)
    );
    for size in [0, 1, 7, 19, 20, 126, 70_000] {
        let outcome = peer.load(|settings| {
            settings.pacing = Pacing::Open {
                rate: 2000.0,
                arrival: Arrival::Poisson,
                in_flight: None,
            };
            settings.stop = Stop::Messages(100);
            settings.workload = Workload::Echo {
                size,
                binary: size % 2 == 1,
            };
            settings.barrier = false;
        });
        let messages = outcome.cell.messages;
        assert_eq!(
            (messages.sent, messages.received, messages.lost),
            (100, 100, 0),
            "{size}"
        );
        assert_eq!((messages.corrupt, messages.unexpected), (0, 0), "{size}");
    }
}

#[test]
fn dropped_replies_are_lost_exactly() {
    for pacing in [closed(8), open(5000.0, None)] {
        let peer = Peer::start(Fault::Drop(100));
        let outcome = peer.load(|settings| settings.pacing = pacing.clone());
        let messages = outcome.cell.messages;
        assert_eq!(messages.lost, peer.spoilt(), "{pacing:?}");
        assert!(messages.lost > 0);
        assert_eq!(
            (messages.corrupt, messages.duplicate, messages.reordered),
            (0, 0, 0)
        );
    }
}

#[test]
fn doubled_replies_are_duplicates_exactly() {
    let peer = Peer::start(Fault::Double(10));
    let outcome = peer.load(|settings| settings.pacing = open(5000.0, None));
    let messages = outcome.cell.messages;
    assert_eq!((messages.duplicate, messages.lost), (100, 0));
    assert_eq!(messages.received, 1100);
    assert_eq!(
        (messages.corrupt, messages.unexpected, messages.reordered),
        (0, 0, 0)
    );
}

#[test]
fn replies_with_another_opcode_are_wrong() {
    let peer = Peer::start(Fault::Binary);
    let outcome = peer.load(|settings| settings.stop = Stop::Messages(100));
    let messages = outcome.cell.messages;
    assert_eq!((messages.corrupt, messages.lost), (100, 0), "{messages:?}");
    assert_ne!(outcome.verdict(), Verdict::Valid);
}

#[test]
fn altered_replies_are_corrupt_exactly_and_not_lost_as_well() {
    for fault in [Fault::AlterLast(10), Fault::AlterFirst(10)] {
        let peer = Peer::start(fault);
        let outcome = peer.load(|settings| settings.pacing = closed(3));
        let messages = outcome.cell.messages;
        assert_eq!(
            (messages.corrupt, messages.lost, messages.duplicate),
            (100, 0, 0)
        );
    }
}

#[test]
fn a_silent_server_loses_everything_and_the_run_ends() {
    let peer = Peer::start(Fault::Silent);
    let outcome = peer.load(|settings| {
        settings.pacing = open(1000.0, None);
        settings.stop = Stop::Messages(50);
    });
    assert_eq!(
        (outcome.cell.messages.sent, outcome.cell.messages.lost),
        (50, 50)
    );
    assert_eq!(outcome.verdict(), Verdict::Invalid);
    assert!(
        outcome
            .cell
            .assessment
            .reasons()
            .join(" ")
            .contains("no reply arrived")
    );
}

#[test]
fn stages_say_what_was_planned_in_them_and_not_sent() {
    let peer = Peer::start(Fault::Silent);
    let outcome = peer.load(|settings| {
        settings.connections = 4;
        settings.pacing = Pacing::Stages {
            stages: RateStages::parse("300ms:200,0s:50,200ms:50", 200.0).unwrap(),
            arrival: Arrival::Constant,
            in_flight: Some(1),
        };
        settings.stop = Stop::Schedule;
    });
    let stages = outcome.cell.stages.iter();
    let counts: Vec<_> = stages.map(|it| (it.sent, it.unsent, it.lost)).collect();
    // One of each connection, and then its one place is taken.
    assert_eq!(
        counts,
        [(4, Some(56), 4), (0, Some(0), 0), (0, Some(10), 0)]
    );
    assert_eq!(outcome.cell.messages.unsent, 66);
}

#[test]
fn the_replies_of_seed_001_give_one_one_way_sample_per_message() {
    for (unit, milliseconds, resolution) in [
        (TimeUnit::Microseconds, false, 1),
        (TimeUnit::Milliseconds, true, 1000),
    ] {
        let peer = Peer::start(Fault::Amplify(4, milliseconds));
        let outcome = peer.load(|settings| {
            settings.workload = Workload::Amplify {
                size: 1024,
                time_unit: unit,
            };
            settings.replies = 4;
            settings.pacing = open(2000.0, None);
            settings.stop = Stop::Messages(200);
        });
        let cell = &outcome.cell;
        assert_eq!((cell.messages.sent, cell.messages.received), (200, 800));
        assert_eq!((cell.messages.lost, cell.messages.corrupt), (0, 0));
        assert_eq!(cell.latency.round_trip_seed.count(), 800);
        assert_eq!(cell.latency.first_reply.count(), 200);
        let OneWay::Measured {
            histogram,
            resolution_us,
            clock: None,
        } = &cell.latency.one_way
        else {
            panic!("loopback shares a clock");
        };
        assert_eq!((histogram.count(), *resolution_us), (200, resolution));
    }
}

#[test]
fn a_clock_in_another_unit_refuses_the_one_way_latency() {
    for (unit, milliseconds) in [
        (TimeUnit::Milliseconds, false),
        (TimeUnit::Microseconds, true),
    ] {
        let peer = Peer::start(Fault::Amplify(2, milliseconds));
        let outcome = peer.load(|settings| {
            settings.workload = Workload::Amplify {
                size: 300,
                time_unit: unit,
            };
            settings.replies = 2;
            settings.stop = Stop::Messages(100);
        });
        let cell = &outcome.cell;
        assert_eq!((cell.messages.lost, cell.messages.corrupt), (0, 0));
        let refusal = cell.latency.one_way.refusal().unwrap();
        assert!(refusal.contains("--time-unit"), "{refusal}");
        assert!(cell.intervals.iter().all(|second| second.one_way.is_none()));
        assert_ne!(outcome.verdict(), Verdict::Valid);
        assert!(cell.assessment.reasons().join(" ").contains("--time-unit"));
    }
}

#[test]
fn the_raw_csv_has_a_line_per_reply() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw.csv");
    let peer = Peer::start(Fault::Amplify(2, false));
    peer.load(|settings| {
        settings.workload = Workload::Amplify {
            size: 300,
            time_unit: TimeUnit::Microseconds,
        };
        settings.replies = 2;
        settings.threads = 2;
        settings.stop = Stop::Messages(100);
        settings.raw_csv = Some(path.clone());
    });
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let header = "timestamp,client_id,msg_id,server_created_at,client_created_at,client_latency,\
                  server_latency";
    assert_eq!(lines.next(), Some(header));
    let mut replies = BTreeMap::new();
    for line in lines {
        let line: Vec<i64> = line.split(',').map(|it| it.parse().unwrap()).collect();
        let [timestamp, client, message, server, sent, back, there] = line[..] else {
            panic!("seven columns: {line:?}");
        };
        assert!(sent <= server && server <= timestamp, "{line:?}");
        assert_eq!((back, there), (timestamp - server, server - sent));
        let of_message: &mut Vec<i64> = replies.entry((client, message)).or_default();
        of_message.push(sent);
    }
    // Ten clients with ten messages each, and two replies to each of these, sent when it was.
    let clients: BTreeSet<i64> = replies.keys().map(|&(client, _)| client).collect();
    assert_eq!(clients, (0..10).collect());
    assert_eq!(replies.len(), 100);
    let is_twice = |sent: &Vec<i64>| sent.len() == 2 && sent[0] == sent[1];
    assert!(replies.values().all(is_twice), "{replies:?}");
}

#[test]
fn several_targets_share_a_run() {
    let (one, other) = (Peer::start(Fault::None), Peer::start(Fault::None));
    let outcome = one.load(|settings| {
        settings.targets.extend(other.settings().targets);
        settings.connections = 3;
        settings.threads = 4;
    });
    assert_eq!(outcome.cell.connects.ok, 6);
    assert_eq!(
        (outcome.cell.messages.sent, outcome.cell.messages.lost),
        (1000, 0)
    );
}

#[test]
fn replies_are_counted_over_the_time_they_took() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.connections = 1;
        settings.pacing = closed(1);
        settings.stop = Stop::Messages(1);
    });
    let response_ns = outcome.cell.latency.response.min_ns().unwrap();
    let most_per_s = 1.01e9 / response_ns as f64;
    let rate = &outcome.cell.rate;
    assert!(rate.received_per_s > 0.0);
    assert!(
        rate.received_per_s <= most_per_s,
        "{rate:?}, {response_ns} ns"
    );
}

#[test]
fn a_csv_that_cannot_be_written_to_its_end_is_a_reason() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.stop = Stop::Messages(10);
        settings.raw_csv = Some("/dev/full".into());
    });
    let reasons = outcome.cell.assessment.reasons().join(" ");
    assert!(reasons.contains("the CSV is incomplete"), "{reasons}");
    assert!(outcome.verdict() >= Verdict::Suspect);
}

#[test]
fn a_client_that_thinks_waits_after_each_reply_and_is_not_late_for_it() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.connections = 2;
        settings.pacing = closed(1);
        settings.think = Some(Duration::from_millis(20));
        settings.stop = Stop::Messages(20);
    });
    let cell = outcome.cell;
    assert_eq!((cell.messages.sent, cell.messages.lost), (20, 0));
    // Nine pauses of each connection.
    assert!(cell.rate.duration_s >= 0.18, "{:?}", cell.rate);
    let median_ns = cell.latency.response.quantile_ns(0.5).unwrap();
    assert!(
        median_ns < 15_000_000,
        "the pause is no latency: {median_ns} ns"
    );
}
