//! `payload-doubling`: the benchmark of LAppS with the payload on the wire, every contestant in one
//! run, one after the other in each round.

mod bout;
mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use moonwire_load::{Progress, ScenarioError};
use moonwire_report::{Cell, Content, Environment, Run};

use self::bout::Site;
use self::plan::Mode;
use crate::battle::note_progress;
use crate::bench::BenchError;
use crate::bench::folder::ResultFolder;
use crate::bench::plan::{Cores, core_list};
use crate::cgroup::CpuLimits;
use crate::contestant::{Contestant, Surroundings, write_certificate};
use crate::environment;
use crate::process::ProcessError;
use crate::rations::Rations;

/// What to run.
#[derive(Debug, Clone)]
pub struct DoublingSpec {
    /// In the order in which they take their turns.
    pub contestants: Vec<Contestant>,
    /// Clients; empty takes the number that each variant was published with.
    pub connections: Vec<u32>,
    /// Rounds, each with every contestant.
    pub rounds: u64,
    /// Messages of each client at 1 KiB: half as many at each size after that.
    pub messages: u64,
    /// As many messages at every size.
    pub fixed: bool,
    /// As the published benchmark did it: two messages in flight, of 1024 bytes and of none.
    pub legacy: bool,
    /// Without TLS, with it, or both.
    pub tls: Vec<bool>,
    /// The moonwire that is a contestant: this program, normally.
    pub program: PathBuf,
    /// What `cargo xtask peers` has installed.
    pub peers: PathBuf,
    /// Where the results go; without, `results/<time>-payload-doubling`.
    pub out: Option<PathBuf>,
    /// What servers and generator may use.
    pub cpu_limits: CpuLimits,
    /// For the record.
    pub command_line: Vec<String>,
    /// Fixes what is drawn at random.
    pub seed: u64,
}

/// What a run gave.
#[derive(Debug)]
pub struct DoublingOutcome {
    /// All figures.
    pub run: Run,
    /// Where everything was written.
    pub folder: PathBuf,
    /// Whether it was asked to stop: what was measured until then is in it.
    pub interrupted: bool,
}

/// What happens during a run.
#[derive(Debug)]
pub enum DoublingEvent<'a> {
    /// A contestant takes its turn: its server is ready.
    BoutStarted {
        /// Contestant, clients, TLS, round.
        name: &'a str,
    },
    /// About once a second.
    Progress {
        /// Which cell.
        place: &'a Place,
        /// Where its run stands.
        progress: &'a Progress,
    },
    /// A cell is done.
    CellEnded {
        /// Which cell.
        place: &'a Place,
        /// Its figures.
        cell: &'a Cell,
    },
}

/// Where a cell stands among all of them.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// From 1.
    pub number: usize,
    /// Cells in all.
    pub count: usize,
    /// Its payload, or what the published benchmark would have called its payload, bytes.
    pub size: usize,
}

/// Sees a run from outside.
pub type DoublingObserver<'a> = dyn FnMut(&DoublingEvent<'_>) + 'a;

/// Why there is no result. Displays as one sentence.
#[derive(Debug)]
pub enum DoublingError {
    /// A contestant is not installed.
    Contestant(String),
    /// It cannot be run as asked.
    Scenario(ScenarioError),
    /// The first server did not start.
    Server(String, ProcessError),
    /// The machine does not allow what was asked for.
    Machine(String),
    /// A folder or file of the results cannot be written.
    Output(String),
}

impl fmt::Display for DoublingError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(to),
            Self::Server(name, error) => write!(to, "{name}: {error}"),
            Self::Contestant(sentence) | Self::Machine(sentence) | Self::Output(sentence) => {
                to.write_str(sentence)
            }
        }
    }
}

impl std::error::Error for DoublingError {}

impl From<BenchError> for DoublingError {
    fn from(error: BenchError) -> Self {
        Self::Output(error.to_string())
    }
}

/// Runs every cell, one after the other, and writes the results after each contestant's turn.
///
/// `stop` ends it early: the cell in progress is closed and kept, the rest is left out.
pub fn payload_doubling(
    spec: &DoublingSpec,
    stop: &Arc<AtomicBool>,
    observer: &mut DoublingObserver<'_>,
) -> Result<DoublingOutcome, DoublingError> {
    let started = Instant::now();
    let bouts = plan::bouts(spec)?;
    let steps = plan::steps(spec.messages, spec.fixed);
    let rations = Rations::of(spec.cpu_limits).map_err(DoublingError::Machine)?;
    let mode = Mode::of(spec);
    let folder = ResultFolder::create(spec.out.as_deref(), mode.name())?;
    let cores = Cores::of_this_process();
    let around = surroundings(spec, &folder);
    let versions = versions(&spec.contestants, &around)?;
    write_certificate(&around.certificate, &around.key).map_err(DoublingError::Output)?;
    let mut run = Run {
        rules: None,
        capacities: Vec::new(),
        ceilings: Vec::new(),
        name: mode.name().to_owned(),
        environment: describe(spec, mode, &cores, versions),
        content: Content::Bench(Vec::new()),
    };
    let mut cells = Vec::new();
    let site = Site {
        mode,
        seed: spec.seed,
        cores,
        rations,
        around,
        stop,
    };
    note_progress(&mut run, 0, bouts.len());
    // Before the first, so that one that is killed leaves a result that says so.
    folder.write_run(&run)?;
    for (index, bout) in bouts.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let before = index * steps.len();
        let mut place = Place {
            number: before,
            count: bouts.len() * steps.len(),
            size: 0,
        };
        site.measure(bout, &steps, &mut place, &mut cells, observer)?;
        run.environment.elapsed_s = started.elapsed().as_secs_f64();
        // One that was cut short is not in it.
        if !stop.load(Ordering::Relaxed) {
            note_progress(&mut run, index + 1, bouts.len());
        }
        run.content = Content::Bench(cells.clone());
        // After each, so that a machine that goes down leaves what was measured.
        folder.write_run(&run)?;
    }
    if !cells.is_empty() {
        folder.write_tables(&run)?;
    }
    Ok(DoublingOutcome {
        run,
        folder: folder.path().to_owned(),
        interrupted: stop.load(Ordering::Relaxed),
    })
}

/// Where everything is that the contestants are started with.
fn surroundings(spec: &DoublingSpec, folder: &ResultFolder) -> Surroundings {
    let folder = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    Surroundings::new(&spec.program, &spec.peers, &folder)
}

fn versions(
    contestants: &[Contestant],
    around: &Surroundings,
) -> Result<BTreeMap<String, String>, DoublingError> {
    let mut versions = BTreeMap::new();
    for contestant in contestants {
        let version = contestant.version(around);
        let version = version.map_err(DoublingError::Contestant)?;
        versions.insert(contestant.name(), version);
    }
    Ok(versions)
}

fn describe(
    spec: &DoublingSpec,
    mode: Mode,
    cores: &Cores,
    versions: BTreeMap<String, String>,
) -> Environment {
    let mut environment = environment::describe(spec.command_line.clone(), spec.seed);
    environment.versions.extend(versions);
    let sums = spec.contestants.iter();
    let sums = sums.map(|it| (it.name(), it.sha256().to_owned()));
    environment.contestant_files = sums.collect();
    let placement = match cores.server.is_empty() {
        true => "nobody is pinned: there is one processor".to_owned(),
        false => format!(
            "generator on processors {}, servers on {}",
            core_list(&cores.generator),
            core_list(&cores.server)
        ),
    };
    let notes = [
        ("mode", mode.sentence().to_owned()),
        ("placement", placement),
        ("tls", TLS_POLICY.to_owned()),
    ];
    let notes = notes.map(|(name, text)| (name.to_owned(), text));
    environment.notes.extend(notes);
    environment
}

/// Where `cargo xtask peers` installs what this program may start: beside it in the target folder,
/// or where `MOONWIRE_PEERS` says.
pub fn peers_folder(program: &Path) -> PathBuf {
    if let Some(folder) = std::env::var_os("MOONWIRE_PEERS") {
        return PathBuf::from(folder);
    }
    let mut beside = program.ancestors().map(|folder| folder.join("peers"));
    beside
        .find(|folder| folder.is_dir())
        .unwrap_or_else(|| PathBuf::from("target/peers"))
}

/// The same for all contestants: the client decides as far as servers let it, and each cell says
/// what was agreed on.
const TLS_POLICY: &str = "clients offer TLS 1.3 and 1.2 with AES-128-GCM first, check the \
    certificate, which is self-signed with ECDSA on P-256, and resume nothing";
