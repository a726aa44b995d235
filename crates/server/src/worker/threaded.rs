//! An instance with a thread of its own: messages go there through a bounded mailbox, and what the
//! callbacks want done comes back to the worker that has the connections. A connection has at most
//! one message there; the worker goes on with its input when that is done, so that messages, pings
//! and closes keep their order as if the callback had run on the worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Builder, Thread};
use std::time::Instant;

use moonwire_lua::{
    Effects, Handler, LoadOptions, Opcode, STACK_BYTES, ScriptError, ServiceSource,
};
use tracing::{error, warn};

use super::resident::{Reaction, Resident};
use super::scripts::Place;
use crate::config::Execution;
use crate::mailbox::Mailbox;
use crate::shared::Shared;

/// The worker's end.
pub(super) struct Threaded {
    name: String,
    work: Arc<Mailbox<Work, Thread>>,
    /// Its thread has ended when nothing can come here any more.
    ended: Receiver<()>,
    /// How many times the instance was replaced, as far as the worker knows.
    generation: u64,
}

/// What the thread is to do.
enum Work {
    /// For the instance of that generation; another one does not know the connection.
    Event {
        generation: u64,
        handler: Handler,
        event: Event,
    },
    Shutdown,
}

/// What became of a connection.
enum Event {
    Message { opcode: Opcode, payload: Vec<u8> },
    Disconnect,
}

/// What a callback came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(super) place: Place,
    pub(super) handler: Handler,
    pub(super) effects: Effects,
    pub(super) reaction: Reaction,
}

impl Threaded {
    /// Starts the thread and waits until `onStart` has returned there.
    pub(super) fn start(
        shared: &Arc<Shared>,
        worker: usize,
        place: Place,
        source: ServiceSource,
        options: LoadOptions,
    ) -> Result<Self, ScriptError> {
        let service = &shared.services[usize::from(place.service)];
        let bytes_max = MAILBOX_BYTES_MAX.max(service.message_bytes_max);
        let work = Arc::new(Mailbox::new(MAILBOX_MESSAGES_MAX, bytes_max));
        let (ready, readiness) = channel();
        let (end, ended) = channel();
        let name = source.name.clone();
        let member = Member {
            shared: Arc::clone(shared),
            worker,
            place,
            work: Arc::clone(&work),
            _end: end,
        };
        let failed = |message: String| ScriptError::Machine {
            service: name.clone(),
            message,
        };
        let builder = Builder::new().stack_size(STACK_BYTES);
        let builder = builder.name(name.chars().take(THREAD_NAME_MAX).collect());
        let thread = builder
            .spawn(move || member.live(source, options, &ready))
            .map_err(|error| failed(format!("its thread cannot be started: {error}")))?;
        work.set_waker(thread.thread().clone());
        match readiness.recv() {
            Ok(result) => result?,
            Err(_) => return Err(failed("its thread has ended".to_owned())),
        }
        Ok(Self {
            name,
            work,
            ended,
            generation: 0,
        })
    }

    /// Whether no message finds a place.
    pub(super) fn is_full(&self) -> bool {
        !self.work.has_place()
    }

    /// Whether those who waited for a place may go on.
    pub(super) fn is_half_empty(&self) -> bool {
        self.work.is_half_empty()
    }

    /// Sends a message there.
    pub(super) fn message(&self, handler: Handler, opcode: Opcode, payload: &[u8]) -> Reaction {
        let bytes = payload.len();
        let payload = payload.to_vec();
        let letter = self.event(handler, Event::Message { opcode, payload });
        // Nobody else puts anything there, so there is a place if it was not full.
        if !self.work.reserve() || self.work.post(letter, bytes).is_err() {
            return Reaction::Failed;
        }
        Reaction::Later
    }

    /// Says that a connection has gone. There is always room for that: it comes once for each
    /// connection.
    pub(super) fn disconnect(&self, handler: Handler) {
        self.work.order(self.event(handler, Event::Disconnect));
    }

    fn event(&self, handler: Handler, event: Event) -> Work {
        Work::Event {
            generation: self.generation,
            handler,
            event,
        }
    }

    /// The instance was replaced, and all its connections have been given up: what comes from here
    /// on is for the new one.
    pub(super) fn renew(&mut self) {
        self.generation += 1;
    }

    /// Has `onShutdown` run behind everything else.
    pub(super) fn begin_shutdown(&self) {
        self.work.order(Work::Shutdown);
    }

    /// Waits for its end until then.
    pub(super) fn await_end(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(left) {
            let service = &self.name;
            warn!("a callback of {service} does not return and is left alone");
        }
    }
}

/// A start that failed half-way leaves no thread behind.
impl Drop for Threaded {
    fn drop(&mut self) {
        self.work.abandon();
    }
}

/// What the thread is born with.
struct Member {
    shared: Arc<Shared>,
    worker: usize,
    place: Place,
    work: Arc<Mailbox<Work, Thread>>,
    /// Dropped at its end.
    _end: Sender<()>,
}

impl Member {
    fn live(
        self,
        source: ServiceSource,
        options: LoadOptions,
        ready: &Sender<Result<(), ScriptError>>,
    ) {
        let mut resident = match Resident::start(source, options, Execution::Threaded) {
            Ok(resident) => resident,
            Err(failure) => return drop(ready.send(Err(failure))),
        };
        // If nobody waits for it, the order to stop follows.
        let _ = ready.send(Ok(()));
        let mut current = 0;
        loop {
            let Some(work) = self.work.take() else {
                if self.work.is_closed() {
                    return;
                }
                thread::park();
                continue;
            };
            let mut effects = Effects::new();
            let Work::Event {
                generation,
                handler,
                event,
            } = work
            else {
                return resident.shutdown(&mut effects);
            };
            let reaction = match event {
                // Its connection ends as soon as the worker knows.
                _ if generation != current => Reaction::Continue,
                Event::Message { opcode, payload } => {
                    resident.message(handler, opcode, &payload, &mut effects)
                }
                Event::Disconnect => resident.disconnect(handler, &mut effects),
            };
            current += u64::from(reaction == Reaction::Replaced);
            self.report(handler, effects, reaction);
        }
    }

    /// Tells the worker, if it is still there. A thread of its own may wait for a place.
    fn report(&self, handler: Handler, effects: Effects, reaction: Reaction) {
        let mailbox = &self.shared.done[self.worker];
        let has_ended = || self.shared.ended[self.worker].load(Ordering::Acquire);
        if mailbox.reserve_waiting(has_ended) {
            let bytes = effects.memory_bytes();
            let done = Done {
                place: self.place,
                handler,
                effects,
                reaction,
            };
            // It is only refused by a worker that has ended.
            let _ = mailbox.post(done, bytes);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if thread::panicking() {
            let service = &self.shared.services[usize::from(self.place.service)].name;
            error!("the thread of {service} has ended by a defect; the server stops");
            self.shared.stop();
        }
    }
}

/// Messages that wait for one instance, and their bytes, or one of the largest. Beyond either the
/// connections that have more are not received from until half of it is done.
const MAILBOX_MESSAGES_MAX: usize = 1024;
const MAILBOX_BYTES_MAX: usize = 16 << 20;

/// What Linux shows of the name of a thread.
const THREAD_NAME_MAX: usize = 15;
