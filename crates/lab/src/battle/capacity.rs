//! The most that one contestant stands: tries of different loads on the same processes.

use std::time::Duration;

use moonwire_load::{Progress, Stop};
use moonwire_report::{Capacity, Ceiling, Cell, Over, Verdict};

use super::cell::{self, Site};
use super::plan::Bout;
use super::search::{Bounds, Search, Step};
use super::stack::Stack;
use super::{BattleError, BattleEvent, BattleObserver, BattlePlace};
use crate::sampling::Usage;
use crate::scenario::SearchPlan;

/// All tries of a search, and what it found.
pub(super) struct Searched {
    pub(super) cells: Vec<Cell>,
    pub(super) capacity: Capacity,
}

/// Why a load did not pass.
struct Failure {
    reason: String,
    /// Somebody else than the contestant was the cause.
    is_foreign: bool,
}

/// Searches with the load of a bout as the first one. What goes wrong ends it with what was found.
pub(super) fn search(
    site: &Site<'_>,
    bout: &Bout,
    plan: SearchPlan,
    ceilings: &[Ceiling],
    place: &BattlePlace,
    observer: &mut BattleObserver<'_>,
) -> Result<Searched, BattleError> {
    let mut found = Searched {
        cells: Vec::new(),
        capacity: nothing(bout, plan),
    };
    let mut stack = match site.start(bout, site.folder(bout)) {
        Ok(stack) => stack,
        Err(sentence) => {
            found.cells.push(cell::missing(bout, &sentence));
            found.capacity.limit = Some(sentence);
            return Ok(found);
        }
    };
    // A search compares no counters.
    let _ = site.warm_up(bout, &stack);
    let mut search = Search::new(bounds(plan));
    loop {
        let step = search.step();
        let (value, time) = match step {
            Step::Probe(value) => (value, None),
            Step::Confirm(value) => (value, Some(plan.confirm)),
            Step::End(answer) => {
                found.capacity.highest = answer.highest;
                found.capacity.lowest_failed = answer.lowest_failed;
                found.capacity.is_confirmed = answer.is_confirmed;
                if answer.lowest_failed.is_none() {
                    found.capacity.limit = None;
                }
                break;
            }
        };
        let tried = with_load(bout, plan.over, value, time);
        let place = place_of(place, plan.over, value);
        let (cell, failure) = try_load(site, &tried, &mut stack, ceilings, &place, observer);
        let has_died = cell.server.as_ref().is_some_and(|it| it.died.is_some());
        found.cells.push(cell);
        if site.is_stopped() || has_died || site.is_lost() {
            let last = failure.map_or_else(|| "it was interrupted".to_owned(), |it| it.reason);
            found.capacity.limit = Some(format!("the search did not end: {last}"));
            found.capacity.highest = search.highest();
            // A load that ends a server is one that it does not stand.
            let failed = has_died.then_some(value).or_else(|| search.lowest_failed());
            found.capacity.lowest_failed = failed;
            break;
        }
        search.tell(step, failure.is_none());
        // Of the value that failed last, and not of a try that was disturbed.
        if let Some(failure) = failure.filter(|_| search.lowest_failed() == Some(value)) {
            found.capacity.limit = failure.is_foreign.then_some(failure.reason);
        }
        // What the last load left in the contestant is its to finish.
        std::thread::sleep(SETTLE);
    }
    let stopped = site.end(stack)?;
    for objection in cell::objections(&stopped) {
        if let Some(last) = found.cells.last_mut() {
            last.assessment.add(Verdict::Suspect, objection);
        }
    }
    Ok(found)
}

/// Puts one load on the contestant, and tells how it went.
fn try_load(
    site: &Site<'_>,
    tried: &Bout,
    stack: &mut Stack,
    ceilings: &[Ceiling],
    place: &BattlePlace,
    observer: &mut BattleObserver<'_>,
) -> (Cell, Option<Failure>) {
    let mut on_progress = |progress: &Progress, usage: &[Usage]| {
        observer(&BattleEvent::Progress {
            place,
            progress,
            usage,
        });
    };
    let mut cell = site.measure(tried, stack, &mut on_progress);
    site.hold_to(ceilings, &mut cell);
    let failure = failure(&cell);
    observer(&BattleEvent::TryEnded {
        place,
        cell: &cell,
        failure: failure.as_ref().map(|it| it.reason.as_str()),
    });
    (cell, failure)
}

fn nothing(bout: &Bout, plan: SearchPlan) -> Capacity {
    Capacity {
        contestant: bout.contestant.name(),
        tls: bout.tls,
        round: bout.round,
        over: plan.over,
        highest: None,
        lowest_failed: None,
        is_confirmed: false,
        limit: None,
    }
}

fn bounds(plan: SearchPlan) -> Bounds {
    Bounds {
        from: plan.from,
        to: plan.to,
        precision: plan.precision,
        is_whole: plan.over == Over::Connections,
    }
}

/// The bout with another load, and for another time.
fn with_load(bout: &Bout, over: Over, value: f64, time: Option<Duration>) -> Bout {
    let mut tried = bout.clone();
    tried.load = match over {
        Over::Rate => bout.load.with_rate(value),
        Over::Connections => bout.load.with_connections(value as u32),
    };
    if let Some(time) = time {
        tried.load.settings.stop = Stop::After(time);
    }
    tried
}

fn place_of(place: &BattlePlace, over: Over, value: f64) -> BattlePlace {
    BattlePlace {
        name: format!("{}, {}", place.name, described(over, value)),
        ..place.clone()
    }
}

fn described(over: Over, value: f64) -> String {
    match over {
        Over::Rate => format!("{value:.0} messages/s"),
        Over::Connections => format!("{value:.0} connections"),
    }
}

/// Why the load did not pass; `None` if it did.
///
/// Latencies count from intended times, so that a generator that is late makes them worse: what
/// holds all the same holds, and what does not hold beside it may be the generator's fault.
fn failure(cell: &Cell) -> Option<Failure> {
    if let Some(died) = cell.server.as_ref().and_then(|server| server.died.clone()) {
        return Some(Failure {
            reason: died,
            is_foreign: false,
        });
    }
    if let Some(reason) = cell.ended_early.clone() {
        return Some(Failure {
            reason,
            // Nothing was sent: that says nothing of the contestant.
            is_foreign: cell.generator.threads == 0,
        });
    }
    if let Some(shortage) = shortage(cell) {
        return Some(Failure {
            reason: shortage,
            is_foreign: true,
        });
    }
    let reason = broken_threshold(cell)
        .or_else(|| missed_connections(cell))
        .or_else(|| missed_rate(cell))?;
    let limit = cell.contest.as_ref().and_then(|it| it.limit.as_deref());
    let is_invalid = cell.assessment.verdict() == Verdict::Invalid;
    let objection = cell.assessment.reasons().first().map(String::as_str);
    let late = objection.filter(|_| is_invalid);
    let foreign = limit.or(late);
    Some(Failure {
        is_foreign: foreign.is_some(),
        reason: foreign.map_or_else(|| reason.clone(), |why| format!("{reason}: {why}")),
    })
}

fn broken_threshold(cell: &Cell) -> Option<String> {
    let broken = cell.thresholds.iter().find(|it| !it.passed)?;
    Some(format!("{} ({})", broken.expression, broken.actual))
}

/// Connections that did not come about, or did not last.
fn missed_connections(cell: &Cell) -> Option<String> {
    let wanted = cell.parameters.clients;
    // Those that were made again are among both.
    let up = cell.connects.ok.saturating_sub(cell.connects.disconnected);
    ((up as f64) < SHARE_MIN * wanted as f64)
        .then(|| format!("{up} of {wanted} connections were up"))
}

/// What this host had none of for the generator.
fn shortage(cell: &Cell) -> Option<String> {
    let of_this_host = |text: &&String| SHORTAGES.iter().any(|it| text.contains(it));
    let error = cell.errors.keys().find(of_this_host)?;
    missed_connections(cell).map(|missed| format!("{missed}: the generator had {error}"))
}

/// Messages that were not sent or not answered in time. A reply may take as long as the fastest
/// one, over a long link for example: what took longer at the end had to wait for others.
fn missed_rate(cell: &Cell) -> Option<String> {
    let wanted = cell.rate.target_per_s.filter(|rate| *rate > 0.0)?;
    let messages = &cell.messages;
    let received_per_s = cell.rate.received_per_s.max(f64::MIN_POSITIVE);
    let fastest_s = cell.latency.response.min_ns().unwrap_or(0) as f64 / 1e9;
    let receiving_s = messages.received as f64 / received_per_s - fastest_s;
    let missing = messages.lost as f64 / cell.parameters.replies.max(1) as f64;
    let answered_per_s = (messages.sent as f64 - missing).max(0.0)
        / receiving_s.max(cell.rate.duration_s).max(f64::MIN_POSITIVE);
    let reached = cell.rate.sent_per_s.min(answered_per_s);
    (reached < SHARE_MIN * wanted)
        .then(|| format!("{reached:.0} of {wanted:.0} messages/s were answered"))
}

/// Of the messages that were due, and of the connections.
const SHARE_MIN: f64 = 0.99;
/// What the system says where descriptors or ports are used up.
const SHORTAGES: [&str; 2] = ["Too many open files", "Cannot assign requested address"];
/// Between two tries.
const SETTLE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use moonwire_report::{Contest, Histogram, Threshold};

    use super::*;

    fn cell(has_passed: bool, is_invalid: bool, limit: Option<&str>) -> Cell {
        let mut cell = Cell {
            thresholds: vec![Threshold {
                expression: "p(99)<5ms".to_owned(),
                actual: "7 ms".to_owned(),
                passed: has_passed,
            }],
            contest: Some(Contest {
                limit: limit.map(str::to_owned),
                ..Contest::default()
            }),
            ..Cell::default()
        };
        if is_invalid {
            cell.assessment
                .add(Verdict::Invalid, "the generator was late");
        }
        cell
    }

    #[test]
    fn a_late_generator_is_no_failure_and_may_be_the_cause_of_one() {
        assert!(failure(&cell(true, true, Some("the generator was the limit"))).is_none());
        let own = failure(&cell(false, false, None)).unwrap();
        assert_eq!(
            (own.reason.as_str(), own.is_foreign),
            ("p(99)<5ms (7 ms)", false)
        );
        let late = failure(&cell(false, true, None)).unwrap();
        assert!(late.is_foreign && late.reason.ends_with("the generator was late"));
    }

    #[test]
    fn what_was_not_measured_or_ended_early_did_not_pass() {
        let mut cell = Cell {
            ended_early: Some("the agent is lost".to_owned()),
            ..Cell::default()
        };
        let missing = failure(&cell).expect("nothing was measured");
        assert_eq!(missing.reason, "the agent is lost");
        assert!(missing.is_foreign);
        cell.generator.threads = 2;
        assert!(
            !failure(&cell)
                .expect("it did not come to its end")
                .is_foreign
        );
    }

    #[test]
    fn what_was_not_sent_or_answered_did_not_pass() {
        let mut cell = cell(true, false, None);
        cell.parameters.replies = 4;
        cell.rate.target_per_s = Some(1000.0);
        cell.rate.duration_s = 3.0;
        let mut answer = |received: u64, lost: u64, seconds: f64, fastest_ns: u64| {
            cell.messages.sent = 3000;
            cell.messages.received = received;
            cell.messages.lost = lost;
            cell.rate.sent_per_s = 1000.0;
            cell.rate.received_per_s = received as f64 / seconds;
            let mut response = Histogram::new();
            response.record(fastest_ns);
            cell.latency.response = response;
            failure(&cell).map(|it| it.reason)
        };
        assert_eq!(answer(12_000, 0, 3.0, 1_000_000), None);
        // Half of the replies are missing.
        let missed = answer(6000, 6000, 3.0, 1_000_000).unwrap();
        assert_eq!(missed, "500 of 1000 messages/s were answered");
        // The last reply of a link of 40 ms there and back, and one that had to wait.
        assert_eq!(answer(12_000, 0, 3.04, 40_000_000), None);
        let late = answer(12_000, 0, 3.5, 40_000_000).unwrap();
        assert_eq!(late, "867 of 1000 messages/s were answered");
    }

    #[test]
    fn connections_that_are_not_up_do_not_pass() {
        let mut cell = cell(true, false, None);
        cell.parameters.clients = 1000;
        cell.connects.ok = 995;
        assert!(failure(&cell).is_none());
        cell.connects.ok = 1015;
        (cell.connects.disconnected, cell.connects.reconnected) = (40, 20);
        let missed = failure(&cell).unwrap();
        assert_eq!(missed.reason, "975 of 1000 connections were up");
        assert!(!missed.is_foreign);
        let error = "connect: Too many open files (os error 24)";
        cell.errors.insert(error.to_owned(), 20);
        assert!(failure(&cell).unwrap().is_foreign);
    }

    #[test]
    fn a_server_that_fell_over_did_not_pass() {
        let mut cell = cell(true, false, None);
        cell.server = Some(moonwire_report::Server {
            died: Some("it fell over".to_owned()),
            ..moonwire_report::Server::default()
        });
        assert_eq!(failure(&cell).unwrap().reason, "it fell over");
    }
}
