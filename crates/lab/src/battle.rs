//! Contestants against each other: every cell with processes of its own, in an order that the seed
//! draws anew for each round, so that what changes on the machine meets all of them.

mod capacity;
mod ceiling;
mod cell;
mod clocks;
mod counted;
mod cross_check;
mod fault;
mod host;
mod limit;
mod needs;
mod path;
mod plan;
mod search;
mod spread;
mod stack;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use moonwire_load::Progress;
use moonwire_report::{Ceiling, Cell, Content, Environment, Run, Verdict};

pub(crate) use self::cell::SAMPLING_PERIOD;
use self::cell::Site;
use self::host::Host;
use self::path::Path;
use self::plan::Bout;
pub(crate) use self::spread::Spread;
use crate::agent::{AgentError, AgentTarget};
use crate::bench::BenchError;
use crate::bench::folder::ResultFolder;
use crate::bench::plan::Cores;
use crate::contestant::{Contestant, Kind, Surroundings};
use crate::environment;
use crate::link::LinkError;
use crate::rations::Rations;
use crate::sampling::Usage;
use crate::scenario::LabScenario;

/// What to run.
#[derive(Debug, Clone)]
pub struct BattleSpec {
    /// Which load, how often, and what decides.
    pub scenario: LabScenario,
    /// Servers, and proxies in front of `backend`.
    pub contestants: Vec<Contestant>,
    /// The server behind proxies, and the control's.
    pub backend: Contestant,
    /// Generators of others that send the same load to the same processes after ours.
    pub clients: Vec<Contestant>,
    /// What the generator is measured against before the contestants are.
    pub null_server: Contestant,
    /// Who starts them on another host; without, they run on this one.
    pub agent: Option<AgentTarget>,
    /// The moonwire that is a contestant: this program, normally.
    pub program: PathBuf,
    /// What `cargo xtask peers` has installed.
    pub peers: PathBuf,
    /// Where the results go; without, `results/<time>-<scenario>`.
    pub out: Option<PathBuf>,
    /// For the record.
    pub command_line: Vec<String>,
    /// Fixes what is drawn at random.
    pub seed: u64,
}

/// What a battle gave.
#[derive(Debug)]
pub struct BattleOutcome {
    /// All figures.
    pub run: Run,
    /// Where everything was written.
    pub folder: PathBuf,
    /// Whether it was asked to stop: what was measured until then is in it.
    pub interrupted: bool,
}

/// What happens during a battle.
#[derive(Debug)]
pub enum BattleEvent<'a> {
    /// About once a second.
    Progress {
        /// Which cell.
        place: &'a BattlePlace,
        /// Where its run stands.
        progress: &'a Progress,
        /// What its processes use, the proxy first.
        usage: &'a [Usage],
    },
    /// A setting of the kernel may be what the figures show.
    Warning {
        /// Which, its value, what is needed, and the command.
        sentence: &'a str,
    },
    /// A search has tried a load.
    TryEnded {
        /// Which search, and which load.
        place: &'a BattlePlace,
        /// Its figures.
        cell: &'a Cell,
        /// Why it did not pass, if it did not.
        failure: Option<&'a str>,
    },
    /// It is known what the generator does at most under one load, or cannot be.
    CeilingEnded {
        /// Which load.
        place: &'a BattlePlace,
        /// What was found.
        ceiling: Option<&'a Ceiling>,
    },
    /// A cell is done, or a search.
    CellEnded {
        /// Which cell.
        place: &'a BattlePlace,
        /// Its figures.
        cell: &'a Cell,
        /// Seconds that the rest will take, if it goes on like this.
        left_s: f64,
    },
}

/// Where a cell stands among all of them.
#[derive(Debug, Clone)]
pub struct BattlePlace {
    /// From 1.
    pub number: usize,
    /// Cells in all; 0 for what comes before the first.
    pub count: usize,
    /// Contestant, scheme, load and round.
    pub name: String,
}

impl BattlePlace {
    fn of(bout: &Bout, index: usize, count: usize) -> Self {
        Self {
            number: index + 1,
            count,
            name: bout.name(),
        }
    }
}

/// Sees a battle from outside.
pub type BattleObserver<'a> = dyn FnMut(&BattleEvent<'_>) + Send + 'a;

/// Why there is no result. Displays as one sentence.
#[derive(Debug)]
pub enum BattleError {
    /// A contestant is not installed, or cannot do what the scenario asks for.
    Contestant(String),
    /// The agent cannot be used, or is lost.
    Agent(AgentError),
    /// There is no link, or not the one that was asked for.
    Link(LinkError),
    /// The machine does not allow what the scenario asks for.
    Machine(String),
    /// A folder or file of the results cannot be written.
    Output(String),
}

impl fmt::Display for BattleError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contestant(sentence) | Self::Machine(sentence) | Self::Output(sentence) => {
                to.write_str(sentence)
            }
            Self::Agent(error) => error.fmt(to),
            Self::Link(error) => error.fmt(to),
        }
    }
}

impl std::error::Error for BattleError {}

impl From<BenchError> for BattleError {
    fn from(error: BenchError) -> Self {
        Self::Output(error.to_string())
    }
}

/// Runs every cell, and writes the results after each of them.
///
/// `stop` ends it early: the cell in progress is closed and kept, the rest is left out. It is set
/// where an agent is lost.
pub fn battle(
    spec: &BattleSpec,
    stop: &Arc<AtomicBool>,
    observer: &mut BattleObserver<'_>,
) -> Result<BattleOutcome, BattleError> {
    let started = Instant::now();
    let bouts = plan::bouts(spec)?;
    let host = Host::find(spec, replies(spec))?;
    let limits = host.limits_here(spec.scenario.cpu_limits);
    let rations = Rations::of(limits).map_err(BattleError::Machine)?;
    let cores = host.cores();
    let link = path::establish(spec, &cores, stop)?;
    let warnings = needs::check(spec, &link, &host)?;
    let folder = ResultFolder::create(spec.out.as_deref(), &spec.scenario.name)?;
    let around = surroundings(spec, &folder, &link);
    let versions = host.versions(spec, &around);
    let versions = versions.map_err(BattleError::Contestant)?;
    let written = host.put_certificate(&around.certificate, &around.key);
    written.map_err(BattleError::Output)?;
    let mut run = begun(spec, &host, &cores, &link, versions);
    needs::tell(&warnings, &mut run.environment, observer);
    let site = Site::new(spec, &host, cores, rations, around, &link, stop);
    let mut cells: Vec<Cell> = Vec::new();
    let planned = bouts.len();
    note_progress(&mut run, 0, planned);
    // Before the first, so that one that is killed leaves a result that says so.
    folder.write_run(&run)?;
    run.ceilings = ceiling::measure_all(&site, spec, observer)?;
    for (index, bout) in bouts.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let place = BattlePlace::of(bout, index, planned);
        match spec.scenario.search {
            None => {
                let mut cell = site.cell(bout, &place, observer)?;
                site.hold_to(&run.ceilings, &mut cell);
                cells.push(cell);
            }
            Some(plan) => {
                let searched =
                    capacity::search(&site, bout, plan, &run.ceilings, &place, observer)?;
                cells.extend(searched.cells);
                run.capacities.push(searched.capacity);
            }
        }
        let each_s = started.elapsed().as_secs_f64() / (index + 1) as f64;
        if let Some(cell) = cells.last() {
            observer(&BattleEvent::CellEnded {
                place: &place,
                cell,
                left_s: each_s * left(stop, planned - index - 1),
            });
        }
        run.environment.elapsed_s = started.elapsed().as_secs_f64();
        // One that was cut short is not in it.
        if !stop.load(Ordering::Relaxed) {
            note_progress(&mut run, index + 1, planned);
        }
        run.content = Content::Bench(cells.clone());
        keep(&folder, &mut run, &host)?;
    }
    let interrupted = stop.load(Ordering::Relaxed);
    finish(&folder, &mut run, interrupted.then_some(planned))?;
    Ok(BattleOutcome {
        run,
        folder: folder.path().to_owned(),
        interrupted,
    })
}

/// Writes what there is, so that a machine that goes down leaves what was measured. A lost agent is
/// the end.
fn keep(folder: &ResultFolder, run: &mut Run, host: &Host) -> Result<(), BattleError> {
    let lost = note_lost(run, host);
    folder.write_run(run)?;
    let Some(lost) = lost else { return Ok(()) };
    finish(folder, run, None)?;
    Err(lost)
}

/// Draws what there is. `interrupted` is how many cells there should have been.
fn finish(
    folder: &ResultFolder,
    run: &mut Run,
    interrupted: Option<usize>,
) -> Result<(), BattleError> {
    if let Some(planned) = interrupted {
        note_partial(run, planned);
    }
    if !run.cells().is_empty() {
        folder.render(run)?;
    }
    Ok(())
}

/// A result without cells.
fn begun(
    spec: &BattleSpec,
    host: &Host,
    cores: &Cores,
    link: &Path,
    versions: BTreeMap<String, String>,
) -> Run {
    Run {
        name: spec.scenario.name.clone(),
        environment: describe(spec, host, cores, link, versions),
        rules: Some(spec.scenario.rules.clone()),
        ..Run::default()
    }
}

/// Whoever finds the result of a battle that did not come to its end is told.
pub(crate) fn note_progress(run: &mut Run, done: usize, planned: usize) {
    let notes = &mut run.environment.notes;
    match planned - done {
        0 => notes.remove(PARTIAL),
        left => notes.insert(
            PARTIAL.to_owned(),
            format!("{done} of {planned} cells are in it: {left} were still to come"),
        ),
    };
}

/// So does one whose agent is lost, which is the error.
fn note_lost(run: &mut Run, host: &Host) -> Option<BattleError> {
    let lost = host.lost()?;
    let notes = &mut run.environment.notes;
    notes.insert(PARTIAL.to_owned(), lost.to_string());
    Some(lost)
}

/// A result that is only a part says so.
fn note_partial(run: &mut Run, planned: usize) {
    let (begun, what) = match run.capacities.len() {
        0 => (run.cells().len(), "cells"),
        searches => (searches, "searches"),
    };
    let reason = format!("interrupted: {begun} of {planned} {what} were begun");
    let notes = &mut run.environment.notes;
    notes.insert(PARTIAL.to_owned(), reason.clone());
    if let Content::Bench(cells) = &mut run.content
        && let Some(last) = cells.last_mut()
    {
        last.assessment.add(Verdict::Suspect, reason);
    }
}

fn surroundings(spec: &BattleSpec, folder: &ResultFolder, link: &Path) -> Surroundings {
    let folder = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    let mut around = Surroundings::new(&spec.program, &spec.peers, &folder);
    around.at = link.link.server_end();
    around.address = link.link.server_address();
    around.replies = replies(spec);
    around
}

/// What the loads expect of every message; all of them expect the same.
fn replies(spec: &BattleSpec) -> u32 {
    let loads = spec.scenario.loads();
    loads.first().map_or(1, |load| load.settings.replies.into())
}

fn describe(
    spec: &BattleSpec,
    host: &Host,
    cores: &Cores,
    path: &Path,
    versions: BTreeMap<String, String>,
) -> Environment {
    let mut environment = environment::describe(spec.command_line.clone(), spec.seed);
    environment.versions.extend(versions);
    environment.contestant_files = host.contestant_files(spec);
    if let Ok(sysctls) = path.link.in_server(environment::sysctls) {
        environment.sysctls = sysctls;
    }
    host.describe(&mut environment);
    let scenario = &spec.scenario;
    let mut contestants = spec.contestants.iter();
    let backends = match contestants.any(|it| it.kind() == Kind::Proxy) {
        true => format!(
            "{} of {} with {} each",
            scenario.backends,
            spec.backend.name(),
            match scenario.backend_workers {
                1 => "1 worker".to_owned(),
                count => format!("{count} workers"),
            }
        ),
        false => "none, because no proxy takes part".to_owned(),
    };
    let notes = [
        ("scenario", scenario.description.clone()),
        ("placement", host.placement(cores)),
        ("backends", backends),
        ("tls", TLS_POLICY.to_owned()),
        ("link", host.link(path)),
    ];
    let notes = notes.map(|(name, text)| (name.to_owned(), text));
    environment.notes.extend(notes);
    for (name, value) in scenario.written() {
        let name = format!("knob {name}");
        environment.notes.insert(name, value);
    }
    environment
}

/// How many of the cells to come will be measured: who is stopped has nothing left to do.
fn left(stop: &AtomicBool, to_come: usize) -> f64 {
    match stop.load(Ordering::Relaxed) {
        true => 0.0,
        false => to_come as f64,
    }
}

/// The note of a result that is not whole.
const PARTIAL: &str = "partial";

/// The same for all contestants: the client decides as far as they let it, and each cell says what
/// was agreed on.
const TLS_POLICY: &str = "clients offer TLS 1.3 and 1.2 with AES-128-GCM and X25519 first, check \
    the certificate, which is self-signed with ECDSA on P-256, and resume nothing; contestants are \
    told to speak TLS 1.3 with X25519 and AES-GCM, and to hand out no tickets";
