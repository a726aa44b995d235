//! What all workers of one server share; nothing in it changes after the start but counters,
//! mailboxes and what each source address has taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use moonwire_lua::{Broker, ScriptError, StopFlag};
use moonwire_net::{Portal, ServerTls, SessionLimits, Waker};

use crate::acl::Acl;
use crate::config::{FRAME_HEADER_BYTES_MAX, Limits, OnBrokenService, Service, StandaloneService};
use crate::event::Letter;
use crate::mailbox::Mailbox;
use crate::outgoing::Outgoing;
use crate::round_trips::RoundTrips;
use crate::router::Router;
use crate::sources::Sources;
use crate::stats::Stats;
use crate::steps::Steps;
use crate::worker::{Broadcast, Done, log_failure};

/// The whole server, as its workers see it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// In the order of the configuration; indexes of services are into this.
    pub(crate) services: Vec<Service>,
    /// By service: the workers that own instances of it.
    pub(crate) owners: Vec<Vec<usize>>,
    /// Path to service.
    pub(crate) router: Router,
    /// By service: whether it could not be started. Set before anybody can connect.
    pub(crate) broken: Vec<AtomicBool>,
    /// Which services have been started on how many workers.
    pub(crate) steps: Steps,
    /// What that means for the others.
    pub(crate) on_broken_service: OnBrokenService,
    /// Who may connect.
    pub(crate) acl: Acl,
    /// The bounds that the configuration gives.
    pub(crate) limits: Limits,
    /// The bounds of a connection until its service is known.
    pub(crate) handshake_limits: Arc<SessionLimits>,
    /// By service: the bounds of its connections; one allocation for each different size.
    pub(crate) service_limits: Vec<Arc<SessionLimits>>,
    /// How to speak TLS, if at all.
    pub(crate) tls: Option<ServerTls>,
    /// What each source address has taken, on all workers together.
    pub(crate) sources: Sources,
    /// By worker.
    pub(crate) mailboxes: Vec<Mailbox<Letter, Waker>>,
    /// By worker: the way for connections into its table of descriptors. Empty where all share one.
    pub(crate) portals: Vec<Portal>,
    /// By worker: what is broadcast by other threads.
    pub(crate) broadcasts: Vec<Mailbox<Broadcast, Waker>>,
    /// By worker: what callbacks on other threads came to.
    pub(crate) done: Vec<Mailbox<Done, Waker>>,
    /// The channels and queues of all services.
    pub(crate) broker: Arc<Broker>,
    /// What a connection weighs against an event that waits, where workers are compared.
    pub(crate) connection_weight: f64,
    /// What makes the connections of services to other servers.
    pub(crate) outgoing: Arc<Outgoing>,
    /// How long the pings of connections took.
    pub(crate) round_trips: Arc<RoundTrips>,
    /// The order to all services to stop.
    pub(crate) stop: StopFlag,
    /// The services that run by themselves.
    pub(crate) standalone: Vec<StandaloneService>,
    /// By standalone service: its threads that have not ended.
    pub(crate) standalone_running: Vec<AtomicUsize>,
    /// By worker: whether its thread is done, in whatever way. Set once, by that thread.
    pub(crate) ended: Vec<AtomicBool>,
    /// Counters.
    pub(crate) stats: Stats,
}

impl Shared {
    /// Everything in its place.
    pub(crate) fn new(
        services: Vec<Service>,
        standalone: Vec<StandaloneService>,
        workers: usize,
        on_broken_service: OnBrokenService,
        acl: Acl,
        limits: Limits,
        tls: Option<ServerTls>,
    ) -> Self {
        let handshake_limits = Arc::new(session_limits(&limits, limits.message_bytes_max));
        let mut by_size = HashMap::from([(limits.message_bytes_max, handshake_limits.clone())]);
        let mut limits_of = |service: &Service| {
            let size = service.message_bytes_max;
            by_size
                .entry(size)
                .or_insert_with(|| Arc::new(session_limits(&limits, size)))
                .clone()
        };
        let service_limits = services.iter().map(&mut limits_of).collect();
        let owners = |service: &Service| (0..service.instances.min(workers)).collect();
        let names = services
            .iter()
            .map(|service| service.name.clone())
            .collect();
        let mailbox = || Mailbox::new(limits.handovers_per_worker_max, limits.handover_bytes_max());
        let broadcasts = || Mailbox::new(BROADCASTS_MAX, BROADCAST_BYTES_MAX);
        let done = || Mailbox::new(DONE_MAX, DONE_BYTES_MAX);
        Self {
            owners: services.iter().map(owners).collect(),
            router: Router::new(&services),
            handshake_limits,
            service_limits,
            sources: Sources::new(&limits, workers),
            tls,
            portals: Vec::new(),
            mailboxes: std::iter::repeat_with(mailbox).take(workers).collect(),
            broadcasts: std::iter::repeat_with(broadcasts).take(workers).collect(),
            done: std::iter::repeat_with(done).take(workers).collect(),
            broker: Arc::default(),
            connection_weight: 1.0,
            outgoing: Arc::default(),
            round_trips: Arc::new(RoundTrips::new(workers)),
            stop: StopFlag::default(),
            standalone_running: standalone.iter().map(|_| AtomicUsize::new(0)).collect(),
            standalone,
            ended: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            stats: Stats::new(names, workers),
            steps: Steps::default(),
            broken: services.iter().map(|_| AtomicBool::new(false)).collect(),
            on_broken_service,
            services,
            acl,
            limits,
        }
    }
}

impl Shared {
    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// Whether the service could not be started.
    pub(crate) fn is_broken(&self, service: usize) -> bool {
        self.broken[service].load(Ordering::Acquire)
    }

    /// A service cannot be started: the reason is logged if the others go on, or given back.
    pub(crate) fn broke(&self, failure: ScriptError) -> Result<(), ScriptError> {
        if self.on_broken_service == OnBrokenService::Stop {
            return Err(failure);
        }
        log_failure(&failure, None);
        Ok(())
    }

    /// Orders everybody to stop, also a service that waits in a call. Further orders change
    /// nothing.
    pub(crate) fn stop(&self) {
        self.stop.set();
        self.broker.wake();
        for mailbox in &self.mailboxes {
            mailbox.order(Letter::Stop);
        }
    }
}

/// Callbacks on other threads whose effects one worker has not applied yet, and the bytes of those.
/// At the bound these threads wait.
const DONE_MAX: usize = 4096;
const DONE_BYTES_MAX: usize = 64 << 20;

/// Our limits in the words of the net room.
fn session_limits(limits: &Limits, message_bytes_max: usize) -> SessionLimits {
    SessionLimits {
        protocol: moonwire_proto::Limits {
            message_bytes_max,
            frames_per_message_max: limits.frames_per_message_max,
            header_bytes_max: limits.header_bytes_max,
            headers_max: limits.headers_max,
        },
        write_queue_bytes_max: limits.write_queue_bytes_max,
        write_queue_pause_bytes: limits
            .write_queue_bytes_max
            .saturating_sub(message_bytes_max + FRAME_HEADER_BYTES_MAX)
            .min(WRITE_QUEUE_PAUSE_BYTES),
        memory_bytes_max: limits.connection_memory_bytes_max,
        handshake_timeout: limits.handshake_timeout,
        idle_timeout: unless_zero(limits.idle_timeout),
        pong_timeout: Some(limits.pong_timeout),
        ping_interval: unless_zero(limits.ping_interval),
        message_timeout: unless_zero(limits.message_timeout),
        write_timeout: limits.write_timeout,
        close_timeout: limits.close_timeout,
    }
}

/// Broadcasts on their way to one worker, and their bytes. At the bound a standalone service waits,
/// and what another worker broadcasts is dropped there, and counted.
const BROADCASTS_MAX: usize = 65_536;
const BROADCAST_BYTES_MAX: usize = 64 << 20;

fn unless_zero(timeout: Duration) -> Option<Duration> {
    (!timeout.is_zero()).then_some(timeout)
}

/// A client that leaves this much unread is not read from until it has taken some of it: it slows
/// itself down, and the bound of the queue is left to messages that others send to it. Where the
/// queue is so small that an answer as large as the largest message would not fit beside this much,
/// it is less.
const WRITE_QUEUE_PAUSE_BYTES: usize = 1024 * 1024;
