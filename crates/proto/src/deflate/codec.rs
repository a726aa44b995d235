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
    /// Room for what a deflater writes.
    output: Vec<u8>,
    /// The message that was compressed last without a history, which may be wanted again.
    latest: Latest,
    /// How often a message was compressed.
    compressions: u64,
    /// What compressing took since it was asked for.
    work: usize,
}

/// How a message is to be compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Setting {
    pub(crate) window_bits: WindowBits,
    pub(crate) level: u8,
}

/// A message that was compressed without a history.
#[derive(Default)]
struct Latest {
    payload: Vec<u8>,
    /// What it was compressed to; `None`: it did not become smaller. Invariant: at most
    /// `DEFLATERS_MAX`, each with its own setting.
    compressed: Vec<(Setting, Option<Vec<u8>>)>,
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

    /// What compressing took since the last call, as [`WORK_PER_CALL`] counts it.
    ///
    /// [`WORK_PER_CALL`]: crate::WORK_PER_CALL
    pub fn take_work(&mut self) -> usize {
        core::mem::take(&mut self.work)
    }

    /// Bytes of the compressors and buffers that are kept for the next message.
    pub fn memory_bytes(&self) -> usize {
        self.inflaters.len() * super::inflation::INFLATER_BYTES
            + self.deflaters.len() * DEFLATER_BYTES
            + self.output.capacity()
            + self.latest.memory_bytes()
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
        let setting = setting.for_length(payload.len());
        let dictionary = dictionary(setting, history, payload.len());
        if !dictionary.is_empty() {
            let compressed_bytes = self.deflate(setting, dictionary, payload);
            return self.output.get(..compressed_bytes?);
        }
        if let Some(place) = self.latest.find(setting, payload) {
            return self.latest.get(place);
        }
        let compressed_bytes = self.deflate(setting, &[], payload);
        let compressed = compressed_bytes.and_then(|bytes| self.output.get(..bytes));
        self.latest.remember(setting, payload, compressed);
        compressed
    }

    /// Frees what a large message has left, once it is sent.
    pub(crate) fn free_large(&mut self) {
        if self.output.capacity() > OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
    }

    fn deflate(&mut self, setting: Setting, dictionary: &[u8], payload: &[u8]) -> Option<usize> {
        self.compressions += 1;
        let bytes = dictionary.len() / DICTIONARY_BYTES_PER_BYTE + payload.len();
        self.work = self.work.saturating_add(WORK_PER_PLAIN_BYTE * bytes);
        let length = output_bytes_max(payload.len());
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
}

impl Setting {
    /// With a level that a message of this length can be compressed at without holding up everybody
    /// else: a length that takes 80 ms at level 1 takes 260 ms at level 6.
    fn for_length(self, payload_bytes: usize) -> Self {
        match payload_bytes > FAST_BYTES {
            true => Self { level: 1, ..self },
            false => self,
        }
    }
}

impl Latest {
    /// Where the result is, if this message was compressed like this.
    fn find(&self, setting: Setting, payload: &[u8]) -> Option<usize> {
        let place = self
            .compressed
            .iter()
            .position(|(known, _)| *known == setting)?;
        (self.payload == payload).then_some(place)
    }

    fn get(&self, place: usize) -> Option<&[u8]> {
        let (_, compressed) = self.compressed.get(place)?;
        compressed.as_deref()
    }

    fn remember(&mut self, setting: Setting, payload: &[u8], compressed: Option<&[u8]>) {
        if self.payload != payload {
            self.compressed.clear();
            self.payload.clear();
            if self.payload.capacity() > OUTPUT_BYTES_KEPT {
                self.payload = Vec::new();
            }
            if payload.len() > LATEST_BYTES_MAX {
                return;
            }
            self.payload.reserve_exact(payload.len());
            self.payload.extend_from_slice(payload);
        }
        let added = compressed.map_or(0, <[u8]>::len);
        if self.memory_bytes() + added > LATEST_MEMORY_BYTES_MAX {
            self.compressed.clear();
        }
        if self.compressed.len() < DEFLATERS_MAX {
            let compressed = compressed.map(<[u8]>::to_vec);
            self.compressed.push((setting, compressed));
        }
    }

    fn memory_bytes(&self) -> usize {
        let compressed = self.compressed.iter();
        let compressed = compressed.map(|(_, bytes)| bytes.as_ref().map_or(0, Vec::capacity));
        self.payload.capacity() + compressed.sum::<usize>()
    }
}

/// The part of the window that a message is compressed with. Hashing all of it for each message
/// would cost most of the time where messages are small, and what a small one repeats stands near.
fn dictionary(setting: Setting, history: &History, payload_bytes: usize) -> &[u8] {
    // Nothing of 8 bits can refer to anything: see `new_deflater`.
    if setting.window_bits == WindowBits::MIN {
        return &[];
    }
    let bytes = history.bytes();
    let wanted = DICTIONARY_BYTES_MIN.saturating_add(payload_bytes.saturating_mul(8));
    bytes
        .get(bytes.len().saturating_sub(wanted)..)
        .unwrap_or_default()
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

/// A buffer that grew beyond this (a large message) is freed.
const OUTPUT_BYTES_KEPT: usize = 256 * 1024;

/// A longer message is not kept to be recognised, and compressed once for each who gets it.
const LATEST_BYTES_MAX: usize = 1024 * 1024;

/// Of the message that is kept and what it was compressed to; beyond it, only the last result.
const LATEST_MEMORY_BYTES_MAX: usize = 2 * LATEST_BYTES_MAX;

/// Messages beyond this are compressed at level 1, whatever the level is.
const FAST_BYTES: usize = 128 * 1024;

/// What compressing a byte takes where nothing repeats, at level 1.
const WORK_PER_PLAIN_BYTE: usize = 24;

/// Bytes of a dictionary that take as long as one that is compressed: they are only hashed.
const DICTIONARY_BYTES_PER_BYTE: usize = 4;

/// The smallest part of a window that is referred to, if there is as much.
const DICTIONARY_BYTES_MIN: usize = 4 * 1024;
