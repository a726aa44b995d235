//! `[services.NAME.deflate]`.

use moonwire_proto::{DeflateDirection, DeflatePolicy, WindowBits};

use super::ConfigError;
use super::file::{DeflateTable, Number};
use super::limits::{Bounded, GIB};
use super::sentence::Text;

/// Reads and checks the table.
pub(super) fn deflate(
    text: &Text<'_>,
    table: Option<&DeflateTable>,
) -> Result<Option<DeflatePolicy>, ConfigError> {
    let Some(table) = table else {
        return Ok(None);
    };
    let number = Bounded { text };
    let default = DeflatePolicy::default();
    let bits = |key: &str, value: &Option<Number>| {
        // zlib compresses with no less than 9; 8 is granted to a client that asks for it.
        let (min, max) = (9, WindowBits::MAX.get());
        let bits = number.or(key, value, max, min..=max)?;
        Ok(WindowBits::new(bits).unwrap_or(WindowBits::MAX))
    };
    let threshold_bytes = number.or(
        "threshold_bytes",
        &table.threshold_bytes,
        default.threshold_bytes,
        0..=GIB,
    )?;
    Ok(Some(DeflatePolicy {
        server: DeflateDirection {
            context_takeover: table.server_context_takeover,
            window_bits: bits("server_window_bits_max", &table.server_window_bits_max)?,
        },
        client: DeflateDirection {
            context_takeover: table.client_context_takeover,
            window_bits: bits("client_window_bits_max", &table.client_window_bits_max)?,
        },
        // From 7 on, what is made for it takes thirty times as long as at 6.
        level: number.or("level", &table.level, default.level, 1..=6)?,
        threshold_bytes,
        compress_bytes_max: number.or(
            "compress_bytes_max",
            &table.compress_bytes_max,
            match threshold_bytes <= default.compress_bytes_max {
                true => default.compress_bytes_max,
                // Who compresses only what is larger wants all of it.
                false => GIB,
            },
            threshold_bytes..=GIB,
        )?,
    }))
}
