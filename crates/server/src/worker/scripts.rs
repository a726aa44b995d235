//! The service instances that live on one worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moonwire_lua::{
    EffectLimits, Effects, Handler, Instance, LoadOptions, Opcode, Outcome, Refusal, ScriptError,
    ServiceSource, log_line,
};
use tracing::error;

use crate::config::{REPLIES_EXPECTED, Service};
use crate::shared::Shared;

/// The instances of one worker, by service.
pub(crate) struct Scripts {
    /// In the order of the configuration; a service may have none here.
    services: Vec<Local>,
}

/// One service's instances on this worker.
struct Local {
    instances: Vec<Instance>,
    /// The instance that takes the next connection. Invariant: below `instances.len()` or 0.
    next: usize,
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
    /// Loads and starts the instances that belong to `worker` of `workers`.
    pub(crate) fn start(
        shared: &Shared,
        worker: usize,
        workers: usize,
    ) -> Result<Self, ScriptError> {
        let mut started = Vec::with_capacity(shared.services.len());
        for (index, service) in shared.services.iter().enumerate() {
            let count = (0..service.instances)
                .filter(|i| i % workers == worker)
                .count();
            let instances = match instances(shared, service, count) {
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

    /// Runs `onMessage`; an error is logged here, with its traceback.
    pub(crate) fn message(
        &mut self,
        place: Place,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
        effects: &mut Effects,
    ) -> Reaction {
        let Some(instance) = self.instance(place) else {
            return Reaction::Failed;
        };
        match instance.message(handler, opcode, payload, effects) {
            Ok(Outcome::Continue) => Reaction::Continue,
            Ok(Outcome::Stop) => Reaction::Close,
            Ok(Outcome::Refused(refusal)) => Reaction::Refuse(refusal),
            Err(failure) => {
                log_failure(&failure, Some(handler));
                Reaction::Failed
            }
        }
    }

    /// Runs `onDisconnect`; false if it failed, which is logged here.
    pub(crate) fn disconnect(
        &mut self,
        place: Place,
        handler: Handler,
        effects: &mut Effects,
    ) -> bool {
        let Some(instance) = self.instance(place) else {
            return false;
        };
        let result = instance.disconnect(handler, effects);
        if let Err(failure) = &result {
            log_failure(failure, Some(handler));
        }
        result.is_ok()
    }

    /// Runs every `onShutdown`. Everybody is gone, so what they want sent is forgotten.
    pub(crate) fn shutdown(&mut self, effects: &mut Effects) {
        for instance in self
            .services
            .iter_mut()
            .flat_map(|local| &mut local.instances)
        {
            if let Err(failure) = instance.shutdown(effects) {
                log_failure(&failure, None);
            }
        }
    }

    fn instance(&mut self, place: Place) -> Option<&mut Instance> {
        let local = self.services.get_mut(usize::from(place.service))?;
        local.instances.get_mut(usize::from(place.instance))
    }
}

/// Loads and starts so many instances.
fn instances(
    shared: &Shared,
    service: &Service,
    count: usize,
) -> Result<Vec<Instance>, ScriptError> {
    let source = source(service);
    let options = LoadOptions {
        broker: Arc::clone(&shared.broker),
        stop: shared.stop.clone(),
        ..options(service)
    };
    let mut effects = Effects::new();
    let mut instances = Vec::with_capacity(count);
    for _ in 0..count {
        let mut instance = Instance::load_with(&source, &options)?;
        // Nobody is connected yet, so there is nobody to send anything to.
        instance.start(&mut effects)?;
        instances.push(instance);
    }
    Ok(instances)
}

/// What the service thinks of its connection after a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reaction {
    /// It goes on.
    Continue,
    /// The callback did not return true: this connection ends, the instance stays.
    Close,
    /// The message was none of its protocol: this connection ends, the instance stays.
    Refuse(Refusal),
    /// The callback raised an error.
    Failed,
}

/// How much each instance of `service` may use. One callback may send as many of the largest
/// messages as a write queue holds.
pub(crate) fn options(service: &Service) -> LoadOptions {
    let effects = EffectLimits::default();
    let replies = REPLIES_EXPECTED.saturating_mul(service.message_bytes_max);
    LoadOptions {
        memory_bytes_max: service.memory_bytes_max,
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
    }
}

/// One line in the log, and one for each call that led there.
pub(crate) fn log_failure(failure: &ScriptError, handler: Option<Handler>) {
    let handler = handler.map(Handler::as_u64);
    let sentence = failure.to_string();
    let sentence = log_line(&sentence);
    match failure.traceback() {
        "" => error!(handler, "{sentence}"),
        traceback => {
            let calls: Vec<_> = traceback.lines().take(CALLS_MAX).map(log_line).collect();
            error!(handler, "{sentence}\n{}", calls.join("\n"));
        }
    }
}

/// Lines of a traceback that are logged; LuaJIT itself leaves out what is between the first ten
/// and the last eleven calls.
const CALLS_MAX: usize = 32;
