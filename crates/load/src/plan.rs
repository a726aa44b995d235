//! Everything that all workers of a run read and nobody changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonwire_net::{ClientTls, ConnectTarget, SessionLimits, Trust, random_mask};
use moonwire_proto::{ClientKey, Limits, Opcode, UpgradeRequest};

use crate::amplify::AmplifyPayload;
use crate::audience::Programme;
use crate::client::Track;
use crate::payload::EchoPayload;
use crate::pool::{self, Wanted};
use crate::preflight::Provision;
use crate::run::LoadError;
use crate::scenario::{Pacing, Scenario, Settings, Stop, Workload};
use crate::schedule::{NEVER, Schedule, duration_ns, mix};
use crate::sources::Sources;

/// The scenario, made ready.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) schedule: Schedule,
    pub(crate) content: Content,
    /// All that is published, where it is.
    pub(crate) programme: Option<Programme>,
    /// Addresses of the scenario's targets, in their order.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) sources: Sources,
    /// Whether each worker has a table of descriptors of its own.
    pub(crate) has_own_tables: bool,
    /// `None` when every target is ws://.
    pub(crate) tls: Option<ClientTls>,
    pub(crate) limits: Arc<SessionLimits>,
    /// The same as `amplify_unit_ns`; `None` when the two ends' clocks may not be compared.
    pub(crate) one_way_unit_ns: Option<u64>,
    /// Nanoseconds of one unit of the clocks inside messages, for those that have them.
    pub(crate) amplify_unit_ns: u64,
    /// From a reply to the next message of its connection, in a closed loop.
    pub(crate) think_ns: u64,
    /// Delay of the stand-in link per direction; 0 is none.
    pub(crate) link_delay_ns: u64,
    /// How long replies are awaited after the last send.
    pub(crate) drain_ns: u64,
    /// When messages still due are given up, from the start; [`NEVER`] where the peer decides. Who
    /// joins late puts it off.
    pub(crate) give_up_ns: u64,
    /// Most unanswered messages per connection.
    pub(crate) in_flight_max: u32,
    /// Messages of one connection before it closes; [`NEVER`] where it stays open.
    pub(crate) quota: u64,
    /// Messages per connection that are given up and still remembered.
    pub(crate) overdue_max: usize,
}

/// The workload with its tables.
#[derive(Debug)]
pub(crate) enum Content {
    Echo(EchoPayload),
    Amplify(AmplifyPayload),
}

impl Plan {
    /// Looks up the hosts; everything else was checked with the scenario.
    pub(crate) fn resolve(scenario: &Scenario) -> Result<Vec<SocketAddr>, LoadError> {
        scenario
            .targets
            .iter()
            .map(|target| target.resolve().map_err(LoadError::Resolve))
            .collect()
    }

    /// Makes a scenario ready, with what the preflight chose, unless `stop` is set meanwhile.
    pub(crate) fn new(
        scenario: &Scenario,
        addresses: Vec<SocketAddr>,
        provision: Provision,
        stop: &AtomicBool,
    ) -> Result<Self, LoadError> {
        let schedule = Schedule::new(scenario);
        let content = match scenario.workload {
            Workload::Echo { size, binary } => Content::Echo(echo(scenario, size, binary, stop)?),
            Workload::Alternating { size } => {
                Content::Echo(EchoPayload::alternating(size, scenario.seed))
            }
            Workload::Amplify { size, .. } => {
                Content::Amplify(AmplifyPayload::new(size, scenario.seed))
            }
        };
        let mut drain_ns = duration_ns(scenario.drain);
        if drain_ns > 0 {
            // What is on its way in the stand-in link is not late.
            let round_trip_ns = 2 * scenario.link_delay.map_or(0, duration_ns);
            drain_ns = drain_ns.saturating_add(round_trip_ns);
        }
        let planned_ns = schedule.planned_ns();
        Ok(Self {
            tls: client_tls(scenario)?,
            limits: Arc::new(session_limits(scenario)),
            one_way_unit_ns: one_way_refusal(scenario, &addresses)
                .is_none()
                .then(|| one_way_unit_ns(scenario))
                .flatten(),
            amplify_unit_ns: one_way_unit_ns(scenario).unwrap_or(1000),
            think_ns: scenario.think.map_or(0, duration_ns),
            link_delay_ns: scenario.link_delay.map_or(0, duration_ns),
            give_up_ns: planned_ns.map_or(NEVER, |planned| {
                let last_ns = planned.saturating_add(drain_ns);
                match schedule.end_ns() {
                    NEVER => last_ns.saturating_add(last_attempt_ns(scenario)),
                    _ => last_ns,
                }
            }),
            in_flight_max: scenario.in_flight_max().unwrap_or(u32::MAX),
            quota: scenario.messages_per_connection.unwrap_or(NEVER),
            programme: scenario
                .fan_out
                .map(|fan_out| Programme::new(fan_out, scenario.listeners(), scenario.workers())),
            overdue_max: OVERDUE_MAX / scenario.connections_total() as usize,
            scenario: scenario.clone(),
            drain_ns,
            schedule,
            content,
            addresses,
            sources: provision.sources,
            has_own_tables: provision.has_own_tables,
        })
    }

    /// Where connection `number` goes, and from where.
    pub(crate) fn connect_target(&self, number: u32) -> ConnectTarget {
        let targets = self.addresses.len() as u32;
        ConnectTarget {
            remote: self.addresses[self.target_of(number)],
            source: self.sources.of(number / targets),
        }
    }

    /// Index of the target of connection `number`: in turn, so that all begin at once.
    pub(crate) fn target_of(&self, number: u32) -> usize {
        number as usize % self.addresses.len()
    }

    /// The TLS of connection `number` and the name to check, if its target is wss://.
    pub(crate) fn tls_of(&self, number: u32) -> Option<(&ClientTls, &str)> {
        let target = &self.scenario.targets[self.target_of(number)];
        let tls = self.tls.as_ref().filter(|_| target.is_secure())?;
        Some((tls, target.host()))
    }

    /// One request per target; each connection puts its own key into it.
    pub(crate) fn requests(&self) -> Vec<UpgradeRequest> {
        let request = |target: &crate::target::Target| UpgradeRequest {
            host: target.host_header(),
            target: target.resource().to_owned(),
            subprotocols: self.scenario.subprotocols.clone(),
            headers: self.scenario.headers.clone(),
            deflate: self.scenario.deflate,
            version: self.scenario.websocket_version,
            key: ClientKey::generate(random_mask),
        };
        self.scenario.targets.iter().map(request).collect()
    }

    /// The opcode of message `seq` of any connection.
    pub(crate) fn opcode(&self, seq: u64) -> Opcode {
        match self.scenario.workload {
            Workload::Echo { binary: false, .. } => Opcode::Text,
            Workload::Alternating { .. } if seq.is_multiple_of(2) => Opcode::Text,
            Workload::Echo { binary: true, .. }
            | Workload::Alternating { .. }
            | Workload::Amplify { .. } => Opcode::Binary,
        }
    }

    /// Bytes of a message, on average.
    pub(crate) fn payload_bytes(&self) -> usize {
        match &self.content {
            Content::Echo(echo) => echo.pool_mean_bytes(),
            Content::Amplify(_) => None,
        }
        .unwrap_or_else(|| self.scenario.workload.payload_bytes())
    }

    /// True when messages follow replies instead of a schedule.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.scenario.pacing, Pacing::Closed { .. })
    }

    /// True of a connection that sends messages.
    pub(crate) fn is_sender(&self, number: u32) -> bool {
        number < self.scenario.senders()
    }

    /// True of a connection that reads nothing once it has subscribed.
    pub(crate) fn is_silent(&self, number: u32) -> bool {
        number >= self.scenario.listeners()
    }

    /// Copies that are to come of each message.
    pub(crate) fn copies(&self) -> u64 {
        match self.programme {
            Some(_) => self.scenario.listeners().into(),
            None => self.scenario.replies.into(),
        }
    }

    /// True when connections close after their messages.
    pub(crate) fn is_short_lived(&self) -> bool {
        self.quota != NEVER
    }

    /// When connection `number` is to be attempted, from the first one on.
    pub(crate) fn connect_offset_ns(&self, number: u32) -> u64 {
        let delay_ns = self.scenario.start_delay.map_or(0, |delay| {
            let seed = mix(self.scenario.seed ^ DELAY_SALT, u64::from(number));
            let draw = fastrand::Rng::with_seed(seed).f64();
            duration_ns(delay.mul_f64(draw))
        });
        paced_ns(&self.scenario, number).saturating_add(delay_ns)
    }

    /// True when connections are attempted at times that do not depend on others.
    pub(crate) fn is_connect_paced(&self) -> bool {
        let Settings {
            connect_rate,
            connect_group,
            start_delay,
            ..
        } = &*self.scenario;
        connect_rate.is_some() || connect_group.is_some() || start_delay.is_some()
    }

    /// The pause before connection `number` is made again; `None` where it is not.
    pub(crate) fn pause(&self, number: u32, track: &Track) -> Option<Duration> {
        let key = mix(self.scenario.seed ^ PAUSE_SALT, u64::from(number));
        let draw = fastrand::Rng::with_seed(mix(key, u64::from(track.retries_total))).f64();
        let attempt = track.retries.saturating_add(1);
        self.scenario.reconnect.pause(attempt, draw)
    }

    /// Messages per second asked for.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        match self.scenario.pacing {
            Pacing::Open { rate, .. } => Some(rate),
            Pacing::Stages { ref stages, .. } => Some(stages.mean_per_s()),
            Pacing::Batches { batch, wait, .. } if !wait.is_zero() => {
                let per_tick = f64::from(batch) * f64::from(self.scenario.senders());
                Some(per_tick / wait.as_secs_f64())
            }
            Pacing::Batches { .. } | Pacing::Closed { .. } | Pacing::Hold => None,
        }
    }

    /// From the last intended time to the end of the last period, in which every connection has
    /// its place: what the sending phase is longer than its last send, so that a rate is over whole
    /// periods.
    pub(crate) fn last_gap_ns(&self) -> u64 {
        match (&self.scenario.pacing, self.schedule.end_ns()) {
            (Pacing::Batches { wait, .. }, NEVER) => {
                duration_ns(*wait).saturating_sub(self.schedule.last_stagger_ns())
            }
            _ => 0,
        }
    }

    /// How long a message may be unanswered before it gives its slot back, and how long a counted
    /// closed loop goes on without any reply.
    pub(crate) fn slot_patience_ns(&self) -> u64 {
        let patience_ns = SLOT_PATIENCE_NS.saturating_add(2 * self.link_delay_ns);
        self.drain_ns.max(patience_ns)
    }

    /// True for a closed loop that ends only when so many messages were sent. Connections that
    /// start at times of their own may be long without a reply, and come to an end.
    pub(crate) fn may_go_on_for_ever(&self) -> bool {
        self.is_counted() || self.is_short_lived() && !self.is_connect_paced()
    }

    /// True when only a number of messages ends the run.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.scenario.stop, Stop::Messages(_))
    }
}

/// What is echoed: messages of the user's own, or those that are made here.
fn echo(
    scenario: &Scenario,
    size: usize,
    is_binary: bool,
    stop: &AtomicBool,
) -> Result<EchoPayload, LoadError> {
    let seed = scenario.seed;
    let Some(source) = &scenario.payloads else {
        return Ok(EchoPayload::new(size, seed));
    };
    let wanted = Wanted {
        size,
        is_binary,
        seed,
    };
    pool::fill(source, wanted, stop)
        .map(EchoPayload::of_pool)
        .map_err(|sentence| match stop.load(Ordering::Acquire) {
            true => LoadError::Interrupted(sentence),
            false => LoadError::Payload(sentence),
        })
}

/// When the last connection is attempted, from the start.
fn last_attempt_ns(scenario: &Scenario) -> u64 {
    if scenario.barrier {
        return 0;
    }
    let delay_ns = scenario.start_delay.map_or(0, duration_ns);
    paced_ns(scenario, scenario.connections_total() - 1).saturating_add(delay_ns)
}

/// When connection `number` is attempted by the rate or the groups of connections.
fn paced_ns(scenario: &Scenario, number: u32) -> u64 {
    match (scenario.connect_rate, scenario.connect_group) {
        (Some(rate), _) => (f64::from(number) * 1e9 / rate) as u64,
        (None, Some(group)) => {
            let before = u64::from(number / group.connections);
            before.saturating_mul(duration_ns(group.every))
        }
        (None, None) => 0,
    }
}

/// Why one-way latencies cannot be had, in one sentence; `None` when they can.
pub(crate) fn one_way_refusal(scenario: &Scenario, addresses: &[SocketAddr]) -> Option<String> {
    if one_way_unit_ns(scenario).is_none() {
        return Some("an echo carries no clock of the server".to_owned());
    }
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    // Which difference is small enough is for whoever has measured it.
    let is_known = scenario.same_host || scenario.server_clock.is_some();
    if is_known || addresses.iter().all(|address| is_loopback(address.ip())) {
        return None;
    }
    Some(
        "the server may be on another host, whose clock differs: it is measured only where both \
         ends share a clock"
            .to_owned(),
    )
}

fn one_way_unit_ns(scenario: &Scenario) -> Option<u64> {
    match scenario.workload {
        Workload::Amplify { time_unit, .. } => Some(time_unit.nanoseconds()),
        Workload::Echo { .. } | Workload::Alternating { .. } => None,
    }
}

fn client_tls(scenario: &Scenario) -> Result<Option<ClientTls>, LoadError> {
    if !scenario
        .targets
        .iter()
        .any(crate::target::Target::is_secure)
    {
        return Ok(None);
    }
    let trust = match &scenario.cacert {
        _ if scenario.insecure => Trust::Anyone,
        Some(path) => Trust::Authorities(path.clone()),
        None => Trust::System,
    };
    ClientTls::new(&trust)
        .map(|tls| tls.with_records(scenario.tls_records))
        .map(|tls| match scenario.tls_resume {
            true => tls.with_resumption(),
            false => tls,
        })
        .map(Some)
        .map_err(|error| LoadError::Tls(error.to_string()))
}

fn session_limits(scenario: &Scenario) -> SessionLimits {
    SessionLimits {
        protocol: Limits {
            message_bytes_max: REPLY_BYTES_MAX,
            ..Limits::default()
        },
        write_queue_bytes_max: WRITE_QUEUE_BYTES_MAX,
        // Replies are always received: a generator that stops reading because the server stopped
        // reading would wait for ever for a server that waits for it.
        write_queue_pause_bytes: usize::MAX,
        handshake_timeout: scenario.handshake_timeout,
        idle_timeout: None,
        pong_timeout: None,
        close_timeout: CLOSE_TIMEOUT,
        // A client that never pauses never waits for the write timeout, and what it is sent has
        // bounds enough: no message timeout, no bound on memory.
        ..SessionLimits::default()
    }
}

/// Keeps delays and pauses apart from what else is drawn from the seed.
const DELAY_SALT: u64 = 0x6465_6c61_7900;
const PAUSE_SALT: u64 = 0x7061_7573_6500;
/// Shortest time after which an unanswered message gives its slot back.
const SLOT_PATIENCE_NS: u64 = 10_000_000_000;
/// Messages of a run that are given up and still remembered: 192 MiB. Replies to those before are
/// counted without a latency.
const OVERDUE_MAX: usize = 1 << 22;
/// Largest reply: the largest message with room for the fields a server adds.
const REPLY_BYTES_MAX: usize = 17 * 1024 * 1024;
/// Bytes that wait in one connection before its messages wait in the schedule instead, where they
/// cost nothing. One message always fits.
const WRITE_QUEUE_BYTES_MAX: usize = 256 * 1024;
/// How long a server may take to answer our close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use moonwire_report::ClockOffset;

    use super::*;
    use crate::scenario::{Settings, TimeUnit};
    use crate::target::Target;

    fn scenario(url: &str, change: impl FnOnce(&mut Settings)) -> Scenario {
        let targets = vec![Target::parse(url).unwrap()];
        let mut settings = Settings {
            targets,
            ..Settings::default()
        };
        change(&mut settings);
        Scenario::new(settings).unwrap()
    }

    #[test]
    fn clocks_are_compared_only_where_both_ends_share_one() {
        let amplify = Workload::Amplify {
            size: 1024,
            time_unit: TimeUnit::Milliseconds,
        };
        let echo = scenario("ws://127.0.0.1:1/", |_| {});
        let refusal = |url: &str, same_host: bool| {
            let scenario = scenario(url, |settings| {
                settings.workload = amplify;
                settings.same_host = same_host;
            });
            one_way_refusal(&scenario, &Plan::resolve(&scenario).unwrap())
        };
        assert_eq!(refusal("ws://127.0.0.5:1/", false), None);
        assert_eq!(refusal("ws://[::1]:1/", false), None);
        assert!(
            refusal("ws://10.0.0.1:1/", false)
                .unwrap()
                .contains("another host")
        );
        assert_eq!(refusal("ws://10.0.0.1:1/", true), None);
        let scenario = scenario("ws://10.0.0.1:1/", |settings| {
            settings.workload = amplify;
            settings.server_clock = Some(ClockOffset::default());
        });
        assert_eq!(one_way_refusal(&scenario, &[]), None);
        assert!(one_way_refusal(&echo, &[]).unwrap().contains("echo"));
    }
}
