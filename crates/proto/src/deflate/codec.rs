//! What compression needs besides the connections.

use alloc::vec::Vec;
use core::fmt;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, Strategy};

use super::history::History;
use super::inflation::{Inflation, TAIL};
use super::parameters::WindowBits;

/// Compressors and inflaters for all connections of a thread; empty, and without any memory, until
/// the first compressed message.
#[derive(Default)]
pub struct Codec {
    /// Those that no message is using. Invariant: at most `INFLATERS_MAX`.
    inflaters: Vec<Inflate>,
    /// By their settings. Invariant: at most `DEFLATERS_MAX`, the one used last at the end.
    deflaters: Vec<(Setting, Deflate)>,
    /// The message that was compressed last; its bytes are the first `compressed_bytes`.
    output: Vec<u8>,
    /// What `output` was made of, if the same message may be wanted again.
    latest: Option<Latest>,
    /// How often a message was compressed.
    compressions: u64,
}

/// How a message is to be compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Setting {
    pub(crate) window_bits: WindowBits,
    pub(crate) level: u8,
}

/// A message that was compressed without a history.
struct Latest {
    setting: Setting,
    payload: Vec<u8>,
    /// `None`: it did not become smaller.
    compressed_bytes: Option<usize>,
}

impl Codec {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// How often a message was compressed: once for all connections that are sent the same message
    /// in a row with the same parameters and without context takeover.
    pub fn compressions(&self) -> u64 {
        self.compressions
    }

    /// Bytes of the compressors and buffers that are kept for the next message.
    pub fn memory_bytes(&self) -> usize {
        let latest = self.latest.as_ref();
        self.inflaters.len() * super::inflation::INFLATER_BYTES
            + self.deflaters.len() * DEFLATER_BYTES
            + self.output.capacity()
            + latest.map_or(0, |latest| latest.payload.capacity())
    }

    /// An inflation of a message that may refer to `history`.
    pub(crate) fn begin_inflation(&mut self, history: &History) -> Inflation {
        let inflater = self.inflaters.pop();
        let inflater = inflater.unwrap_or_else(|| Inflate::new(false, WindowBits::MAX.get()));
        Inflation::new(inflater, history)
    }

    /// Keeps the inflater of a message that is over for the next one.
    pub(crate) fn end_inflation(&mut self, inflation: Inflation) {
        if self.inflaters.len() < INFLATERS_MAX {
            self.inflaters.push(inflation.into_inflater());
        }
    }

    /// Compresses a message. `None`: it would not become smaller, and is to be sent as it is.
    pub(crate) fn compress(
        &mut self,
        setting: Setting,
        history: &History,
        payload: &[u8],
    ) -> Option<&[u8]> {
        // Nothing of 8 bits can refer to anything: see `deflater`.
        let has_history = !history.bytes().is_empty() && setting.window_bits > WindowBits::MIN;
        let known = self.latest.as_ref().filter(|latest| {
            !has_history && latest.setting == setting && latest.payload == payload
        });
        let compressed_bytes = match known {
            Some(latest) => latest.compressed_bytes,
            None => {
                let dictionary = if has_history { history.bytes() } else { &[] };
                let compressed_bytes = self.deflate(setting, dictionary, payload);
                self.remember(setting, payload, compressed_bytes, has_history);
                compressed_bytes
            }
        };
        self.output.get(..compressed_bytes?)
    }

    fn deflate(&mut self, setting: Setting, dictionary: &[u8], payload: &[u8]) -> Option<usize> {
        self.compressions += 1;
        let length = output_bytes_max(payload.len());
        if self.output.capacity() > OUTPUT_BYTES_KEPT && length <= OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        if self.output.len() < length {
            self.output.resize(length, 0);
        }
        let deflater = deflater(&mut self.deflaters, setting);
        deflater.reset();
        if !dictionary.is_empty() {
            deflater.set_dictionary(dictionary).ok()?;
        }
        let output = self.output.get_mut(..length)?;
        deflater
            .compress(payload, output, DeflateFlush::SyncFlush)
            .ok()?;
        // No more than the length of `output`.
        let written = deflater.total_out() as usize;
        // With room left the flush is complete: it ends with the tail, which is not sent.
        let is_complete = deflater.total_in() == payload.len() as u64 && written < length;
        if !is_complete {
            // zlib-rs 0.6 cannot be reset then: each time it loses a part of its buffer, in the end
            // with a panic, and level 1 keeps its block open.
            self.deflaters.pop();
            return None;
        }
        let compressed = output.get(..written)?.strip_suffix(&TAIL)?;
        (compressed.len() < payload.len()).then_some(compressed.len())
    }

    fn remember(
        &mut self,
        setting: Setting,
        payload: &[u8],
        compressed_bytes: Option<usize>,
        has_history: bool,
    ) {
        if has_history || payload.len() > OUTPUT_BYTES_KEPT {
            self.latest = None;
            return;
        }
        let mut kept = self
            .latest
            .take()
            .map_or(Vec::new(), |latest| latest.payload);
        kept.clear();
        kept.extend_from_slice(payload);
        self.latest = Some(Latest {
            setting,
            payload: kept,
            compressed_bytes,
        });
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec")
            .field("inflaters", &self.inflaters.len())
            .field("deflaters", &self.deflaters.len())
            .field("compressions", &self.compressions)
            .finish_non_exhaustive()
    }
}

/// The deflater of this setting, made if there is none; the one not used for longest gives way.
fn deflater(deflaters: &mut Vec<(Setting, Deflate)>, setting: Setting) -> &mut Deflate {
    let known = deflaters.iter().position(|(known, _)| *known == setting);
    let place = known.unwrap_or_else(|| {
        if deflaters.len() == DEFLATERS_MAX {
            deflaters.remove(0);
        }
        deflaters.push((setting, new_deflater(setting)));
        deflaters.len() - 1
    });
    if let Some(later) = deflaters.get_mut(place..) {
        later.rotate_left(1);
    }
    let (_, deflater) = deflaters.last_mut().expect("one was found or pushed");
    deflater
}

/// The most that a message can be compressed to: 9 bits for each byte where level 1 guesses wrong,
/// or stored blocks with their headers.
fn output_bytes_max(payload_bytes: usize) -> usize {
    payload_bytes + payload_bytes / 8 + 64
}

fn new_deflater(setting: Setting) -> Deflate {
    // zlib makes no raw stream with a window of 256 bytes. One that refers to nothing can be
    // inflated with any window.
    let (window_bits, strategy) = match setting.window_bits {
        WindowBits::MIN => (9, Strategy::HuffmanOnly),
        bits => (bits.get(), Strategy::Default),
    };
    Deflate::new_with_config(DeflateConfig {
        level: i32::from(setting.level.clamp(1, 9)),
        // Negative: without a header.
        window_bits: -i32::from(window_bits),
        strategy,
        ..DeflateConfig::default()
    })
}

/// Messages that are inflated over several reads keep theirs; those of a turn need one.
const INFLATERS_MAX: usize = 4;

/// Windows of 9 to 15 bits are eight settings, with 8; more come from services with different
/// levels.
const DEFLATERS_MAX: usize = 8;

/// Memory of the largest deflater, measured: window, hash chains and pending output.
const DEFLATER_BYTES: usize = 380 * 1024;

/// Buffers that grew beyond this (a large message) are freed, and such a message is not kept to be
/// recognised.
const OUTPUT_BYTES_KEPT: usize = 256 * 1024;
