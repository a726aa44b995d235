//! An instance of a service, and its successor once it has used up its memory.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use moonwire_lua::{
    Effects, Handler, HandshakeAnswer, Instance, LoadOptions, Opcode, Outcome, Refusal,
    ScriptError, ServiceSource,
};
use moonwire_proto::Request;
use tracing::{error, warn};

use super::scripts::check_handshake;
use crate::config::Execution;

/// An instance that has been started. It stays on its thread.
pub(super) struct Resident {
    /// None if it could not be replaced.
    instance: Option<Instance>,
    /// When that is to be tried again.
    retry_at: Instant,
    source: ServiceSource,
    options: LoadOptions,
    execution: Execution,
    /// Whether it answers handshakes, also while there is no instance: then it fails them.
    has_handshake: bool,
}

/// What the service thinks of its connection after a callback.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reaction {
    /// It goes on.
    Continue,
    /// The callback did not return true: this connection ends, the instance stays.
    Close,
    /// The message itself is the answer.
    SendBack,
    /// The message was none of its protocol: this connection ends, the instance stays.
    Refuse(Refusal),
    /// The callback raised an error or was stopped: this connection ends, the instance stays.
    Failed,
    /// The instance has used up its memory and is another one now, which knows no connection: all
    /// that it had end.
    Replaced,
    /// It is not known yet: the callback runs on another thread.
    Later,
}

/// What the service thinks of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Greeting {
    /// It has an answer.
    Answer(HandshakeAnswer),
    /// The callback raised an error.
    Failed,
    /// The callback took too long and was stopped.
    Late,
    /// The instance has used up its memory and is another one now.
    Replaced,
}

impl Resident {
    /// Loads and starts an instance.
    pub(super) fn start(
        source: ServiceSource,
        options: LoadOptions,
        execution: Execution,
    ) -> Result<Self, ScriptError> {
        let instance = start(&source, &options, execution)?;
        Ok(Self {
            has_handshake: instance.has_handshake(),
            instance: Some(instance),
            retry_at: Instant::now(),
            source,
            options,
            execution,
        })
    }

    /// Runs `onMessage`; an error is logged here, with its traceback.
    pub(super) fn message(
        &mut self,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
        effects: &mut Effects,
    ) -> Reaction {
        let Some(instance) = self.revived() else {
            return Reaction::Failed;
        };
        match instance.message(handler, opcode, payload, effects) {
            Ok(Outcome::Continue) => Reaction::Continue,
            Ok(Outcome::Stop) => Reaction::Close,
            Ok(Outcome::Refused(refusal)) => Reaction::Refuse(refusal),
            Err(failure) => self.failed(&failure, handler),
        }
    }

    /// The instance; one that could not be replaced before is tried again.
    fn revived(&mut self) -> Option<&mut Instance> {
        if self.instance.is_none() && Instant::now() >= self.retry_at {
            self.replace();
        }
        self.instance.as_mut()
    }

    /// Whether the service answers handshakes.
    pub(super) fn has_handshake(&self) -> bool {
        self.has_handshake
    }

    /// Runs `onHandshake`; an error is logged here.
    pub(super) fn handshake(
        &mut self,
        request: &Request,
        peer: SocketAddr,
        effects: &mut Effects,
    ) -> Greeting {
        effects.clear();
        let Some(instance) = self.revived() else {
            return Greeting::Failed;
        };
        match instance.handshake(request, peer, effects) {
            Ok(answer) => Greeting::Answer(answer),
            Err(failure) => {
                log_failure(&failure, None);
                if matches!(failure, ScriptError::OutOfMemory { .. }) {
                    self.begin_anew();
                    return Greeting::Replaced;
                }
                match matches!(failure, ScriptError::Overran { .. }) {
                    true => Greeting::Late,
                    false => Greeting::Failed,
                }
            }
        }
    }

    /// Runs `onDisconnect`; an error is logged here.
    pub(super) fn disconnect(&mut self, handler: Handler, effects: &mut Effects) -> Reaction {
        let Some(instance) = &mut self.instance else {
            return Reaction::Continue;
        };
        match instance.disconnect(handler, effects) {
            Ok(()) => Reaction::Continue,
            Err(failure) => self.failed(&failure, handler),
        }
    }

    /// Runs `onShutdown`. Everybody is gone, so what it wants sent is forgotten.
    pub(super) fn shutdown(&mut self, effects: &mut Effects) {
        if let Some(instance) = &mut self.instance
            && let Err(failure) = instance.shutdown(effects)
        {
            log_failure(&failure, None);
        }
    }

    fn failed(&mut self, failure: &ScriptError, handler: Handler) -> Reaction {
        log_failure(failure, Some(handler));
        if !matches!(failure, ScriptError::OutOfMemory { .. }) {
            return Reaction::Failed;
        }
        self.begin_anew();
        Reaction::Replaced
    }

    fn begin_anew(&mut self) {
        // Its memory goes first.
        self.instance = None;
        self.replace();
    }

    fn replace(&mut self) {
        match start(&self.source, &self.options, self.execution) {
            Ok(instance) => {
                // Its file may be another one by now.
                self.has_handshake = instance.has_handshake();
                self.instance = Some(instance);
                warn!(
                    service = self.source.name,
                    "the instance was replaced and its connections are closed"
                );
            }
            Err(failure) => {
                log_failure(&failure, None);
                self.retry_at = Instant::now() + RETRY_PAUSE;
            }
        }
    }
}

fn start(
    source: &ServiceSource,
    options: &LoadOptions,
    execution: Execution,
) -> Result<Instance, ScriptError> {
    let mut instance = Instance::load_with(source, options)?;
    // Nobody is connected yet, so there is nobody to send anything to.
    instance.start(&mut Effects::new())?;
    check_handshake(execution, &source.name, instance.has_handshake())?;
    Ok(instance)
}

/// One line in the log, and one for each call that led there.
pub(crate) fn log_failure(failure: &ScriptError, handler: Option<Handler>) {
    let handler = handler.map(Handler::as_u64);
    error!(handler, "{}", failure.log_lines());
}

/// An instance that could not be started is tried again with a message, but not with each.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
