//! What the generator does at most, before anybody else is measured.

use std::time::Duration;

use moonwire_load::{FanOut, Pacing, Settings, Stop};
use moonwire_report::{Ceiling, Over};

use super::cell::Site;
use super::plan::Bout;
use super::{BattleError, BattleEvent, BattleObserver, BattlePlace, BattleSpec};
use crate::scenario::LoadPlan;

/// One bout against the null server for each load of the battle, with TLS and without as that is.
fn bouts(spec: &BattleSpec) -> Vec<Bout> {
    let Some(duration) = spec.scenario.ceiling else {
        return Vec::new();
    };
    let mut loads: Vec<LoadPlan> = Vec::new();
    for mut load in spec.scenario.loads() {
        if let Some(search) = spec.scenario.search.filter(|it| it.over == Over::Rate) {
            load = load.with_rate(search.from);
        }
        // Of those that differ in their rate only, each would find the same.
        load.parameters.rate_per_s = None;
        load.parameters.stages = None;
        let is_known = loads.iter().any(|it| it.parameters == load.parameters);
        if is_known || matches!(load.settings.pacing, Pacing::Hold) {
            continue;
        }
        hasten(&mut load.settings);
        load.settings.stop = stop(&mut load.settings, duration);
        loads.push(load);
    }
    let schemes = |load: LoadPlan| {
        let of_scheme = move |&tls: &bool| Bout {
            contestant: spec.null_server.clone(),
            load: load.clone(),
            tls,
            round: 0,
            backend: None,
        };
        spec.scenario.tls.iter().map(of_scheme).collect::<Vec<_>>()
    };
    loads.into_iter().flat_map(schemes).collect()
}

/// Measures all of them, as long as nobody asks to stop.
pub(super) fn measure_all(
    site: &Site<'_>,
    spec: &BattleSpec,
    observer: &mut BattleObserver<'_>,
) -> Result<Vec<Ceiling>, BattleError> {
    let mut ceilings = Vec::new();
    for bout in bouts(spec) {
        if site.is_stopped() {
            break;
        }
        ceilings.extend(measure(site, &bout, observer)?);
    }
    Ok(ceilings)
}

/// Measures one of them. Where it cannot be had, the battle goes on without.
fn measure(
    site: &Site<'_>,
    bout: &Bout,
    observer: &mut BattleObserver<'_>,
) -> Result<Option<Ceiling>, BattleError> {
    let place = BattlePlace {
        number: 0,
        count: 0,
        name: format!(
            "the generator's ceiling: {}, {} connections",
            bout.scheme(),
            bout.load.parameters.clients
        ),
    };
    let cell = site.cell(bout, &place, observer)?;
    let ceiling = Ceiling::of(&cell);
    observer(&BattleEvent::CeilingEnded {
        place: &place,
        ceiling: ceiling.as_ref(),
    });
    Ok(ceiling)
}

/// The same messages of the same connections, as fast as they go.
fn hasten(settings: &mut Settings) {
    settings.pacing = match settings.pacing {
        Pacing::Closed { in_flight } => Pacing::Closed { in_flight },
        Pacing::Open { .. } | Pacing::Batches { .. } | Pacing::Hold | Pacing::Stages { .. } => {
            Pacing::Closed {
                in_flight: IN_FLIGHT.div_ceil(settings.connections.max(1)),
            }
        }
    };
    settings.think = None;
    settings.stagger = None;
    settings.start_delay = None;
    settings.connect_rate = None;
    settings.slo.clear();
    settings.fan_out = settings.fan_out.map(|fan_out| FanOut {
        silent: 0,
        ..fan_out
    });
}

/// When sending ends. Connections that close by themselves end early where they are few, and the
/// rate is that of the time they took.
fn stop(settings: &mut Settings, duration: Duration) -> Stop {
    let Some(each) = settings.messages_per_connection else {
        return Stop::After(duration);
    };
    settings.connections = settings.connections.max(CONNECTIONS_MIN);
    match each.saturating_mul(settings.connections.into()) {
        ..MESSAGES_LONG => Stop::Schedule,
        MESSAGES_LONG.. => Stop::After(duration),
    }
}

/// Short-lived connections with which a rate can be told.
const CONNECTIONS_MIN: u32 = 2000;
/// More than any generator sends within the usual duration.
const MESSAGES_LONG: u64 = 400_000;
/// Messages in flight with which neither end waits for the other.
const IN_FLIGHT: u32 = 64;
