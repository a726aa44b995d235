//! One cell: fresh processes, a load, and what was seen of both.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use moonwire_load::{
    Control, LoadError, Outcome, Pacing, Phase, Progress, Scenario, ScenarioError, Settings, Stop,
    Target, Workload,
};
use moonwire_report::{Ceiling, Cell, Server, Verdict};

use super::clocks;
use super::counted::{self, WarmUp};
use super::cross_check::cross_check;
use super::fault::{Aftermath, inflict};
use super::host::{Host, There};
use super::limit::{self, Use, rationed};
use super::path::Path;
use super::plan::Bout;
use super::stack::{Shares, Stack, Told, Watcher};
use super::{BattleError, BattleEvent, BattleObserver, BattlePlace, BattleSpec};
use crate::agent::{Estimate, Lineup, RemoteStack, Role};
use crate::bench::merge::{self, Phases};
use crate::bench::plan::{Cores, core_list};
use crate::cgroup::CpuGroup;
use crate::contestant::{Contestant, Kind, RunningStack, StackSpec, StoppedStack, Surroundings};
use crate::foreign_load;
use crate::link::LinkStats;
use crate::live::LiveSampler;
use crate::rations::{Rations, Watch};
use crate::sampling::{Series, Usage};
use crate::scenario::Service;

/// What all cells share.
pub(super) struct Site<'a> {
    spec: &'a BattleSpec,
    host: &'a Host,
    cores: Cores,
    rations: Rations,
    around: Surroundings,
    path: &'a Path,
    stop: &'a Arc<AtomicBool>,
}

/// What was seen of the processes of one role.
struct Seen {
    contestant: Series,
    backends: Option<Series>,
    phases: Phases,
    ended: Instant,
}

impl<'a> Site<'a> {
    pub(super) fn new(
        spec: &'a BattleSpec,
        host: &'a Host,
        cores: Cores,
        rations: Rations,
        around: Surroundings,
        path: &'a Path,
        stop: &'a Arc<AtomicBool>,
    ) -> Self {
        Self {
            spec,
            host,
            cores,
            rations,
            around,
            path,
            stop,
        }
    }

    /// Measures one cell. What goes wrong inside it makes it INVALID and lets the battle go on.
    pub(super) fn cell(
        &self,
        bout: &Bout,
        place: &BattlePlace,
        observer: &mut BattleObserver<'_>,
    ) -> Result<Cell, BattleError> {
        let folder = self.folder(bout);
        let mut stack = match self.start(bout, folder) {
            Ok(stack) => stack,
            Err(sentence) => return Ok(missing(bout, &sentence)),
        };
        let warm_up = self.warm_up(bout, &stack);
        let mut on_progress = |progress: &Progress, usage: &[Usage]| {
            observer(&BattleEvent::Progress {
                place,
                progress,
                usage,
            });
        };
        let mut cell = self.measure(bout, &mut stack, &mut on_progress);
        cross_check(self, bout, &stack, &mut cell);
        let stopped = self.end(stack)?;
        for objection in objections(&stopped) {
            cell.assessment.add(Verdict::Suspect, objection);
        }
        if let Some(counted) = stopped.counted {
            counted::compare(&mut cell, counted, &warm_up, bout, self.spec);
        }
        Ok(cell)
    }

    /// Stops all of it. What ran at an agent that is lost has ended, and its cell says so.
    pub(super) fn end(&self, stack: Stack) -> Result<StoppedStack, BattleError> {
        match stack.stop() {
            Err(_) if self.host.lost().is_some() => Ok(StoppedStack {
                killed: Vec::new(),
                counted: None,
            }),
            stopped => stopped.map_err(BattleError::Output),
        }
    }

    /// Where the files of its processes go.
    pub(super) fn folder(&self, bout: &Bout) -> PathBuf {
        self.around.folder.join("cells").join(bout.file_name())
    }

    /// Generators of others.
    pub(super) fn clients(&self) -> &[Contestant] {
        &self.spec.clients
    }

    pub(super) fn rations(&self) -> &Rations {
        &self.rations
    }

    pub(super) fn around(&self) -> &Surroundings {
        &self.around
    }

    /// Runs something where the load runs, on the generator's processors.
    pub(super) fn at_the_clients_end<T: Send>(
        &self,
        run: impl FnOnce(&[usize]) -> Result<T, String> + Send,
    ) -> Result<T, String> {
        let cpus = &self.cores.generator;
        let unreachable = |error| format!("the link cannot be used: {error}");
        let ran = self.path.link.in_client(|| run(cpus));
        ran.map_err(unreachable)?
    }

    /// Whether the host of the contestants is there no more.
    pub(super) fn is_lost(&self) -> bool {
        self.host.lost().is_some()
    }

    /// Whether somebody asked to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A load that does not count: what speaks against it speaks against the measured one, too.
    pub(super) fn warm_up(&self, bout: &Bout, stack: &Stack) -> WarmUp {
        let Some(warm_up) = self.spec.scenario.warm_up else {
            return WarmUp::None;
        };
        let scenario = shortened(self.settings(bout, stack), warm_up).ok();
        let outcome = scenario.and_then(|scenario| self.send(&scenario, None).ok());
        outcome.map_or(WarmUp::Unknown, |outcome| WarmUp::of(&outcome.cell))
    }

    /// Puts a load on what runs.
    pub(super) fn measure(
        &self,
        bout: &Bout,
        stack: &mut Stack,
        observer: &mut Watching<'_>,
    ) -> Cell {
        let started = self.rations.client().and_then(|group| {
            let clock = stack.clock()?;
            let scenario = self.prepared(bout, stack, group.as_deref(), clock)?;
            Ok((group, clock, scenario))
        });
        let (group, clock, scenario) = match started {
            Ok(started) => started,
            Err(sentence) => return missing(bout, &sentence),
        };
        let live = self.live_sampler(bout, stack);
        // Those of the start and of loads before are not of this one.
        let _ = stack.measured_pauses();
        let sampler = Samplers::start(stack);
        let mark = self.path.link.mark();
        let told = sampler.told(bout, self.spec);
        let mut shares = Shares::begin(stack);
        let mut phases = Phases::default();
        let mut watch = Watch::new(group);
        let mut on_progress = |progress: &Progress| {
            phases.note(progress.phase, Instant::now());
            shares.note(progress.phase);
            watch.note(progress.phase);
            if self.is_lost() {
                // Nobody is there to answer it, and connections to a host that is cut off stay.
                self.stop.store(true, Ordering::Relaxed);
            }
            let usage = told.iter().filter_map(Told::usage);
            observer(progress, &usage.collect::<Vec<_>>());
        };
        let (outcome, ended, aftermath) =
            self.load(&scenario, stack, sampler.contestant, &mut on_progress);
        let pauses = stack.measured_pauses();
        let live = live.map(LiveSampler::stop);
        let backends = sampler.backends.map(Watcher::stop);
        let carried = self.path.link.stats_since(&mark);
        let mut cell = match outcome {
            Ok(outcome) => outcome.cell,
            Err(error) => missing(bout, &error.to_string()),
        };
        if let (Some(before), Some(plan)) = (clock, &self.spec.scenario.agent) {
            clocks::settle(&mut cell, before, stack.clock(), plan.one_way_bound);
        }
        watch.add_to(&mut cell);
        let died = aftermath.objection.or_else(|| stack.death(&cell));
        let seen = Seen {
            contestant: aftermath.series,
            backends,
            phases,
            ended,
        };
        self.add(&mut cell, bout, stack, &seen, died);
        self.write_samples(bout, &seen);
        if let Some(pauses) = pauses {
            pauses.add_to(&mut cell, phases.origin(ended));
        }
        if let Some(live) = live {
            counted::add_live(&mut cell, &live, phases.origin(ended));
        }
        if let Some(contest) = &mut cell.contest {
            contest.distribution = shares.end();
        }
        self.add_link(&mut cell, carried.as_ref());
        cell
    }

    /// What the link carried and cost, if there is one.
    fn add_link(&self, cell: &mut Cell, carried: Option<&LinkStats>) {
        if !self.spec.scenario.link.is_plain() {
            let Path { link, idle } = self.path;
            merge::add_link(cell, link, idle.as_ref(), carried);
        }
    }

    /// The load as it is sent to what runs; the error is a sentence.
    fn prepared(
        &self,
        bout: &Bout,
        stack: &Stack,
        group: Option<&CpuGroup>,
        clock: Option<Estimate>,
    ) -> Result<Scenario, String> {
        let settings = self.settings(bout, stack).map(|settings| Settings {
            group: group.map(CpuGroup::thread_file),
            server_clock: clock.map(Estimate::alone),
            ..settings
        });
        let scenario = settings.and_then(Scenario::new);
        scenario.map_err(|error| error.to_string())
    }

    /// Asks servers for their counters, where that tells something.
    fn live_sampler(&self, bout: &Bout, stack: &Stack) -> Option<LiveSampler> {
        let pages = match counted::is_asked(bout, self.spec) {
            true => stack.metrics(),
            false => Vec::new(),
        };
        (!pages.is_empty()).then(|| LiveSampler::start(pages, self.around.at.clone()))
    }

    /// Leaves all that was seen in the cell's folder; of a search what the last try gave.
    fn write_samples(&self, bout: &Bout, seen: &Seen) {
        let origin = seen.phases.origin(seen.ended);
        let folder = self.folder(bout);
        seen.contestant.write(&folder, "samples.json", origin);
        if let Some(series) = &seen.backends {
            series.write(&folder, "samples-backends.json", origin);
        }
    }

    /// Runs the load at the clients' end of the link.
    fn send(
        &self,
        scenario: &Scenario,
        on_progress: Option<&mut (dyn FnMut(&Progress) + Send)>,
    ) -> Result<Outcome, LoadError> {
        let stop = Arc::clone(self.stop);
        let run = || {
            let on_progress = on_progress.map(|it| it as &mut dyn FnMut(&Progress));
            moonwire_load::run(scenario, &mut Control { stop, on_progress })
        };
        let unreachable = |error| LoadError::System(format!("the link cannot be used: {error}"));
        self.path.link.in_client(run).map_err(unreachable)?
    }

    /// Runs the load, and looks at the contestant meanwhile; kills it if the scenario says so.
    fn load(
        &self,
        scenario: &Scenario,
        stack: &mut Stack,
        sampler: Watcher,
        on_progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> (Result<Outcome, LoadError>, Instant, Aftermath) {
        let Some(fault) = self.spec.scenario.fault else {
            let outcome = self.send(scenario, Some(on_progress));
            let ended = Instant::now();
            let aftermath = Aftermath {
                series: sampler.stop(),
                objection: None,
            };
            return (outcome, ended, aftermath);
        };
        std::thread::scope(|scope| {
            let (news, load) = mpsc::channel();
            let watcher = scope.spawn(move || inflict(fault, stack, sampler, &load));
            let mut is_told = false;
            let mut tell = |progress: &Progress| {
                if progress.phase >= Phase::Sending && !std::mem::replace(&mut is_told, true) {
                    // It listens to the end of the run.
                    let _ = news.send(());
                }
                on_progress(progress);
            };
            let outcome = self.send(scenario, Some(&mut tell));
            let ended = Instant::now();
            drop(news);
            let aftermath = watcher.join().expect("it does nothing that panics");
            (outcome, ended, aftermath)
        })
    }

    pub(super) fn start(&self, bout: &Bout, folder: PathBuf) -> Result<Stack, String> {
        match self.host {
            Host::Here => self
                .start_here(bout, folder)
                .map(|stack| Stack::Here(Box::new(stack))),
            Host::There(there) => self.start_there(bout, there).map(Stack::There),
        }
    }

    fn start_there(&self, bout: &Bout, there: &There) -> Result<RemoteStack, String> {
        let scenario = &self.spec.scenario;
        let is_proxy = bout.contestant.kind() == Kind::Proxy;
        let name = bout.contestant.name();
        let lineup = Lineup {
            backends: if is_proxy { scenario.backends } else { 1 },
            backend_workers: match is_proxy {
                true => scenario.backend_workers,
                false => scenario.workers,
            },
            backend: match is_proxy {
                true => self.spec.backend.name(),
                false => name.clone(),
            },
            proxy: is_proxy.then_some(name),
            proxy_workers: scenario.workers,
            tls: bout.tls,
            is_limited: !bout.is_ceiling(),
        };
        let started = RemoteStack::start(&there.agent, lineup);
        started.map_err(|error| error.to_string())
    }

    fn start_here(&self, bout: &Bout, folder: PathBuf) -> Result<RunningStack, String> {
        let scenario = &self.spec.scenario;
        let is_proxy = bout.contestant.kind() == Kind::Proxy;
        // What the generator does at most is no matter of a limit on the servers.
        let server_group = match bout.is_ceiling() {
            true => None,
            false => self.rations.server()?,
        };
        let (backend, proxy) = match is_proxy {
            true => (&self.spec.backend, Some(&bout.contestant)),
            false => (&bout.contestant, None),
        };
        let spec = StackSpec {
            backend,
            backends: if is_proxy { scenario.backends } else { 1 },
            backend_workers: match is_proxy {
                true => scenario.backend_workers,
                false => scenario.workers,
            },
            backend_cpus: &self.cores.server,
            backend_group: server_group,
            proxy,
            proxy_workers: scenario.workers,
            proxy_cpus: &self.cores.server,
            proxy_group: match is_proxy && bout.contestant.has_process() {
                true => self.rations.proxy()?,
                false => None,
            },
            tls: bout.tls,
        };
        RunningStack::start(&spec, &self.around, &folder).map_err(|error| error.to_string())
    }

    /// The load, with everything that is of this machine.
    fn settings(&self, bout: &Bout, stack: &Stack) -> Result<Settings, ScenarioError> {
        let urls = match bout.load.service {
            Service::Echo => stack.urls(),
            Service::Amplify => stack.amplify_urls(),
            Service::Broadcast => stack.broadcast_urls(),
        };
        let targets: Result<Vec<Target>, _> = urls.iter().map(|url| Target::parse(url)).collect();
        let mut settings = bout.load.settings.clone();
        if let Workload::Amplify { time_unit, .. } = &mut settings.workload {
            let server = match bout.contestant.kind() {
                Kind::Proxy => &self.spec.backend,
                Kind::Server | Kind::Client => &bout.contestant,
            };
            *time_unit = server.amplify_time_unit();
        }
        settings.targets = targets?;
        // The connections of a cell are those of all servers together.
        let targets = u32::try_from(settings.targets.len()).unwrap_or(1).max(1);
        settings.connections = (settings.connections / targets).max(1);
        let threads = u32::try_from(self.cores.generator.len()).unwrap_or(1);
        settings.threads = bout.load.threads.unwrap_or_else(|| threads.max(1));
        settings.pin.clone_from(&self.cores.generator);
        settings.real_time = !settings.pin.is_empty() && leaves_time(&settings);
        settings.cacert = bout.tls.then(|| self.around.certificate.clone());
        settings.same_host = matches!(self.host, Host::Here);
        settings.peer_fails = self.spec.scenario.fault.is_some();
        settings.seed = self.spec.seed.wrapping_add(bout.round);
        settings.link_delay = self.path.link.stand_in_delay();
        Ok(settings)
    }

    /// Puts what was seen into the cell, and judges whose figures they are.
    fn add(&self, cell: &mut Cell, bout: &Bout, stack: &Stack, seen: &Seen, died: Option<String>) {
        cell.parameters = bout.load.parameters.clone();
        cell.contest = Some(bout.contest());
        let cores = core_list(&self.cores.server);
        let mut described = Server {
            name: bout.contestant.name(),
            urls: stack.urls().to_vec(),
            cores: cores.clone(),
            cpu_limit: stack.cpu_limit(Role::Measured),
            died,
            ..Server::default()
        };
        if !bout.contestant.has_process() {
            described.name = format!("{} (control)", self.spec.backend.name());
        }
        merge::add_server(cell, described, &seen.contestant, &seen.phases, seen.ended);
        if let Some(series) = &seen.backends {
            let mut backend = Server {
                name: self.spec.backend.name(),
                cores,
                cpu_limit: stack.cpu_limit(Role::Backends),
                ..Server::default()
            };
            let messages = cell.messages.sent;
            merge::fill_server(&mut backend, messages, series, &seen.phases, seen.ended);
            cell.backends = Some(backend);
        }
        cell.generator.cores = core_list(&self.cores.generator);
        self.weigh_foreign_load(cell, seen);
        let thresholds = self.spec.scenario.thresholds.iter();
        cell.thresholds = thresholds.map(|slo| slo.evaluate(cell)).collect();
        let objection = rationed(cell).or_else(|| self.used(cell).objection());
        if let (Some(contest), Some(objection)) = (&mut cell.contest, objection) {
            contest.limit = Some(objection);
        }
    }

    /// Says it where others had the contestant's processors.
    fn weigh_foreign_load(&self, cell: &mut Cell, seen: &Seen) {
        let Some((from, to)) = seen.phases.sending(seen.ended) else {
            return;
        };
        let generator_apart = match self.host {
            Host::Here => self.cores.generator_apart(cell),
            // Who looks there has no generator.
            Host::There(_) => 0.0,
        };
        let site = foreign_load::Site {
            cpus: &self.cores.server,
            roles: [&seen.contestant]
                .into_iter()
                .chain(&seen.backends)
                .collect(),
            generator_apart,
        };
        foreign_load::weigh(cell, &site, from, to);
    }

    /// Marks a cell that came near what the generator does at most.
    pub(super) fn hold_to(&self, ceilings: &[Ceiling], cell: &mut Cell) {
        limit::hold_to(ceilings, cell, &self.used(cell));
    }

    fn used(&self, cell: &Cell) -> Use {
        let per_second = |cpu_s: Option<f64>| match cell.rate.duration_s {
            duration_s if duration_s > 0.0 => cpu_s.unwrap_or(0.0) / duration_s,
            _ => 0.0,
        };
        let cpu_s = |server: Option<&Server>| server.and_then(|server| server.cpu_s);
        Use {
            generator: per_second(cell.generator.cpu_s),
            generator_threads: cell.generator.threads as f64,
            contestant: per_second(cpu_s(cell.server.as_ref())),
            backends: per_second(cpu_s(cell.backends.as_ref())),
            processors: self.host.processors(&self.cores) as f64,
        }
    }
}

/// What is to be said of those that did not end by themselves.
pub(super) fn objections(stopped: &StoppedStack) -> impl Iterator<Item = String> + '_ {
    let objection = |name| format!("{name} did not end when it was asked to and was killed");
    stopped.killed.iter().map(objection)
}

/// Sees where a cell stands.
pub(super) type Watching<'a> = dyn FnMut(&Progress, &[Usage]) + Send + 'a;

/// A look at what is measured, and one at the servers behind a proxy.
struct Samplers {
    contestant: Watcher,
    backends: Option<Watcher>,
}

impl Samplers {
    fn start(stack: &Stack) -> Self {
        let backends = stack.has_proxy().then(|| stack.watch(Role::Backends));
        Self {
            contestant: stack.watch(Role::Measured),
            backends,
        }
    }

    /// Those that go on, with their names.
    fn told(&self, bout: &Bout, spec: &BattleSpec) -> Vec<Told> {
        let contestant = self.contestant.told(bout.contestant.name());
        let backends = self.backends.as_ref();
        let backends = backends.map(|it| it.told(spec.backend.name()));
        std::iter::once(contestant).chain(backends).collect()
    }
}

/// Whether the generator pauses by itself: clients that send as soon as they have their reply may
/// keep it busy, and then it would be stopped for the sake of those that wait behind it.
fn leaves_time(settings: &Settings) -> bool {
    let has_pauses = settings.think.is_some() || settings.messages_per_connection.is_some();
    match settings.pacing {
        Pacing::Closed { .. } => has_pauses,
        Pacing::Open { .. } | Pacing::Batches { .. } | Pacing::Stages { .. } | Pacing::Hold => true,
    }
}

/// The load for a shorter time: the same connections and messages as long as it lasts.
fn shortened(
    settings: Result<Settings, ScenarioError>,
    warm_up: Duration,
) -> Result<Scenario, ScenarioError> {
    let mut settings = settings?;
    settings.stop = Stop::After(warm_up);
    settings.slo.clear();
    match settings.pacing {
        Pacing::Batches { .. } => settings.pacing = Pacing::Closed { in_flight: 1 },
        Pacing::Stages {
            ref stages,
            arrival,
            in_flight,
        } => {
            settings.pacing = Pacing::Open {
                rate: stages.mean_per_s(),
                arrival,
                in_flight,
            };
        }
        Pacing::Closed { .. } | Pacing::Open { .. } | Pacing::Hold => {}
    }
    Scenario::new(settings)
}

/// A cell in which nothing was measured.
pub(super) fn missing(bout: &Bout, reason: &str) -> Cell {
    let mut cell = Cell {
        parameters: bout.load.parameters.clone(),
        contest: Some(bout.contest()),
        ended_early: Some(reason.to_owned()),
        ..Cell::default()
    };
    cell.assessment.add(Verdict::Invalid, reason);
    cell
}

pub(crate) const SAMPLING_PERIOD: Duration = Duration::from_millis(100);
