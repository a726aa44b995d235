//! `[limits]`: what is within which bounds, and what must fit together. The defaults are those of
//! [`Limits`].

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::file::{LimitsTable, Number};
use super::sentence::Text;
use super::{ConfigError, Limits, QueuePolicy, Service};
use crate::handler;

/// Reads and checks the table.
pub(super) fn limits(text: &Text<'_>, table: &LimitsTable) -> Result<Limits, ConfigError> {
    let number = Bounded { text };
    let mut limits = Limits::default();
    messages(&number, table, &mut limits)?;
    times(&number, table, &mut limits)?;
    memory(&number, table, &mut limits)?;
    connections(&number, table, &mut limits)?;
    sources(&number, table, &mut limits)?;
    sockets(&number, table, &mut limits)?;
    Ok(limits)
}

fn messages(
    number: &Bounded<'_>,
    table: &LimitsTable,
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let t = table;
    limits.message_bytes_max = number.or(
        "message_bytes_max",
        &t.message_bytes_max,
        limits.message_bytes_max,
        1..=GIB,
    )?;
    limits.frames_per_message_max = number.or(
        "frames_per_message_max",
        &t.frames_per_message_max,
        limits.frames_per_message_max,
        1..=u32::MAX,
    )?;
    limits.header_bytes_max = number.or(
        "header_bytes_max",
        &t.header_bytes_max,
        limits.header_bytes_max,
        256..=MIB,
    )?;
    limits.headers_max = number.or("headers_max", &t.headers_max, limits.headers_max, 8..=1024)?;
    Ok(())
}

fn times(
    number: &Bounded<'_>,
    table: &LimitsTable,
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let t = table;
    let ms = |key, value, min, limit: &mut Duration| {
        let default = u64::try_from(limit.as_millis()).unwrap_or(DAY_MS);
        let ms = number.or(key, value, default, min..=DAY_MS)?;
        *limit = Duration::from_millis(ms);
        Ok(())
    };
    let l = limits;
    ms(
        "handshake_timeout_ms",
        &t.handshake_timeout_ms,
        1,
        &mut l.handshake_timeout,
    )?;
    ms(
        "idle_timeout_ms",
        &t.idle_timeout_ms,
        0,
        &mut l.idle_timeout,
    )?;
    ms(
        "pong_timeout_ms",
        &t.pong_timeout_ms,
        1,
        &mut l.pong_timeout,
    )?;
    ms(
        "ping_interval_ms",
        &t.ping_interval_ms,
        0,
        &mut l.ping_interval,
    )?;
    ms(
        "close_timeout_ms",
        &t.close_timeout_ms,
        1,
        &mut l.close_timeout,
    )?;
    ms(
        "drain_timeout_ms",
        &t.drain_timeout_ms,
        0,
        &mut l.drain_timeout,
    )?;
    ms(
        "message_timeout_ms",
        &t.message_timeout_ms,
        0,
        &mut l.message_timeout,
    )?;
    ms(
        "write_timeout_ms",
        &t.write_timeout_ms,
        1,
        &mut l.write_timeout,
    )
}

fn busy_status(text: &Text<'_>, table: &LimitsTable) -> Result<u16, ConfigError> {
    let Some(status) = &table.busy_status else {
        return Ok(503);
    };
    match status.get_ref() {
        503 => Ok(503),
        403 => Ok(403),
        other => {
            let sentence = format!("busy_status = {other} must be 503 or 403");
            Err(text.error(status.span(), sentence))
        }
    }
}

fn memory(
    number: &Bounded<'_>,
    table: &LimitsTable,
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let t = table;
    limits.write_queue_bytes_max = number.or(
        "write_queue_bytes_max",
        &t.write_queue_bytes_max,
        limits.write_queue_bytes_max,
        1..=QUEUE_BYTES_MAX,
    )?;
    limits.write_queue_policy = queue_policy(number.text, table)?;
    limits.connection_memory_bytes_max = number.or(
        "connection_memory_bytes_max",
        &t.connection_memory_bytes_max,
        limits.connection_memory_bytes_max,
        1..=1024 * GIB,
    )?;
    limits.memory_bytes_per_worker_max = number.or(
        "memory_bytes_per_worker_max",
        &t.memory_bytes_per_worker_max,
        limits.memory_bytes_per_worker_max,
        1..=1024 * GIB,
    )?;
    Ok(())
}

fn connections(
    number: &Bounded<'_>,
    table: &LimitsTable,
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let t = table;
    limits.fragment_bytes = number.or(
        "fragment_bytes",
        &t.fragment_bytes,
        limits.fragment_bytes,
        0..=GIB,
    )?;
    limits.busy_status = busy_status(number.text, table)?;
    limits.connections_per_worker_max = number.or(
        "connections_per_worker_max",
        &t.connections_per_worker_max,
        limits.connections_per_worker_max,
        1..=handler::SLOTS_MAX,
    )?;
    limits.handshakes_per_worker_max = number.or(
        "handshakes_per_worker_max",
        &t.handshakes_per_worker_max,
        limits.handshakes_per_worker_max,
        1..=handler::SLOTS_MAX,
    )?;
    limits.handovers_per_worker_max = number.or(
        "handovers_per_worker_max",
        &t.handovers_per_worker_max,
        limits.handovers_per_worker_max,
        1..=MIB,
    )?;
    limits.backlog = number.or("backlog", &t.backlog, limits.backlog, 1..=65_535)?;
    Ok(())
}

fn sources(
    number: &Bounded<'_>,
    table: &LimitsTable,
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let t = table;
    limits.connections_per_source_max = number.or(
        "connections_per_source_max",
        &t.connections_per_source_max,
        limits.connections_per_source_max,
        0..=handler::SLOTS_MAX * handler::WORKERS_MAX,
    )?;
    limits.handshakes_per_source_per_s_max = number.or(
        "handshakes_per_source_per_s_max",
        &t.handshakes_per_source_per_s_max,
        limits.handshakes_per_source_per_s_max,
        0..=HANDSHAKES_PER_S_MAX,
    )?;
    if let Some(exempt) = &t.source_limits_exempt {
        let range = |range: &Spanned<String>| {
            let refused = |sentence| number.text.error(range.span(), sentence);
            range
                .get_ref()
                .parse()
                .map_err(|problem: String| refused(format!("source_limits_exempt: {problem}")))
        };
        limits.source_limits_exempt = exempt.iter().map(range).collect::<Result<_, _>>()?;
    }
    Ok(())
}

fn sockets(
    number: &Bounded<'_>,
    table: &LimitsTable,
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    limits.receive_buffer_bytes =
        number.buffer("receive_buffer_bytes", &table.receive_buffer_bytes)?;
    limits.send_buffer_bytes = number.buffer("send_buffer_bytes", &table.send_buffer_bytes)?;
    let spare = &mut limits.spare_buffers;
    spare.buffers_max = number.or(
        "spare_buffers_per_worker_max",
        &table.spare_buffers_per_worker_max,
        spare.buffers_max,
        0..=SPARE_BUFFERS_MAX,
    )?;
    spare.buffer_bytes_max = number.or(
        "spare_buffer_bytes_max",
        &table.spare_buffer_bytes_max,
        spare.buffer_bytes_max,
        1..=GIB,
    )?;
    limits.nodelay = table.nodelay.unwrap_or(limits.nodelay);
    Ok(())
}

fn queue_policy(text: &Text<'_>, table: &LimitsTable) -> Result<QueuePolicy, ConfigError> {
    let Some(policy) = &table.write_queue_policy else {
        return Ok(QueuePolicy::Close);
    };
    match policy.get_ref().as_str() {
        "close" => Ok(QueuePolicy::Close),
        "drop" => Ok(QueuePolicy::Drop),
        other => Err(text.error(
            policy.span(),
            format!("write_queue_policy = \"{other}\" must be \"close\" or \"drop\""),
        )),
    }
}

/// The write queue holds at least one largest message and its frame header, so that a service may
/// always answer with what it may be sent. Without a value it holds four of them: what one callback
/// sends is queued before the client has a chance to read, and answering with several times what
/// came is common. The largest service decides, as the bound is one for all.
pub(super) fn fit_write_queue(
    text: &Text<'_>,
    table: &LimitsTable,
    services: &[Service],
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let largest = largest(services);
    match &table.write_queue_bytes_max {
        None => limits.write_queue_bytes_max = write_queue_bytes(largest),
        Some(value) if limits.write_queue_bytes_max < largest + FRAME_HEADER_BYTES_MAX => {
            return Err(text.error(
                value.span(),
                format!(
                    "write_queue_bytes_max = {} is less than one largest message ({largest} \
                     bytes and {FRAME_HEADER_BYTES_MAX} of its frame header); raise it or lower \
                     message_bytes_max",
                    value.get_ref()
                ),
            ));
        }
        Some(_) => {}
    }
    Ok(())
}

/// A connection may hold at least one largest message with what belongs to it, or one full write
/// queue, or one largest head of a request, and a worker at least what one connection may. Without
/// a value a connection may hold a message and a queue at a time, as far as the worker may. Called
/// once the write queue fits.
pub(super) fn fit_memory(
    text: &Text<'_>,
    table: &LimitsTable,
    services: &[Service],
    limits: &mut Limits,
) -> Result<(), ConfigError> {
    let largest = largest(services);
    let queue = limits.write_queue_bytes_max;
    // Its buffer grows by doubling.
    let head = 2 * limits.header_bytes_max;
    let needed = (largest.max(head) + MEMORY_OVERHEAD_BYTES).max(queue);
    let default = memory_bytes(largest, queue).max(needed);
    for (key, value, bytes) in [
        (
            "connection_memory_bytes_max",
            &table.connection_memory_bytes_max,
            limits.connection_memory_bytes_max,
        ),
        (
            "memory_bytes_per_worker_max",
            &table.memory_bytes_per_worker_max,
            limits.memory_bytes_per_worker_max,
        ),
    ] {
        if let Some(value) = value
            && bytes < needed
        {
            let sentence = format!(
                "{key} = {bytes} is less than the {needed} bytes that one connection may need \
                 here: one largest message ({largest} bytes) or head of a request ({head}) and \
                 {MEMORY_OVERHEAD_BYTES} around it, or one full write queue ({queue})"
            );
            return Err(text.error(value.span(), sentence));
        }
    }
    let (one, all) = (
        &mut limits.connection_memory_bytes_max,
        &mut limits.memory_bytes_per_worker_max,
    );
    match (
        &table.connection_memory_bytes_max,
        &table.memory_bytes_per_worker_max,
    ) {
        (Some(value), Some(_)) if *one > *all => {
            let sentence = format!(
                "connection_memory_bytes_max = {one} is more than memory_bytes_per_worker_max, \
                 which is {all} here"
            );
            return Err(text.error(value.span(), sentence));
        }
        (Some(_), Some(_)) => {}
        (None, Some(_)) => *one = default.min(*all),
        (Some(_), None) => *all = (*all).max(*one),
        (None, None) => {
            *one = default;
            *all = (*all).max(*one);
        }
    }
    Ok(())
}

/// The largest message that any service takes.
fn largest(services: &[Service]) -> usize {
    let sizes = services.iter().map(|service| service.message_bytes_max);
    sizes.max().unwrap_or(0)
}

/// The write queue that goes with messages of this size.
pub(super) fn write_queue_bytes(message_bytes: usize) -> usize {
    let replies = REPLIES_EXPECTED * (message_bytes + FRAME_HEADER_BYTES_MAX);
    replies.max(message_bytes + QUEUE_HEADROOM_BYTES)
}

/// What a connection holds at most that has both a largest message and a full write queue: the
/// buffer of a queue grows by doubling.
pub(super) fn memory_bytes(message_bytes: usize, write_queue_bytes: usize) -> usize {
    message_bytes + MEMORY_OVERHEAD_BYTES + 2 * write_queue_bytes
}

/// Numbers that must lie within bounds.
pub(super) struct Bounded<'a> {
    pub(super) text: &'a Text<'a>,
}

impl Bounded<'_> {
    /// The number, or `default` without one.
    pub(super) fn or<N>(
        &self,
        key: &str,
        value: &Option<Number>,
        default: N,
        bounds: RangeInclusive<N>,
    ) -> Result<N, ConfigError>
    where
        N: Copy + PartialOrd + std::fmt::Display + TryFrom<i64>,
    {
        let Some(value) = value else {
            return Ok(default);
        };
        let written = *value.get_ref();
        let number = N::try_from(written).ok();
        number.filter(|n| bounds.contains(n)).ok_or_else(|| {
            let (min, max) = (bounds.start(), bounds.end());
            let sentence = format!("{key} = {written} must be from {min} to {max}");
            self.text.error(value.span(), sentence)
        })
    }

    /// The size of a buffer of the kernel; without one or with 0 the kernel chooses.
    fn buffer(&self, key: &str, value: &Option<Number>) -> Result<usize, ConfigError> {
        if value.as_ref().is_none_or(|value| *value.get_ref() == 0) {
            return Ok(0);
        }
        let (min, max) = (SOCKET_BUFFER_BYTES_MIN, SOCKET_BUFFER_BYTES_MAX);
        let refused = |error: ConfigError| error.with(", or 0: the kernel chooses");
        self.or(key, value, 0, min..=max).map_err(refused)
    }
}

pub(super) const MIB: usize = 1024 * 1024;
/// No message is larger than this.
pub(super) const GIB: usize = 1024 * MIB;
pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// RFC 6455, 5.2: the longest frame header, for which each message of a queue is counted.
pub(crate) const FRAME_HEADER_BYTES_MAX: usize = 14;
/// Room beside one largest message for what was queued before it: the answers to a full read of
/// small messages, several times over.
const QUEUE_HEADROOM_BYTES: usize = MIB;
/// What a connection may hold beside a message and the write queue: one read that is kept (256 KiB
/// and as much again), the head of a request, TLS (96 KiB) and compression (112 KiB).
const MEMORY_OVERHEAD_BYTES: usize = MIB;
/// Messages of the largest size that the write queue holds by default.
pub(crate) const REPLIES_EXPECTED: usize = 4;
/// No write queue is larger than the one that goes by default with the largest messages.
const QUEUE_BYTES_MAX: usize = REPLIES_EXPECTED * (GIB + FRAME_HEADER_BYTES_MAX);
/// The kernel takes no less for a send buffer (socket(7)).
const SOCKET_BUFFER_BYTES_MIN: usize = 4096;
/// The kernel doubles the value, and counts in 31 bits.
const SOCKET_BUFFER_BYTES_MAX: usize = GIB - 1;
/// More than a listener accepts in a second.
const HANDSHAKES_PER_S_MAX: u32 = 1_000_000;
/// More than any worker has in use at once.
const SPARE_BUFFERS_MAX: usize = handler::SLOTS_MAX;
