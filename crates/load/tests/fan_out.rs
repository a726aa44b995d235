//! What a few publish and many hear, against a server that does with copies what the test says.

mod peer;

use moonwire_load::{Arrival, Control, FanOut, Pacing, Scenario, Settings, Stop, Target, Workload};
use moonwire_report::{Cell, Histogram};
use peer::broadcast::{Broadcaster, Fault};

fn run(fault: Fault, change: impl FnOnce(&mut Settings)) -> Cell {
    let server = Broadcaster::start(fault);
    let mut settings = Settings {
        targets: vec![Target::parse(&server.url).expect("a URL")],
        connections: 8,
        threads: 2,
        workload: Workload::Echo {
            size: 64,
            binary: false,
        },
        fan_out: Some(FanOut {
            publishers: 2,
            silent: 0,
        }),
        pacing: Pacing::Closed { in_flight: 1 },
        stop: Stop::Messages(100),
        drain: std::time::Duration::from_secs(2),
        ..Settings::default()
    };
    change(&mut settings);
    let scenario = Scenario::new(settings).expect("it can run");
    let outcome = moonwire_load::run(&scenario, &mut Control::default());
    outcome.expect("it runs").cell
}

fn one_publishes(settings: &mut Settings) {
    settings.fan_out = Some(FanOut {
        publishers: 1,
        silent: 0,
    });
}

#[test]
fn every_subscriber_hears_every_message_once() {
    let cell = run(Fault::None, |_| {});
    let fan_out = cell.fan_out.as_ref().unwrap();
    assert_eq!((fan_out.publishers, fan_out.subscribers), (2, 8));
    assert_eq!((fan_out.copies, fan_out.copies_expected), (800, 800));
    assert_eq!((fan_out.complete, fan_out.unreached), (100, 0));
    assert_eq!(fan_out.heard_least, 100);
    let counts = [
        &fan_out.delivery,
        &fan_out.first_receiver,
        &fan_out.median_receiver,
        &fan_out.last_receiver,
    ]
    .map(Histogram::count);
    assert_eq!(counts, [800, 100, 100, 100]);
    let mean_ns = |histogram: &Histogram| histogram.mean_ns().unwrap();
    assert!(mean_ns(&fan_out.first_receiver) <= mean_ns(&fan_out.median_receiver));
    assert!(mean_ns(&fan_out.median_receiver) <= mean_ns(&fan_out.last_receiver));
    let messages = cell.messages;
    assert_eq!((messages.sent, messages.received), (100, 800));
    assert_eq!(
        (messages.lost, messages.duplicate, messages.reordered),
        (0, 0, 0)
    );
    assert_eq!(cell.ended_early, None);
}

#[test]
fn a_subscriber_that_gets_nothing_is_found() {
    let cell = run(Fault::Forget, one_publishes);
    let fan_out = cell.fan_out.as_ref().unwrap();
    assert_eq!((fan_out.unreached, fan_out.heard_least), (1, 0));
    assert_eq!((fan_out.copies, fan_out.complete), (700, 0));
    assert_eq!(cell.messages.lost, 100);
}

#[test]
fn copies_that_are_missing_doubled_or_late_are_counted_apart() {
    for (fault, counts) in [
        (Fault::Drop, (10, 0, 0)),
        (Fault::Double, (0, 10, 0)),
        (Fault::Swap, (0, 0, 10)),
    ] {
        let cell = run(fault, one_publishes);
        let messages = cell.messages;
        let found = (messages.lost, messages.duplicate, messages.reordered);
        assert_eq!(found, counts, "{fault:?}: {messages:?}");
    }
}

#[test]
fn those_that_do_not_read_are_no_listeners() {
    let cell = run(Fault::None, |settings| {
        settings.fan_out = Some(FanOut {
            publishers: 1,
            silent: 3,
        });
    });
    let fan_out = cell.fan_out.as_ref().unwrap();
    assert_eq!((fan_out.subscribers, fan_out.silent), (5, 3));
    assert_eq!((fan_out.copies, fan_out.silent_cut), (500, 0));
    assert_eq!(cell.connects.ok, 8);
    let cut = run(Fault::CutSilent, |settings| {
        settings.fan_out = Some(FanOut {
            publishers: 1,
            silent: 3,
        });
        // Enough to fill the sockets of those who do not read.
        settings.workload = Workload::Echo {
            size: 16 << 10,
            binary: true,
        };
        settings.pacing = Pacing::Open {
            rate: 200.0,
            arrival: Arrival::Constant,
            in_flight: None,
        };
        settings.stop = Stop::Messages(200);
    });
    let fan_out = cut.fan_out.as_ref().unwrap();
    assert_eq!(
        (fan_out.copies, fan_out.silent_cut),
        (1000, 3),
        "{:?}",
        cut.errors
    );
    assert_eq!(cut.connects.disconnected, 0);
}

#[test]
fn a_server_that_knows_nothing_of_it_fails_the_connections() {
    let cell = run(Fault::Deaf, |settings| {
        settings.handshake_timeout = std::time::Duration::from_millis(300);
    });
    assert_eq!((cell.connects.ok, cell.connects.failed), (0, 8));
    let errors: Vec<&String> = cell.errors.keys().collect();
    assert!(errors[0].contains("`subscribed` in time"), "{errors:?}");
}

#[test]
fn what_cannot_be_followed_is_one_sentence() {
    let echo = |size| Workload::Echo {
        size,
        binary: false,
    };
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings {
            targets: vec![Target::parse("ws://127.0.0.1:1/").unwrap()],
            ..Settings::default()
        };
        one_publishes(&mut settings);
        change(&mut settings);
        settings
    };
    let fan_out = |publishers, silent| Some(FanOut { publishers, silent });
    for (settings, clause) in [
        (
            with(&|it| it.fan_out = fan_out(0, 0)),
            "publishers must be from 1",
        ),
        (
            with(&|it| it.fan_out = fan_out(9, 2)),
            "to the 8 connections that read",
        ),
        (
            with(&|it| it.fan_out = fan_out(1, 11)),
            "more connections are silent",
        ),
        (with(&|it| it.workload = echo(8)), "at least 20 bytes"),
        (with(&|it| it.replies = 2), "one reply each"),
        (
            with(&|it| it.targets.push(it.targets[0].clone())),
            "not heard at another",
        ),
    ] {
        let sentence = Scenario::new(settings).unwrap_err().to_string();
        assert!(sentence.contains(clause), "{sentence}");
    }
}
