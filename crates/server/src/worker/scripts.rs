//! The service instances that live on one worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moonwire_lua::{
    EffectLimits, Effects, Handler, Instance, LoadOptions, Opcode, ScriptError, ServiceSource,
};

use moonwire_proto::Request;

use super::resident::{Greeting, Reaction, Resident};
use super::threaded::Threaded;
use crate::config::{Builtin, Execution, REPLIES_EXPECTED, Service};
use crate::shared::Shared;

/// The instances of one worker, by service.
pub(crate) struct Scripts {
    /// In the order of the configuration; a service may have none here.
    services: Vec<Local>,
}

/// One service's instances on this worker.
struct Local {
    instances: Vec<Seat>,
    /// The instance that takes the next connection. Invariant: below `instances.len()` or 0.
    next: usize,
}

/// Where an instance runs.
enum Seat {
    /// On the worker's own thread.
    Inline(Box<Resident>),
    /// On one of its own.
    Threaded(Threaded),
    /// Nowhere: the worker sends each message back.
    Echo,
}

/// One instance of one service, on the worker that asks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Place {
    /// Index of the service.
    pub(crate) service: u16,
    /// Index of the instance among those on this worker.
    pub(crate) instance: u16,
}

impl Scripts {
    /// Loads and starts the instances that belong to `worker` of `workers`, service by service.
    /// `is_due` waits until the others have started all services before this one, which it may
    /// depend on; false if that will never be.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        worker: usize,
        workers: usize,
        is_due: impl Fn(usize) -> bool,
    ) -> Result<Self, ScriptError> {
        let mut started = Vec::with_capacity(shared.services.len());
        for (index, service) in shared.services.iter().enumerate() {
            if !is_due(index) {
                break;
            }
            let count = (0..service.instances)
                .filter(|i| i % workers == worker)
                .count();
            let instances = match seats(shared, worker, index, count) {
                Ok(instances) => instances,
                Err(failure) => {
                    // Of several workers one says so.
                    if !shared.broken[index].swap(true, Ordering::AcqRel) {
                        shared.broke(failure)?;
                    }
                    Vec::new()
                }
            };
            started.push(Local { instances, next: 0 });
        }
        Ok(Self { services: started })
    }

    /// Whether an instance of `service` is here.
    pub(crate) fn has(&self, service: u16) -> bool {
        let local = self.services.get(usize::from(service));
        local.is_some_and(|local| !local.instances.is_empty())
    }

    /// The instance that takes the next connection of `service`, in turn; None if none is here.
    pub(crate) fn choose(&mut self, service: u16) -> Option<Place> {
        let local = self.services.get_mut(usize::from(service))?;
        let instance = u16::try_from(local.next).ok()?;
        if local.instances.is_empty() {
            return None;
        }
        local.next = (local.next + 1) % local.instances.len();
        Some(Place { service, instance })
    }

    /// Runs `onHandshake`, if the service has it; an error is logged.
    pub(super) fn handshake(
        &mut self,
        place: Place,
        request: &Request,
        peer: SocketAddr,
        effects: &mut Effects,
    ) -> Option<Greeting> {
        match self.seat_mut(place) {
            Some(Seat::Inline(resident)) if resident.has_handshake() => {
                Some(resident.handshake(request, peer, effects))
            }
            Some(Seat::Inline(_) | Seat::Threaded(_) | Seat::Echo) | None => None,
        }
    }

    /// Runs `onMessage`, or has it run; an error is logged, with its traceback.
    pub(crate) fn message(
        &mut self,
        place: Place,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
        effects: &mut Effects,
    ) -> Reaction {
        match self.seat_mut(place) {
            Some(Seat::Inline(resident)) => resident.message(handler, opcode, payload, effects),
            Some(Seat::Threaded(threaded)) => {
                effects.clear();
                threaded.message(handler, opcode, payload)
            }
            Some(Seat::Echo) => Reaction::SendBack,
            None => Reaction::Failed,
        }
    }

    /// Runs `onDisconnect`, or has it run; an error is logged.
    pub(crate) fn disconnect(
        &mut self,
        place: Place,
        handler: Handler,
        effects: &mut Effects,
    ) -> Reaction {
        match self.seat_mut(place) {
            Some(Seat::Inline(resident)) => resident.disconnect(handler, effects),
            Some(Seat::Threaded(threaded)) => {
                effects.clear();
                threaded.disconnect(handler);
                Reaction::Later
            }
            Some(Seat::Echo) => {
                effects.clear();
                Reaction::Continue
            }
            None => Reaction::Failed,
        }
    }

    /// Whether the instance has a mailbox and no place in it.
    pub(crate) fn is_full(&self, place: Place) -> bool {
        matches!(self.seat(place), Some(Seat::Threaded(threaded)) if threaded.is_full())
    }

    /// Whether those who wait for a place may go on.
    pub(crate) fn is_half_empty(&self, place: Place) -> bool {
        match self.seat(place) {
            Some(Seat::Threaded(threaded)) => threaded.is_half_empty(),
            Some(Seat::Inline(_) | Seat::Echo) | None => true,
        }
    }

    /// Runs every `onShutdown`, and waits for threads as long as a worker may take.
    pub(crate) fn shutdown(&mut self, effects: &mut Effects) {
        let mut threads = Vec::new();
        for seat in self.services.iter_mut().flat_map(|l| &mut l.instances) {
            match seat {
                Seat::Inline(resident) => resident.shutdown(effects),
                Seat::Threaded(threaded) => {
                    threaded.begin_shutdown();
                    threads.push(&*threaded);
                }
                Seat::Echo => {}
            }
        }
        // Together: the process ends at a fixed time.
        let until = Instant::now() + END_WAIT;
        threads
            .into_iter()
            .for_each(|thread| thread.await_end(until));
    }

    /// The instance there was replaced, and its connections were given up.
    pub(crate) fn renew(&mut self, place: Place) {
        if let Some(Seat::Threaded(threaded)) = self.seat_mut(place) {
            threaded.renew();
        }
    }

    fn seat(&self, place: Place) -> Option<&Seat> {
        let local = self.services.get(usize::from(place.service))?;
        local.instances.get(usize::from(place.instance))
    }

    fn seat_mut(&mut self, place: Place) -> Option<&mut Seat> {
        let local = self.services.get_mut(usize::from(place.service))?;
        local.instances.get_mut(usize::from(place.instance))
    }
}

/// Loads and starts so many instances.
fn seats(
    shared: &Arc<Shared>,
    worker: usize,
    index: usize,
    count: usize,
) -> Result<Vec<Seat>, ScriptError> {
    let service = &shared.services[index];
    if let Some(Builtin::Echo) = service.builtin {
        return Ok(std::iter::repeat_with(|| Seat::Echo).take(count).collect());
    }
    let seat = |instance| {
        let source = source(service);
        let options = LoadOptions {
            broker: Arc::clone(&shared.broker),
            stop: shared.stop.clone(),
            connector: Some(shared.outgoing.clone()),
            round_trips: Some(shared.round_trips.clone()),
            ..options(service)
        };
        let place = Place {
            service: index as u16,
            instance: instance as u16,
        };
        match service.execution {
            Execution::Inline => Resident::start(source, options, Execution::Inline)
                .map(|resident| Seat::Inline(Box::new(resident))),
            Execution::Threaded => {
                Threaded::start(shared, worker, place, source, options).map(Seat::Threaded)
            }
        }
    };
    (0..count).map(seat).collect()
}

/// Loads an instance and does not start it, to see whether it could be.
pub(crate) fn check_service(service: &Service) -> Result<(), ScriptError> {
    if service.builtin.is_some() {
        return Ok(());
    }
    let instance = Instance::load_with(&source(service), &options(service))?;
    check_handshake(service.execution, &service.name, instance.has_handshake())
}

/// A request would have to wait for the thread, and with it all that follows on the connection.
pub(super) fn check_handshake(
    execution: Execution,
    name: &str,
    has_handshake: bool,
) -> Result<(), ScriptError> {
    match has_handshake && execution == Execution::Threaded {
        false => Ok(()),
        true => Err(ScriptError::Source {
            service: name.to_owned(),
            reason: "it has onHandshake, for which its execution must be \"inline\"".to_owned(),
        }),
    }
}

/// How much each instance of `service` may use. One callback may send as many of the largest
/// messages as a write queue holds.
pub(crate) fn options(service: &Service) -> LoadOptions {
    let effects = EffectLimits::default();
    let replies = REPLIES_EXPECTED.saturating_mul(service.message_bytes_max);
    LoadOptions {
        memory_bytes_max: service.memory_bytes_max,
        callback_timeout: service.callback_timeout,
        is_handshake_hook_off: !service.has_handshake_hook,
        effects: EffectLimits {
            bytes_max: effects.bytes_max.max(replies),
            ..effects
        },
        ..LoadOptions::default()
    }
}

/// Where the Lua room finds a service.
pub(crate) fn source(service: &Service) -> ServiceSource {
    ServiceSource {
        name: service.name.clone(),
        folder: service.folder.clone(),
        config: service.config.clone(),
        protocol: service.protocol,
        preload: service.preload.clone(),
        sandbox: service.sandbox,
    }
}

/// How long the last callbacks of all instances together may take: less than the process waits for
/// its workers.
const END_WAIT: Duration = Duration::from_secs(4);
