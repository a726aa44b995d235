//! From what was typed to what runs: after this nothing of the command line is checked again.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use moonwire_load::{
    Arrival, ConnectGroup, DeflateOffer, FanOut, FragmentShare, Pacing, PayloadSource, RateStages,
    Reconnect, Settings, Slo, Stop, Target, TimeUnit as LoadTimeUnit, WebSocketVersion, Workload,
    workers_needed,
};

use super::args::{ConnectionArgs, LoadArgs, MessageArgs, PacingArgs, Payload, TimeUnit};
use moonwire_load::quantity;

/// The settings of one load run; every mistake is one sentence.
pub(super) fn resolve(args: &LoadArgs) -> Result<Settings> {
    let targets = args
        .urls
        .iter()
        .map(|url| Target::parse(url))
        .collect::<Result<_, _>>()?;
    let slo = args
        .output
        .slo
        .iter()
        .map(|text| Slo::parse(text))
        .collect::<Result<_, _>>()?;
    check_payload(args)?;
    let connections = &args.connections;
    let pacing = pacing(&args.pacing)?;
    Ok(Settings {
        targets,
        connections: small(connections.connections, "-c")?,
        threads: small(threads(args), "-t")?,
        driver: connections.driver,
        tls_records: connections.tls_records,
        tls_resume: connections.tls_resume,
        connect_concurrency: match (connections.conn_concurrency, connections.conn_rate) {
            // A rate that handshakes in flight held back would not be the rate asked for.
            (Some(0), _) | (None, Some(_)) => u32::MAX,
            (Some(limit), _) => small(limit, "--conn-concurrency")?,
            (None, None) => CONNECT_CONCURRENCY_DEFAULT,
        },
        connect_rate: connections.conn_rate,
        connect_group: connections.conn_group.as_deref().map(group).transpose()?,
        start_delay: connections.start_delay,
        // Connections that make room for each other cannot wait for each other.
        barrier: !connections.no_barrier && connections.per_connection.is_none(),
        messages_per_connection: connections.per_connection,
        open_max: match connections.open_max {
            Some(0) | None => None,
            Some(limit) => Some(small(limit, "--open-max")?),
        },
        think: args.pacing.think,
        stagger: stagger(&args.pacing, &pacing),
        workload: workload(&args.message),
        payloads: payloads(&args.message),
        fragments: fragments(args.message.fragments.as_deref())?,
        fan_out: fan_out(connections)?,
        masked: !args.message.no_mask,
        replies: u16::try_from(replies(&args.message))
            .map_err(|_| anyhow!("--replies is at most {}", u16::MAX))?,
        stop: stop(&args.pacing, &pacing, connections.per_connection.is_some()),
        pacing,
        drain: args.pacing.drain,
        reconnect: reconnect(&connections.reconnect)?,
        subprotocols: connections.subprotocol.clone(),
        deflate: connections.deflate.as_deref().map(deflate).transpose()?,
        websocket_version: version(&connections.websocket_version)?,
        headers: headers(connections)?,
        insecure: connections.insecure,
        cacert: connections.cacert.clone(),
        sources: connections.source_ip.clone(),
        handshake_timeout: connections.handshake_timeout,
        seed: args.pacing.seed.unwrap_or_else(seed_default),
        raw_csv: args.output.csv.clone(),
        same_host: args.message.same_host,
        link_delay: args.pacing.link_delay,
        slo,
        ..Settings::default()
    })
}

fn headers(connections: &ConnectionArgs) -> Result<Vec<(String, String)>> {
    let headers = connections.headers.iter();
    headers
        .map(|header| quantity::pair(header, ':').map_err(|e| anyhow!("--header {e}")))
        .collect()
}

/// As many as were asked for; else one core is left to the server, and there are enough to hold
/// all connections.
fn threads(args: &LoadArgs) -> u64 {
    let ConnectionArgs {
        connections,
        open_max,
        threads,
        ..
    } = args.connections;
    let all = connections.saturating_mul(args.urls.len() as u64);
    let open = open_max
        .filter(|limit| *limit > 0)
        .map_or(all, |limit| limit.min(all));
    threads.unwrap_or_else(|| threads_default().max(workers_needed(open)))
}

fn fragments(shares: Option<&str>) -> Result<Vec<FragmentShare>> {
    let shares = shares.map(FragmentShare::parse_all).transpose()?;
    Ok(shares.unwrap_or_default())
}

/// What a few send and all hear, if that is asked for.
fn fan_out(connections: &ConnectionArgs) -> Result<Option<FanOut>> {
    let Some(publishers) = connections.publishers else {
        return Ok(None);
    };
    Ok(Some(FanOut {
        publishers: small(publishers, "--publishers")?,
        silent: match connections.silent {
            Some(silent) => small(silent, "--silent")?,
            None => 0,
        },
    }))
}

/// One core is left to the server, which is the neighbour on most desks.
pub(crate) fn threads_default() -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores as u64 - 1).max(1)
}

/// A seed nobody chose; it stands in the result, so that the run can be repeated.
pub(crate) fn seed_default() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Below 2^53, so that every JSON reader shows the number that was used.
    now.map_or(1, |since| since.as_micros() as u64 & ((1 << 53) - 1))
}

pub(crate) fn time_unit(unit: TimeUnit) -> LoadTimeUnit {
    match unit {
        TimeUnit::Us => LoadTimeUnit::Microseconds,
        TimeUnit::Ms => LoadTimeUnit::Milliseconds,
    }
}

/// Flags that mean nothing for the payload are refused rather than ignored.
fn check_payload(args: &LoadArgs) -> Result<()> {
    let MessageArgs {
        payload,
        time_unit,
        same_host,
        binary,
        ..
    } = args.message;
    match payload {
        Payload::Echo if args.output.csv.is_some() => {
            bail!("--csv needs --payload amplify: its columns hold the server's clock")
        }
        Payload::Echo if time_unit.is_some() || same_host => {
            bail!("--time-unit and --same-host need --payload amplify: an echo carries no clock")
        }
        Payload::Amplify if binary => {
            bail!("--binary is for echoes: the amplify payload is always in binary frames")
        }
        Payload::Echo | Payload::Amplify => Ok(()),
    }
}

/// Batches make a steady load unless told otherwise.
fn stagger(args: &PacingArgs, pacing: &Pacing) -> Option<Duration> {
    let by_default = match pacing {
        Pacing::Batches { wait, .. } => Some(*wait),
        Pacing::Closed { .. } | Pacing::Open { .. } | Pacing::Hold | Pacing::Stages { .. } => None,
    };
    args.stagger.or(by_default)
}

fn pacing(args: &PacingArgs) -> Result<Pacing> {
    let in_flight = args.in_flight.map(|limit| small(limit, "-p")).transpose()?;
    let arrival = match args.poisson {
        true if args.rate.is_none() && args.stages.is_none() => {
            bail!("--poisson spreads the messages of a rate: give -q or --stages, too")
        }
        true => Arrival::Poisson,
        false => Arrival::Constant,
    };
    if args.hold {
        return Ok(Pacing::Hold);
    }
    if let (Some(batch), Some(batches)) = (args.batch, args.batches) {
        let batch = small(batch, "--batch")?;
        let wait = args.wait.unwrap_or(WAIT_DEFAULT);
        check_batches(batches, wait)?;
        return Ok(Pacing::Batches {
            batch,
            wait,
            batches,
            in_flight,
        });
    }
    if let Some(stages) = &args.stages {
        let stages = RateStages::parse(stages, args.rate.unwrap_or(0.0));
        return Ok(Pacing::Stages {
            stages: stages.map_err(|clause| anyhow!("--stages: {clause}"))?,
            arrival,
            in_flight,
        });
    }
    Ok(match args.rate {
        Some(rate) => Pacing::Open {
            rate,
            arrival,
            in_flight,
        },
        None => Pacing::Closed {
            in_flight: in_flight.unwrap_or(1),
        },
    })
}

fn stop(args: &PacingArgs, pacing: &Pacing, is_short_lived: bool) -> Stop {
    match (args.messages, args.duration) {
        _ if matches!(pacing, Pacing::Batches { .. } | Pacing::Stages { .. }) => Stop::Schedule,
        (Some(messages), _) => Stop::Messages(messages),
        (None, None) if is_short_lived => Stop::Schedule,
        (None, duration) => Stop::After(duration.unwrap_or(DURATION_DEFAULT)),
    }
}

/// What each service answers unless it is configured otherwise.
fn replies(args: &MessageArgs) -> u64 {
    let by_default = match args.payload {
        Payload::Echo => 1,
        Payload::Amplify => AMPLIFY_REPLIES_DEFAULT,
    };
    args.replies.unwrap_or(by_default)
}

fn workload(args: &MessageArgs) -> Workload {
    match args.payload {
        Payload::Echo => Workload::Echo {
            size: args.message_size.unwrap_or(ECHO_BYTES_DEFAULT),
            binary: args.binary,
        },
        Payload::Amplify => Workload::Amplify {
            size: args.message_size.unwrap_or(AMPLIFY_BYTES_DEFAULT),
            time_unit: time_unit(args.time_unit.unwrap_or(TimeUnit::Us)),
        },
    }
}

fn payloads(args: &MessageArgs) -> Option<PayloadSource> {
    let command = args.payload_command.clone().map(PayloadSource::Command);
    let file = || args.payload_file.clone().map(PayloadSource::File);
    let lines = || args.payload_lines.clone().map(PayloadSource::Lines);
    command.or_else(file).or_else(lines)
}

fn group(text: &str) -> Result<ConnectGroup> {
    let read = || {
        let (connections, every) = text.split_once('/')?;
        Some(ConnectGroup {
            connections: u32::try_from(quantity::positive(connections).ok()?).ok()?,
            every: quantity::duration(every).ok()?,
        })
    };
    read().with_context(|| {
        format!("--conn-group '{text}' is not a number of connections and a time such as 50/500ms")
    })
}

fn version(text: &str) -> Result<WebSocketVersion> {
    match text {
        "8" => Ok(WebSocketVersion::Hybi08),
        "13" => Ok(WebSocketVersion::Rfc6455),
        _ => bail!("--websocket-version '{text}' is neither 8 nor 13"),
    }
}

fn reconnect(text: &str) -> Result<Reconnect> {
    Reconnect::parse(text).map_err(|clause| anyhow!("--reconnect {clause}"))
}

/// Refuses batches that nobody can wait for, before times are added up that no clock has.
pub(crate) fn check_batches(batches: u64, wait: Duration) -> Result<()> {
    if u128::from(batches - 1) * wait.as_nanos() > BATCHES_TIME_MAX.as_nanos() {
        bail!("{batches} batches, one every {wait:?}, take longer than the maximum of 30 days");
    }
    Ok(())
}

fn deflate(parameters: &str) -> Result<DeflateOffer> {
    DeflateOffer::parse(parameters).with_context(|| {
        format!(
            "--deflate='{parameters}' must be parameters of permessage-deflate, such as \
             'server_no_context_takeover; client_max_window_bits=10'"
        )
    })
}

fn small(value: u64, flag: &str) -> Result<u32> {
    u32::try_from(value).with_context(|| format!("{flag} {value} is more than {}", u32::MAX))
}

/// How long a run sends when nothing says so.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
/// Handshakes in flight when nothing says so: below the listen backlog of common servers.
const CONNECT_CONCURRENCY_DEFAULT: u32 = 128;
/// How long the batches of one run or cell may take, as any other duration of a run.
const BATCHES_TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// uwebsocket-benchmark's.
const WAIT_DEFAULT: Duration = Duration::from_secs(1);
/// A short message.
const ECHO_BYTES_DEFAULT: usize = 64;
/// As the bench sends them.
const AMPLIFY_BYTES_DEFAULT: usize = 1024;
/// Of the shipped service, and of uwebsocket-benchmark's servers.
const AMPLIFY_REPLIES_DEFAULT: u64 = 4;
