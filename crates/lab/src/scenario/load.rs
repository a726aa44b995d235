//! The load of a scenario: the knobs of a load run, some of them lists.

use std::time::Duration;

use moonwire_load::{
    Arrival, DeflateOffer, FanOut, FragmentShare, Pacing, RateStages, Reconnect, ScenarioError,
    Settings, Stop, TimeUnit, Workload, quantity,
};
use moonwire_report::Parameters;

use super::knobs::{Knobs, Mistake};
use super::small;

/// What contestants are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// The message comes back.
    Echo,
    /// JSON comes back several times, with the server's clock.
    Amplify,
    /// The message goes to all that have subscribed.
    Broadcast,
}

impl Service {
    /// What it is called in scenarios and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Amplify => "amplify",
            Self::Broadcast => "broadcast",
        }
    }
}

/// The knobs of a load run. What is a list is varied.
#[derive(Debug, Clone)]
pub(super) struct LoadKnobs {
    service: Service,
    connections: Vec<u32>,
    publishers: Vec<u32>,
    silent: Vec<u32>,
    message_size: Vec<usize>,
    binary: bool,
    replies: u16,
    duration: Option<Duration>,
    messages: Option<u64>,
    rate: Vec<f64>,
    /// How the rate changes, from each of `rate` or from 0.
    stages: Option<String>,
    poisson: bool,
    hold: bool,
    in_flight: Vec<u32>,
    batch: Vec<u32>,
    wait: Vec<Duration>,
    batches: Option<u64>,
    think: Option<Duration>,
    stagger: Option<Duration>,
    per_connection: Option<u64>,
    open_max: Option<u32>,
    conn_rate: Option<f64>,
    conn_concurrency: Vec<u32>,
    reconnect: Vec<(String, Reconnect)>,
    drain: Duration,
    threads: Option<u32>,
    fragments: Vec<FragmentShare>,
    deflate: Option<DeflateOffer>,
}

/// One combination of them.
#[derive(Debug, Clone)]
pub(crate) struct LoadPlan {
    /// What tells its cells from those of the others.
    pub(crate) parameters: Parameters,
    /// What the contestants are asked for.
    pub(crate) service: Service,
    /// Threads of the generator; without, as many as it has processors.
    pub(crate) threads: Option<u32>,
    /// How messages are spread where their rate is varied.
    arrival: Arrival,
    /// Messages in flight where their rate is varied, if the scenario has a bound.
    in_flight_max: Option<u32>,
    /// Everything but where, on which processors and over which link.
    pub(crate) settings: Settings,
}

impl LoadKnobs {
    pub(super) fn of(knobs: &Knobs, place: &str) -> Result<Self, Mistake> {
        let count = |name| knobs.one(name, small(u32::MAX));
        let counts = |name| knobs.many(name, small(u32::MAX));
        let yes = |name| knobs.one(name, yes_or_no);
        let service = knobs.one("payload", service)?.unwrap_or(Service::Echo);
        let sizes = knobs.many("message_size", quantity::size)?;
        let replies = knobs.one("replies", small(u16::MAX.into()))?;
        let (size, replies_default) = match service {
            Service::Echo | Service::Broadcast => (ECHO_BYTES, 1),
            Service::Amplify => (AMPLIFY_BYTES, 4),
        };
        let connections = counts("connections")?.ok_or_else(|| {
            Mistake::missing(
                place,
                "it needs 'connections', such as connections = [100, 1000]",
            )
        })?;
        let replies = replies.unwrap_or(replies_default);
        Ok(Self {
            service,
            connections,
            publishers: counts("publishers")?.unwrap_or_default(),
            silent: knobs.many("silent", small_or_zero)?.unwrap_or_default(),
            message_size: sizes.unwrap_or_else(|| vec![size]),
            binary: yes("binary")?.unwrap_or(false),
            replies: u16::try_from(replies).unwrap_or(u16::MAX),
            duration: knobs.one("duration", quantity::duration)?,
            messages: knobs.one("messages", quantity::positive)?,
            rate: knobs.many("rate", quantity::rate)?.unwrap_or_default(),
            stages: stages(knobs)?,
            poisson: yes("poisson")?.unwrap_or(false),
            hold: yes("hold")?.unwrap_or(false),
            in_flight: counts("in_flight")?.unwrap_or_default(),
            batch: counts("batch")?.unwrap_or_default(),
            wait: knobs
                .many("wait", quantity::duration_ms)?
                .unwrap_or_default(),
            batches: knobs.one("batches", quantity::positive)?,
            think: knobs.one("think", quantity::duration_ms)?,
            stagger: knobs.one("stagger", quantity::duration_ms)?,
            per_connection: knobs.one("per_connection", quantity::positive)?,
            open_max: count("open_max")?,
            conn_rate: knobs.one("conn_rate", quantity::rate)?,
            conn_concurrency: counts("conn_concurrency")?.unwrap_or_default(),
            reconnect: knobs.many("reconnect", policy)?.unwrap_or_default(),
            drain: knobs.one("drain", quantity::duration)?.unwrap_or(DRAIN),
            threads: count("threads")?,
            fragments: knobs.one("fragments", fragments)?.unwrap_or_default(),
            deflate: knobs.one("deflate", deflate)?,
        })
    }

    /// What one knob alone does not say: the load generator checks each combination.
    pub(super) fn check(&self, knobs: &Knobs, place: &str) -> Result<(), Mistake> {
        if self.batch.is_empty() != self.batches.is_none() {
            let sentence = "'batch' and 'batches' go together: so many messages so many times";
            return Err(knobs.mistake(place, sentence));
        }
        if !self.batch.is_empty() && !self.rate.is_empty() {
            let sentence = "'batch' and 'rate' exclude each other: a schedule is one or the other";
            return Err(knobs.mistake(place, sentence));
        }
        if self.stages.is_some() {
            self.check_stages(knobs, place)?;
        }
        let has_rate = !self.rate.is_empty() || self.stages.is_some();
        let is_searched = knobs.get("over").is_some();
        if self.poisson && !has_rate && !is_searched {
            let sentence = "'poisson' spreads the messages of a rate: give 'rate' or 'stages', too";
            return Err(knobs.mistake(place, sentence));
        }
        if self.batch.is_empty() && !self.wait.is_empty() {
            return Err(knobs.mistake(
                place,
                "'wait' is the time between batches: give 'batch', too",
            ));
        }
        let is_sending = !self.rate.is_empty() || !self.batch.is_empty();
        if self.hold && (is_sending || !self.in_flight.is_empty() || self.messages.is_some()) {
            let sentence = "'hold' sends nothing: leave out 'rate', 'batch', 'in_flight' and \
                            'messages'";
            return Err(knobs.mistake(place, sentence));
        }
        let is_broadcast = self.service == Service::Broadcast;
        if !is_broadcast && (!self.publishers.is_empty() || !self.silent.is_empty()) {
            let sentence = "'publishers' and 'silent' need payload = \"broadcast\": an echo goes \
                            to nobody else";
            return Err(knobs.mistake(place, sentence));
        }
        if self.duration.is_some() && self.messages.is_some() {
            let sentence = "'duration' and 'messages' exclude each other: either ends the load";
            return Err(knobs.mistake(place, sentence));
        }
        if self.open_max.is_some() && self.per_connection.is_none() {
            let sentence = "'open_max' needs 'per_connection': connections that stay open make no \
                            room for others; give the number of messages after which they close";
            return Err(knobs.mistake(place, sentence));
        }
        for plan in self.plans() {
            plan.check()
                .map_err(|error| knobs.mistake(place, &error.to_string()))?;
        }
        Ok(())
    }

    /// What says otherwise than stages when messages are sent.
    fn check_stages(&self, knobs: &Knobs, place: &str) -> Result<(), Mistake> {
        let others = [
            ("duration", "they last as long as they say"),
            ("messages", "they send as many as they say"),
            ("batch", "a schedule is one or the other"),
            ("hold", "it sends nothing"),
            (
                "per_connection",
                "such connections send one message after the other's reply",
            ),
            (
                "think",
                "it follows a reply, and stages do not wait for any",
            ),
            ("stagger", "the rate spreads the first sends"),
        ];
        match others.iter().find(|(name, _)| knobs.get(name).is_some()) {
            Some((name, why)) => {
                let sentence = format!("'stages' and '{name}' exclude each other: {why}");
                Err(knobs.mistake(place, &sentence))
            }
            None => Ok(()),
        }
    }

    pub(super) fn plans(&self) -> Vec<LoadPlan> {
        let mut plans = Vec::new();
        for &connections in &self.connections {
            for &size in &self.message_size {
                for (pacing, wait) in self.pacings() {
                    let settings = self.settings(connections, size, pacing);
                    let plan = LoadPlan {
                        parameters: parameters(&settings, wait),
                        service: self.service,
                        threads: self.threads,
                        arrival: self.arrival(),
                        in_flight_max: self.in_flight.first().copied(),
                        settings,
                    };
                    let audiences = self.with_audiences(&plan);
                    plans.extend(audiences.iter().flat_map(|plan| self.with_connects(plan)));
                }
            }
        }
        plans
    }

    /// The plan with each number of publishers, and of those that do not read.
    fn with_audiences(&self, plan: &LoadPlan) -> Vec<LoadPlan> {
        if self.service != Service::Broadcast {
            return vec![plan.clone()];
        }
        let or = |counts: &[u32], default: u32| match counts {
            [] => vec![default],
            counts => counts.to_vec(),
        };
        let mut plans = Vec::new();
        for publishers in or(&self.publishers, 1) {
            for silent in or(&self.silent, 0) {
                let mut plan = plan.clone();
                plan.settings.fan_out = Some(FanOut { publishers, silent });
                plan.parameters.publishers = Some(publishers.into());
                plan.parameters.silent = (!self.silent.is_empty()).then(|| silent.into());
                plans.push(plan);
            }
        }
        plans
    }

    /// The plan with each way in which connections are made. What is not varied stands in no name.
    fn with_connects(&self, plan: &LoadPlan) -> Vec<LoadPlan> {
        let mut plans = vec![plan.clone()];
        if let [only] = self.conn_concurrency.as_slice() {
            plans[0].settings.connect_concurrency = *only;
        } else if !self.conn_concurrency.is_empty() {
            let each = self.conn_concurrency.iter().map(|&limit| {
                let mut plan = plan.clone();
                plan.settings.connect_concurrency = limit;
                plan.parameters.connect_concurrency = Some(limit.into());
                plan
            });
            plans = each.collect();
        }
        let varied = self.reconnect.len() > 1;
        let policies = self.reconnect.iter().flat_map(|(text, policy)| {
            plans.iter().map(move |plan| {
                let mut plan = plan.clone();
                plan.settings.reconnect = *policy;
                plan.parameters.reconnect = varied.then(|| text.clone());
                plan
            })
        });
        let with_policies: Vec<LoadPlan> = policies.collect();
        match with_policies.is_empty() {
            true => plans,
            false => with_policies,
        }
    }

    /// All schedules, and the wait of those in batches.
    fn pacings(&self) -> Vec<(Pacing, Option<Duration>)> {
        let flights = || -> Vec<Option<u32>> {
            let flights = self.in_flight.iter().map(|&count| Some(count)).collect();
            if self.in_flight.is_empty() {
                vec![None]
            } else {
                flights
            }
        };
        if self.hold {
            return vec![(Pacing::Hold, None)];
        }
        let mut pacings = Vec::new();
        for in_flight in flights() {
            for &batch in &self.batch {
                let wait = if self.wait.is_empty() {
                    &[WAIT]
                } else {
                    self.wait.as_slice()
                };
                pacings.extend(wait.iter().map(|&wait| {
                    let batches = self.batches.unwrap_or(1);
                    let pacing = Pacing::Batches {
                        batch,
                        wait,
                        batches,
                        in_flight,
                    };
                    (pacing, Some(wait))
                }));
            }
            let arrival = self.arrival();
            if let Some(stages) = &self.stages {
                let staged = |from_per_s: f64| {
                    let stages = RateStages::parse(stages, from_per_s)
                        .expect("they were read with each of these rates");
                    Pacing::Stages {
                        stages,
                        arrival,
                        in_flight,
                    }
                };
                let from = match self.rate.as_slice() {
                    [] => &[0.0],
                    rates => rates,
                };
                pacings.extend(from.iter().map(|&from_per_s| (staged(from_per_s), None)));
                continue;
            }
            pacings.extend(self.rate.iter().map(|&rate| {
                let pacing = Pacing::Open {
                    rate,
                    arrival,
                    in_flight,
                };
                (pacing, None)
            }));
            if self.batch.is_empty() && self.rate.is_empty() {
                let in_flight = in_flight.unwrap_or(1);
                pacings.push((Pacing::Closed { in_flight }, None));
            }
        }
        pacings
    }

    fn arrival(&self) -> Arrival {
        match self.poisson {
            true => Arrival::Poisson,
            false => Arrival::Constant,
        }
    }

    fn settings(&self, connections: u32, size: usize, pacing: Pacing) -> Settings {
        let ends_by_itself = matches!(pacing, Pacing::Batches { .. } | Pacing::Stages { .. });
        let per_connection = self.per_connection;
        Settings {
            connections,
            connect_concurrency: match self.conn_rate {
                Some(_) => u32::MAX,
                None => CONNECT_CONCURRENCY,
            },
            connect_rate: self.conn_rate,
            barrier: per_connection.is_none(),
            messages_per_connection: per_connection,
            open_max: self.open_max,
            think: self.think,
            stagger: self.stagger.or(match pacing {
                // Batches make a steady load unless the scenario says otherwise.
                Pacing::Batches { wait, .. } => Some(wait),
                Pacing::Closed { .. }
                | Pacing::Open { .. }
                | Pacing::Hold
                | Pacing::Stages { .. } => None,
            }),
            workload: match self.service {
                Service::Echo | Service::Broadcast => Workload::Echo {
                    size,
                    binary: self.binary,
                },
                Service::Amplify => Workload::Amplify {
                    size,
                    time_unit: TimeUnit::Microseconds,
                },
            },
            fragments: self.fragments.clone(),
            replies: self.replies,
            pacing,
            stop: match (self.messages, self.duration, per_connection) {
                (Some(messages), _, _) => Stop::Messages(messages),
                (None, Some(duration), _) => Stop::After(duration),
                (None, None, None) if !ends_by_itself => Stop::After(DURATION),
                (None, None, _) => Stop::Schedule,
            },
            drain: self.drain,
            deflate: self.deflate,
            same_host: true,
            ..Settings::default()
        }
    }
}

impl LoadPlan {
    /// The same connections with so many messages a second, at their intended times.
    pub(crate) fn with_rate(&self, rate: f64) -> Self {
        let mut plan = self.clone();
        plan.settings.pacing = Pacing::Open {
            rate,
            arrival: self.arrival,
            in_flight: self.in_flight_max,
        };
        plan.parameters.rate_per_s = Some(rate);
        plan.parameters.in_flight = self.in_flight_max.map(u64::from);
        plan
    }

    /// The same with so many connections, each of which sends as often as it did.
    pub(crate) fn with_connections(&self, connections: u32) -> Self {
        let mut plan = self.clone();
        let factor = f64::from(connections) / f64::from(self.settings.connections);
        plan.settings.connections = connections;
        plan.parameters.clients = connections.into();
        if let Pacing::Open { rate, .. } = &mut plan.settings.pacing {
            *rate *= factor;
            plan.parameters.rate_per_s = Some(*rate);
        }
        plan
    }

    /// Whether the load generator can do it, against some address.
    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        let mut settings = self.settings.clone();
        settings.targets = vec![moonwire_load::Target::parse("ws://127.0.0.1:1/")?];
        moonwire_load::Scenario::new(settings).map(|_| ())
    }
}

fn parameters(settings: &Settings, wait: Option<Duration>) -> Parameters {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let (mut batch, mut batches, mut rate_per_s, mut stages) = (None, None, None, None);
    let in_flight = match settings.pacing {
        Pacing::Closed { in_flight } => Some(in_flight),
        Pacing::Open {
            rate, in_flight, ..
        } => {
            rate_per_s = Some(rate);
            in_flight
        }
        Pacing::Batches {
            batch: size,
            batches: count,
            in_flight,
            ..
        } => {
            (batch, batches) = (Some(u64::from(size)), Some(count));
            in_flight
        }
        Pacing::Hold => None,
        Pacing::Stages {
            stages: ref changes,
            in_flight,
            ..
        } => {
            rate_per_s = changes.start_per_s();
            stages = Some(changes.to_string());
            in_flight
        }
    };
    let message_bytes = match settings.workload {
        Workload::Echo { size, .. } | Workload::Amplify { size, .. } => size,
        Workload::Alternating { size } => size / 2,
    };
    Parameters {
        clients: u64::from(settings.connections),
        batch,
        wait_ms: wait.map(milliseconds),
        stagger_ms: settings.stagger.map(milliseconds),
        message_bytes: message_bytes as u64,
        batches,
        replies: u64::from(settings.replies),
        rate_per_s,
        stages,
        in_flight: in_flight.map(u64::from),
        messages_per_connection: settings.messages_per_connection,
        think_ms: settings.think.map(milliseconds),
        open_max: settings.open_max.map(u64::from),
        ..Parameters::default()
    }
}

/// Stages that can run from each rate that they may begin with.
fn stages(knobs: &Knobs) -> Result<Option<String>, Mistake> {
    let Some(knob) = knobs.get("stages") else {
        return Ok(None);
    };
    let text = knob.texts.join(",");
    let from = knobs.many("rate", quantity::rate)?;
    for from_per_s in from.unwrap_or_else(|| vec![0.0]) {
        RateStages::parse(&text, from_per_s).map_err(|why| knob.mistake("stages", &why))?;
    }
    Ok(Some(text))
}

fn service(text: &str) -> Result<Service, String> {
    let all = [Service::Echo, Service::Amplify, Service::Broadcast];
    let found = all.into_iter().find(|service| service.name() == text);
    found.ok_or_else(|| format!("'{text}' is not one of echo, amplify, broadcast"))
}

/// Reads a count, which may be 0.
fn small_or_zero(text: &str) -> Result<u32, String> {
    let count = quantity::count(text)?;
    u32::try_from(count).map_err(|_| format!("'{text}' must be at most {}", u32::MAX))
}

/// A policy with its text, which tells its cells from those of others.
fn policy(text: &str) -> Result<(String, Reconnect), String> {
    Ok((text.to_owned(), Reconnect::parse(text)?))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

fn fragments(text: &str) -> Result<Vec<FragmentShare>, String> {
    FragmentShare::parse_all(text).map_err(|error| error.to_string())
}

fn deflate(text: &str) -> Result<DeflateOffer, String> {
    DeflateOffer::parse(text).ok_or_else(|| {
        format!(
            "'{text}' must be parameters of permessage-deflate, such as \
             'server_no_context_takeover; client_max_window_bits=10'"
        )
    })
}

const ECHO_BYTES: usize = 64;
/// About what uwebsocket-benchmark sends.
const AMPLIFY_BYTES: usize = 1024;
const DURATION: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(10);
/// Between two batches, as uwebsocket-benchmark has it.
const WAIT: Duration = Duration::from_secs(1);
const CONNECT_CONCURRENCY: u32 = 128;
