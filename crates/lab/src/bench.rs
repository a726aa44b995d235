//! The latency bench: a sweep of load runs against one server over one link, and its report.

mod attempts;
mod cell;
pub(crate) mod folder;
pub(crate) mod merge;
pub(crate) mod plan;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonwire_load::{LoadError, Progress, ScenarioError, TimeUnit};
use moonwire_report::{Cell, Content, Environment, Run, RunError};

use self::attempts::Attempts;
use self::folder::ResultFolder;
pub use self::plan::BenchSpec;
use self::plan::{CellPlan, Cores};
use crate::battle::note_progress;
use crate::environment;
use crate::idle_poll::IdlePoll;
use crate::link::{IdleExchange, Link, LinkError, LinkKind, LinkSpec};
use crate::process::ProcessError;
use crate::quota;
use crate::rations::Rations;

/// Runs every cell of the sweep, one after the other, and writes the results.
///
/// `stop` ends it early: the cell in progress is closed and kept, the rest is left out.
pub fn bench(
    spec: &BenchSpec,
    stop: &Arc<AtomicBool>,
    observer: &mut (dyn BenchObserver + Send),
) -> Result<BenchOutcome, BenchError> {
    let started = Instant::now();
    let plans = plan::cells(spec)?;
    let rations = Rations::of(spec.cpu_limits).map_err(BenchError::Machine)?;
    let folder = ResultFolder::create(spec.out.as_deref(), &spec.name)?;
    let cores = Cores::of_this_process();
    // Beside the generator, which must keep its times, it made it wait for its processor; left to
    // itself it was by chance beside the one or the other, and runs could not be compared.
    let link_spec = LinkSpec {
        forwarder_cpus: cores.server.clone(),
        ..link_spec(spec)
    };
    let link = Link::establish(&link_spec).map_err(BenchError::Link)?;
    let mut run = Run {
        rules: None,
        capacities: Vec::new(),
        ceilings: Vec::new(),
        name: spec.name.clone(),
        environment: describe(spec, &link),
        content: Content::Bench(Vec::new()),
    };
    observer.on_event(&BenchEvent::LinkStands {
        kind: link.kind(),
        notes: link.notes(),
    });
    let idle_poll = idle_poll(spec, &cores, &mut run.environment);
    let site = cell::Site {
        spec,
        link: &link,
        folder: &folder,
        cores,
        rations,
        idle_poll: idle_poll.as_ref(),
    };
    sweep(&site, &plans, &mut run, started, stop, observer)?;
    drop(idle_poll);
    observer.on_event(&BenchEvent::Drawing);
    // Without a cell there is nothing to draw, and an older result in the folder stays.
    let page = match run.cells().is_empty() {
        true => None,
        false => Some(folder.render(&run)?),
    };
    let ending = match stop.load(Ordering::Relaxed) {
        true => BenchEnding::Interrupted,
        false => BenchEnding::Completed,
    };
    Ok(BenchOutcome {
        run,
        folder: folder.path().to_owned(),
        page,
        ending,
    })
}

/// Measures cell after cell and keeps the Run file up to date.
fn sweep(
    site: &cell::Site<'_>,
    plans: &[CellPlan],
    run: &mut Run,
    started: Instant,
    stop: &Arc<AtomicBool>,
    observer: &mut (dyn BenchObserver + Send),
) -> Result<(), BenchError> {
    let mut attempts = Attempts::new(site.spec.repeats);
    let mut cells = Vec::new();
    note_progress(run, 0, plans.len());
    for (index, plan) in plans.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let later = plans[index + 1..]
            .iter()
            .map(CellPlan::expected_duration)
            .sum();
        let place = Place {
            index,
            count: plans.len(),
            key: plan.parameters.key(),
            attempt: 0,
            later,
        };
        let measured = attempts.measure(site, plan, &place, stop, observer)?;
        observer.on_event(&BenchEvent::CellEnded {
            place: &place,
            cell: &measured,
        });
        cells.push(measured);
        run.environment.elapsed_s = started.elapsed().as_secs_f64();
        // One that was cut short is not in it.
        if !stop.load(Ordering::Relaxed) {
            note_progress(run, index + 1, plans.len());
        }
        run.content = Content::Bench(cells.clone());
        // After each cell, so that a machine that goes down leaves what was measured.
        site.folder.write_run(run)?;
    }
    Ok(())
}

/// What a bench gave.
#[derive(Debug, Clone)]
pub struct BenchOutcome {
    /// All figures, the verdict included.
    pub run: Run,
    /// Where everything was written.
    pub folder: PathBuf,
    /// The page to open; none when no cell was measured.
    pub page: Option<PathBuf>,
    /// How it ended.
    pub ending: BenchEnding,
}

/// How a bench ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchEnding {
    /// All cells were run.
    Completed,
    /// It was asked to stop.
    Interrupted,
}

/// Sees a bench from outside. Called on whichever thread the event happens.
pub trait BenchObserver {
    /// Something happened.
    fn on_event(&mut self, event: &BenchEvent<'_>);
}

/// An observer for those who only want the outcome.
impl BenchObserver for () {
    fn on_event(&mut self, _event: &BenchEvent<'_>) {}
}

/// What happens during a bench.
#[derive(Debug)]
pub enum BenchEvent<'a> {
    /// The link is up.
    LinkStands {
        /// How it delays.
        kind: LinkKind,
        /// Why nothing better was to be had.
        notes: &'a [String],
    },
    /// A cell begins: its server is ready, the link was measured (a stand-in cannot be).
    CellStarted {
        /// Which cell.
        place: &'a Place,
        /// The empty exchange.
        idle: Option<&'a IdleExchange>,
        /// Until the whole bench ends.
        left: Duration,
    },
    /// About once a second.
    CellProgress {
        /// Which cell.
        place: &'a Place,
        /// Where its run stands.
        progress: &'a Progress,
        /// Until the whole bench ends.
        left: Duration,
    },
    /// A cell is done.
    CellEnded {
        /// Which cell.
        place: &'a Place,
        /// Its figures.
        cell: &'a Cell,
    },
    /// The host disturbed a cell; it is measured again.
    CellDisturbed {
        /// Which cell.
        place: &'a Place,
        /// The figures that are given up unless the next attempt is worse.
        cell: &'a Cell,
    },
    /// Everything was measured; the report is being drawn.
    Drawing,
}

/// Where a cell stands in the sweep.
#[derive(Debug, Clone)]
pub struct Place {
    /// From 0.
    pub index: usize,
    /// Cells in all.
    pub count: usize,
    /// All parameters of the cell, as in file names.
    pub key: String,
    /// Attempts at the cell before this one.
    pub attempt: usize,
    /// What the cells after this one are expected to take.
    pub(crate) later: Duration,
}

impl Place {
    /// Whether nothing was measured before.
    pub(crate) fn is_first(&self) -> bool {
        self.index == 0 && self.attempt == 0
    }

    /// What the files of this attempt are named after.
    pub(crate) fn files(&self) -> String {
        match self.attempt {
            0 => self.key.clone(),
            earlier => format!("{}.{}", self.key, earlier + 1),
        }
    }
}

/// Why there is no bench. Displays as one sentence.
#[derive(Debug)]
pub enum BenchError {
    /// The sweep cannot be run as asked.
    Spec(ScenarioError),
    /// A list of the sweep is empty, or it has too many cells.
    Sweep(String),
    /// There is no link, or not the one that was asked for.
    Link(LinkError),
    /// The machine does not allow what was asked for.
    Machine(String),
    /// The generator cannot run against this URL.
    Load(LoadError),
    /// The server did not start.
    Server(ProcessError),
    /// A folder or file of the results cannot be written.
    Output(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(error) => error.fmt(to),
            Self::Link(error) => error.fmt(to),
            Self::Load(error) => error.fmt(to),
            Self::Server(error) => error.fmt(to),
            Self::Machine(sentence) | Self::Sweep(sentence) | Self::Output(sentence) => {
                to.write_str(sentence)
            }
        }
    }
}

impl std::error::Error for BenchError {}

impl From<RunError> for BenchError {
    fn from(error: RunError) -> Self {
        Self::Output(error.to_string())
    }
}

/// A server of ours is put behind the best link there is; one that runs elsewhere cannot be moved
/// into a namespace, so that a delay for it is put on the generator's own sockets.
fn link_spec(spec: &BenchSpec) -> LinkSpec {
    let default = LinkSpec::default();
    let asked = LinkSpec {
        delay: spec.link_delay,
        jitter: spec.link_jitter,
        loss: spec.link_loss,
        rate_bytes_per_s: spec.link_rate_bit_per_s.map(|bits| bits.div_ceil(8)),
        queue_bytes: spec.link_queue_bytes.unwrap_or(default.queue_bytes),
        seed: spec.seed,
        ..default
    };
    let stand_in = spec.url.is_some() && !asked.is_plain();
    LinkSpec {
        kind: stand_in.then_some(LinkKind::StandIn),
        ..asked
    }
}

/// Keeps the processors of the bench from halting, where that is asked for, or they are virtual and
/// not rationed.
fn idle_poll(spec: &BenchSpec, cores: &Cores, environment: &mut Environment) -> Option<IdlePoll> {
    let processors = cores.all();
    // What polls would use up a quota that the server needs.
    let wanted = || environment::is_virtual() && quota::cpu_quota().is_none();
    if !spec.idle_poll.unwrap_or_else(wanted) {
        return None;
    }
    let (poll, note) = match IdlePoll::start(&processors) {
        _ if processors.is_empty() => (None, "not with one processor".to_owned()),
        Ok(poll) => (
            Some(poll),
            format!(
                "threads of idle priority kept processors {} from halting",
                plan::core_list(&processors)
            ),
        ),
        Err(error) => (None, format!("the kernel does not allow it: {error}")),
    };
    environment.notes.insert("idle_poll".to_owned(), note);
    poll
}

fn describe(spec: &BenchSpec, link: &Link) -> Environment {
    let mut environment = environment::describe(spec.command_line.clone(), spec.seed);
    if let Ok(sysctls) = link.in_server(environment::sysctls) {
        environment.sysctls = sysctls;
    }
    environment
        .notes
        .insert("link".to_owned(), link.kind().to_string());
    if !link.notes().is_empty() {
        environment
            .notes
            .insert("link_notes".to_owned(), link.notes().join("; "));
    }
    for (role, limit) in [
        ("server_cpu_limit", spec.cpu_limits.server),
        ("client_cpu_limit", spec.cpu_limits.client),
    ] {
        let note = limit.map(|processors| (role.to_owned(), processors.to_string()));
        environment.notes.extend(note);
    }
    let unit = match spec.time_unit {
        TimeUnit::Microseconds => "us",
        TimeUnit::Milliseconds => "ms",
    };
    environment
        .notes
        .insert("time_unit".to_owned(), unit.to_owned());
    environment
}
