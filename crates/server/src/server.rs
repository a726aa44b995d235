//! The life of a server: load everything, listen, serve, stop.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use moonwire_lua::{STACK_BYTES, Standalone};
use moonwire_net::{
    Driver, DriverChoice, ListenOptions, Portal, PortalExit, ServerTls, ServerTlsRules,
    SystemDriver, WakeEvent, connections_per_table, leave_descriptor_table, why_not_io_uring,
};
use tracing::{error, info, warn};

use crate::background::{self, Background, Nowhere};
use crate::config::{Config, Limits, OutgoingTls, Tls};
use crate::error::ServerError;
use crate::metrics;
use crate::outgoing::Outgoing;
use crate::process;
use crate::shared::Shared;
use crate::worker::{Scripts, Worker, check_service};

/// A running server: one thread for each worker. Dropping it does not stop it; [`Stopper::stop`]
/// and then [`wait`](Self::wait) do.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    background: Background,
}

impl Server {
    /// Loads everything that a start would load, and serves nobody.
    pub fn check(config: &Config) -> Result<(), ServerError> {
        load_tls(config.tls.as_ref(), &config.tls_rules)?;
        outgoing(&config.client_tls)?;
        for service in &config.services {
            check_service(service)?;
        }
        for service in &config.standalone {
            let (source, options) = (background::source(service), background::options(service));
            Standalone::load(&source, &options, 0, Box::new(Nowhere))?;
        }
        Ok(())
    }

    /// Starts a server. When this returns, every service is started and connections are accepted.
    pub fn start(config: Config) -> Result<Self, ServerError> {
        let Config {
            listen,
            workers,
            connections,
            driver,
            acl,
            on_broken_service,
            connection_weight,
            tls,
            tls_rules,
            client_tls,
            limits,
            services,
            standalone,
            shipped,
            ..
        } = config;
        let tls = load_tls(tls.as_ref(), &tls_rules)?;
        let outgoing = outgoing(&client_tls)?;
        process::prepare();
        let has_own_tables = connections.is_some_and(|count| count > connections_per_table());
        let site = Site::reserve(&listen, &limits)?;
        let (portals, exits) = portals(workers, has_own_tables)?;
        let shared = Shared::new(
            services,
            standalone,
            workers,
            on_broken_service,
            acl,
            limits,
            tls,
        );
        let shared = Arc::new(Shared {
            connection_weight,
            portals,
            outgoing: Arc::new(outgoing),
            ..shared
        });
        let order = StopUnlessStarted::arm(&shared);
        let mut background = Background::default();
        // What they make is there before the first client.
        background.start(&shared, false)?;
        let threads = start_workers(&site.listen, driver, exits, &shared)?;
        let Site {
            addresses, places, ..
        } = site;
        // Those that listen there hold it now.
        drop(places);
        background.start(&shared, true)?;
        order.disarm();
        // Every virtual machine has read its code.
        drop(shipped);
        Ok(Self {
            addresses,
            shared,
            threads,
            background,
        })
    }

    /// Where it listens, with real ports, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// How many workers it has.
    pub fn workers(&self) -> usize {
        self.threads.len()
    }

    /// The services that have started: name, target, instances.
    pub fn services(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        let services = self.shared.services.iter().enumerate();
        services
            .filter(|(index, _)| !self.shared.is_broken(*index))
            .map(|(_, s)| (s.name.as_str(), s.target.as_str(), s.instances))
    }

    /// The services that run by themselves: name, instances.
    pub fn standalone(&self) -> impl Iterator<Item = (&str, usize)> {
        let services = self.shared.standalone.iter();
        services.map(|s| (s.name.as_str(), s.instances))
    }

    /// The self-signed certificate in PEM, if it uses one.
    pub fn certificate(&self) -> Option<&str> {
        self.shared.tls.as_ref()?.self_signed_pem()
    }

    /// A handle that stops it, for any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Waits until it has stopped; returns its counters as a table.
    pub fn wait(self) -> Result<String, ServerError> {
        let mut result = Ok(());
        for (worker, thread) in self.threads.into_iter().enumerate() {
            let ended = match thread.join() {
                Ok(ended) => ended.map_err(ServerError::Worker),
                Err(_) => Err(ServerError::Panicked { worker }),
            };
            result = result.and(ended);
        }
        // Without workers the services run as long as they like.
        if self.shared.workers() > 0 {
            self.shared.stop();
        }
        // A service that does not end must not keep a server that serves nobody.
        let patience = result.is_err().then_some(DEFECT_PATIENCE);
        self.background.join(patience);
        result.map(|()| metrics::table(&self.shared.stats))
    }
}

/// How long standalone services have to end once a worker has failed.
const DEFECT_PATIENCE: Duration = Duration::from_secs(5);

/// Starts the workers, and waits until all of them serve.
fn start_workers(
    listen: &[(SocketAddr, ListenOptions)],
    driver: DriverChoice,
    exits: Vec<Option<PortalExit>>,
    shared: &Arc<Shared>,
) -> Result<Vec<JoinHandle<std::io::Result<()>>>, ServerError> {
    let (ready, readiness) = channel();
    let mut threads = Vec::with_capacity(exits.len());
    let mut starts = Vec::with_capacity(exits.len());
    // Made before any thread leaves the table, so that all know them.
    let events: Result<Vec<_>, _> = exits.iter().map(|_| WakeEvent::new()).collect();
    let events = events.map_err(ServerError::Worker)?;
    for (worker, (arrivals, event)) in exits.into_iter().zip(events).enumerate() {
        let (start, started) = channel();
        let member = Member {
            worker,
            driver,
            event,
            listen: listen.to_vec(),
            shared: Arc::clone(shared),
            ready: ready.clone(),
            started,
        };
        let thread = Builder::new()
            .stack_size(STACK_BYTES)
            .name(format!("worker-{worker}"))
            .spawn(move || member.live(arrivals))
            .map_err(ServerError::Worker)?;
        threads.push(thread);
        starts.push(start);
    }
    drop(ready);
    start_together(&readiness, starts)?;
    Ok(threads)
}

/// For each worker with a table of descriptors of its own, both ends of the way into it.
fn portals(
    workers: usize,
    has_own_tables: bool,
) -> Result<(Vec<Portal>, Vec<Option<PortalExit>>), ServerError> {
    if !has_own_tables {
        return Ok((
            Vec::new(),
            std::iter::repeat_with(|| None).take(workers).collect(),
        ));
    }
    info!("each of {workers} workers has a table of descriptors of its own");
    let made = (0..workers).map(|_| Portal::new().map(|(portal, exit)| (portal, Some(exit))));
    made.collect::<Result<_, _>>().map_err(ServerError::Worker)
}

/// Lets the workers begin once all are ready. Those that wait for a start that does not come end by
/// themselves.
fn start_together(
    readiness: &Receiver<Result<(), ServerError>>,
    starts: Vec<Sender<()>>,
) -> Result<(), ServerError> {
    for result in readiness.iter().take(starts.len()) {
        result?;
    }
    for start in starts {
        // It fails only if the thread has panicked, which `wait` reports.
        let _ = start.send(());
    }
    Ok(())
}

/// Stops a server: it accepts no more, sends 1001 to all, waits for them up to
/// `drain_timeout_ms`, and runs every `onShutdown`.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

impl Stopper {
    /// Gives the order. Further ones change nothing.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Reads the files of the certificates again, for later handshakes; connections stay as they
    /// are. The number of certificates, or a sentence that says why everything is as it was.
    pub fn reload_certificates(&self) -> Result<usize, String> {
        let Some(tls) = &self.shared.tls else {
            return Ok(0);
        };
        tls.reload().map_err(|error| error.to_string())?;
        Ok(tls.certificate_files())
    }

    /// How long the server waits for its clients after the order.
    pub fn drain_timeout(&self) -> Duration {
        self.shared.limits.drain_timeout
    }

    /// The workers and the standalone services that have not ended, by name. Whoever is still here
    /// long after the drain timeout is in a callback that does not return.
    pub fn running(&self) -> Vec<String> {
        let ended = self.shared.ended.iter().enumerate();
        let workers = ended
            .filter(|(_, ended)| !ended.load(Ordering::Acquire))
            .map(|(worker, _)| format!("worker {worker}"));
        let running = self.shared.standalone_running.iter();
        let services = running
            .zip(&self.shared.standalone)
            .filter(|(running, _)| running.load(Ordering::Acquire) > 0)
            .map(|(_, service)| format!("service {}", service.name));
        workers.chain(services).collect()
    }
}

/// A start that fails half-way leaves nobody running.
struct StopUnlessStarted(Option<Stopper>);

impl StopUnlessStarted {
    fn arm(shared: &Arc<Shared>) -> Self {
        let shared = Arc::clone(shared);
        Self(Some(Stopper { shared }))
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for StopUnlessStarted {
    fn drop(&mut self) {
        if let Some(stopper) = &self.0 {
            stopper.stop();
        }
    }
}

/// What a worker's thread is born with.
struct Member {
    worker: usize,
    driver: DriverChoice,
    /// What wakes it.
    event: WakeEvent,
    /// Where it listens, and how.
    listen: Vec<(SocketAddr, ListenOptions)>,
    shared: Arc<Shared>,
    /// Where it says that it is ready, or why it cannot be.
    ready: Sender<Result<(), ServerError>>,
    /// Where it learns that all others are ready too; closed when one is not.
    started: Receiver<()>,
}

impl Member {
    fn live(self, arrivals: Option<PortalExit>) -> std::io::Result<()> {
        let others = Stopper {
            shared: Arc::clone(&self.shared),
        };
        let _guard = StopOthers {
            others,
            worker: self.worker,
        };
        let (mut worker, listeners) = match self.prepare(arrivals) {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = self.ready.send(Err(error));
                return Ok(());
            }
        };
        let _ = self.ready.send(Ok(()));
        if self.started.recv().is_err() {
            return Ok(());
        }
        for listener in listeners {
            worker.listen(listener.into())?;
        }
        worker.run()
    }

    /// Virtual machines and drivers stay on the thread that made them.
    fn prepare(
        &self,
        arrivals: Option<PortalExit>,
    ) -> Result<(Worker<SystemDriver>, Vec<TcpListener>), ServerError> {
        if arrivals.is_some() {
            leave_descriptor_table().map_err(ServerError::Worker)?;
        }
        let driver = self.make_driver()?;
        let listeners = self.listen.iter().map(|(addr, options)| {
            let refused = |error| ServerError::Listen { addr: *addr, error };
            options.listen(*addr).map_err(refused)
        });
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        self.shared.limits.spare_buffers.keep_on_this_thread();
        self.shared.mailboxes[self.worker].set_waker(driver.waker());
        self.shared.broadcasts[self.worker].set_waker(driver.waker());
        self.shared.done[self.worker].set_waker(driver.waker());
        let workers = self.shared.mailboxes.len();
        let is_due = |service| self.shared.steps.wait(service, workers, &self.shared.stop);
        let scripts = Scripts::start(&self.shared, self.worker, workers, is_due)?;
        let shared = Arc::clone(&self.shared);
        let mut worker = Worker::new(self.worker, driver, scripts, shared);
        if let Some(arrivals) = arrivals {
            worker.receive_from(arrivals);
        }
        Ok((worker, listeners))
    }
}

impl Member {
    /// Says once what the choice has come to.
    fn make_driver(&self) -> Result<SystemDriver, ServerError> {
        let made = SystemDriver::with_event(self.driver, &self.event);
        let driver = made.map_err(|error| ServerError::Driver {
            driver: self.driver.name(),
            error,
        })?;
        if self.worker == 0 {
            match (self.driver, &driver) {
                (DriverChoice::Auto, SystemDriver::Epoll(_)) => {
                    let reason = why_not_io_uring().map(|reason| reason.to_string());
                    let reason = reason.unwrap_or_default();
                    warn!("serving over epoll, as io_uring cannot be had: {reason}");
                }
                _ => info!("serving over {}", driver.name()),
            }
        }
        Ok(driver)
    }
}

/// A worker that ends early takes the server down, in order, instead of leaving a part of the
/// connections to nobody.
struct StopOthers {
    others: Stopper,
    worker: usize,
}

impl Drop for StopOthers {
    fn drop(&mut self) {
        // The order first: nothing that a log does may come in its way.
        self.others.shared.ended[self.worker].store(true, Ordering::Release);
        self.others.stop();
        if std::thread::panicking() {
            error!(
                "worker {} has ended by a defect; the server stops",
                self.worker
            );
        }
    }
}

/// The addresses, kept from others until the workers listen there, each by itself.
struct Site {
    /// Where clients can connect, with real ports.
    addresses: Vec<SocketAddr>,
    listen: Vec<(SocketAddr, ListenOptions)>,
    /// Bound, and not listening.
    places: Vec<OwnedFd>,
}

impl Site {
    fn reserve(listen: &[SocketAddr], limits: &Limits) -> Result<Self, ServerError> {
        let mut site = Self {
            addresses: Vec::with_capacity(listen.len()),
            listen: Vec::with_capacity(listen.len()),
            places: Vec::with_capacity(listen.len()),
        };
        for addr in listen {
            let options = listen_options(addr, listen, limits);
            let refused = |error| ServerError::Listen { addr: *addr, error };
            if addr.port() != 0 {
                // With SO_REUSEPORT alone, a second server of the same user would silently share
                // it.
                let alone = ListenOptions {
                    reuse_port: false,
                    ..options
                };
                alone.listen(*addr).map_err(refused)?;
            }
            let (place, real) = options.bind(*addr).map_err(refused)?;
            site.addresses.push(real);
            site.listen.push((real, options));
            site.places.push(place);
        }
        Ok(site)
    }
}

fn listen_options(addr: &SocketAddr, listen: &[SocketAddr], limits: &Limits) -> ListenOptions {
    // `[::]` takes IPv4 as well, unless an address of its own is listed for that.
    let is_shared = |other: &SocketAddr| other.is_ipv4() && other.port() == addr.port();
    ListenOptions {
        reuse_port: true,
        only_v6: addr.ip() == Ipv6Addr::UNSPECIFIED && listen.iter().any(is_shared),
        backlog: limits.backlog,
        receive_buffer_bytes: unless_zero(limits.receive_buffer_bytes),
        send_buffer_bytes: unless_zero(limits.send_buffer_bytes),
        nodelay: limits.nodelay,
    }
}

fn unless_zero(bytes: usize) -> Option<usize> {
    (bytes > 0).then_some(bytes)
}

fn load_tls(tls: Option<&Tls>, rules: &ServerTlsRules) -> Result<Option<ServerTls>, ServerError> {
    let loaded = match tls {
        None => return Ok(None),
        Some(Tls::SelfSigned) => ServerTls::self_signed_with(rules),
        Some(Tls::Files(files)) => ServerTls::from_files(files, rules),
    };
    loaded
        .map(Some)
        .map_err(|error| ServerError::Tls(error.to_string()))
}

fn outgoing(tls: &OutgoingTls) -> Result<Outgoing, ServerError> {
    Outgoing::new(tls).map_err(|error| ServerError::Tls(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_sockets_reach_the_listener() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let default = ListenOptions {
            reuse_port: true,
            ..ListenOptions::default()
        };
        assert_eq!(listen_options(&addr, &[addr], &Limits::default()), default);
        let limits = Limits {
            backlog: 7,
            receive_buffer_bytes: 5000,
            send_buffer_bytes: 6000,
            nodelay: false,
            ..Limits::default()
        };
        let wanted = ListenOptions {
            reuse_port: true,
            only_v6: false,
            backlog: 7,
            receive_buffer_bytes: Some(5000),
            send_buffer_bytes: Some(6000),
            nodelay: false,
        };
        assert_eq!(listen_options(&addr, &[addr], &limits), wanted);
    }
}
