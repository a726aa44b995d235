//! What settings can run, with one sentence per mistake.

use std::time::Duration;

use moonwire_net::random_mask;
use moonwire_proto::{ClientKey, UpgradeRequest, WebSocketVersion};

use crate::fragments;
use crate::payload::HEADER_BYTES;
use crate::reconnect::Reconnect;
use crate::slo::Slo;

use super::{AMPLIFY_SIZE_MIN, FanOut, Pacing, SIZE_MAX, ScenarioError, Settings, Stop, Workload};

/// Checks the settings; the error says the first mistake.
pub(super) fn check(settings: &Settings) -> Result<(), ScenarioError> {
    check_connections(settings)?;
    check_pacing(settings)?;
    check_short_lived(settings)?;
    check_reconnect(settings)?;
    check_workload(settings)?;
    check_fan_out(settings)?;
    fragments::check(&settings.fragments)?;
    check_thresholds(settings)?;
    check_headers(settings)
}

/// A threshold that a load is too short for would end it without an answer.
fn check_thresholds(settings: &Settings) -> Result<(), ScenarioError> {
    let Stop::After(duration) = settings.stop else {
        return Ok(());
    };
    let is_short = |slo: &&Slo| duration < Duration::from_secs(slo.load_seconds_min());
    match settings.slo.iter().find(is_short) {
        Some(slo) => mistake(slo.too_short(duration)),
        None => Ok(()),
    }
}

fn check_connections(settings: &Settings) -> Result<(), ScenarioError> {
    if settings.targets.is_empty() {
        return mistake("there is no URL to load: give at least one ws:// or wss:// URL");
    }
    if settings.connections == 0 {
        return mistake("there must be at least 1 connection");
    }
    let total = u64::from(settings.connections) * settings.targets.len() as u64;
    if total > u64::from(CONNECTIONS_MAX) {
        return mistake(format!(
            "{total} connections are more than the {CONNECTIONS_MAX} that one run can number"
        ));
    }
    if settings.threads == 0 || settings.threads > THREADS_MAX {
        return mistake(format!("threads must be between 1 and {THREADS_MAX}"));
    }
    if settings.connect_concurrency == 0 {
        return mistake("the connect concurrency must be at least 1");
    }
    if let Some(rate) = settings.connect_rate {
        check_rate("connection rate", rate)?;
    }
    if let Some(group) = settings.connect_group {
        if group.connections == 0 || group.every > DURATION_MAX {
            return mistake(
                "connections start in groups of at least 1, at most 30 days after each other",
            );
        }
        if settings.connect_rate.is_some() {
            return mistake("connections start at a rate or in groups: give one of the two");
        }
    }
    if settings
        .start_delay
        .is_some_and(|delay| delay > DURATION_MAX)
    {
        return mistake("the delay before a connection starts must be at most 30 days");
    }
    if settings.handshake_timeout.is_zero() || settings.handshake_timeout > DURATION_MAX {
        return mistake("the handshake timeout must be more than 0 and at most 30 days");
    }
    Ok(())
}

fn check_pacing(settings: &Settings) -> Result<(), ScenarioError> {
    match settings.pacing {
        Pacing::Closed { in_flight } => check_in_flight(Some(in_flight))?,
        Pacing::Open {
            rate, in_flight, ..
        } => {
            check_rate("message rate", rate)?;
            check_in_flight(in_flight)?;
            if settings.stagger.is_some() {
                return mistake(
                    "a stagger shapes batches and closed loops; the rate spreads an open loop",
                );
            }
        }
        Pacing::Batches {
            batch,
            wait,
            batches,
            in_flight,
        } => {
            check_in_flight(in_flight)?;
            if batch == 0 || batches == 0 {
                return mistake("there must be at least 1 batch of at least 1 message");
            }
            if wait > DURATION_MAX {
                return mistake("the wait between batches must be at most 30 days");
            }
        }
        Pacing::Hold => {}
        Pacing::Stages { in_flight, .. } => {
            check_in_flight(in_flight)?;
            if settings.stagger.is_some() {
                return mistake("a stagger shapes batches and closed loops; stages have a rate");
            }
        }
    }
    check_stop(settings)?;
    check_stagger(settings)?;
    check_think(settings)?;
    if settings.drain > DURATION_MAX {
        return mistake("the drain must be at most 30 days");
    }
    if settings
        .link_delay
        .is_some_and(|delay| delay > LINK_DELAY_MAX)
    {
        return mistake("the delay of the stand-in link must be at most 60 s");
    }
    Ok(())
}

fn check_stop(settings: &Settings) -> Result<(), ScenarioError> {
    let is_staged = matches!(settings.pacing, Pacing::Stages { .. });
    match settings.stop {
        Stop::After(_) | Stop::Messages(_) if is_staged => {
            mistake("stages end by themselves: give no duration and no number of messages")
        }
        Stop::After(duration) if duration.is_zero() || duration > DURATION_MAX => {
            mistake("the duration must be more than 0 and at most 30 days")
        }
        Stop::Messages(0) => mistake("the number of messages must be at least 1"),
        Stop::Messages(_) if settings.pacing == Pacing::Hold => {
            mistake("connections that are only held need a duration, not a number of messages")
        }
        Stop::Schedule
            if !matches!(
                settings.pacing,
                Pacing::Batches { .. } | Pacing::Stages { .. }
            ) && settings.messages_per_connection.is_none() =>
        {
            mistake(
                "only batches and stages end by themselves: give a duration or a number of \
                 messages",
            )
        }
        Stop::After(_) | Stop::Messages(_) | Stop::Schedule => Ok(()),
    }
}

fn check_think(settings: &Settings) -> Result<(), ScenarioError> {
    match settings.think {
        Some(think) if think > DURATION_MAX => mistake("the time to think must be at most 30 days"),
        Some(_) if !matches!(settings.pacing, Pacing::Closed { .. }) => mistake(
            "a time to think follows a reply: it needs a closed loop, without a rate and without \
             batches",
        ),
        Some(_) | None => Ok(()),
    }
}

fn check_stagger(settings: &Settings) -> Result<(), ScenarioError> {
    let Some(stagger) = settings.stagger else {
        return Ok(());
    };
    if stagger > DURATION_MAX {
        return mistake("the stagger must be at most 30 days");
    }
    if let Pacing::Batches { wait, .. } = settings.pacing
        && !wait.is_zero()
        && stagger > wait
    {
        return mistake(format!(
            "a stagger of {stagger:?} is longer than the wait of {wait:?} between batches, so that \
             the rate would never be reached: give a shorter one"
        ));
    }
    if let Stop::After(duration) = settings.stop
        && stagger > duration
    {
        return mistake(format!(
            "a stagger of {stagger:?} is longer than the duration of {duration:?}, so that some \
             connections would never send: give a shorter one"
        ));
    }
    Ok(())
}

/// A few publish, all subscribe.
fn check_fan_out(settings: &Settings) -> Result<(), ScenarioError> {
    let Some(fan_out) = settings.fan_out else {
        return Ok(());
    };
    let FanOut { publishers, silent } = fan_out;
    let Some(listeners) = settings.connections.checked_sub(silent) else {
        return mistake("more connections are silent than there are");
    };
    if publishers == 0 || publishers > listeners {
        return mistake(format!(
            "publishers must be from 1 to the {listeners} connections that read"
        ));
    }
    if u64::from(publishers) * u64::from(listeners) > HEARINGS_MAX {
        return mistake(format!(
            "{publishers} publishers times {listeners} that hear them are more than the \
             {HEARINGS_MAX} that can be followed"
        ));
    }
    if settings.targets.len() > 1 {
        return mistake("what is published at one URL is not heard at another: give one");
    }
    let has_numbers = match settings.workload {
        Workload::Echo { size, .. } => size >= HEADER_BYTES && settings.payloads.is_none(),
        Workload::Alternating { .. } | Workload::Amplify { .. } => false,
    };
    if !has_numbers || settings.replies != 1 {
        return mistake(format!(
            "what is published is known by the numbers in it: it needs messages of our own of at \
             least {HEADER_BYTES} bytes, one reply each"
        ));
    }
    if settings.messages_per_connection.is_some() || settings.raw_csv.is_some() {
        return mistake(
            "subscribers stay, and have no line each: give no number of messages per connection \
             and no CSV",
        );
    }
    Ok(())
}

/// Connections that close after some messages, and the limit of those that are open.
fn check_short_lived(settings: &Settings) -> Result<(), ScenarioError> {
    let Some(messages) = settings.messages_per_connection else {
        return match settings.open_max {
            Some(_) => mistake(
                "connections that stay open make no room for others: give the number of messages \
                 after which they close, or no limit of open ones",
            ),
            None => Ok(()),
        };
    };
    if messages == 0 {
        return mistake("there must be at least 1 message per connection");
    }
    if settings.open_max == Some(0) {
        return mistake("there must be room for at least 1 open connection");
    }
    if !matches!(settings.pacing, Pacing::Closed { .. }) {
        return mistake(
            "connections of some messages each send them one after the other's reply: give no \
             rate and no batches, but a rate of connections",
        );
    }
    if matches!(settings.stop, Stop::Messages(_)) {
        return mistake(
            "the messages of a run are counted per connection or over all of them: give one of \
             the two numbers",
        );
    }
    if settings.stagger.is_some() {
        return mistake("a connection of some messages sends as soon as it is open: no stagger");
    }
    let total = u64::from(settings.connections) * settings.targets.len() as u64;
    if settings.barrier
        && settings
            .open_max
            .is_some_and(|open| u64::from(open) < total)
    {
        return mistake(
            "connections that open in the place of others cannot all be awaited before the first \
             message: give no barrier",
        );
    }
    Ok(())
}

fn check_reconnect(settings: &Settings) -> Result<(), ScenarioError> {
    match settings.reconnect {
        Reconnect::After(pause) if pause > DURATION_MAX => {
            mistake("the pause before a connection is made again must be at most 30 days")
        }
        Reconnect::Exponential { first, max, .. } if first.is_zero() || first > max => {
            mistake(format!(
                "the pauses before a connection is made again must begin above 0 and end at a \
                 longer one, not go from {first:?} to {max:?}"
            ))
        }
        Reconnect::Exponential { max, .. } if max > DURATION_MAX => {
            mistake("the pause before a connection is made again must be at most 30 days")
        }
        Reconnect::Never | Reconnect::After(_) | Reconnect::Exponential { .. } => Ok(()),
    }
}

fn check_in_flight(in_flight: Option<u32>) -> Result<(), ScenarioError> {
    match in_flight {
        Some(0) => mistake("there must be at least 1 message in flight per connection"),
        Some(n) if n > IN_FLIGHT_MAX => mistake(format!(
            "{n} messages in flight per connection are more than the maximum of {IN_FLIGHT_MAX}"
        )),
        Some(_) | None => Ok(()),
    }
}

fn check_rate(what: &str, rate: f64) -> Result<(), ScenarioError> {
    if rate.is_finite() && (RATE_MIN..=RATE_MAX).contains(&rate) {
        return Ok(());
    }
    mistake(format!(
        "the {what} must be between {RATE_MIN} and {RATE_MAX} per second, not {rate}"
    ))
}

fn check_workload(settings: &Settings) -> Result<(), ScenarioError> {
    if settings.replies == 0 {
        return mistake("there must be at least 1 reply per message");
    }
    if settings.payloads.is_some() && !matches!(settings.workload, Workload::Echo { .. }) {
        return mistake("messages of your own can only be echoed: give no other payload");
    }
    match settings.workload {
        Workload::Echo { size, .. }
        | Workload::Alternating { size }
        | Workload::Amplify { size, .. }
            if size > SIZE_MAX =>
        {
            mistake(format!(
                "a message of {size} bytes is more than the maximum of {SIZE_MAX}"
            ))
        }
        Workload::Amplify { size, .. } if size < AMPLIFY_SIZE_MIN => mistake(format!(
            "an amplify message needs at least {AMPLIFY_SIZE_MIN} bytes for its fields, not {size}"
        )),
        Workload::Echo { .. } | Workload::Alternating { .. } | Workload::Amplify { .. } => Ok(()),
    }
}

fn check_headers(settings: &Settings) -> Result<(), ScenarioError> {
    let token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    for (name, value) in &settings.headers {
        if !token(name) {
            return mistake(format!("`{name}` is not the name of a header field"));
        }
        if value.bytes().any(|b| b < 0x20 && b != b'\t' || b == 0x7f) {
            return mistake(format!(
                "the value of header `{name}` holds a control character"
            ));
        }
        let request = UpgradeRequest {
            host: "localhost".to_owned(),
            target: "/".to_owned(),
            subprotocols: Vec::new(),
            headers: vec![(name.clone(), value.clone())],
            deflate: None,
            version: WebSocketVersion::default(),
            key: ClientKey::generate(random_mask),
        };
        if request.encode().is_err() {
            return mistake(format!(
                "the header `{name}` is part of every upgrade and cannot be given"
            ));
        }
    }
    match settings.subprotocols.iter().find(|name| !token(name)) {
        Some(name) => mistake(format!("`{name}` is not the name of a subprotocol")),
        None => Ok(()),
    }
}

fn mistake<T>(sentence: impl Into<String>) -> Result<T, ScenarioError> {
    Err(ScenarioError::new(sentence))
}

/// Connections of one run: their number takes 30 bits of a payload's header.
const CONNECTIONS_MAX: u32 = 10_000_000;
/// Publishers times those that hear them: 640 MiB.
const HEARINGS_MAX: u64 = 1 << 24;
/// Worker threads of one run.
const THREADS_MAX: u32 = 1024;
/// Messages in flight on one connection; each costs 32 bytes of ledger.
const IN_FLIGHT_MAX: u32 = 65_536;
/// Slowest rate: one per 1000 s, the resolution of the schedule.
const RATE_MIN: f64 = 0.001;
/// Fastest rate; far above what one machine sends.
const RATE_MAX: f64 = 1e9;
/// Longest of all durations.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest delay of the stand-in link: it keeps 24 bytes per message meanwhile.
const LINK_DELAY_MAX: Duration = Duration::from_secs(60);
