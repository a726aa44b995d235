//! Which cells there are, and in which order.

use moonwire_report::Contest;

use super::cross_check;
use super::{BattleError, BattleSpec};
use crate::contestant::{Contestant, Kind};
use crate::scenario::{LoadPlan, Service};

/// One cell: a contestant under one load, in one round.
#[derive(Debug, Clone)]
pub(super) struct Bout {
    pub(super) contestant: Contestant,
    pub(super) load: LoadPlan,
    pub(super) tls: bool,
    pub(super) round: u64,
    /// The server behind a proxy.
    pub(super) backend: Option<String>,
}

impl Bout {
    /// For a reader.
    pub(super) fn name(&self) -> String {
        format!(
            "round {}: {}, {}, {} connections",
            self.round,
            self.contestant.name(),
            self.scheme(),
            self.load.parameters.clients
        )
    }

    /// Whether it is there to find out what the generator does at most: rounds are from 1.
    pub(super) fn is_ceiling(&self) -> bool {
        self.round == 0
    }

    /// What its files are called.
    pub(super) fn file_name(&self) -> String {
        self.contest().folder_name(&self.load.parameters)
    }

    pub(super) fn contest(&self) -> Contest {
        Contest {
            contestant: self.contestant.name(),
            connections: self.load.parameters.clients,
            tls: self.tls,
            round: self.round,
            backend: self.backend.clone(),
            ..Contest::default()
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls { "wss" } else { "ws" }
    }
}

/// All of them: in each round every load once, its contestants one after the other, both in an
/// order drawn from the seed.
pub(super) fn bouts(spec: &BattleSpec) -> Result<Vec<Bout>, BattleError> {
    check(spec)?;
    let mut random = fastrand::Rng::with_seed(spec.seed);
    let loads = spec.scenario.loads();
    let mut bouts = Vec::new();
    for round in 1..=spec.scenario.rounds {
        let mut fields: Vec<(&LoadPlan, bool)> = loads
            .iter()
            .flat_map(|load| spec.scenario.tls.iter().map(move |&tls| (load, tls)))
            .collect();
        random.shuffle(&mut fields);
        for (load, tls) in fields {
            let mut contestants: Vec<&Contestant> = spec.contestants.iter().collect();
            random.shuffle(&mut contestants);
            bouts.extend(contestants.into_iter().map(|contestant| Bout {
                contestant: contestant.clone(),
                load: load.clone(),
                tls,
                round,
                backend: backend_of(spec, contestant),
            }));
        }
    }
    Ok(bouts)
}

fn backend_of(spec: &BattleSpec, contestant: &Contestant) -> Option<String> {
    match contestant.kind() {
        Kind::Proxy => Some(spec.backend.name()),
        Kind::Server | Kind::Client => None,
    }
}

/// Finds every mistake before the first server is started.
fn check(spec: &BattleSpec) -> Result<(), BattleError> {
    let mistake = |sentence: String| Err(BattleError::Contestant(sentence));
    if spec.backend.kind() != Kind::Server {
        let name = spec.backend.name();
        return mistake(format!(
            "the backend {name} is not a server: name one that is"
        ));
    }
    let loads = spec.scenario.loads();
    cross_check::check(&spec.clients, &loads)?;
    let backends = spec.scenario.backends as u64;
    let has_control = spec.contestants.iter().any(|it| !it.has_process());
    let clients = loads.iter().map(|load| load.parameters.clients);
    let mut uneven = clients.filter(|clients| has_control && clients % backends.max(1) != 0);
    if let Some(clients) = uneven.next() {
        return mistake(format!(
            "without a proxy {clients} connections cannot be shared evenly by {backends} backends: \
             give a multiple of {backends}"
        ));
    }
    let service = loads.first().map_or(Service::Echo, |load| load.service);
    for contestant in &spec.contestants {
        let name = contestant.name();
        let server = match contestant.kind() {
            Kind::Server => contestant,
            Kind::Proxy => &spec.backend,
            Kind::Client => {
                return mistake(format!(
                    "{name} is a client: contestants of a battle are servers and proxies"
                ));
            }
        };
        if !server.has_service(service) {
            return mistake(format!(
                "{} has no service `{}`, which the scenario {} asks for: `moonwire lab list` says \
                 who has",
                server.name(),
                service.name(),
                spec.scenario.name
            ));
        }
        if service == Service::Broadcast && spec.scenario.workers > 1 {
            return mistake(format!(
                "what is published on one of {} workers is not heard on the others: give one",
                spec.scenario.workers
            ));
        }
        if service == Service::Broadcast
            && contestant.kind() == Kind::Proxy
            && spec.scenario.backends > 1
        {
            return mistake(format!(
                "what is published on one of {} backends is not heard on the others: give one",
                spec.scenario.backends
            ));
        }
        let max = contestant.workers_max();
        if max.is_some_and(|max| spec.scenario.workers > max) {
            let workers = spec.scenario.workers;
            return mistake(format!("{name} cannot have {workers} workers: it has one"));
        }
    }
    Ok(())
}
