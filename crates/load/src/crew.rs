//! The worker threads of a run, and the one that watches them.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use moonwire_net::{
    Driver, RealTime, SystemDriver, Time, WakeEvent, Waker, leave_descriptor_table,
    prefer_real_time,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::cpu::MachineCpu;
use crate::desk::Desk;
use crate::latency_step;
use crate::plan::Plan;
use crate::raw::RawFile;
use crate::records::Records;
use crate::run::{Control, LoadError, Phase, Progress};
use crate::schedule::NEVER;
use crate::tally::Tally;
use crate::worker::{Parts, Report, Shared, Stage, Worker};

/// Threads that run, and what they tell.
pub(crate) struct Crew {
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    reports: Receiver<Report>,
    hands: Vec<Hand>,
    /// Empty tallies.
    free: VecDeque<Box<Tally>>,
    records: Records,
    settled: usize,
    machine: MachineCpu,
    progress_ns: u64,
    phase: Phase,
    /// A thread had ended without a result when that was last looked for.
    missing: bool,
}

/// One worker, seen from outside.
struct Hand {
    thread: JoinHandle<()>,
    waker: Waker,
    spares: Sender<Box<Tally>>,
    stage: Stage,
}

impl Crew {
    /// Starts a thread per worker.
    pub(crate) fn hire(plan: &Arc<Plan>, raw: Option<&RawFile>) -> Result<Self, LoadError> {
        let workers = plan.scenario.workers();
        let born_ns = Time::monotonic().as_nanos();
        let shared = Arc::new(Shared {
            start_ns: AtomicU64::new(if plan.scenario.barrier {
                NEVER
            } else {
                born_ns
            }),
            stop: AtomicBool::new(false),
            handshakes: AtomicUsize::new(plan.scenario.connect_concurrency as usize),
            online: AtomicU64::new(0),
            made: AtomicU64::new(0),
        });
        let (sender, reports) = channel();
        let mut crew = Self {
            plan: Arc::clone(plan),
            shared,
            reports,
            hands: Vec::new(),
            free: (0..workers).map(|_| Box::default()).collect(),
            records: Records::new(workers, born_ns),
            settled: 0,
            machine: MachineCpu::read(),
            progress_ns: born_ns,
            phase: Phase::Connecting,
            missing: false,
        };
        for number in 0..workers {
            let desk = Desk::new(raw.map(RawFile::sink));
            match crew.start(number, workers, desk, sender.clone()) {
                Ok(hand) => crew.hands.push(hand),
                Err(error) => {
                    crew.stop();
                    let sentence = format!("worker {number} cannot be started: {error}");
                    return Err(LoadError::System(sentence));
                }
            }
        }
        Ok(crew)
    }

    fn start(
        &self,
        number: u32,
        workers: u32,
        desk: Desk,
        reports: Sender<Report>,
    ) -> std::io::Result<Hand> {
        let (spares, spare_tallies) = channel();
        // Two, so that a watcher that is late once does not make a second longer.
        for _ in 0..2 {
            let _ = spares.send(Box::default());
        }
        let (plan, shared) = (Arc::clone(&self.plan), Arc::clone(&self.shared));
        let born_ns = self.records.born_ns;
        let (ready, made) = channel();
        // Made here, so that both threads know it whatever table of descriptors they have.
        let event = WakeEvent::new()?;
        let thread = thread::Builder::new()
            .name(format!("moonwire-load-{number}"))
            .spawn(move || {
                pin(&plan.scenario.pin, number);
                // A control group that rations takes no such threads.
                if plan.scenario.real_time && plan.scenario.group.is_none() {
                    // Without it the thread is as any other.
                    prefer_real_time(RealTime::Generator);
                }
                // The driver is made here because it belongs to its thread.
                let made = join(plan.scenario.group.as_deref()).and_then(|()| {
                    if plan.has_own_tables {
                        leave_descriptor_table()?;
                    }
                    SystemDriver::with_event(plan.scenario.driver, &event)
                });
                let driver = match made {
                    Ok(driver) => driver,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let _ = ready.send(Ok(driver.waker()));
                drop(ready);
                let spares = spare_tallies;
                Worker::new(Parts {
                    driver,
                    plan,
                    shared,
                    reports,
                    spares,
                    number,
                    workers,
                    desk,
                    born_ns,
                })
                .run();
            })?;
        let waker = made.recv().map_err(std::io::Error::other)??;
        Ok(Hand {
            thread,
            waker,
            spares,
            stage: Stage::Waiting,
        })
    }

    /// Watches the workers until all have finished; gives what they recorded.
    pub(crate) fn watch(mut self, control: &mut Control<'_>) -> Result<Records, LoadError> {
        if !self.plan.scenario.barrier {
            self.records.start_ns = self.records.born_ns;
        }
        while self.records.finished() < self.hands.len() {
            match self.reports.recv_timeout(WATCH_INTERVAL) {
                Ok(Report::Broken { sentence }) => return Err(self.give_up(sentence)),
                Ok(report) => self.take(report, control),
                Err(RecvTimeoutError::Timeout) if self.is_someone_missing() => {
                    return Err(self.give_up("a worker ended without a result".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.give_up("a worker ended without a result".to_owned()));
                }
            }
            if control.stop.load(Ordering::Acquire) && !self.records.interrupted {
                self.records.interrupted = true;
                self.stop();
            }
            self.progress(control, false);
        }
        for hand in self.hands.drain(..) {
            // Its result is here already.
            let _ = hand.thread.join();
        }
        self.records.finish(Time::monotonic().as_nanos());
        Ok(self.records)
    }

    fn take(&mut self, report: Report, control: &mut Control<'_>) {
        match report {
            Report::Settled { online } => self.settle(online),
            Report::Snapshot {
                worker,
                seconds,
                tally,
                run_ns,
            } => {
                let spare = self.free.pop_front();
                let empty = self
                    .records
                    .take_snapshot(worker, &seconds, tally, run_ns, spare);
                let _ = self.hands[worker as usize].spares.send(empty);
                let mut empty = self.records.close_rows();
                self.free.append(&mut empty);
            }
            Report::Entered { worker, stage } => {
                self.hands[worker as usize].stage = stage;
                self.enter_phase(control);
            }
            Report::Finished { worker, result } => {
                self.hands[worker as usize].stage = Stage::Done;
                self.records.take_finish(worker, *result);
                let mut empty = self.records.close_rows();
                self.free.append(&mut empty);
            }
            Report::Broken { .. } => {}
        }
    }

    /// One more worker has tried all of its connections; after the last one sending starts.
    fn settle(&mut self, online: u64) {
        self.settled += 1;
        self.records.online += online;
        if self.settled < self.hands.len() {
            return;
        }
        let now_ns = Time::monotonic().as_nanos();
        let wanted = u64::from(self.plan.scenario.connections_total());
        if self.records.online == wanted {
            self.records.all_online_ns = Some(now_ns - self.records.born_ns);
        }
        if !self.plan.scenario.barrier {
            return;
        }
        // Some may have been lost since their worker told.
        self.records.online = self.shared.online.load(Ordering::Relaxed);
        if self.records.online == 0 {
            let made = self.shared.made.load(Ordering::Relaxed);
            self.records.died_ns = (made > 0).then_some(now_ns);
            self.stop();
            return;
        }
        self.records.start_ns = now_ns + START_LEAD_NS + wanted * JOIN_NS;
        self.shared
            .start_ns
            .store(self.records.start_ns, Ordering::Release);
        self.wake();
    }

    /// The run is where its slowest worker is.
    fn enter_phase(&mut self, control: &mut Control<'_>) {
        let slowest = self
            .hands
            .iter()
            .map(|hand| hand.stage)
            .min()
            .unwrap_or(Stage::Done);
        let phase = match slowest {
            Stage::Waiting => Phase::Connecting,
            Stage::Sending => Phase::Sending,
            Stage::Draining => Phase::Draining,
            Stage::Closing | Stage::Done => Phase::Closing,
        };
        if phase == self.phase {
            return;
        }
        let was_sending = self.phase <= Phase::Sending && self.records.start_ns > 0;
        self.phase = phase;
        if phase == Phase::Sending {
            self.machine = MachineCpu::read();
        } else if was_sending {
            let now = MachineCpu::read();
            let elapsed_ns = Time::monotonic()
                .as_nanos()
                .saturating_sub(self.records.start_ns);
            if !self.plan.scenario.idle_poll {
                self.records.pressure = now.pressure_since(self.machine, elapsed_ns);
            }
            self.records.steal = now.steal_since(self.machine);
        }
        self.progress(control, true);
    }

    fn progress(&mut self, control: &mut Control<'_>, now: bool) {
        let now_ns = Time::monotonic().as_nanos();
        let connected = self.shared.online.load(Ordering::Relaxed);
        let made = self.shared.made.load(Ordering::Relaxed);
        let Some(on_progress) = &mut control.on_progress else {
            return;
        };
        // Nothing is left to be said of connections that were closed before this was heard.
        if self.phase == Phase::Closing && connected == 0 {
            return;
        }
        if !now && now_ns - self.progress_ns < PROGRESS_NS {
            return;
        }
        self.progress_ns = now_ns;
        let records = &self.records;
        let since = |from_ns: u64| match from_ns {
            0 => Duration::ZERO,
            from_ns => Duration::from_nanos(now_ns.saturating_sub(from_ns)),
        };
        let nanoseconds = |microseconds: f64| (microseconds * 1000.0) as u64;
        let last = records
            .intervals
            .last()
            .and_then(|interval| interval.response);
        let counters = &records.totals.counters;
        on_progress(&Progress {
            phase: self.phase,
            elapsed: since(records.born_ns),
            sending: since(records.start_ns),
            sending_planned: self.plan.schedule.planned_ns().map(Duration::from_nanos),
            connected,
            made: self.plan.is_short_lived().then_some(made),
            connections: u64::from(self.plan.scenario.connections_total()),
            sent: counters.sent,
            planned: self.plan.scenario.messages_planned(),
            received: counters.received,
            errors: records.totals.errors.values().sum(),
            response_ns: last.map(|r| (nanoseconds(r.p50_us), nanoseconds(r.p99_us))),
            response_steps: latency_step::steps(&records.totals.response),
        });
    }

    /// True when a thread has ended for a while and its result is not here: it has panicked.
    fn is_someone_missing(&mut self) -> bool {
        let gone = self
            .hands
            .iter()
            .any(|hand| hand.stage != Stage::Done && hand.thread.is_finished());
        // Its last words may have come between the look into the queue and this one.
        std::mem::replace(&mut self.missing, gone) && gone
    }

    fn give_up(&self, sentence: String) -> LoadError {
        self.stop();
        LoadError::System(sentence)
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        for hand in &self.hands {
            hand.waker.wake();
        }
    }
}

/// Puts this thread into a control group: whoever writes `0` is meant.
fn join(group: Option<&Path>) -> std::io::Result<()> {
    match group {
        Some(file) => fs::write(file, "0").map_err(|error| {
            let place = file.display();
            std::io::Error::new(error.kind(), format!("the control group {place}: {error}"))
        }),
        None => Ok(()),
    }
}

/// Pins the calling thread, if the scenario says where.
fn pin(processors: &[usize], number: u32) {
    if processors.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    set.set(processors[number as usize % processors.len()]);
    // A processor that does not exist leaves the thread where it may run.
    let _ = sched_setaffinity(None, &set);
}

/// How often a stop from outside is looked for.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
const PROGRESS_NS: u64 = 1_000_000_000;
/// From the last handshake to the common start: every worker is awake and waits for it by then.
const START_LEAD_NS: u64 = 20_000_000;
/// What the first message of one connection takes to be put into its place, at most.
const JOIN_NS: u64 = 1000;
