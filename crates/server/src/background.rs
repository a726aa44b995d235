//! Standalone services: each instance on a thread of its own, from its start to the end of `run`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use moonwire_lua::{Broadcasts, LoadOptions, STACK_BYTES, ScriptError, ServiceSource, Standalone};
use tracing::info;

use crate::config::StandaloneService;
use crate::error::ServerError;
use crate::shared::Shared;
use crate::worker::{Broadcast, log_failure};

/// The threads of all standalone instances.
#[derive(Debug, Default)]
pub(crate) struct Background {
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts those that are late, or the others, one service after the other. When this returns
    /// every `init` has returned, and `run` runs.
    pub(crate) fn start(&mut self, shared: &Arc<Shared>, late: bool) -> Result<(), ServerError> {
        for (service, definition) in shared.standalone.iter().enumerate() {
            if definition.is_late == late {
                self.start_service(shared, service)?;
            }
        }
        Ok(())
    }

    fn start_service(&mut self, shared: &Arc<Shared>, service: usize) -> Result<(), ServerError> {
        let definition = &shared.standalone[service];
        let (ready, readiness) = channel();
        for _ in 0..definition.instances {
            let member = Member {
                shared: Arc::clone(shared),
                service,
                number: self.threads.len() as u64 + 1,
                ready: ready.clone(),
            };
            let thread = Builder::new()
                .stack_size(STACK_BYTES)
                .name(definition.name.chars().take(THREAD_NAME_MAX).collect())
                .spawn(move || member.live());
            self.threads.push(thread.map_err(ServerError::Worker)?);
        }
        drop(ready);
        let mut is_broken = false;
        for result in readiness {
            if let Err(failure) = result
                && !std::mem::replace(&mut is_broken, true)
            {
                shared.broke(failure)?;
            }
        }
        Ok(())
    }

    /// Waits until all have ended, or that long.
    pub(crate) fn join(self, patience: Option<Duration>) {
        let until = patience.map(|patience| Instant::now() + patience);
        for thread in self.threads {
            while let Some(until) = until
                && !thread.is_finished()
            {
                if Instant::now() >= until {
                    return;
                }
                thread::sleep(LOOK_AGAIN);
            }
            // Its panic has been printed, and it served nobody.
            let _ = thread.join();
        }
    }
}

/// What the thread of an instance is born with.
struct Member {
    shared: Arc<Shared>,
    /// Its index among the standalone services.
    service: usize,
    /// Which instance of the server it is.
    number: u64,
    /// Where it says that it is ready, or why it cannot be.
    ready: Sender<Result<(), ScriptError>>,
}

impl Member {
    fn live(self) {
        let Self {
            shared,
            service,
            number,
            ready,
        } = self;
        let running = &shared.standalone_running[service];
        running.fetch_add(1, Ordering::AcqRel);
        let definition = &shared.standalone[service];
        let announcer = Announcer {
            shared: Arc::clone(&shared),
        };
        let options = LoadOptions {
            broker: Arc::clone(&shared.broker),
            stop: shared.stop.clone(),
            connector: Some(shared.outgoing.clone()),
            ..options(definition)
        };
        let loaded = Standalone::load(&source(definition), &options, number, Box::new(announcer));
        match loaded {
            Ok(mut instance) => live(&mut instance, ready),
            Err(error) => drop(ready.send(Err(error))),
        }
        running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A failure of `init` or `run` ends the instance, and nothing else.
fn live(instance: &mut Standalone, ready: Sender<Result<(), ScriptError>>) {
    let initialised = instance.init();
    // It fails only if another could not be loaded; then the order to stop has been given.
    let _ = ready.send(Ok(()));
    drop(ready);
    match initialised.and_then(|()| instance.run()) {
        Ok(()) => info!(service = instance.name(), "run has returned"),
        Err(failure) => log_failure(&failure, None),
    }
}

/// Hands what a standalone service broadcasts to every worker.
struct Announcer {
    shared: Arc<Shared>,
}

impl Broadcasts for Announcer {
    fn broadcast(&self, channel: u64, payload: Vec<u8>) -> Result<(), String> {
        let payload: Arc<[u8]> = payload.into();
        for mailbox in &self.shared.broadcasts {
            let broadcast = Broadcast {
                channel,
                payload: Arc::clone(&payload),
            };
            let has_place = mailbox.reserve_waiting(|| self.shared.stop.is_set());
            if !has_place || mailbox.post(broadcast, payload.len()).is_err() {
                return Err("the server stops".to_owned());
            }
        }
        Ok(())
    }
}

/// How much each instance may use.
pub(crate) fn options(service: &StandaloneService) -> LoadOptions {
    LoadOptions {
        memory_bytes_max: service.memory_bytes_max,
        callback_timeout: service.callback_timeout,
        ..LoadOptions::default()
    }
}

/// Where the Lua room finds it.
pub(crate) fn source(service: &StandaloneService) -> ServiceSource {
    ServiceSource {
        config: service.config.clone(),
        preload: service.preload.clone(),
        sandbox: service.sandbox,
        ..ServiceSource::new(&*service.name, &*service.folder)
    }
}

/// What is broadcast while a configuration is only checked.
pub(crate) struct Nowhere;

impl Broadcasts for Nowhere {
    fn broadcast(&self, _: u64, _: Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}

/// What Linux shows of the name of a thread.
const THREAD_NAME_MAX: usize = 15;

/// How often threads that may not end are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
