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
//! The budget is 1 ms or 5 % of the median response, whichever is larger; of the median recovery,
//! or else handshake, in a run without messages. Twice the budget is
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

use moonwire_report::{Assessment, Verdict};

use crate::cpu::ThreadCpu;
use crate::tally::Tally;

/// Everything a verdict is drawn from.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// Where the connections were to go.
    pub(crate) targets: &'a str,
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
    /// Losses are what the run is about.
    pub(crate) losses_expected: bool,
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
        if !evidence.losses_expected {
            weigh_losses(evidence, &mut assessment);
        }
        weigh_rate(evidence, &mut assessment);
        weigh_lateness(evidence, &mut assessment);
        weigh_cpu(evidence, &mut assessment);
        weigh_windows(evidence, &mut assessment);
        if evidence.losses_expected {
            // Behind what speaks against the run, as they do not.
            weigh_losses(evidence, &mut assessment);
        }
    }
    remark(evidence, &mut assessment);
    assessment
}

/// Largest p99 of the send lag that leaves a run VALID. Without responses, what is measured is how
/// soon connections come back, or are made.
fn lag_budget_ns(totals: &Tally) -> u64 {
    let measured = [&totals.response, &totals.recovery, &totals.handshake.total];
    let measured = measured.into_iter().find(|histogram| !histogram.is_empty());
    let median_ns = measured.and_then(|histogram| histogram.quantile_ns(0.5));
    (median_ns.unwrap_or(0) / 20).max(LAG_BUDGET_MIN_NS)
}

fn weigh_ending(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let counters = &evidence.totals.counters;
    if counters.connects_ok == 0 {
        let why = evidence
            .totals
            .errors
            .iter()
            .max_by_key(|(_, count)| **count);
        let why = why.map_or_else(String::new, |(text, count)| match count {
            1 => format!(": {text}"),
            _ => format!(": {text} ({count} times)"),
        });
        assessment.add(
            Verdict::Invalid,
            format!("no connection could be made to {}{why}", evidence.targets),
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
    let verdict = match evidence.losses_expected {
        true => Verdict::Valid,
        false => Verdict::Suspect,
    };
    if share(counters.disconnected, counters.connects_ok) > LOSS_SHARE {
        let sentence = format!(
            "{} of {} connections were lost before the end",
            counters.disconnected, counters.connects_ok
        );
        assessment.add(verdict, sentence);
    }
    if is_loss_large(evidence) {
        let sentence = format!(
            "{} replies never came, and no latency counts them",
            evidence.lost
        );
        assessment.add(verdict, sentence);
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
        let verdict = if evidence.losses_expected {
            Verdict::Valid
        } else if share(evidence.unsent_down) > DOWN_SHARE {
            Verdict::Invalid
        } else {
            Verdict::Suspect
        };
        assessment.add(verdict, sentence);
    }
}

fn weigh_lateness(evidence: &Evidence<'_>, assessment: &mut Assessment) {
    let totals = evidence.totals;
    let budget_ns = lag_budget_ns(totals);
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
mod tests;
