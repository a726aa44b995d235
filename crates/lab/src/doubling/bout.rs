//! One contestant's turn: its server is started, loaded with every size, watched and stopped.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moonwire_load::{Control, Progress};
use moonwire_report::{Cell, Server, Verdict};

use super::certificate::save;
use super::plan::{self, Bout, Generator, Mode, Step};
use super::{DoublingError, DoublingEvent, DoublingObserver, Place};
use crate::bench::merge::{self, Phases};
use crate::bench::plan::{Cores, core_list};
use crate::contestant::Surroundings;
use crate::process::{ChildProcess, ProcessError};
use crate::sampling::Sampler;

/// What all turns share.
pub(super) struct Site<'a> {
    pub(super) mode: Mode,
    pub(super) seed: u64,
    pub(super) cores: Cores,
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
        let server = match self.start(bout)? {
            Ok(server) => server,
            Err(error) if cells.is_empty() => {
                return Err(DoublingError::Server(bout.contestant.name(), error));
            }
            Err(error) => {
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
        self.stop_server(bout, &server, &mut cells[before..])
    }

    /// Starts the contestant with its files in a folder of this turn.
    fn start(&self, bout: &Bout) -> Result<Result<Started, ProcessError>, DoublingError> {
        let scheme = if bout.tls { "wss" } else { "ws" };
        let (contestant, clients) = (bout.contestant.file_name(), bout.connections);
        let name = format!("{contestant}_{scheme}_c{clients}_round{}", bout.round);
        let mut around = self.around.clone();
        around.folder = around.folder.join("cells").join(name);
        std::fs::create_dir_all(&around.folder).map_err(|error| {
            let path = around.folder.display();
            DoublingError::Output(format!("{path} cannot be made: {error}"))
        })?;
        around.port = match free_port() {
            Ok(port) => port,
            Err(error) => return Ok(Err(ProcessError::Start(error))),
        };
        for (file, text) in bout.contestant.files(&around) {
            save(&around.folder.join(file), &text)?;
        }
        let spec = bout.contestant.child(bout.tls, &around, &self.cores.server);
        Ok(ChildProcess::start(&spec).map(|process| Started {
            url: bout.contestant.url(bout.tls, &around),
            process,
            around,
        }))
    }

    /// Loads the server with the messages of one size.
    fn cell(
        &self,
        bout: &Bout,
        step: Step,
        server: &Started,
        place: &Place,
        observer: &mut DoublingObserver<'_>,
    ) -> Result<Cell, DoublingError> {
        let generator = Generator {
            connections: bout.connections,
            cpus: self.cores.generator.clone(),
            authority: bout.tls.then(|| self.around.certificate.clone()),
            seed: self.seed,
        };
        let scenario = plan::scenario(self.mode, step, &server.url, &generator)
            .map_err(DoublingError::Scenario)?;
        let sampler = Sampler::start(server.process.pid(), SAMPLING_PERIOD);
        let mut phases = Phases::default();
        let mut on_progress = |progress: &Progress| {
            phases.note(progress.phase, Instant::now());
            observer(&DoublingEvent::Progress { place, progress });
        };
        let mut control = Control {
            stop: Arc::clone(self.stop),
            on_progress: Some(&mut on_progress),
        };
        let outcome = moonwire_load::run(&scenario, &mut control);
        let ended = Instant::now();
        let series = sampler.stop();
        let mut cell = match outcome {
            Ok(outcome) => outcome.cell,
            Err(error) => return Ok(self.missing(bout, step, &error.to_string())),
        };
        cell.contest = Some(bout.contest(self.mode, step));
        let description = Server {
            name: bout.contestant.name(),
            urls: vec![server.url.clone()],
            cores: core_list(&self.cores.server),
            died: server.death(&cell),
            ..Server::default()
        };
        merge::add_server(&mut cell, description, &series, &phases, ended);
        cell.generator.cores = core_list(&self.cores.generator);
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

    fn stop_server(
        &self,
        bout: &Bout,
        server: &Started,
        cells: &mut [Cell],
    ) -> Result<(), DoublingError> {
        let had_ended = server.process.exit().is_some();
        let exit = server.process.stop(STOP_GRACE);
        // Node ends by the signal; a server that had to be killed is another matter.
        let is_killed = exit.signal == Some(SIGKILL);
        if let Some(cell) = cells.last_mut().filter(|_| is_killed && !had_ended) {
            let name = bout.contestant.name();
            let reason = format!("{name} did not end when it was asked to and was killed");
            cell.assessment.add(Verdict::Suspect, reason);
        }
        let said = server.process.output_tail().join("\n") + "\n";
        save(&server.around.folder.join("server.log"), &said)
    }
}

/// A server under load. Dropping it kills it.
struct Started {
    process: ChildProcess,
    url: String,
    around: Surroundings,
}

impl Started {
    /// How the server ended, if it has.
    fn death(&self, cell: &Cell) -> Option<String> {
        // Its end may be seen by the generator a moment before it is seen here.
        let in_trouble = cell.ended_early.is_some() || !cell.errors.is_empty();
        let patience = if in_trouble {
            EXIT_PATIENCE
        } else {
            Duration::ZERO
        };
        let exit = self.process.wait_until(Instant::now() + patience)?;
        let said = self.process.output_tail();
        let last = said
            .last()
            .map_or_else(String::new, |line| format!("; it said: {line}"));
        Some(format!(
            "the server process ended during the run ({exit}){last}"
        ))
    }
}

/// A port nobody listens on.
fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

const SAMPLING_PERIOD: Duration = Duration::from_millis(100);
/// Longer than moonwire's own drain timeout, so that it can end by itself.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// How long the end of a server that seems to have died is waited for.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);
const SIGKILL: i32 = 9;
