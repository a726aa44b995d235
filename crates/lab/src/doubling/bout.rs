//! One contestant's turn: its server is started, loaded with every size, watched and stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonwire_load::{Control, Progress};
use moonwire_report::{Cell, Server, Verdict};

use super::plan::{self, Bout, Generator, Mode, Step};
use super::{DoublingError, DoublingEvent, DoublingObserver, Place};
use crate::bench::merge::{self, Phases};
use crate::bench::plan::{Cores, core_list};
use crate::cgroup::CpuGroup;
use crate::contestant::{RunningContestant, StartError, Surroundings, death_deadline};
use crate::foreign_load;
use crate::rations::{Rations, Watch};
use crate::sampling::Sampler;

/// What all turns share.
pub(super) struct Site<'a> {
    pub(super) mode: Mode,
    pub(super) seed: u64,
    pub(super) cores: Cores,
    pub(super) rations: Rations,
    pub(super) around: Surroundings,
    pub(super) stop: &'a Arc<AtomicBool>,
}

impl Site<'_> {
    /// Measures every size. A server that does not start or dies makes its cells INVALID; only
    /// where nothing was measured before does it end the run.
    pub(super) fn measure(
        &self,
        bout: &Bout,
        steps: &[Step],
        place: &mut Place,
        cells: &mut Vec<Cell>,
        observer: &mut DoublingObserver<'_>,
    ) -> Result<(), DoublingError> {
        let server = match self.start(bout) {
            Ok(server) => server,
            Err(StartError::Files(sentence)) => return Err(DoublingError::Output(sentence)),
            Err(StartError::Process(error)) if cells.is_empty() => {
                return Err(DoublingError::Server(bout.contestant.name(), error));
            }
            Err(StartError::Process(error)) => {
                for step in steps {
                    cells.push(self.missing(bout, *step, &error.to_string()));
                }
                return Ok(());
            }
        };
        let (name, before) = (bout.name(), cells.len());
        observer(&DoublingEvent::BoutStarted { name: &name });
        for step in steps {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            place.number += 1;
            place.size = step.size;
            let cell = self.cell(bout, *step, &server, place, observer)?;
            observer(&DoublingEvent::CellEnded { place, cell: &cell });
            cells.push(cell);
        }
        stop(bout, server, &mut cells[before..])
    }

    /// Where the files of a turn go.
    fn folder(&self, bout: &Bout) -> PathBuf {
        let scheme = if bout.tls { "wss" } else { "ws" };
        let (contestant, clients) = (bout.contestant.file_name(), bout.connections);
        let name = format!("{contestant}_{scheme}_c{clients}_round{}", bout.round);
        self.around.folder.join("cells").join(name)
    }

    /// Starts the contestant with its files in a folder of this turn.
    fn start(&self, bout: &Bout) -> Result<RunningContestant, StartError> {
        let folder = self.folder(bout);
        let cpus = &self.cores.server;
        let group = self.rations.server().map_err(StartError::Files)?;
        RunningContestant::start(
            &bout.contestant,
            bout.tls,
            &self.around,
            folder,
            cpus,
            group,
        )
    }

    /// Loads the server with the messages of one size.
    fn cell(
        &self,
        bout: &Bout,
        step: Step,
        server: &RunningContestant,
        place: &Place,
        observer: &mut DoublingObserver<'_>,
    ) -> Result<Cell, DoublingError> {
        let group = match self.rations.client() {
            Ok(group) => group,
            Err(sentence) => return Ok(self.missing(bout, step, &sentence)),
        };
        let generator = Generator {
            group: group.as_deref().map(CpuGroup::thread_file),
            connections: bout.connections,
            cpus: self.cores.generator.clone(),
            authority: bout.tls.then(|| self.around.certificate.clone()),
            seed: self.seed,
        };
        let scenario = plan::scenario(self.mode, step, server.url(), &generator)
            .map_err(DoublingError::Scenario)?;
        let rationed = server.group().cloned();
        let cpu_limit = rationed.as_deref().map(CpuGroup::processors);
        let sampler = Sampler::start_in(&server.pids(), rationed, SAMPLING_PERIOD);
        let mut phases = Phases::default();
        let mut watch = Watch::new(group);
        let mut on_progress = |progress: &Progress| {
            phases.note(progress.phase, Instant::now());
            watch.note(progress.phase);
            observer(&DoublingEvent::Progress { place, progress });
        };
        let mut control = Control {
            stop: Arc::clone(self.stop),
            on_progress: Some(&mut on_progress),
        };
        let outcome = moonwire_load::run(&scenario, &mut control);
        let ended = Instant::now();
        let series = sampler.stop();
        let files = self.folder(bout).join(format!("size{}", step.size));
        series.write(&files, "samples.json", phases.origin(ended));
        let mut cell = match outcome {
            Ok(outcome) => outcome.cell,
            Err(error) => return Ok(self.missing(bout, step, &error.to_string())),
        };
        watch.add_to(&mut cell);
        cell.contest = Some(bout.contest(self.mode, step));
        let description = Server {
            name: bout.contestant.name(),
            urls: vec![server.url().to_owned()],
            cores: core_list(&self.cores.server),
            cpu_limit,
            died: server.death(death_deadline(&cell)),
            ..Server::default()
        };
        merge::add_server(&mut cell, description, &series, &phases, ended);
        cell.generator.cores = core_list(&self.cores.generator);
        if let Some((from, to)) = phases.sending(ended) {
            let site = foreign_load::Site {
                cpus: &self.cores.server,
                roles: vec![&series],
                generator_apart: self.cores.generator_apart(&cell),
            };
            foreign_load::weigh(&mut cell, &site, from, to);
        }
        Ok(cell)
    }

    /// A cell in which nothing was measured.
    fn missing(&self, bout: &Bout, step: Step, reason: &str) -> Cell {
        let mut cell = Cell {
            contest: Some(bout.contest(self.mode, step)),
            ended_early: Some(reason.to_owned()),
            ..Cell::default()
        };
        cell.parameters.clients = u64::from(bout.connections);
        cell.parameters.message_bytes = step.size as u64;
        cell.assessment.add(Verdict::Invalid, reason);
        cell
    }
}

/// Its last cell says if it had to be killed.
fn stop(bout: &Bout, server: RunningContestant, cells: &mut [Cell]) -> Result<(), DoublingError> {
    let stopped = server.stop().map_err(DoublingError::Output)?;
    if let Some(cell) = cells.last_mut().filter(|_| stopped.is_killed) {
        let name = bout.contestant.name();
        let reason = format!("{name} did not end when it was asked to and was killed");
        cell.assessment.add(Verdict::Suspect, reason);
    }
    Ok(())
}

const SAMPLING_PERIOD: Duration = Duration::from_millis(100);
