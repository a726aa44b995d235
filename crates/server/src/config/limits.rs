//! `[limits]`: defaults, bounds, and what must fit together.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::file::LimitsTable;
use super::sentence::Text;
use super::{ConfigError, Limits, QueuePolicy, Service};
use crate::handler;

/// Reads and checks the table.
pub(super) fn limits(text: &Text<'_>, table: &LimitsTable) -> Result<Limits, ConfigError> {
    let number = Bounded { text };
    let ms = |key, value, default, min| {
        let ms = number.or(key, value, default, min..=DAY_MS)?;
        Ok(Duration::from_millis(ms))
    };
    let t = table;
    Ok(Limits {
        message_bytes_max: number.or(
            "message_bytes_max",
            &t.message_bytes_max,
            16 * MIB,
            1..=GIB,
        )?,
        frames_per_message_max: number.or(
            "frames_per_message_max",
            &t.frames_per_message_max,
            131_072,
            1..=u32::MAX,
        )?,
        header_bytes_max: number.or(
            "header_bytes_max",
            &t.header_bytes_max,
            16 * 1024,
            256..=MIB,
        )?,
        headers_max: number.or("headers_max", &t.headers_max, 64, 8..=1024)?,
        handshake_timeout: ms("handshake_timeout_ms", &t.handshake_timeout_ms, 10_000, 1)?,
        idle_timeout: ms("idle_timeout_ms", &t.idle_timeout_ms, 60_000, 0)?,
        pong_timeout: ms("pong_timeout_ms", &t.pong_timeout_ms, 20_000, 1)?,
        close_timeout: ms("close_timeout_ms", &t.close_timeout_ms, 5_000, 1)?,
        drain_timeout: ms("drain_timeout_ms", &t.drain_timeout_ms, 10_000, 0)?,
        write_queue_bytes_max: number.or(
            "write_queue_bytes_max",
            &t.write_queue_bytes_max,
            0,
            1..=QUEUE_BYTES_MAX,
        )?,
        write_queue_bytes_per_worker_max: number.or(
            "write_queue_bytes_per_worker_max",
            &t.write_queue_bytes_per_worker_max,
            GIB,
            1..=1024 * GIB,
        )?,
        write_queue_policy: queue_policy(text, table)?,
        connections_per_worker_max: number.or(
            "connections_per_worker_max",
            &t.connections_per_worker_max,
            250_000,
            1..=handler::SLOTS_MAX,
        )?,
        backlog: number
            .or("backlog", &t.backlog, 4096, 1..=65_535)?
            .unsigned_abs(),
        handovers_per_worker_max: number.or(
            "handovers_per_worker_max",
            &t.handovers_per_worker_max,
            4096,
            1..=MIB,
        )?,
    })
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
    let largest = services
        .iter()
        .map(|service| service.message_bytes_max)
        .max()
        .unwrap_or(0);
    match &table.write_queue_bytes_max {
        None => {
            let replies = REPLIES_EXPECTED * (largest + FRAME_HEADER_BYTES_MAX);
            limits.write_queue_bytes_max = replies.max(largest + QUEUE_HEADROOM_BYTES);
        }
        Some(value) if *value.get_ref() < largest + FRAME_HEADER_BYTES_MAX => {
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
    let (one, all) = (
        limits.write_queue_bytes_max,
        limits.write_queue_bytes_per_worker_max,
    );
    match &table.write_queue_bytes_per_worker_max {
        Some(value) if all < one => Err(text.error(
            value.span(),
            format!(
                "write_queue_bytes_per_worker_max = {all} is less than write_queue_bytes_max, \
                 which is {one} here; raise the first or set the second lower"
            ),
        )),
        Some(_) => Ok(()),
        None => {
            limits.write_queue_bytes_per_worker_max = all.max(one);
            Ok(())
        }
    }
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
        value: &Option<Spanned<N>>,
        default: N,
        bounds: RangeInclusive<N>,
    ) -> Result<N, ConfigError>
    where
        N: Copy + PartialOrd + std::fmt::Display,
    {
        let Some(value) = value else {
            return Ok(default);
        };
        let number = *value.get_ref();
        if bounds.contains(&number) {
            return Ok(number);
        }
        let (min, max) = (bounds.start(), bounds.end());
        let sentence = format!("{key} = {number} must be from {min} to {max}");
        Err(self.text.error(value.span(), sentence))
    }
}

const MIB: usize = 1024 * 1024;
/// No message is larger than this.
pub(super) const GIB: usize = 1024 * MIB;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// RFC 6455, 5.2: the longest frame header, for which each message of a queue is counted.
pub(crate) const FRAME_HEADER_BYTES_MAX: usize = 14;
/// Room beside one largest message for what was queued before it: the answers to a full read of
/// small messages, several times over.
const QUEUE_HEADROOM_BYTES: usize = MIB;
/// Messages of the largest size that the write queue holds by default.
pub(crate) const REPLIES_EXPECTED: usize = 4;
/// No write queue is larger than the one that goes by default with the largest messages.
const QUEUE_BYTES_MAX: usize = REPLIES_EXPECTED * (GIB + FRAME_HEADER_BYTES_MAX);
