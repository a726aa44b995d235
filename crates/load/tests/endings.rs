//! However a run ends, there is a result, a reason, and never a hang.

mod peer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonwire_load::{
    Arrival, Control, Ending, LoadError, Pacing, Phase, RateStages, Reconnect, Scenario, Settings,
    Stop, Target, run,
};
use moonwire_report::Verdict;
use peer::{Fault, Peer, closed, open};

#[test]
fn a_refused_port_is_a_result_with_its_reason() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    drop(listener);
    let targets = vec![Target::parse(&url).unwrap()];
    let scenario = Scenario::new(Settings {
        targets,
        ..Settings::default()
    })
    .unwrap();
    let outcome = run(&scenario, &mut Control::default()).unwrap();
    assert_eq!(outcome.verdict(), Verdict::Invalid);
    assert_eq!(outcome.cell.connects.failed, 10);
    let reasons = outcome.cell.assessment.reasons().join(" ");
    assert!(
        reasons.contains("no connection could be made to ws://"),
        "{reasons}"
    );
    assert!(reasons.contains("refused"), "{reasons}");
    assert!(matches!(outcome.ending, Ending::Died(_)));
}

#[test]
fn errors_are_grouped_by_their_text() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    drop(listener);
    let peer = Peer::start(Fault::CloseAfter(100));
    let outcome = peer.load(|settings| {
        settings.connections = 7;
        settings.targets.push(Target::parse(&url).unwrap());
        settings.stop = Stop::After(Duration::from_secs(60));
    });
    let errors = &outcome.cell.errors;
    assert_eq!(errors.get("the server closed with 1011"), Some(&7));
    let refused = errors.iter().filter(|(text, _)| text.contains("refused"));
    let refused: Vec<u64> = refused.map(|(_, &count)| count).collect();
    assert_eq!((refused, errors.len()), (vec![7], 2), "{errors:?}");
}

/// Neither the next attempt nor the patience with a server that takes some is waited for.
#[test]
fn a_server_that_is_not_there_is_awaited_for_as_long_as_the_run_would_send() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    drop(listener);
    for pause in [Duration::from_millis(20), Duration::from_secs(3600)] {
        let scenario = Scenario::new(Settings {
            targets: vec![Target::parse(&url).unwrap()],
            stop: Stop::After(Duration::from_millis(500)),
            reconnect: Reconnect::After(pause),
            ..Settings::default()
        })
        .unwrap();
        let begun = Instant::now();
        let outcome = run(&scenario, &mut Control::default()).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(500));
        assert!(begun.elapsed() < Duration::from_secs(30), "{pause:?}");
        let Ending::Died(sentence) = &outcome.ending else {
            panic!("{:?}", outcome.ending);
        };
        assert!(
            sentence.contains("no connection could be made"),
            "{sentence}"
        );
        assert!(sentence.contains("refused"), "{sentence}");
    }
}

#[test]
fn a_server_that_dies_ends_the_run_early() {
    for pacing in [closed(2), open(2000.0, None), open(2000.0, Some(1))] {
        let peer = Peer::start(Fault::DieAfter(300));
        let begun = Instant::now();
        let outcome = peer.load(|settings| {
            settings.pacing = pacing;
            settings.stop = Stop::After(Duration::from_secs(60));
        });
        assert!(begun.elapsed() < Duration::from_secs(20));
        let Ending::Died(sentence) = &outcome.ending else {
            panic!("{:?}", outcome.ending);
        };
        assert!(
            sentence.contains("every connection was lost after"),
            "{sentence}"
        );
        assert_eq!(outcome.verdict(), Verdict::Invalid);
        assert!(outcome.cell.messages.sent >= 300);
        assert_eq!(outcome.cell.closes.get("1006"), Some(&10));
    }
}

#[test]
fn a_server_that_dies_before_a_schedule_ends_has_died() {
    let batches = Pacing::Batches {
        batch: 10,
        wait: Duration::from_millis(100),
        batches: 60,
        in_flight: None,
    };
    for (pacing, stop) in [
        (open(2000.0, None), Stop::Messages(10_000)),
        (batches, Stop::Schedule),
    ] {
        let peer = Peer::start(Fault::DieAfter(300));
        let outcome = peer.load(|settings| {
            settings.pacing = pacing;
            settings.stop = stop;
        });
        let Ending::Died(sentence) = &outcome.ending else {
            panic!("{:?}", outcome.ending);
        };
        assert!(
            sentence.contains("every connection was lost after"),
            "{sentence}"
        );
        assert_eq!(outcome.verdict(), Verdict::Invalid);
    }
}

#[test]
fn connections_that_are_lost_before_the_first_message_are_lost() {
    let peer = Peer::start(Fault::CutAtOnce);
    let outcome = peer.load(|settings| {
        // The first message is due after more than a minute.
        settings.pacing = Pacing::Stages {
            stages: RateStages::parse("1h:1", 0.0).unwrap(),
            arrival: Arrival::Constant,
            in_flight: None,
        };
        settings.stop = Stop::Schedule;
    });
    let Ending::Died(sentence) = &outcome.ending else {
        panic!("{:?}", outcome.ending);
    };
    assert!(
        sentence.starts_with("every connection was lost before the first message"),
        "{sentence}"
    );
    let connects = outcome.cell.connects;
    assert_eq!((connects.ok, connects.disconnected), (10, 10));
    assert_eq!(outcome.verdict(), Verdict::Invalid);
}

#[test]
fn a_server_that_closes_is_counted_by_its_code() {
    let peer = Peer::start(Fault::CloseAfter(100));
    let outcome = peer.load(|settings| settings.stop = Stop::After(Duration::from_secs(60)));
    assert_eq!(
        outcome.cell.closes.get("1011"),
        Some(&10),
        "{:?}",
        outcome.cell.closes
    );
    assert_eq!(
        outcome.cell.errors.get("the server closed with 1011"),
        Some(&10)
    );
    assert!(matches!(outcome.ending, Ending::Died(_)));
}

#[test]
fn a_lost_connection_is_made_again_and_its_messages_are_lost() {
    let peer = Peer::start(Fault::CutFirstAfter(200));
    let outcome = peer.load(|settings| {
        settings.pacing = open(2000.0, None);
        settings.reconnect = Reconnect::After(Duration::from_millis(20));
    });
    let cell = &outcome.cell;
    assert_eq!((cell.connects.ok, cell.connects.reconnected), (11, 1));
    assert_eq!(cell.messages.sent, 1000);
    assert!(cell.messages.lost >= 1, "{:?}", cell.messages);
    assert_eq!(cell.messages.received + cell.messages.lost, 1000);
    let reasons = cell.assessment.reasons().join(" ");
    assert!(
        reasons.contains("1 of 11 connections were lost"),
        "{reasons}"
    );
    assert!(outcome.verdict() >= Verdict::Suspect);
    assert_eq!(outcome.ending, Ending::Completed);
}

#[test]
fn a_counted_loop_gives_a_server_up_that_does_not_come_back() {
    let peer = Peer::start(Fault::DieAfter(300));
    let begun = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let mut on_progress = |_: &moonwire_load::Progress| {
        // A hang is a failure and not a hang of the tests.
        flag.fetch_or(begun.elapsed() > Duration::from_secs(30), Ordering::AcqRel);
    };
    let scenario = Scenario::new(Settings {
        pacing: closed(2),
        stop: Stop::Messages(100_000),
        reconnect: Reconnect::After(Duration::from_millis(50)),
        ..peer.settings()
    })
    .unwrap();
    let mut control = Control {
        stop,
        on_progress: Some(&mut on_progress),
    };
    let outcome = run(&scenario, &mut control).unwrap();
    let Ending::Died(sentence) = &outcome.ending else {
        panic!("{:?}", outcome.ending);
    };
    assert!(sentence.contains("no reply came for 10 s"), "{sentence}");
    assert_eq!(outcome.verdict(), Verdict::Invalid);
}

#[test]
fn a_run_is_over_with_its_last_reply() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.pacing = closed(1);
        settings.stop = Stop::Messages(10);
    });
    let [interval] = &outcome.cell.intervals[..] else {
        panic!("{:?}", outcome.cell.intervals);
    };
    assert!(interval.length_s < 0.9, "{interval:?}");
}

#[test]
fn messages_of_connections_that_never_came_up_are_unsent() {
    for pacing in [open(1000.0, None), closed(1)] {
        let peer = Peer::start(Fault::RefuseAfter(2));
        let outcome = peer.load(|settings| settings.pacing = pacing);
        let messages = outcome.cell.messages;
        assert_eq!(outcome.cell.connects.failed, 8);
        assert_eq!(messages.sent, 200);
        assert!((790..=800).contains(&messages.unsent), "{messages:?}");
        assert_eq!(outcome.verdict(), Verdict::Invalid);
        let reasons = outcome.cell.assessment.reasons().join(" ");
        assert!(reasons.contains("send rate was not reached"), "{reasons}");
    }
}

#[test]
fn connections_that_come_up_while_others_are_tried_were_up() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.barrier = false;
        settings.connections = 10;
        settings.connect_rate = Some(4.0);
        settings.threads = 1;
        settings.pacing = open(1000.0, None);
        settings.stop = Stop::After(Duration::from_millis(900));
    });
    let ok = outcome.cell.connects.ok;
    assert!((1..10).contains(&ok), "{ok}");
    let reasons = outcome.cell.assessment.reasons().join(" ");
    let expected = format!("{} of 10 connections were not up", 10 - ok);
    assert!(reasons.contains(&expected), "{reasons}");
}

#[test]
fn a_stop_from_outside_closes_and_gives_a_result() {
    let peer = Peer::start(Fault::None);
    let settings = Settings {
        stop: Stop::After(Duration::from_secs(3600)),
        pacing: open(1000.0, None),
        ..peer.settings()
    };
    let scenario = Scenario::new(settings).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let mut phases = Vec::new();
    let mut on_progress = |progress: &moonwire_load::Progress| {
        phases.push(progress.phase);
        if progress.sent > 100 {
            flag.store(true, Ordering::Release);
        }
    };
    let begun = Instant::now();
    let mut control = Control {
        stop,
        on_progress: Some(&mut on_progress),
    };
    let outcome = run(&scenario, &mut control).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(outcome.ending, Ending::Interrupted);
    assert_eq!(outcome.cell.closes.get("1000"), Some(&10));
    let done = [((1000, "done".to_owned()), 10)];
    assert_eq!(peer.farewells(), done.into());
    assert_eq!(outcome.cell.messages.lost, 0);
    assert!(
        outcome.cell.rate.sent_per_s > 500.0,
        "{:?}",
        outcome.cell.rate
    );
    // A phase may be over before anybody looks; what is seen is in order and goes beyond sending.
    assert!(phases.contains(&Phase::Sending), "{phases:?}");
    assert!(phases.last() > Some(&Phase::Sending), "{phases:?}");
    assert!(phases.is_sorted(), "{phases:?}");
}

#[test]
fn held_connections_send_nothing_and_are_valid() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.pacing = Pacing::Hold;
        settings.stop = Stop::After(Duration::from_millis(300));
    });
    assert_eq!(outcome.cell.messages.sent, 0);
    assert_eq!(outcome.ending, Ending::Completed);
    assert_eq!(outcome.cell.closes.get("1000"), Some(&10));
}

#[test]
fn what_cannot_start_is_one_sentence() {
    let peer = Peer::start(Fault::None);
    let raw_csv = Some("/nonexistent/raw.csv".into());
    let scenario = Scenario::new(Settings {
        raw_csv,
        ..peer.settings()
    })
    .unwrap();
    let error = run(&scenario, &mut Control::default()).unwrap_err();
    assert!(matches!(error, LoadError::Output(_)));
    assert!(
        error
            .to_string()
            .contains("/nonexistent/raw.csv cannot be written"),
        "{error}"
    );
    let settings = Settings {
        connections: 1_000_000,
        ..peer.settings()
    };
    let error = run(&Scenario::new(settings).unwrap(), &mut Control::default()).unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
}

#[test]
fn who_joins_late_has_its_whole_time() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.barrier = false;
        settings.connections = 20;
        settings.connect_rate = Some(20.0);
        settings.pacing = batches(2, 100);
        settings.stop = Stop::Schedule;
        settings.drain = Duration::from_millis(200);
    });
    let messages = outcome.cell.messages;
    assert_eq!((outcome.cell.connects.ok, messages.sent), (20, 40));
    assert_eq!((messages.unsent, messages.lost), (0, 0));
}

#[test]
fn what_is_due_at_the_last_moment_is_sent_without_a_drain() {
    let peer = Peer::start(Fault::None);
    let outcome = peer.load(|settings| {
        settings.connections = 400;
        settings.pacing = batches(2, 200);
        settings.stop = Stop::Schedule;
        settings.drain = Duration::ZERO;
    });
    let messages = outcome.cell.messages;
    assert_eq!((messages.sent, messages.unsent), (800, 0));
}

#[test]
fn the_messages_of_a_closed_loop_wait_for_the_stagger_of_their_connection() {
    let peer = Peer::start(Fault::None);
    for reconnect in [
        Reconnect::Never,
        Reconnect::After(Duration::from_millis(20)),
    ] {
        let outcome = peer.load(|settings| {
            settings.pacing = closed(2);
            settings.stop = Stop::Messages(100);
            settings.stagger = Some(Duration::from_millis(500));
            settings.reconnect = reconnect;
        });
        let messages = outcome.cell.messages;
        assert_eq!((messages.sent, messages.unsent), (100, 0));
        assert!(
            outcome.cell.rate.duration_s >= 0.45,
            "{:?}",
            outcome.cell.rate
        );
    }
}

fn batches(batches: u64, wait_ms: u64) -> Pacing {
    Pacing::Batches {
        batch: 1,
        wait: Duration::from_millis(wait_ms),
        batches,
        in_flight: None,
    }
}
