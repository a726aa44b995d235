//! From records to the result.

use std::collections::BTreeMap;

use moonwire_report::{
    Bytes, Cell, Connects, FanOut, Generator, Handshake, Histogram, INTERRUPTED, Interval,
    Latencies, Link, Messages, OneWay, Parameters, Rate, Recovery, Tls, Verdict,
};

use crate::plan::{Plan, one_way_refusal};
use crate::records::Records;
use crate::run::{Ending, Outcome};
use crate::scenario::{self, Pacing, Scenario, Settings, Stop};
use crate::tally::Tally;
use crate::verdict::{CLOCK_MISFIT, Evidence, assess};

/// The result of a run that has ended.
pub(crate) fn outcome(plan: &Plan, records: &Records) -> Outcome {
    let ending = ending(plan, records);
    let sentence = match &ending {
        Ending::Completed => None,
        Ending::Interrupted => Some(INTERRUPTED.to_owned()),
        Ending::Died(sentence) => Some(sentence.clone()),
    };
    let mut cell = cell(plan, records);
    cell.ended_early.clone_from(&sentence);
    let lost = cell.messages.lost;
    let never_up = records.totals.counters.connects_ok == 0;
    cell.assessment = assess(&Evidence {
        targets: &targets(plan),
        totals: &records.totals,
        connections: connections_wanted(plan, records),
        online: records.online,
        replies: plan.copies(),
        sends: plan.scenario.pacing != Pacing::Hold,
        unsent_waiting: records.unsent_waiting,
        unsent_down: records.unsent_down,
        unsent_ready: records.unsent_ready,
        lost,
        losses_expected: plan.scenario.peer_fails,
        workers: &records.cpu,
        steal: records.steal,
        pressure: records.pressure,
        windows: records.windows,
        died: match &ending {
            Ending::Died(sentence) if !never_up => Some(sentence),
            Ending::Died(_) | Ending::Completed | Ending::Interrupted => None,
        },
        interrupted: records.interrupted,
        csv_error: records.csv_error.as_deref(),
    });
    if let Some(sentence) = unfollowed(plan, records) {
        cell.assessment.add(Verdict::Suspect, sentence);
    }
    cell.thresholds = plan
        .scenario
        .slo
        .iter()
        .map(|slo| slo.evaluate(&cell))
        .collect();
    Outcome { cell, ending }
}

/// What is said of published messages beyond those that are followed.
fn unfollowed(plan: &Plan, records: &Records) -> Option<String> {
    let followed = plan.programme.as_ref()?.followed();
    let sent = records.totals.counters.sent;
    (sent > followed).then(|| {
        format!(
            "of {sent} published messages {followed} were followed: deliveries, reach and the \
             losses of stages know of these only"
        )
    })
}

/// Connections that should have been up. Where time ends a run of short-lived ones, those that it
/// did not come to are not missing.
fn connections_wanted(plan: &Plan, records: &Records) -> u64 {
    let total = u64::from(plan.scenario.connections_total());
    let counters = &records.totals.counters;
    let tried = counters.connects_ok + counters.connects_failed;
    match plan.scenario.stop {
        Stop::After(_) if plan.is_short_lived() => {
            total.min(tried.saturating_sub(counters.connects_retried))
        }
        Stop::After(_) | Stop::Messages(_) | Stop::Schedule => total,
    }
}

/// The first target, and how many more there are.
fn targets(plan: &Plan) -> String {
    match plan.scenario.targets.as_slice() {
        [] => String::new(),
        [only] => only.to_string(),
        [first, others @ ..] => format!("{first} (and {} more)", others.len()),
    }
}

fn ending(plan: &Plan, records: &Records) -> Ending {
    let cause = || {
        let worst = records
            .totals
            .errors
            .iter()
            .max_by_key(|(_, count)| **count);
        worst.map_or_else(String::new, |(text, _)| format!(": {text}"))
    };
    let after_s = |at_ns: u64| at_ns.saturating_sub(records.start_ns) as f64 / 1e9;
    if records.interrupted {
        return Ending::Interrupted;
    }
    if records.totals.counters.connects_ok == 0 {
        let targets = targets(plan);
        return Ending::Died(format!(
            "no connection could be made to {targets}{}",
            cause()
        ));
    }
    // What was lost at the very start may be seen a moment before it or after it.
    let is_unsent =
        !matches!(plan.scenario.pacing, Pacing::Hold) && records.totals.counters.sent == 0;
    if records.died_ns.is_some() && (records.start_ns == 0 || is_unsent) {
        return Ending::Died(format!(
            "every connection was lost before the first message{}",
            cause()
        ));
    }
    if let Some(at_ns) = records.died_ns {
        let after_s = after_s(at_ns);
        return Ending::Died(format!(
            "every connection was lost after {after_s:.1} s{}",
            cause()
        ));
    }
    if records.stalled {
        let silence_s = plan.slot_patience_ns() as f64 / 1e9;
        return Ending::Died(format!(
            "no reply came for {silence_s:.0} s, so sending was given up"
        ));
    }
    Ending::Completed
}

fn cell(plan: &Plan, records: &Records) -> Cell {
    let totals = &records.totals;
    let counters = &totals.counters;
    let expected = counters.sent.saturating_mul(plan.copies());
    Cell {
        parameters: parameters(plan),
        messages: Messages {
            sent: counters.sent,
            received: counters.received,
            lost: expected.saturating_sub(counters.distinct),
            duplicate: counters.duplicate,
            reordered: counters.reordered,
            corrupt: counters.corrupt,
            backpressured: counters.backpressured,
            unsent: records.unsent_waiting + records.unsent_ready,
            unexpected: counters.unexpected,
        },
        errors: totals.errors.clone(),
        closes: totals
            .closes
            .iter()
            .map(|(code, count)| (code.to_string(), *count))
            .collect(),
        latency: latencies(plan, records),
        handshake: handshake(totals),
        connects: Connects {
            ok: counters.connects_ok,
            failed: counters.connects_failed,
            retried: counters.connects_retried,
            reconnected: counters.reconnected,
            disconnected: counters.disconnected,
            compressed: plan.scenario.deflate.map(|_| counters.connects_compressed),
            all_online_ms: records.all_online_ns.map(|ns| ns as f64 / 1e6),
        },
        recovery: recovery(totals),
        fan_out: fan_out(plan, records),
        ciphers: ciphers(&totals.tls_agreed),
        tls_agreed: totals.tls_agreed.clone(),
        bytes: Bytes {
            sent: counters.bytes_sent,
            received: counters.bytes_received,
        },
        rate: rate(plan, records),
        generator: generator(plan, records),
        link: link(plan),
        scenario: scenario_values(&plan.scenario),
        intervals: intervals(records),
        blocks: records.blocks.blocks(),
        stages: plan.scenario.stages().map_or_else(Vec::new, |stages| {
            records.stages.figures(stages, plan.copies())
        }),
        ..Cell::default()
    }
}

fn ciphers(agreed: &[Tls]) -> BTreeMap<String, u64> {
    let mut ciphers = BTreeMap::new();
    for tls in agreed {
        *ciphers.entry(tls.cipher.clone()).or_insert(0) += tls.connections();
    }
    ciphers
}

fn handshake(totals: &Tally) -> Handshake {
    let times = &totals.handshake;
    Handshake {
        tcp: times.tcp.packed(),
        tls: times.tls.packed(),
        upgrade: times.upgrade.packed(),
        total: times.total.packed(),
        response: times.response.packed(),
    }
}

fn recovery(totals: &Tally) -> Recovery {
    let attempts = totals.recovery_attempts.iter();
    Recovery {
        time: totals.recovery.packed(),
        attempts: attempts
            .map(|(attempts, count)| (attempts.to_string(), *count))
            .collect(),
    }
}

/// Who heard what was published, and how soon.
fn fan_out(plan: &Plan, records: &Records) -> Option<FanOut> {
    let programme = plan.programme.as_ref()?;
    let totals = &records.totals;
    let reach = programme.reach();
    let mut last = Histogram::default();
    for last_ns in reach.last_ns {
        last.record(last_ns);
    }
    let heard = &records.heard;
    Some(FanOut {
        publishers: plan.scenario.senders().into(),
        subscribers: plan.scenario.listeners().into(),
        silent: (plan.scenario.connections_total() - plan.scenario.listeners()).into(),
        silent_cut: totals.counters.silent_cut,
        copies_expected: totals.counters.sent.saturating_mul(plan.copies()),
        copies: totals.counters.distinct,
        complete: reach.complete,
        unreached: heard.iter().filter(|heard| **heard == 0).count() as u64,
        heard_least: heard.iter().copied().min().unwrap_or(0),
        delivery: totals.delivery.packed(),
        first_receiver: totals.first_receiver.packed(),
        median_receiver: totals.median_receiver.packed(),
        last_receiver: last.packed(),
    })
}

/// The seconds of the run; a refused one-way latency is in none of them.
fn intervals(records: &Records) -> Vec<Interval> {
    let mut intervals = records.intervals.clone();
    if records.totals.is_one_way_implausible() {
        for interval in &mut intervals {
            interval.one_way = None;
        }
    }
    intervals
}

fn latencies(plan: &Plan, records: &Records) -> Latencies {
    let totals = &records.totals;
    let misfit = || {
        totals
            .is_one_way_implausible()
            .then(|| CLOCK_MISFIT.to_owned())
    };
    let one_way = match one_way_refusal(&plan.scenario, &plan.addresses).or_else(misfit) {
        Some(reason) => OneWay::Refused {
            reason,
            clock: None,
        },
        None => OneWay::Measured {
            histogram: totals.one_way.packed(),
            resolution_us: plan.amplify_unit_ns / 1000,
            clock: plan.scenario.server_clock,
        },
    };
    Latencies {
        response: totals.response.packed(),
        service: totals.service.packed(),
        send_lag: totals.send_lag.packed(),
        slot_wait: totals.slot_wait.packed(),
        first_reply: totals.first_reply.packed(),
        round_trip_seed: totals.round_trip_seed.packed(),
        one_way,
    }
}

/// Rates over the sending phase: to its planned end, or to the last message if that came later.
/// Replies that came after it are counted over the time until the last one.
fn rate(plan: &Plan, records: &Records) -> Rate {
    let sent_ns = records.last_sent_ns.saturating_sub(records.start_ns);
    let early = records.interrupted || records.died_ns.is_some() || records.stalled;
    let planned_ns = match plan.schedule.planned_ns() {
        Some(planned_ns) if !early => planned_ns + plan.last_gap_ns(),
        Some(_) => records.sending_end_ns.saturating_sub(records.start_ns),
        None => 0,
    };
    let duration_s = sent_ns.max(planned_ns) as f64 / 1e9;
    let received_ns = records.last_received_ns.saturating_sub(records.start_ns);
    let receiving_s = duration_s.max(received_ns as f64 / 1e9);
    let per_s = |count: u64, duration_s: f64| {
        if duration_s > 0.0 {
            count as f64 / duration_s
        } else {
            0.0
        }
    };
    let each = records.sent_each.filter(|_| duration_s > 0.0);
    Rate {
        target_per_s: plan.rate_per_s(),
        least_each_per_s: each.map(|(least, _)| per_s(least, duration_s)),
        most_each_per_s: each.map(|(_, most)| per_s(most, duration_s)),
        sent_per_s: per_s(records.totals.counters.sent, duration_s),
        received_per_s: per_s(records.totals.counters.received, receiving_s),
        duration_s,
    }
}

fn generator(plan: &Plan, records: &Records) -> Generator {
    let run_ns: u64 = records.cpu.iter().map(|(cpu, _)| cpu.run_ns).sum();
    let wall_ns: u64 = records.cpu.iter().map(|(_, wall_ns)| *wall_ns).sum();
    let measured = !records.cpu.is_empty() && wall_ns > 0;
    let pins: Vec<String> = plan.scenario.pin.iter().map(ToString::to_string).collect();
    Generator {
        threads: u64::from(plan.scenario.workers()),
        cpu_s: measured.then(|| run_ns as f64 / 1e9),
        cpu_share: measured.then(|| (run_ns as f64 / wall_ns as f64).min(1.0)),
        cpu_pressure: records.pressure,
        cpu_taken: None,
        cpu_limit: None,
        throttled_ms: None,
        cores: pins.join(","),
        source_addresses: plan.sources.count(),
    }
}

/// The stand-in; any other link is known only to who made it.
fn link(plan: &Plan) -> Option<Link> {
    let delay = plan.scenario.link_delay?;
    Some(Link {
        kind: "stand-in".to_owned(),
        delay_ms: delay.as_secs_f64() * 1e3,
        note: "messages are held at the generator's own sockets, each way; handshakes, losses and \
               TCP know nothing of it"
            .to_owned(),
        ..Link::default()
    })
}

fn parameters(plan: &Plan) -> Parameters {
    let scenario = &plan.scenario;
    let milliseconds = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
    let (batch, wait_ms, batches) = match scenario.pacing {
        Pacing::Batches {
            batch,
            wait,
            batches,
            ..
        } => (
            Some(u64::from(batch)),
            Some(milliseconds(wait)),
            Some(batches),
        ),
        Pacing::Closed { .. } | Pacing::Open { .. } | Pacing::Hold | Pacing::Stages { .. } => {
            (None, None, None)
        }
    };
    Parameters {
        clients: u64::from(scenario.connections_total()),
        batch,
        wait_ms,
        batches,
        stagger_ms: batches.map(|_| milliseconds(scenario.stagger.unwrap_or_default())),
        message_bytes: plan.payload_bytes() as u64,
        replies: u64::from(scenario.replies),
        publishers: scenario.fan_out.map(|fan_out| fan_out.publishers.into()),
        silent: scenario.fan_out.and_then(silent),
        rate_per_s: match scenario.pacing {
            Pacing::Open { rate, .. } => Some(rate),
            Pacing::Stages { ref stages, .. } => stages.start_per_s(),
            Pacing::Batches { .. } | Pacing::Closed { .. } | Pacing::Hold => None,
        },
        stages: scenario.stages().map(ToString::to_string),
        in_flight: scenario.in_flight_max().map(u64::from),
        messages_per_connection: scenario.messages_per_connection,
        think_ms: scenario.think.map(milliseconds),
        open_max: scenario.open_max.map(u64::from),
        link_delay_ms: scenario.link_delay.map(milliseconds),
        ..Parameters::default()
    }
}

/// Connections that do not read, where there are any.
fn silent(fan_out: scenario::FanOut) -> Option<u64> {
    (fan_out.silent > 0).then(|| fan_out.silent.into())
}

fn scenario_values(scenario: &Scenario) -> BTreeMap<String, serde_json::Value> {
    let settings: &Settings = scenario;
    match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(values)) => values.into_iter().collect(),
        Ok(_) | Err(_) => BTreeMap::new(),
    }
}
