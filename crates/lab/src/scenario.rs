//! A scenario of the lab: who meets whom, with which load, and what decides.
//!
//! It is a flat list of knobs. Those of its file can be set by flags of the same names, so that a
//! file and a command line say the same and are checked the same.

mod agent;
mod knobs;
mod link;
mod load;
mod search;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use include_dir::{Dir, include_dir};
use moonwire_load::{Slo, Stop, quantity};
use moonwire_report::{METRICS, Metric, Over, Rules};

pub use self::agent::AgentPlan;
pub use self::knobs::Mistake;
use self::knobs::{Knob, Knobs};
use self::load::LoadKnobs;
pub(crate) use self::load::{LoadPlan, Service};
pub use self::search::SearchPlan;
pub use self::table::{KNOBS, KnobKind};
use crate::cgroup::CpuLimits;
use crate::link::LinkSpec;

/// As they were when this was built.
static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../lab/scenarios");

/// A scenario that can be run: everything in it was checked.
#[derive(Debug, Clone)]
pub struct LabScenario {
    /// That of its file, without the ending.
    pub name: String,
    /// What it is, in a sentence.
    pub description: String,
    /// Who takes part, as `Roster::select` takes it.
    pub contestants: Vec<String>,
    /// The server behind proxies, and the control's.
    pub backend: String,
    /// How many of it.
    pub backends: usize,
    /// Workers of each.
    pub backend_workers: u32,
    /// Workers of what is measured.
    pub workers: u32,
    /// Clients of others that send the same load after ours.
    pub cross_check: Vec<String>,
    /// Without TLS, with it, or both.
    pub tls: Vec<bool>,
    /// Each round has every cell once.
    pub rounds: u64,
    /// A load before the measured one, in the same processes.
    pub warm_up: Option<Duration>,
    /// How long the generator's own ceiling is measured for each load, if at all.
    pub ceiling: Option<Duration>,
    /// What the roles may use of the processors.
    pub cpu_limits: CpuLimits,
    /// The link between clients and what is measured; its seed and its processors are the
    /// battle's.
    pub(crate) link: LinkSpec,
    /// Who starts the contestants on another host, if they are not to run on this one.
    pub agent: Option<AgentPlan>,
    /// Kills the contestant in the middle of the load, if that is what it is about.
    pub fault: Option<Fault>,
    /// Looks for the most that the contestants stand, if that is what it is about.
    pub search: Option<SearchPlan>,
    /// What decides.
    pub rules: Rules,
    /// Conditions that each cell has to meet.
    pub thresholds: Vec<Slo>,
    /// Of the order of cells, the payloads and the link.
    pub seed: Option<u64>,
    /// Connections, and everything that a load run takes.
    load: LoadKnobs,
    /// Every knob as it was written, for the record and for mistakes that are found later.
    knobs: Knobs,
    /// What is done otherwise than it says; a sentence each.
    pub remarks: Vec<String>,
}

/// When a contestant is killed, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// From the first message that is due, or from when the connections are up.
    pub after: Duration,
    /// From its end to its new start.
    pub down_for: Duration,
}

impl LabScenario {
    /// The names of those that are part of this program, with what they are.
    pub fn shipped() -> Vec<(String, String)> {
        let files = SHIPPED.files().filter_map(|file| {
            let name = file.path().file_stem()?.to_str()?.to_owned();
            let knobs = Knobs::parse(file.contents_utf8()?, &name, &table::names()).ok()?;
            let description = knobs.get("description")?.texts.first()?.clone();
            Some((name, description))
        });
        files.collect()
    }

    /// What the file of one of those sets: its knobs and their texts, lists with commas. Nothing
    /// under a name that is none of theirs.
    pub fn shipped_knobs(name: &str) -> BTreeMap<String, String> {
        let file = SHIPPED.get_file(format!("{name}.toml"));
        let text = file.and_then(|it| it.contents_utf8()).unwrap_or_default();
        let knobs = Knobs::parse(text, name, &table::names()).unwrap_or_default();
        knobs.texts()
    }

    /// One of those, with flags in the place of what its file says: names of knobs and texts.
    pub fn of_name(name: &str, flags: &[(String, String)]) -> Result<Self, Mistake> {
        let file = format!("{name}.toml");
        let text = SHIPPED.get_file(&file).and_then(|it| it.contents_utf8());
        let Some(text) = text else {
            let known: Vec<String> = Self::shipped().into_iter().map(|(name, _)| name).collect();
            let sentence = format!("there is no such scenario; there are {}", known.join(", "));
            return Err(Mistake::of(name, &sentence));
        };
        Self::parse(name, text, &format!("lab/scenarios/{file}"), flags)
    }

    /// One of the user's.
    pub fn of_file(path: &Path, flags: &[(String, String)]) -> Result<Self, Mistake> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Mistake::of(
                &place,
                &format!("it cannot be read: {error}; give a scenario file"),
            )
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text, &place, flags)
    }

    fn parse(
        name: &str,
        text: &str,
        place: &str,
        flags: &[(String, String)],
    ) -> Result<Self, Mistake> {
        let mut knobs = Knobs::parse(text, place, &table::names())?;
        for (name, text) in flags {
            knobs.set(name, text, table::is_list(name));
        }
        let needed = |name: &str| {
            let sentence = format!("it needs '{name}': {}", table::help(name));
            Mistake::missing(place, &sentence)
        };
        let count = |name: &str| knobs.one(name, quantity::positive);
        let primary = knobs.one("primary", metric)?;
        let contestants = knobs.many("contestants", word)?;
        let backend = knobs.one("backend", word)?;
        let mut scenario = Self {
            name: name.to_owned(),
            description: knobs.one("description", word)?.unwrap_or_default(),
            contestants: contestants.ok_or_else(|| needed("contestants"))?,
            backend: backend.unwrap_or_else(|| BACKEND.to_owned()),
            backends: knobs.one("backends", small(BACKENDS_MAX))?.unwrap_or(1) as usize,
            backend_workers: knobs
                .one("backend_workers", small(WORKERS_MAX))?
                .unwrap_or(1),
            workers: knobs.one("workers", small(WORKERS_MAX))?.unwrap_or(1),
            cross_check: knobs.many("cross_check", word)?.unwrap_or_default(),
            tls: knobs.one("tls", tls)?.unwrap_or_else(|| vec![false]),
            rounds: count("rounds")?.unwrap_or(ROUNDS),
            warm_up: knobs
                .one("warm_up", quantity::duration)?
                .filter(|it| !it.is_zero()),
            ceiling: knobs
                .one("ceiling", quantity::duration)?
                .map_or(Some(CEILING), Some)
                .filter(|it| !it.is_zero()),
            cpu_limits: CpuLimits {
                server: knobs.one("server_cpu_limit", CpuLimits::parse)?.flatten(),
                proxy: knobs.one("proxy_cpu_limit", CpuLimits::parse)?.flatten(),
                client: knobs.one("client_cpu_limit", CpuLimits::parse)?.flatten(),
            },
            link: link::link(&knobs, place)?,
            agent: AgentPlan::of(&knobs, place)?,
            fault: fault(&knobs)?,
            search: SearchPlan::of(&knobs)?,
            rules: Rules {
                primary: primary.ok_or_else(|| needed("primary"))?,
                columns: knobs.many("columns", metric)?.unwrap_or_default(),
                control: knobs.one("control", word)?,
                resolve: knobs.one("resolve", quantity::fraction)?.unwrap_or(RESOLVE),
            },
            thresholds: knobs.many("thresholds", threshold)?.unwrap_or_default(),
            seed: knobs.one("seed", quantity::count)?,
            load: LoadKnobs::of(&knobs, place)?,
            remarks: Vec::new(),
            knobs,
        };
        let knobs = &scenario.knobs;
        scenario.load.check(knobs, place)?;
        scenario.check_loads(knobs, place)?;
        if scenario.search.is_some() {
            scenario.check_search(knobs, place)?;
        }
        scenario.fit_thresholds()?;
        Ok(scenario)
    }

    /// Leaves out thresholds that its loads are too short for, where a flag has made them so short.
    /// Who wrote both is told that they do not go together.
    fn fit_thresholds(&mut self) -> Result<(), Mistake> {
        let lasting = |load: &LoadPlan| match load.settings.stop {
            Stop::After(duration) => Some(duration),
            Stop::Messages(_) | Stop::Schedule => None,
        };
        let Some(shortest) = self.loads().iter().filter_map(lasting).min() else {
            return Ok(());
        };
        let is_short = |slo: &Slo| shortest < Duration::from_secs(slo.load_seconds_min());
        let (short, kept): (Vec<Slo>, Vec<Slo>) =
            self.thresholds.iter().cloned().partition(is_short);
        let [first, ..] = short.as_slice() else {
            return Ok(());
        };
        let is_flag = |name| self.knobs.get(name).is_some_and(Knob::is_flag);
        if is_flag("thresholds") || !is_flag("duration") {
            return Err(self.mistake("thresholds", &first.too_short(shortest)));
        }
        let remarks = short.iter().map(|slo| {
            let least_s = slo.load_seconds_min();
            format!("the threshold `{slo}` is left out: it takes a load of {least_s} s at least")
        });
        self.remarks = remarks.collect();
        self.thresholds = kept;
        Ok(())
    }

    /// What is found to be wrong with a knob by whoever knows more than the scenario.
    pub fn mistake(&self, name: &str, clause: &str) -> Mistake {
        match self.knobs.get(name) {
            Some(knob) => knob.mistake(name, clause),
            None => Mistake::of(name, clause),
        }
    }

    /// Whether a flag has set this knob.
    pub fn is_flag(&self, name: &str) -> bool {
        self.knobs.get(name).is_some_and(Knob::is_flag)
    }

    /// Limits that are more than there is limit nobody.
    pub fn check_processors(&self, processors: usize) -> Result<(), Mistake> {
        let limits = self.cpu_limits;
        let all = [
            ("server_cpu_limit", limits.server),
            ("proxy_cpu_limit", limits.proxy),
            ("client_cpu_limit", limits.client),
        ];
        for (name, limit) in all {
            if let Some(clause) = CpuLimits::excess(limit, processors) {
                return Err(self.mistake(name, &clause));
            }
        }
        Ok(())
    }

    /// What a search cannot go without, and what it cannot go with.
    fn check_search(&self, knobs: &Knobs, place: &str) -> Result<(), Mistake> {
        if self.thresholds.is_empty() {
            let sentence = "'over' looks for the most that keeps 'thresholds': give one at least, \
                            such as thresholds = [\"p(99)<10ms\"]";
            return Err(knobs.mistake(place, sentence));
        }
        if self.loads().len() > 1 {
            let sentence = "'over' varies the load by itself: give no other knob several values";
            return Err(knobs.mistake(place, sentence));
        }
        if knobs.get("stages").is_some() {
            let sentence = "'over' varies the load by itself: leave out 'stages'";
            return Err(knobs.mistake(place, sentence));
        }
        if let Some(knob) = knobs.get("kill_after") {
            let clause = "'over' puts load after load on the same processes: leave one of them out";
            return Err(knob.mistake("kill_after", clause));
        }
        let is_rate = self.search.is_some_and(|search| search.over == Over::Rate);
        if let Some(knob) = knobs.get("rate").filter(|_| is_rate) {
            return Err(knob.mistake("rate", "'over' is rate and varies it: give 'from' instead"));
        }
        if is_rate && knobs.get("batch").or_else(|| knobs.get("hold")).is_some() {
            let sentence = "'over' is rate: 'batch' and 'hold' have none of their own";
            return Err(knobs.mistake(place, sentence));
        }
        self.check_try_length(knobs, place)?;
        self.check_tries(knobs, place)
    }

    /// A search is many tries.
    fn check_try_length(&self, knobs: &Knobs, place: &str) -> Result<(), Mistake> {
        let each = self.loads().into_iter().map(|load| load.settings.stop);
        let is_long = |stop: &Stop| matches!(stop, Stop::After(each) if *each > TRY_MAX);
        match each.into_iter().find(is_long) {
            Some(Stop::After(each)) => {
                let sentence = format!(
                    "'over' tries some twenty loads, each for 'duration', and {each:?} is more \
                     than {TRY_MAX:?}: give less, such as 10s"
                );
                Err(knobs.mistake(place, &sentence))
            }
            Some(Stop::Messages(_) | Stop::Schedule) | None => Ok(()),
        }
    }

    /// The first try of a search, and the last one, which is longer.
    fn check_tries(&self, knobs: &Knobs, place: &str) -> Result<(), Mistake> {
        let (Some(search), Some(base)) = (self.search, self.loads().pop()) else {
            return Ok(());
        };
        let mut tried = match search.over {
            Over::Rate => base.with_rate(search.from),
            Over::Connections => base.with_connections(search.from as u32),
        };
        let mut result = tried.check();
        if result.is_ok() {
            tried.settings.stop = Stop::After(search.confirm);
            result = tried.check();
        }
        result.map_err(|error| knobs.mistake(place, &format!("'over' tries none of this: {error}")))
    }

    /// Two cells of one load would have one name.
    fn check_loads(&self, knobs: &Knobs, place: &str) -> Result<(), Mistake> {
        let loads = self.loads();
        let twice = loads.iter().enumerate().find(|(index, load)| {
            let before = loads.iter().take(*index);
            before
                .into_iter()
                .any(|it| it.parameters == load.parameters)
        });
        twice.map_or(Ok(()), |(_, load)| {
            let key = load.parameters.key();
            let texts = knobs.texts();
            let list = LISTS
                .iter()
                .find(|name| texts.get(**name).is_some_and(|it| it.contains(',')));
            let list = list.unwrap_or(&LISTS[0]);
            let sentence = format!("'{list}' repeats a value: the load {key} comes up twice");
            Err(knobs.mistake(place, &sentence))
        })
    }

    /// One for each combination of what is a list.
    pub(crate) fn loads(&self) -> Vec<LoadPlan> {
        let mut plans = self.load.plans();
        for plan in &mut plans {
            link::note(&self.link, &mut plan.parameters);
        }
        plans
    }

    /// Every knob as it was written.
    pub(crate) fn written(&self) -> BTreeMap<String, String> {
        self.knobs.texts()
    }
}

fn fault(knobs: &Knobs) -> Result<Option<Fault>, Mistake> {
    let after = knobs.one("kill_after", quantity::duration)?;
    let down_for = knobs.one("down_for", quantity::duration)?;
    if let (None, Some(knob)) = (after, knobs.get("down_for")) {
        let clause = "nobody is killed: give 'kill_after', too";
        return Err(knob.mistake("down_for", clause));
    }
    Ok(after.map(|after| Fault {
        after,
        down_for: down_for.unwrap_or(DOWN_FOR),
    }))
}

/// The knobs of a load that may have several values.
const LISTS: [&str; 10] = [
    "connections",
    "message_size",
    "rate",
    "batch",
    "wait",
    "in_flight",
    "publishers",
    "silent",
    "conn_concurrency",
    "reconnect",
];

/// A text with something in it.
fn word(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it must not be empty".to_owned()),
        word => Ok(word.to_owned()),
    }
}

/// The name of a metric, which is known.
fn metric(text: &str) -> Result<String, String> {
    match Metric::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("'{text}' is not a metric: {METRICS}")),
    }
}

fn threshold(text: &str) -> Result<Slo, String> {
    Slo::parse(text).map_err(|error| error.to_string())
}

fn tls(text: &str) -> Result<Vec<bool>, String> {
    match text {
        "on" | "true" => Ok(vec![true]),
        "off" | "false" => Ok(vec![false]),
        "both" => Ok(vec![false, true]),
        _ => Err(format!("'{text}' is not one of on, off, both")),
    }
}

/// Reads a count from 1 to `max`.
fn small(max: u32) -> impl Fn(&str) -> Result<u32, String> {
    move |text| {
        let count = quantity::positive(text)?;
        let small = u32::try_from(count).ok().filter(|count| *count <= max);
        small.ok_or_else(|| format!("'{text}' must be from 1 to {max}"))
    }
}

const BACKEND: &str = "moonwire";
/// Some hundred thousand messages.
const CEILING: Duration = Duration::from_secs(2);
pub(crate) const BACKENDS_MAX: u32 = 64;
/// As many as moonwire takes, and more than anybody here has processors for.
pub(crate) const WORKERS_MAX: u32 = 256;
/// The fewest with an interval of 95 % between three contestants.
const ROUNDS: u64 = 5;
const RESOLVE: f64 = 0.03;
/// Of a search: with twenty of them it takes hours already.
const TRY_MAX: Duration = Duration::from_secs(600);
/// About what a restart under a supervisor takes.
const DOWN_FOR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
