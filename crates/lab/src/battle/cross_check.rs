//! Generators of others, against the processes that ours has just measured.

use moonwire_load::{Pacing, Stop, Workload};
use moonwire_report::{Cell, CrossCheck};

use super::BattleError;
use super::cell::Site;
use super::plan::Bout;
use super::stack::Stack;
use crate::cgroup::CpuGroup;
use crate::contestant::{Contestant, Errand, LatencyFrom, Surroundings, run_client};
use crate::link::LinkEnd;
use crate::scenario::{LoadPlan, Service};

/// Lets each of them send the load of the bout, and puts what it says into the cell.
pub(super) fn cross_check(site: &Site<'_>, bout: &Bout, stack: &Stack, cell: &mut Cell) {
    for client in site.clients() {
        if site.is_stopped() {
            return;
        }
        let check = run(site, bout, stack, client).unwrap_or_else(|failure| CrossCheck {
            client: client.name(),
            failure: Some(failure),
            ..CrossCheck::default()
        });
        if let Some(contest) = &mut cell.contest {
            contest.cross_checks.push(check);
        }
    }
}

fn run(
    site: &Site<'_>,
    bout: &Bout,
    stack: &Stack,
    client: &Contestant,
) -> Result<CrossCheck, String> {
    let urls = match bout.load.service {
        Service::Echo => stack.urls(),
        Service::Amplify => stack.amplify_urls(),
        Service::Broadcast => stack.broadcast_urls(),
    };
    if urls.len() > 1 {
        let (name, count) = (client.name(), urls.len());
        return Err(format!(
            "{name} knows one address, and the load goes to {count} servers"
        ));
    }
    let mut errand = errand(&bout.load).ok_or_else(|| format!("{} {NEEDS}", client.name()))?;
    errand.url = urls.first().cloned().unwrap_or_default();
    let around = Surroundings {
        folder: site.folder(bout).join(client.file_name()),
        at: LinkEnd::default(),
        errand,
        ..site.around().clone()
    };
    let group = site.rations().client()?;
    let begun = group.clone();
    let figures = site.at_the_clients_end(|cpus| run_client(client, &around, cpus, begun))?;
    // The group is as old as the client is.
    let throttling = group.as_deref().and_then(CpuGroup::throttling);
    Ok(CrossCheck {
        client: client.name(),
        sent: figures.sent,
        received: figures.received,
        from_intended: figures.latency_from == LatencyFrom::Intended,
        p50_us: figures.latency_us.p50,
        p99_us: figures.latency_us.p99,
        max_us: figures.latency_us.max,
        mean_us: figures.latency_us.mean,
        throttled_ms: throttling.map(|it| it.throttled_ns as f64 / 1e6),
        failure: None,
    })
}

/// Finds out before anything is started that a load is not for clients of others.
pub(super) fn check(clients: &[Contestant], loads: &[LoadPlan]) -> Result<(), BattleError> {
    let Some(client) = clients.first() else {
        return Ok(());
    };
    match loads.iter().all(|load| errand(load).is_some()) {
        true => Ok(()),
        false => Err(BattleError::Contestant(format!(
            "{} {NEEDS}",
            client.name()
        ))),
    }
}

/// The load in the words that generators of others know; `None` where they have none for it.
fn errand(load: &LoadPlan) -> Option<Errand> {
    let settings = &load.settings;
    let connections = settings.connections;
    let (rate, duration_s) = match settings.pacing {
        Pacing::Open { rate, .. } => match settings.stop {
            Stop::After(duration) => (rate, duration.as_secs_f64()),
            Stop::Messages(messages) => (rate, messages as f64 / rate),
            Stop::Schedule => return None,
        },
        Pacing::Batches {
            batch: 1,
            wait,
            batches,
            ..
        } => {
            let wait_s = wait.as_secs_f64();
            (f64::from(connections) / wait_s, batches as f64 * wait_s)
        }
        Pacing::Batches { .. } | Pacing::Closed { .. } | Pacing::Hold | Pacing::Stages { .. } => {
            return None;
        }
    };
    let (message_bytes, payload) = match settings.workload {
        Workload::Echo { size, .. } => (size, "echo"),
        Workload::Amplify { size, .. } => (size, "amplify"),
        Workload::Alternating { .. } => return None,
    };
    let is_usual = settings.fan_out.is_none() && settings.messages_per_connection.is_none();
    is_usual.then_some(Errand {
        url: String::new(),
        connections,
        rate: (rate.round() as u32).max(1),
        duration_s: (duration_s.ceil() as u32).max(1),
        message_bytes: u32::try_from(message_bytes).ok()?,
        payload,
    })
}

/// Behind the name of a client.
const NEEDS: &str = "sends at a rate, one message at a time, on connections that stay: the load \
    needs 'rate', or 'wait' with a 'batch' of 1, and no 'per_connection' or 'publishers'";
