//! The link between generator and server: where the 20 ms of each direction come from.
//!
//! The best kind that this machine offers is chosen, says what it is and why nothing better was
//! to be had, and is measured before a run is believed.

mod delay_line;
mod forwarder;
mod idle;
mod namespace;
mod netem;
mod stats;
mod tun;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::forwarder::Forwarder;
pub use self::idle::{IdleExchange, Spread};
use self::namespace::Namespace;
pub use self::stats::{DirectionStats, LinkMark, LinkStats};
use self::tun::TunDevice;

/// What is asked of a link. Every value holds for each direction.
#[derive(Debug, Clone, Serialize)]
pub struct LinkSpec {
    /// One-way delay; a round trip takes twice that and never less.
    pub delay: Duration,
    /// Each packet is delayed by up to this much more, evenly distributed. Order is kept, but not
    /// by the kernel's own netem, which sorts by the new times.
    pub jitter: Duration,
    /// Share of packets dropped at random, 0 to 1.
    pub loss: f64,
    /// Bottleneck in bytes per second; none without.
    pub rate_bytes_per_s: Option<u64>,
    /// Bytes the link holds at most, those in flight included; newcomers beyond are dropped and
    /// counted. The default of 64 MiB holds 10,000 clients' four replies of 1 KiB, all at once.
    pub queue_bytes: usize,
    /// Congestion controls for the link's namespaces, best first; the first that the kernel
    /// allows there is taken. The default, cubic or else reno, sends as most servers do; a paced
    /// one such as BBR adds its own milliseconds to the first replies.
    pub congestion_controls: Vec<String>,
    /// Fixes jitter and loss.
    pub seed: u64,
    /// Insists on one kind; without, the best available is taken.
    pub kind: Option<LinkKind>,
    /// The server's processors, on which packets are forwarded where this process has to do that;
    /// any, if empty.
    pub forwarder_cpus: Vec<usize>,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            rate_bytes_per_s: None,
            queue_bytes: 64 << 20,
            congestion_controls: vec!["cubic".to_owned(), "reno".to_owned()],
            seed: 1,
            kind: None,
            forwarder_cpus: Vec::new(),
        }
    }
}

impl LinkSpec {
    /// The most that each direction of a link of this kind holds, and its unit.
    pub(crate) fn queue_bound(&self, kind: LinkKind) -> (u64, &'static str) {
        match kind {
            LinkKind::Netem => (netem::limit_packets(self) as u64, "packets"),
            LinkKind::Loopback | LinkKind::Tun | LinkKind::StandIn => {
                (self.queue_bytes as u64, "bytes")
            }
        }
    }

    /// Whether it contradicts itself.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        check(self)
    }

    /// True if nothing is asked for that loopback does not have.
    pub(crate) fn is_plain(&self) -> bool {
        self.delay.is_zero() && !self.is_more_than_delay()
    }

    /// True if anything is asked for that a stand-in cannot give.
    fn is_more_than_delay(&self) -> bool {
        !self.jitter.is_zero() || self.loss > 0.0 || self.rate_bytes_per_s.is_some()
    }
}

/// How a link delays, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// No delay was asked for: plain loopback.
    Loopback,
    /// The kernel's netem on a veth pair between two namespaces.
    Netem,
    /// Our forwarder between TUN devices of two namespaces: real packets, real TCP.
    Tun,
    /// Bytes are delayed at the generator's own sockets: no effect on handshake, loss or window.
    StandIn,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Loopback => "loopback",
            Self::Netem => "netem",
            Self::Tun => "TUN forwarder",
            Self::StandIn => "stand-in (delays bytes at the generator's sockets)",
        })
    }
}

/// Why there is no link, or not the one that was asked for.
#[derive(Debug)]
pub enum LinkError {
    /// The kind that was insisted on cannot be had here.
    Unavailable {
        /// What was asked for.
        kind: LinkKind,
        /// What the machine said.
        reason: String,
    },
    /// The specification contradicts itself.
    BadSpec(&'static str),
    /// The empty exchange could not be measured.
    Measure(io::Error),
    /// The link does not do what was asked; the measurement that says so.
    NotAsAsked {
        /// What was measured.
        measured: Box<IdleExchange>,
        /// Which bound it broke.
        reason: String,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { kind, reason } => write!(to, "no {kind} link here: {reason}"),
            Self::BadSpec(what) => write!(to, "bad link: {what}"),
            Self::Measure(error) => write!(to, "the link could not be measured: {error}"),
            Self::NotAsAsked { reason, .. } => write!(to, "the link is not as asked: {reason}"),
        }
    }
}

impl std::error::Error for LinkError {}

/// A link that stands. Dropping it takes it down.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    path: Path,
    notes: Vec<String>,
}

impl Link {
    /// Sets up the best link that this machine offers for `spec`.
    pub fn establish(spec: &LinkSpec) -> Result<Self, LinkError> {
        check(spec)?;
        if spec.is_plain() && spec.kind.is_none() {
            return Ok(Self::with(spec, Path::Loopback, Vec::new()));
        }
        let mut notes = Vec::new();
        for kind in spec.kind.map_or_else(|| KINDS.to_vec(), |kind| vec![kind]) {
            let path = match kind {
                LinkKind::Loopback => Ok(Path::Loopback),
                LinkKind::StandIn if spec.is_more_than_delay() => {
                    Err(io::Error::other(STAND_IN_ONLY_DELAYS))
                }
                LinkKind::StandIn => Ok(Path::StandIn),
                LinkKind::Netem => netem_path(spec, &mut notes),
                LinkKind::Tun => tun_path(spec, &mut notes),
            };
            match path {
                Ok(path) => return Ok(Self::with(spec, path, notes)),
                Err(error) => notes.push(format!("no {kind}: {error}")),
            }
        }
        let kind = spec.kind.unwrap_or(LinkKind::StandIn);
        Err(LinkError::Unavailable {
            kind,
            reason: notes.join("; "),
        })
    }

    /// How this link delays.
    pub fn kind(&self) -> LinkKind {
        match &self.path {
            Path::Loopback => LinkKind::Loopback,
            Path::StandIn => LinkKind::StandIn,
            Path::Between {
                forwarder: None, ..
            } => LinkKind::Netem,
            Path::Between {
                forwarder: Some(_), ..
            } => LinkKind::Tun,
        }
    }

    /// What was asked for.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Why nothing better was to be had, and what is unusual about this one.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The delay that the generator must add at its own sockets: only a stand-in has one.
    pub fn stand_in_delay(&self) -> Option<Duration> {
        (self.kind() == LinkKind::StandIn).then_some(self.spec.delay)
    }

    /// The address a server behind this link listens on.
    pub fn server_address(&self) -> IpAddr {
        match &self.path {
            Path::Loopback | Path::StandIn => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Path::Between { .. } => IpAddr::V4(SERVER_ADDRESS),
        }
    }

    /// Runs `work` on a new thread at the client's end and waits for it. Threads and children
    /// that it starts are at that end too.
    pub fn in_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.path {
            Path::Loopback | Path::StandIn => Ok(work()),
            Path::Between { client, .. } => client.run(work),
        }
    }

    /// The same at the server's end.
    pub fn in_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.path {
            Path::Loopback | Path::StandIn => Ok(work()),
            Path::Between { server, .. } => server.run(work),
        }
    }

    /// The server's end, for a child that is to live there.
    pub fn server_end(&self) -> LinkEnd {
        match &self.path {
            Path::Loopback | Path::StandIn => LinkEnd(None),
            Path::Between { server, .. } => LinkEnd(Some(server.clone())),
        }
    }

    /// A moment from which `stats_since` counts.
    pub fn mark(&self) -> LinkMark {
        self.look(true)
    }

    /// What the link carried, dropped and cost since `mark`; nothing to count without a link.
    pub fn stats_since(&self, mark: &LinkMark) -> Option<LinkStats> {
        if !matches!(self.path, Path::Between { .. }) {
            return None;
        }
        let now = self.look(false);
        Some(LinkStats {
            up: now.up.since(&mark.up),
            down: now.down.since(&mark.down),
            cpu_ns: now.cpu.saturating_sub(mark.cpu).as_nanos() as u64,
            wall_ns: (now.at - mark.at).as_nanos() as u64,
        })
    }

    /// Measures empty exchanges and refuses a link that is not what was asked for. A disturbed
    /// measurement is repeated twice. A stand-in has nothing to measure here. What is measured
    /// may still be subject to a `reservation`.
    /// Setting `stop` ends it with [`io::ErrorKind::Interrupted`].
    pub fn measure_idle(
        &self,
        exchanges: usize,
        stop: &AtomicBool,
    ) -> Result<Option<IdleExchange>, LinkError> {
        if self.kind() == LinkKind::StandIn {
            return Ok(None);
        }
        let exchange = || self.exchange(exchanges, stop).map_err(LinkError::Measure);
        let mut measured = exchange()?;
        for _ in 0..MEASUREMENT_REPEATS {
            if self.objection(&measured).is_none() && self.reservation(&measured).is_none() {
                break;
            }
            measured = exchange()?;
        }
        match self.objection(&measured) {
            None => Ok(Some(measured)),
            Some(reason) => Err(LinkError::NotAsAsked {
                measured: Box::new(measured),
                reason,
            }),
        }
    }

    /// What makes a link that was not refused doubtful: its median is above the contract of
    /// half a millisecond.
    pub fn reservation(&self, measured: &IdleExchange) -> Option<String> {
        self.excess(measured, IDLE_EXCESS_NS_CONTRACT)
    }

    fn with(spec: &LinkSpec, path: Path, notes: Vec<String>) -> Self {
        Self {
            spec: spec.clone(),
            path,
            notes,
        }
    }

    fn exchange(&self, exchanges: usize, stop: &AtomicBool) -> io::Result<IdleExchange> {
        let IpAddr::V4(server) = self.server_address() else {
            return Err(io::Error::other("the ends of a link have IPv4 addresses"));
        };
        let (listener, address) = self.in_server(|| idle::listen(server))??;
        std::thread::scope(|scope| {
            let patience = idle::patience(self.spec.delay + self.spec.jitter);
            let answering = scope.spawn(move || idle::answer(&listener, patience));
            let exchanges = idle::exchanges(exchanges, self.spec.delay);
            let measured = self.in_client(|| idle::measure(address, exchanges, patience, stop));
            if !matches!(measured, Ok(Ok(_))) {
                // Nobody may have connected: end the wait of the answering thread.
                let _ = self.in_server(|| std::net::TcpStream::connect(address));
            }
            let _ = answering.join();
            measured?
        })
    }

    /// Which bound of the specification the measurement breaks.
    fn objection(&self, measured: &IdleExchange) -> Option<String> {
        let asked_ns = self.spec.delay.as_nanos() as u64;
        for (name, spread) in [("up", &measured.up), ("down", &measured.down)] {
            if spread.min_ns < asked_ns {
                return Some(format!(
                    "{name} took {} us, less than the {} us asked for",
                    spread.min_ns / 1000,
                    asked_ns / 1000
                ));
            }
        }
        self.excess(measured, IDLE_EXCESS_NS_MAX)
    }

    /// Says so if the median round trip is more than `allowed_ns` above what was asked for.
    fn excess(&self, measured: &IdleExchange, allowed_ns: u64) -> Option<String> {
        let one_way_ns = (self.spec.delay + self.spec.jitter).as_nanos() as u64;
        let sending_ns = |rate: u64| EXCHANGE_PACKET_BYTES * 1_000_000_000 / rate.max(1);
        let bottleneck_ns = self.spec.rate_bytes_per_s.map_or(0, sending_ns);
        let most_ns = 2 * (one_way_ns + bottleneck_ns) + allowed_ns;
        // A lost packet costs a retransmission timeout, so no upper bound holds with loss.
        (self.spec.loss <= 0.0 && measured.round_trip.p50_ns > most_ns).then(|| {
            format!(
                "the median round trip is {} us, more than {} us",
                measured.round_trip.p50_ns / 1000,
                most_ns / 1000
            )
        })
    }

    fn look(&self, restart: bool) -> LinkMark {
        let at = Instant::now();
        let nothing = || {
            (
                stats::Reading::default(),
                stats::Reading::default(),
                Duration::ZERO,
            )
        };
        let (up, down, cpu) = match &self.path {
            Path::Loopback | Path::StandIn => nothing(),
            Path::Between {
                client,
                server,
                forwarder: Some(forwarder),
            } => (
                forwarder
                    .up()
                    .reading(client.transmit_drops(CLIENT_DEVICE), restart),
                forwarder
                    .down()
                    .reading(server.transmit_drops(SERVER_DEVICE), restart),
                forwarder.cpu(),
            ),
            Path::Between {
                client,
                server,
                forwarder: None,
            } => (
                netem::reading(client, netem::CLIENT_DEVICE, self.spec.loss).unwrap_or_default(),
                netem::reading(server, netem::SERVER_DEVICE, self.spec.loss).unwrap_or_default(),
                Duration::ZERO,
            ),
        };
        LinkMark { up, down, cpu, at }
    }
}

/// One end of a link, for a child that is to live there. The default is the network of this
/// process.
#[derive(Debug, Clone, Default)]
pub struct LinkEnd(Option<Namespace>);

impl LinkEnd {
    /// Runs `work` there and waits for its result.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.0 {
            Some(namespace) => namespace.run(work),
            None => Ok(work()),
        }
    }

    /// Moves the calling thread there for good.
    pub(crate) fn enter(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), Namespace::enter)
    }
}

/// The ends of the link. Their namespaces have no other network, so any address would do.
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 83, 0, 1);
pub(crate) const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 83, 0, 2);

#[derive(Debug)]
enum Path {
    Loopback,
    StandIn,
    Between {
        client: Namespace,
        server: Namespace,
        forwarder: Option<Forwarder>,
    },
}

const KINDS: [LinkKind; 3] = [LinkKind::Netem, LinkKind::Tun, LinkKind::StandIn];
const CLIENT_DEVICE: &str = "mw0";
const SERVER_DEVICE: &str = "mw1";
const MEASUREMENT_REPEATS: usize = 2;
/// How much slower than asked the median of an idle exchange may be without a remark. A quiet
/// machine adds 0.2 ms.
const IDLE_EXCESS_NS_CONTRACT: u64 = 500_000;
/// The same for a link that is used at all: a machine that adds more distorts what is measured.
const IDLE_EXCESS_NS_MAX: u64 = 5_000_000;
/// Eight bytes with their headers, options included, and a link layer's.
const EXCHANGE_PACKET_BYTES: u64 = 100;
/// Packets a TUN device holds while the forwarder is not running: more than 10,000 clients'
/// replies and acknowledgements of one burst.
const DEVICE_QUEUE_PACKETS: u32 = 32_768;
/// As on Ethernet, so that TCP segments as it would outside.
const MTU_BYTES: u16 = 1500;

fn check(spec: &LinkSpec) -> Result<(), LinkError> {
    if !(0.0..1.0).contains(&spec.loss) {
        return Err(LinkError::BadSpec(
            "the loss must be at least 0 and less than 1",
        ));
    }
    if spec.rate_bytes_per_s == Some(0) {
        return Err(LinkError::BadSpec(
            "the rate must be more than 0 bytes per second",
        ));
    }
    if spec.kind == Some(LinkKind::StandIn) && spec.is_more_than_delay() {
        return Err(LinkError::BadSpec(STAND_IN_ONLY_DELAYS));
    }
    if spec.delay > DELAY_MAX || spec.jitter > DELAY_MAX {
        return Err(LinkError::BadSpec("delay and jitter must be at most 60 s"));
    }
    if !(QUEUE_BYTES_MIN..=QUEUE_BYTES_MAX).contains(&spec.queue_bytes) {
        return Err(LinkError::BadSpec(
            "the queue must hold from 2 KiB, which is a packet, to 4 GiB",
        ));
    }
    Ok(())
}

const STAND_IN_ONLY_DELAYS: &str = "jitter, loss and rate need a link of our own, with the \
                                    built-in server and root; a stand-in only delays";
const DELAY_MAX: Duration = Duration::from_secs(60);
/// A packet of the usual size passes.
const QUEUE_BYTES_MIN: usize = 2 << 10;
/// What is reserved of the address space, and used up only by what is held.
const QUEUE_BYTES_MAX: usize = 4 << 30;

fn netem_path(spec: &LinkSpec, notes: &mut Vec<String>) -> io::Result<Path> {
    let (client, client_notes) = Namespace::create(|| prepare(spec))?;
    let (server, _) = Namespace::create(|| prepare(spec))?;
    netem::set_up(spec, &client, &server)?;
    notes.extend(client_notes);
    Ok(Path::Between {
        client,
        server,
        forwarder: None,
    })
}

fn tun_path(spec: &LinkSpec, notes: &mut Vec<String>) -> io::Result<Path> {
    let end = |name, address, peer| {
        // A loss or a bottleneck acts on packets of wire size, so offload must not merge them.
        let segmentation = spec.loss <= 0.0 && spec.rate_bytes_per_s.is_none();
        let queue_packets = DEVICE_QUEUE_PACKETS;
        TunDevice {
            name,
            address,
            peer,
            mtu: MTU_BYTES,
            queue_packets,
            segmentation,
        }
    };
    let client_end = end(CLIENT_DEVICE, CLIENT_ADDRESS, SERVER_ADDRESS);
    let server_end = end(SERVER_DEVICE, SERVER_ADDRESS, CLIENT_ADDRESS);
    let open = |device| move || Ok((prepare(spec)?, tun::open(&device)?));
    let (client, (client_notes, client_tun)) = Namespace::create(open(client_end))?;
    let (server, (_, server_tun)) = Namespace::create(open(server_end))?;
    let forwarder = Forwarder::start(client_tun, server_tun, spec)?;
    notes.extend(client_notes);
    if !forwarder.is_real_time() {
        notes.push("the forwarder got no real-time priority".to_owned());
    }
    if forwarder.is_placed() {
        let cpus: Vec<String> = spec.forwarder_cpus.iter().map(usize::to_string).collect();
        let cpus = cpus.join(", ");
        notes.push(format!(
            "packets are forwarded on the server's processors ({cpus})"
        ));
    }
    Ok(Path::Between {
        client,
        server,
        forwarder: Some(forwarder),
    })
}

const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";

/// Sets up the calling thread's new namespace; returns what could not be set.
fn prepare(spec: &LinkSpec) -> io::Result<Vec<String>> {
    tun::bring_loopback_up()?;
    let settings = [
        // No neighbour discovery on an idle link.
        ("net/ipv6/conf/all/disable_ipv6", "1"),
        ("net/ipv6/conf/default/disable_ipv6", "1"),
        ("net/ipv4/ip_local_port_range", "1024 65535"),
        ("net/core/somaxconn", "65535"),
        ("net/ipv4/tcp_max_syn_backlog", "65535"),
    ];
    let mut notes = Vec::new();
    for (name, value) in settings {
        if let Err(error) = namespace::write_sysctl(name, value)
            && !name.contains("ipv6")
        {
            notes.push(format!("{name} is not {value}: {error}"));
        }
    }
    let set = |name: &String| namespace::write_sysctl(CONGESTION_CONTROL, name).is_ok();
    if !spec.congestion_controls.iter().any(set) {
        notes.push("the congestion control is the system's own".to_owned());
    }
    Ok(notes)
}

#[cfg(test)]
mod tests;
