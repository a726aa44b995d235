//! One cell: a fresh server, the link measured, the load, and everything put together.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use moonwire_load::{Control, LoadError, Outcome, Progress, Scenario};
use moonwire_report::{Cell, Server, Verdict};

use super::folder::ResultFolder;
use super::merge::{self, Phases};
use super::plan::{CellPlan, Cores, Placement, core_list};
use super::{BenchError, BenchEvent, BenchObserver, BenchSpec, Place};
use crate::cgroup::CpuGroup;
use crate::idle_poll::IdlePoll;
use crate::link::{IdleExchange, Link, LinkError, LinkStats};
use crate::local_server::LocalServer;
use crate::process::{ChildProcess, ChildSpec, ProcessError, Ready};
use crate::rations::{Rations, Watch as GeneratorWatch};
use crate::sampling::{Sampler, Series};

/// What all cells share.
pub(super) struct Site<'a> {
    pub(super) spec: &'a BenchSpec,
    pub(super) link: &'a Link,
    pub(super) folder: &'a ResultFolder,
    pub(super) cores: Cores,
    pub(super) rations: Rations,
    /// Keeps them from halting, if anything does.
    pub(super) idle_poll: Option<&'a IdlePoll>,
}

/// Runs one cell. What goes wrong inside it makes it INVALID and lets the sweep go on; only a
/// server that does not start for the first cell, or a wrong URL, ends the bench.
pub(super) fn run(
    site: &Site<'_>,
    plan: &CellPlan,
    place: &Place,
    stop: &Arc<AtomicBool>,
    observer: &mut (dyn BenchObserver + Send),
) -> Result<Cell, BenchError> {
    let check = LinkCheck::of(site, place, stop)?;
    let server = match &site.spec.url {
        Some(_) => None,
        None => match start_server(site, &place.files()) {
            Ok(server) => Some(server),
            Err(BenchError::Server(error)) if !place.is_first() => {
                return Ok(invalid_cell(plan, error.to_string()));
            }
            Err(error) => return Err(error),
        },
    };
    let url = server.as_ref().map(|server| server.url.clone());
    let url = url.or_else(|| site.spec.url.clone()).unwrap_or_default();
    let group = site.rations.client().map_err(BenchError::Machine)?;
    let placement = placement(site, place, group.as_deref());
    let scenario = plan.scenario(site.spec, &url, &placement)?;
    let left = plan.expected_duration() + place.later;
    let idle = check.idle.as_ref();
    observer.on_event(&BenchEvent::CellStarted { place, idle, left });
    let process = server.as_ref().map(|server| &server.process);
    // A server that somebody else started on this host can be looked at, too.
    let local = match server {
        Some(_) => None,
        None => LocalServer::find(&scenario.targets),
    };
    let watched = Watched {
        group,
        site,
        plan,
        place,
        process,
        stop,
    };
    let seen = watched.load(&scenario, observer)?;
    let mut cell = match seen.outcome {
        // The machine may be too small for one cell and not for another; a URL is right or wrong.
        Err(error) if site.spec.url.is_some() && place.is_first() && is_final(&error) => {
            return Err(BenchError::Load(error));
        }
        outcome => cell_of(outcome, plan),
    };
    cell.generator.cpu_taken = seen.watch.taken;
    seen.watch.generator.add_to(&mut cell);
    if let Some(local) = local {
        local.finish_at(&mut cell, &seen.watch.phases, seen.watch.ended);
    }
    if let Some(server) = server {
        finish_server(site, &mut cell, server, &seen.watch, place)?;
    }
    check.add_to(&mut cell, site, place, seen.watch.link.as_ref())?;
    Ok(cell)
}

/// What was found of the link before the run.
struct LinkCheck {
    idle: Option<IdleExchange>,
    /// Why it is not what was asked for.
    objection: Option<String>,
}

impl LinkCheck {
    /// Measures empty exchanges over a link of ours; one to a URL is not ours to measure.
    fn of(site: &Site<'_>, place: &Place, stop: &AtomicBool) -> Result<Self, BenchError> {
        let (idle, objection) = match site.spec.url {
            Some(_) => (None, None),
            None => match site.link.measure_idle(IDLE_EXCHANGES, stop) {
                Ok(idle) => (idle, None),
                // A link that loses much can lose this; one that works can be told to stop.
                Err(LinkError::Measure(error))
                    if site.spec.link_loss > 0.0
                        || !place.is_first()
                        || error.kind() == std::io::ErrorKind::Interrupted =>
                {
                    (
                        None,
                        Some(format!("the link could not be measured: {error}")),
                    )
                }
                Err(LinkError::NotAsAsked { measured, reason }) => (
                    Some(*measured),
                    Some(format!("the link is not as asked: {reason}")),
                ),
                Err(error) => return Err(BenchError::Link(error)),
            },
        };
        Ok(Self { idle, objection })
    }

    /// Puts it into the cell and beside it, with what the link did during the run.
    fn add_to(
        self,
        cell: &mut Cell,
        site: &Site<'_>,
        place: &Place,
        stats: Option<&LinkStats>,
    ) -> Result<(), BenchError> {
        merge::add_link(cell, site.link, self.idle.as_ref(), stats);
        if let Some(objection) = self.objection {
            cell.assessment.add(Verdict::Invalid, objection);
        }
        if let Some(stats) = stats {
            site.folder.write_json(&place.files(), "link.json", stats)?;
        }
        if let Some(idle) = &self.idle {
            site.folder.write_json(&place.files(), "idle.json", idle)?;
        }
        Ok(())
    }
}

/// Whether no other cell could do better.
fn is_final(error: &LoadError) -> bool {
    !matches!(error, LoadError::Preflight(_))
}

/// A server of ours, under load.
struct ServerChild {
    process: ChildProcess,
    sampler: Sampler,
    url: String,
    /// Rations its CPU. The last, as it goes when the process has ended.
    group: Option<Arc<CpuGroup>>,
}

/// What the generator gave and what the lab saw meanwhile.
struct Seen {
    outcome: Result<Outcome, LoadError>,
    watch: Watch,
}

struct Watch {
    phases: Phases,
    generator: GeneratorWatch,
    link: Option<LinkStats>,
    /// Share of the time that the host took.
    taken: Option<f64>,
    ended: Instant,
}

struct Watched<'a> {
    /// The control group of the generator's threads.
    group: Option<Arc<CpuGroup>>,
    site: &'a Site<'a>,
    plan: &'a CellPlan,
    place: &'a Place,
    process: Option<&'a ChildProcess>,
    stop: &'a Arc<AtomicBool>,
}

impl Watched<'_> {
    /// Runs the load at the client's end of the link while watching the server and the user.
    fn load(
        &self,
        scenario: &Scenario,
        observer: &mut (dyn BenchObserver + Send),
    ) -> Result<Seen, BenchError> {
        let mut phases = Phases::default();
        let end_load = Arc::new(AtomicBool::new(false));
        let started = Instant::now();
        let mark = self.site.link.mark();
        let idle = self.site.idle_poll.map(|poll| (poll, poll.mark()));
        let mut generator = GeneratorWatch::new(self.group.clone());
        let mut on_progress = |progress: &Progress| {
            phases.note(progress.phase, Instant::now());
            generator.note(progress.phase);
            let expected = self
                .plan
                .expected_duration()
                .saturating_sub(started.elapsed());
            let left = expected + self.place.later;
            observer.on_event(&BenchEvent::CellProgress {
                place: self.place,
                progress,
                left,
            });
        };
        let outcome = std::thread::scope(|scope| {
            let (done, over) = mpsc::channel::<()>();
            let flag = Arc::clone(&end_load);
            scope.spawn(move || self.watch(&over, &flag));
            let outcome = self.site.link.in_client(|| {
                let stop = Arc::clone(&end_load);
                let mut control = Control {
                    stop,
                    on_progress: Some(&mut on_progress),
                };
                moonwire_load::run(scenario, &mut control)
            });
            drop(done);
            outcome
        });
        let outcome = outcome.map_err(|error| BenchError::Link(LinkError::Measure(error)))?;
        let link = self.site.link.stats_since(&mark);
        let watch = Watch {
            phases,
            generator,
            taken: taken_by_host(
                idle.and_then(|(poll, mark)| poll.taken_since(&mark)),
                link.as_ref().and_then(LinkStats::taken_share),
            ),
            link,
            ended: Instant::now(),
        };
        Ok(Seen { outcome, watch })
    }

    /// Ends the load when the user asks, or some time after the server has ended; returns when
    /// the load is over.
    fn watch(&self, over: &mpsc::Receiver<()>, end_load: &AtomicBool) {
        while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(WATCH_PERIOD) {
            let exit = self.process.and_then(ChildProcess::exit);
            if exit.is_some() {
                // Without connections the generator ends by itself, and says so.
                let _ = over.recv_timeout(DEATH_GRACE + 4 * self.site.spec.link_delay);
            }
            if exit.is_some() || self.stop.load(Ordering::Relaxed) {
                end_load.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// The larger of what was seen of idle processors and of the one that the link works on: a host
/// may leave a processor alone that only waits, and take it at each entry into the kernel.
fn taken_by_host(of_idle: Option<f64>, of_link: Option<f64>) -> Option<f64> {
    match (of_idle, of_link) {
        (Some(idle), Some(link)) => Some(idle.max(link)),
        (one, other) => one.or(other),
    }
}

fn placement(site: &Site<'_>, place: &Place, group: Option<&CpuGroup>) -> Placement {
    let pin = match site.spec.url {
        None => site.cores.generator.clone(),
        // A server elsewhere leaves all processors to the generator.
        Some(_) => Vec::new(),
    };
    let threads = site.spec.threads.unwrap_or_else(|| {
        let available = match pin.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cores => cores,
        };
        u32::try_from(available).unwrap_or(u32::MAX)
    });
    Placement {
        threads,
        pin,
        group: group.map(CpuGroup::thread_file),
        stand_in_delay: site.link.stand_in_delay(),
        idle_poll: site.idle_poll.is_some(),
        raw_csv: site
            .spec
            .csv
            .then(|| site.folder.cell_file(&place.files(), "csv")),
    }
}

/// Starts the built-in server at the server's end of the link, on its own processors.
fn start_server(site: &Site<'_>, key: &str) -> Result<ServerChild, BenchError> {
    let address = free_address(site.link).map_err(server_error)?;
    let workers = site.cores.server.len().max(1);
    let config =
        site.folder
            .write_text(key, "moonwire.toml", &server_config(site.spec, workers))?;
    let config = std::path::absolute(&config).unwrap_or(config);
    let group = site.rations.server().map_err(BenchError::Machine)?;
    let process = ChildProcess::start(&ChildSpec {
        program: site.spec.program.clone(),
        args: vec![
            "serve".into(),
            "--config".into(),
            config.into_os_string(),
            "--listen".into(),
            address.to_string().into(),
        ],
        env: Vec::new(),
        cpus: site.cores.server.clone(),
        group: group.as_deref().map(CpuGroup::process_file),
        at: site.link.server_end(),
        pauses: None,
        ready: Ready::Line(READY.to_owned()),
        ready_timeout: READY_TIMEOUT,
    });
    let process = process.map_err(BenchError::Server)?;
    let sampler = Sampler::start_in(&[process.pid()], group.clone(), SAMPLING_PERIOD);
    Ok(ServerChild {
        group,
        process,
        sampler,
        url: format!("ws://{address}/amplify"),
    })
}

/// A port nobody listens on; a new one for each cell, so that connections that linger in
/// TIME_WAIT after the last cell are in nobody's way.
fn free_address(link: &Link) -> std::io::Result<SocketAddr> {
    let address = SocketAddr::new(link.server_address(), 0);
    link.in_server(|| TcpListener::bind(address)?.local_addr())?
}

fn server_error(error: std::io::Error) -> BenchError {
    BenchError::Server(ProcessError::Start(error))
}

fn server_config(spec: &BenchSpec, workers: usize) -> String {
    let unit = match spec.time_unit {
        moonwire_load::TimeUnit::Microseconds => "us",
        moonwire_load::TimeUnit::Milliseconds => "ms",
    };
    // Every client of the bench comes from one address, and over the link that is not the loopback.
    format!(
        "[server]\nworkers = {workers}\n\n[limits]\nconnections_per_source_max = 0\n\
         handshakes_per_source_per_s_max = 0\n\n[services.amplify]\ntarget = \"/amplify\"\n\n\
         [services.amplify.config]\nreplies = {}\ntime_unit = \"{unit}\"\n",
        spec.replies
    )
}

/// The generator's cell, or one that says why there is none.
fn cell_of(outcome: Result<Outcome, LoadError>, plan: &CellPlan) -> Cell {
    let mut cell = match outcome {
        Ok(outcome) => outcome.cell,
        Err(error) => return invalid_cell(plan, error.to_string()),
    };
    cell.parameters = plan.parameters.clone();
    cell
}

/// A cell in which nothing was measured.
fn invalid_cell(plan: &CellPlan, reason: String) -> Cell {
    let mut cell = Cell {
        parameters: plan.parameters.clone(),
        ended_early: Some(reason.clone()),
        ..Cell::default()
    };
    cell.assessment.add(Verdict::Invalid, reason);
    cell
}

/// Stops the server and adds what it used, or how it died.
fn finish_server(
    site: &Site<'_>,
    cell: &mut Cell,
    server: ServerChild,
    watch: &Watch,
    place: &Place,
) -> Result<(), BenchError> {
    // Its end may be seen by the generator a moment before it is seen here.
    let in_trouble = cell.ended_early.is_some() || !cell.errors.is_empty();
    let patience = if in_trouble {
        EXIT_PATIENCE
    } else {
        Duration::ZERO
    };
    let died = server.process.wait_until(Instant::now() + patience);
    // Before it ends: a process that has ended has no memory to look at.
    let series: Series = server.sampler.stop();
    let exit = server.process.stop(STOP_GRACE);
    if died.is_none() && exit.code != Some(0) {
        let reason = format!("the server did not end well when it was asked to: {exit}");
        cell.assessment.add(Verdict::Suspect, reason);
    }
    let said = server.process.output_tail();
    let died = died.map(|exit| {
        let last = said
            .last()
            .map_or_else(String::new, |line| format!("; it said: {line}"));
        format!("the server process ended during the run ({exit}){last}")
    });
    let description = Server {
        name: format!("moonwire {} amplify", env!("CARGO_PKG_VERSION")),
        urls: vec![server.url.clone()],
        cores: core_list(&site.cores.server),
        cpu_limit: server.group.as_deref().map(CpuGroup::processors),
        died,
        ..Server::default()
    };
    merge::add_server(cell, description, &series, &watch.phases, watch.ended);
    if cell.generator.cores.is_empty() {
        cell.generator.cores = core_list(&site.cores.generator);
    }
    site.folder
        .write_text(&place.files(), "server.log", &(said.join("\n") + "\n"))?;
    let origin = watch.phases.origin(watch.ended);
    site.folder
        .write_json(&place.files(), "server.json", &series.timed(origin))?;
    Ok(())
}

/// Empty exchanges before each cell: about a second over a link of 20 ms.
const IDLE_EXCHANGES: usize = 20;
/// What the server's line of readiness contains.
const READY: &str = "listening";
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than the server's own drain timeout, so that it can end by itself.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// How long the end of a server that seems to have died is waited for.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);
const SAMPLING_PERIOD: Duration = Duration::from_millis(500);
/// How long the generator has to notice that its server is gone.
const DEATH_GRACE: Duration = Duration::from_secs(2);
/// How soon a dead server or an interrupt is noticed.
const WATCH_PERIOD: Duration = Duration::from_millis(50);
