use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn tally(lag_ns: u64, response_ns: u64) -> Tally {
    let mut tally = Tally::default();
    tally.counters.connects_ok = 10;
    tally.counters.sent = 1000;
    tally.counters.distinct = 1000;
    for _ in 0..1000 {
        tally.send_lag.record(lag_ns);
        tally.response.record(response_ns);
    }
    tally
}

fn evidence(totals: &Tally) -> Evidence<'_> {
    Evidence {
        totals,
        connections: 10,
        online: 10,
        sends: true,
        targets: "ws://127.0.0.1:1/",
        unsent_waiting: 0,
        unsent_down: 0,
        unsent_ready: 0,
        replies: 1,
        lost: 0,
        losses_expected: false,
        workers: &[],
        steal: None,
        pressure: None,
        windows: (0, 0),
        died: None,
        interrupted: false,
        csv_error: None,
    }
}

fn verdict(evidence: &Evidence<'_>) -> Verdict {
    assess(evidence).verdict()
}

#[test]
fn the_lag_budget_is_a_millisecond_or_a_twentieth_of_the_median() {
    use Verdict::{Invalid, Suspect, Valid};
    for (lag_us, response_ms, expected) in [
        (900, 1, Valid),
        (1500, 1, Suspect),
        (2500, 1, Invalid),
        (2500, 100, Valid),
        (7000, 100, Suspect),
        (11_000, 100, Invalid),
    ] {
        let totals = tally(lag_us * 1000, response_ms * MS);
        assert_eq!(
            verdict(&evidence(&totals)),
            expected,
            "{lag_us} us, {response_ms} ms"
        );
    }
}

#[test]
fn without_messages_the_budget_is_that_of_what_is_measured() {
    let storm = |recovery_ms: u64| {
        let mut totals = Tally::default();
        totals.counters.connects_ok = 10;
        totals.heartbeat.record(30 * MS);
        totals.handshake.total.record(MS);
        totals.recovery.record(recovery_ms * MS);
        verdict(&Evidence {
            sends: false,
            ..evidence(&totals)
        })
    };
    assert_eq!(storm(1000), Verdict::Valid);
    assert_eq!(storm(50), Verdict::Invalid);
}

#[test]
fn waiting_for_a_slot_never_makes_a_run_invalid() {
    let mut totals = tally(1000, MS);
    for _ in 0..1000 {
        totals.slot_wait.record(900 * MS);
    }
    assert_eq!(verdict(&evidence(&totals)), Verdict::Valid);
    let starved_by_server = Evidence {
        unsent_waiting: 5000,
        ..evidence(&totals)
    };
    assert_eq!(verdict(&starved_by_server), Verdict::Suspect);
    let without_connections = Evidence {
        unsent_down: 5000,
        ..starved_by_server
    };
    assert_eq!(verdict(&without_connections), Verdict::Invalid);
    let starved_by_itself = Evidence {
        unsent_ready: 11,
        ..evidence(&totals)
    };
    assert_eq!(verdict(&starved_by_itself), Verdict::Invalid);
}

#[test]
fn a_worker_that_waits_for_a_cpu_is_starved() {
    let totals = tally(1000, MS);
    let with = |run_percent: u64, wait_percent: u64| {
        let cpu = ThreadCpu {
            run_ns: run_percent * SECOND / 100,
            wait_ns: wait_percent * SECOND / 100,
        };
        verdict(&Evidence {
            workers: &[(cpu, SECOND)],
            ..evidence(&totals)
        })
    };
    assert_eq!(with(20, 5), Verdict::Valid);
    assert_eq!(with(2, 5), Verdict::Valid);
    assert_eq!(with(20, 12), Verdict::Suspect);
    assert_eq!(with(10, 12), Verdict::Invalid);
    assert_eq!(with(60, 30), Verdict::Invalid);
    assert_eq!(with(98, 1), Verdict::Suspect);
}

#[test]
fn a_late_heartbeat_is_evidence_in_a_closed_loop() {
    let mut totals = tally(0, MS);
    for _ in 0..98 {
        totals.heartbeat.record(1000);
    }
    assert_eq!(verdict(&evidence(&totals)), Verdict::Valid);
    totals.heartbeat.record_n(50 * MS, 10);
    assert_eq!(verdict(&evidence(&totals)), Verdict::Invalid);
}

#[test]
fn losses_are_listed_and_do_not_make_a_run_invalid() {
    let totals = tally(1000, MS);
    let assessment = assess(&Evidence {
        lost: 3,
        ..evidence(&totals)
    });
    assert_eq!(assessment.verdict(), Verdict::Valid);
    assert_eq!(assessment.reasons(), ["3 replies were lost"]);
}

#[test]
fn impossible_one_way_latencies_are_suspect_when_they_are_many() {
    let mut totals = tally(1000, MS);
    totals.one_way.record_n(MS, 990);
    totals.counters.one_way_impossible = 10;
    assert_eq!(verdict(&evidence(&totals)), Verdict::Valid);
    totals.counters.one_way_impossible = 11;
    let assessment = assess(&evidence(&totals));
    assert_eq!(assessment.verdict(), Verdict::Suspect);
    assert!(assessment.reasons()[0].contains("--time-unit"));
}

#[test]
fn mass_losses_are_suspect_and_never_invalid() {
    let mut totals = tally(1000, MS);
    let assessment = assess(&Evidence {
        lost: 11,
        ..evidence(&totals)
    });
    assert_eq!(assessment.verdict(), Verdict::Suspect);
    let expected = ["11 replies never came, and no latency counts them"];
    assert_eq!(assessment.reasons(), expected);
    totals.counters.connects_ok = 1000;
    totals.counters.disconnected = 10;
    assert_eq!(verdict(&evidence(&totals)), Verdict::Valid);
    totals.counters.disconnected = 1000;
    let assessment = assess(&Evidence {
        lost: 900,
        ..evidence(&totals)
    });
    assert_eq!(assessment.verdict(), Verdict::Suspect);
    assert!(assessment.reasons()[0].contains("1000 of 1000 connections were lost"));
}

#[test]
fn a_run_without_connections_or_replies_is_invalid_and_says_why() {
    let mut totals = Tally::default();
    totals.error("connection refused");
    let assessment = assess(&Evidence {
        online: 0,
        ..evidence(&totals)
    });
    assert_eq!(assessment.verdict(), Verdict::Invalid);
    assert!(assessment.reasons()[0].ends_with(": connection refused"));
    let mut totals = tally(1000, MS);
    totals.counters.distinct = 0;
    assert_eq!(verdict(&evidence(&totals)), Verdict::Invalid);
}

#[test]
fn other_evidence_has_its_bounds() {
    let totals = tally(1000, MS);
    let base = || evidence(&totals);
    let steal = |steal: f64| Evidence {
        steal: Some(steal),
        ..base()
    };
    assert_eq!(verdict(&steal(0.3)), Verdict::Valid);
    assert_eq!(verdict(&steal(0.6)), Verdict::Suspect);
    let late = tally(3 * MS, MS);
    let assessment = assess(&Evidence {
        totals: &late,
        ..steal(0.3)
    });
    assert!(assessment.reasons()[0].contains("other guests of the host took 30 %"));
    assert_eq!(
        verdict(&Evidence {
            windows: (100, 5),
            ..base()
        }),
        Verdict::Valid
    );
    assert_eq!(
        verdict(&Evidence {
            windows: (100, 51),
            ..base()
        }),
        Verdict::Invalid
    );
    assert_eq!(
        verdict(&Evidence {
            interrupted: true,
            ..base()
        }),
        Verdict::Suspect
    );
    assert_eq!(
        verdict(&Evidence {
            online: 9,
            ..base()
        }),
        Verdict::Suspect
    );
    assert_eq!(
        verdict(&Evidence {
            died: Some("gone"),
            ..base()
        }),
        Verdict::Invalid
    );
}

#[test]
fn replies_that_nobody_wanted_like_this_are_suspect_when_they_are_many() {
    let counters: [fn(&mut Tally) -> &mut u64; 3] = [
        |tally| &mut tally.counters.corrupt,
        |tally| &mut tally.counters.duplicate,
        |tally| &mut tally.counters.unexpected,
    ];
    for counter in counters {
        let mut totals = tally(1000, MS);
        *counter(&mut totals) = 10;
        let few = assess(&evidence(&totals));
        assert_eq!((few.verdict(), few.reasons().len()), (Verdict::Valid, 1));
        *counter(&mut totals) = 11;
        let many = assess(&evidence(&totals));
        assert_eq!(
            (many.verdict(), many.reasons().len()),
            (Verdict::Suspect, 1)
        );
        let held = Evidence {
            sends: false,
            ..evidence(&totals)
        };
        assert_eq!(verdict(&held), Verdict::Valid);
    }
}

#[test]
fn a_moment_of_sending_says_nothing_about_the_cpu() {
    let totals = tally(1000, MS);
    let with = |wall_ns: u64| {
        let cpu = ThreadCpu {
            run_ns: wall_ns,
            wait_ns: wall_ns,
        };
        verdict(&Evidence {
            workers: &[(cpu, wall_ns)],
            steal: Some(1.0),
            ..evidence(&totals)
        })
    };
    assert_eq!(with(99 * MS), Verdict::Valid);
    assert_eq!(with(100 * MS), Verdict::Invalid);
}

#[test]
fn losses_that_were_asked_for_are_told_and_not_held_against_the_run() {
    let mut totals = tally(1000, MS);
    totals.counters.disconnected = 9;
    let lossy = |losses_expected| Evidence {
        lost: 100,
        unsent_waiting: 5000,
        unsent_down: 5000,
        losses_expected,
        ..evidence(&totals)
    };
    assert_eq!(verdict(&lossy(false)), Verdict::Invalid);
    let told = assess(&lossy(true));
    assert_eq!(told.verdict(), Verdict::Valid);
    let reasons = told.reasons().join("; ");
    assert!(
        reasons.contains("9 of 10 connections were lost"),
        "{reasons}"
    );
    assert!(reasons.contains("100 replies never came"), "{reasons}");
}
