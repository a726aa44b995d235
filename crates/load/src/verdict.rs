//! Whether the figures are the server's, or the generator's own.
//!
//! | evidence | SUSPECT | INVALID |
//! |---|---|---|
//! | p99 of the send lag, and of the heartbeat's lateness, over its budget | above 1 | above 2 |
//! | messages due that the generator did not send though it could | | above 1 % |
//! | connections lost early, or replies that never came | above 1 % | |
//! | replies that came too late for a latency | above 1 % | |
//! | replies that came twice, had wrong content, or were to nothing that was sent | above 1 % | |
//! | messages due that waited for the peer to the end | above 1 % | |
//! | those among them whose connection was not up | | above half |
//! | the CSV lacks lines, or could not be written to its end | any | |
//! | a worker thread was busy | above 95 % of the time | |
//! | a worker thread waited for a CPU | above 10 % | above 25 %, or longer than it ran |
//! | CPU time taken by other guests of the host | above 50 % | |
//! | one-way latencies below 0 or above the round trip | above 1 % | |
//! | windows in which Little's law does not hold within 5 % | above 5 % | above half |
//!
//! The budget is 1 ms or 5 % of the median response, whichever is larger. Twice the budget is
//! where a tenth of the median, or 2 ms, comes from the generator in one message of a hundred.
//! Nothing is said of the CPU when sending took less than 100 ms: its clocks are too coarse for it.
//! In a virtual machine each wake of a halted processor counts as time taken by other guests: a
//! tenth and more of it was seen in runs that were in time, so that it says why a generator was
//! late and seldom that it was.
//! Waiting for a slot never makes a run INVALID: it is the peer's doing, and in the response time.
//! Nor do losses, however many: the peer may be that bad, and then the run has shown it. But its
//! latencies are those of the replies that came, so that it is not VALID without a look at it.
//! Replies that are wrong mean that the server did other work than was asked for. Those in another
//! order than their messages are only remarked: no server promises it, and each has its latency.

use moonwire_report::{Assessment, Histogram, Verdict};

use crate::cpu::ThreadCpu;
use crate::tally::Tally;

/// Everything a verdict is drawn from.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// The sum of all tallies.
    pub(crate) totals: &'a Tally,
    /// Connections the scenario wants.
    pub(crate) connections: u64,
    /// Connections that were up when sending started.
    pub(crate) online: u64,
    /// Whether anything was to be sent.
    pub(crate) sends: bool,
    /// Messages due and never sent, because their connection had no slot or was down.
    pub(crate) unsent_waiting: u64,
    /// Those among them whose connection was down.
    pub(crate) unsent_down: u64,
    /// Messages due and never sent though nothing was in their way.
    pub(crate) unsent_ready: u64,
    /// Replies wanted per message.
    pub(crate) replies: u64,
    /// Replies that never came.
    pub(crate) lost: u64,
    /// Each worker's CPU and the time it is to be compared with.
    pub(crate) workers: &'a [(ThreadCpu, u64)],
    /// Share of the machine's time that other guests took.
    pub(crate) steal: Option<f64>,
    /// Share of time in which something waited for a CPU, for the remarks.
    pub(crate) pressure: Option<f64>,
    /// Windows looked at, and those in which Little's law did not hold.
    pub(crate) windows: (u64, u64),
    /// Why the run died, if it did.
    pub(crate) died: Option<&'a str>,
    /// The run was stopped from outside.
    pub(crate) interrupted: bool,
    /// Why the raw CSV could not be written to its end, if that is so.
    pub(crate) csv_error: Option<&'a str>,
}

/// Weighs the evidence.
pub(crate) fn assess(evidence: &Evidence<'_>) -> Assessment {
    let mut assessment = Assessment::valid();
    weigh_ending(evidence, &mut assessment);
    if evidence.totals.counters.connects_ok > 0 {
        weigh_losses(evidence, &mut assessment);
        weigh_rate(evidence, &mut assessment);
        weigh_lateness(evidence, &mut assessment);
        weigh_cpu(evidence, &mut assessment);
        weigh_windows(evidence, &mut assessment);
    }
    remark(evidence, &mut assessment);
    assessment
}

/// Largest p99 of the send lag that leaves a run VALID.
pub(crate) fn lag_budget_ns(response: &Histogram) -> u64 {
    let of_median = response.quantile_ns(0.5).unwrap_or(0) / 20;
    of_median.max(LAG_BUDGET_MIN_NS)
}

fn weigh_ending(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let counters = &evidence.totals.counters;
    if counters.connects_ok == 0 {
        let why = evidence
            .totals
            .errors
            .iter()
            .max_by_key(|(_, count)| **count);
        let why = why.map_or_else(String::new, |(text, count)| {
            format!(": {text} ({count} times)")
        });
        assessment.add(
            Verdict::Invalid,
            format!("no connection could be made{why}"),
        );
        return;
    }
    if let Some(why) = evidence.died {
        assessment.add(Verdict::Invalid, why);
    }
    if evidence.interrupted {
        assessment.add(Verdict::Suspect, "the run was interrupted before its end");
    }
    if evidence.online < evidence.connections {
        let down = evidence.connections - evidence.online;
        let sentence = format!("{down} of {} connections were not up", evidence.connections);
        assessment.add(Verdict::Suspect, sentence);
    }
    if evidence.sends && counters.sent == 0 && evidence.died.is_none() {
        assessment.add(Verdict::Invalid, "no message was sent");
    }
    if counters.sent > 0 && counters.distinct == 0 {
        assessment.add(Verdict::Invalid, "no reply arrived to any message");
    }
}

fn weigh_losses(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let counters = &evidence.totals.counters;
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    if share(counters.disconnected, counters.connects_ok) > LOSS_SHARE {
        let sentence = format!(
            "{} of {} connections were lost before the end",
            counters.disconnected, counters.connects_ok
        );
        assessment.add(Verdict::Suspect, sentence);
    }
    if is_loss_large(evidence) {
        let sentence = format!(
            "{} replies never came, and no latency counts them",
            evidence.lost
        );
        assessment.add(Verdict::Suspect, sentence);
    }
}

fn is_loss_large(evidence: &Evidence<'_>) -> bool {
    evidence.lost as f64 > LOSS_SHARE * expected(evidence)
}

/// Replies that should come.
fn expected(evidence: &Evidence<'_>) -> f64 {
    let sent = evidence.totals.counters.sent;
    sent.saturating_mul(evidence.replies) as f64
}

fn weigh_rate(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let due = evidence.totals.counters.sent + evidence.unsent_waiting + evidence.unsent_ready;
    let share = |part: u64| part as f64 / due.max(1) as f64;
    if share(evidence.unsent_ready) > UNSENT_SHARE {
        let sentence = format!(
            "the send rate was not reached: {} of {due} messages due were not sent in time",
            evidence.unsent_ready
        );
        assessment.add(Verdict::Invalid, sentence);
    }
    if share(evidence.unsent_waiting) > UNSENT_SHARE {
        let sentence = format!(
            "the send rate was not reached: {} of {due} messages due waited for the server to \
             the end (for a slot, for room in the socket, or for their connection)",
            evidence.unsent_waiting
        );
        let verdict = if share(evidence.unsent_down) > DOWN_SHARE {
            Verdict::Invalid
        } else {
            Verdict::Suspect
        };
        assessment.add(verdict, sentence);
    }
}

fn weigh_lateness(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let totals = evidence.totals;
    let budget_ns = lag_budget_ns(&totals.response);
    let kinds = [
        ("send lag", &totals.send_lag),
        ("heartbeat lateness", &totals.heartbeat),
    ];
    for (what, histogram) in kinds {
        let p99_ns = histogram.quantile_ns(0.99).unwrap_or(0);
        let verdict = match p99_ns {
            p99 if p99 > budget_ns.saturating_mul(LAG_INVALID) => Verdict::Invalid,
            p99 if p99 > budget_ns => Verdict::Suspect,
            _ => continue,
        };
        let sentence = format!(
            "the generator was late: p99 of its {what} is {:.2} ms, at most {:.2} ms allowed{}",
            p99_ns as f64 / 1e6,
            budget_ns as f64 / 1e6,
            surroundings(evidence),
        );
        assessment.add(verdict, sentence);
    }
}

/// What the kernel says about the CPU meanwhile, in parentheses.
fn surroundings(evidence: &Evidence<'_>) -> String {
    let percent = |share: f64| share * 100.0;
    let pressure = evidence.pressure.map(|share| {
        format!(
            "something waited for a CPU {:.0} % of the time",
            percent(share)
        )
    });
    let steal = evidence
        .steal
        .filter(|&share| share > STEAL_WORTH_A_WORD)
        .map(|share| {
            format!(
                "other guests of the host took {:.0} % of it",
                percent(share)
            )
        });
    let facts: Vec<String> = pressure.into_iter().chain(steal).collect();
    if facts.is_empty() {
        String::new()
    } else {
        format!(" ({})", facts.join(", "))
    }
}

fn weigh_cpu(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let workers = evidence.workers;
    if !workers.is_empty()
        && workers
            .iter()
            .all(|(_, wall_ns)| *wall_ns < CPU_WALL_MIN_NS)
    {
        return;
    }
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let worst = evidence.workers.iter().max_by_key(|(cpu, _)| cpu.wait_ns);
    if let Some((cpu, wall_ns)) = worst {
        let waited = share(cpu.wait_ns, *wall_ns);
        let verdict = if waited > WAIT_INVALID || waited > WAIT_SUSPECT && cpu.wait_ns > cpu.run_ns
        {
            Some(Verdict::Invalid)
        } else {
            (waited > WAIT_SUSPECT).then_some(Verdict::Suspect)
        };
        if let Some(verdict) = verdict {
            let sentence = format!(
                "the generator was starved: a worker waited for a CPU {:.0} % of the time and \
                 ran {:.0} %",
                waited * 100.0,
                share(cpu.run_ns, *wall_ns) * 100.0
            );
            assessment.add(verdict, sentence);
        }
    }
    let busiest = evidence
        .workers
        .iter()
        .map(|(cpu, wall)| share(cpu.run_ns, *wall));
    let busiest = busiest.fold(0.0, f64::max);
    if busiest > BUSY_SUSPECT {
        let sentence = format!(
            "the generator is at its ceiling: a worker was busy {:.0} % of the time, so that \
             latencies hold its own queueing and the server may be faster",
            busiest.min(1.0) * 100.0
        );
        assessment.add(Verdict::Suspect, sentence);
    }
    if let Some(steal) = evidence.steal.filter(|&steal| steal > STEAL_SUSPECT) {
        let sentence = format!(
            "other guests of the host took {:.0} % of the CPU time",
            steal * 100.0
        );
        assessment.add(Verdict::Suspect, sentence);
    }
}

fn weigh_windows(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let (all, broken) = evidence.windows;
    let share = broken as f64 / all.max(1) as f64;
    if share > WINDOWS_SUSPECT {
        let verdict = if share > WINDOWS_INVALID {
            Verdict::Invalid
        } else {
            Verdict::Suspect
        };
        let sentence = format!(
            "Little's law does not hold in {broken} of {all} windows: the messages in flight are \
             not what throughput and service time say"
        );
        assessment.add(verdict, sentence);
    }
}

fn remark(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let counters = &evidence.totals.counters;
    let few_lost = if is_loss_large(evidence) {
        0
    } else {
        evidence.lost
    };
    let late = "replies came so late that no latency counts them";
    let remarks = [
        (few_lost, "replies were lost", false),
        (counters.late, late, true),
        (counters.duplicate, "replies came twice", true),
        (counters.corrupt, "replies had wrong content", true),
        (counters.reordered, "replies came out of order", false),
        (
            counters.unexpected,
            "messages came that nobody asked for",
            true,
        ),
    ];
    for (count, what, is_weighed) in remarks.into_iter().filter(|(count, ..)| *count > 0) {
        let is_large = count as f64 > WRONG_SHARE * expected(evidence);
        let verdict = if is_weighed && is_large && evidence.sends {
            Verdict::Suspect
        } else {
            Verdict::Valid
        };
        assessment.add(verdict, format!("{count} {what}"));
    }
    if counters.one_way_impossible > 0 {
        let (verdict, why) = if evidence.totals.is_one_way_implausible() {
            (Verdict::Suspect, format!(": {CLOCK_MISFIT}"))
        } else {
            (Verdict::Valid, String::new())
        };
        let sentence = format!(
            "{} one-way latencies were impossible and are not counted{why}",
            counters.one_way_impossible
        );
        assessment.add(verdict, sentence);
    }
    if counters.raw_dropped > 0 {
        let count = counters.raw_dropped;
        let sentence =
            format!("{count} lines of the CSV were dropped: the disk is too slow for it");
        assessment.add(Verdict::Suspect, sentence);
    }
    if let Some(error) = evidence.csv_error {
        assessment.add(Verdict::Suspect, format!("the CSV is incomplete: {error}"));
    }
}

/// Why one-way latencies are refused when too many of them are impossible.
pub(crate) const CLOCK_MISFIT: &str =
    "the clock in the replies does not fit: check --time-unit, or the hosts' clocks differ";
/// What timers and the scheduler keep on a machine that is not tuned.
const LAG_BUDGET_MIN_NS: u64 = 1_000_000;
/// Times the budget.
const LAG_INVALID: u64 = 2;
/// The send rate counts as reached at 99 %.
const UNSENT_SHARE: f64 = 0.01;
/// With more of the messages on connections that are not there, the load is not what was asked for.
const DOWN_SHARE: f64 = 0.5;
/// Losses beyond this leave a hole in the tail that a p99 is read from.
const LOSS_SHARE: f64 = 0.01;
/// More wrong replies than this are not a few that went astray.
const WRONG_SHARE: f64 = 0.01;
/// Shortest sending phase with a verdict on the CPU.
const CPU_WALL_MIN_NS: u64 = 100_000_000;
const BUSY_SUSPECT: f64 = 0.95;
const WAIT_SUSPECT: f64 = 0.10;
const WAIT_INVALID: f64 = 0.25;
const STEAL_SUSPECT: f64 = 0.50;
const STEAL_WORTH_A_WORD: f64 = 0.05;
const WINDOWS_SUSPECT: f64 = 0.05;
const WINDOWS_INVALID: f64 = 0.50;

#[cfg(test)]
mod tests {
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
            unsent_waiting: 0,
            unsent_down: 0,
            unsent_ready: 0,
            replies: 1,
            lost: 0,
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
        assert!(assessment.reasons()[0].contains("connection refused (1 times)"));
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
}
