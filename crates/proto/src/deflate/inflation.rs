//! One compressed message on its way off the wire (RFC 7692, 7.2.2).

use core::fmt;

use zlib_rs::{Inflate, InflateFlush, Status};

use super::history::History;
use super::parameters::WindowBits;
use crate::error::ProtocolError;
use crate::payload::Payload;

/// Inflates one message as its bytes arrive; stops at the limit of a message, wherever that is.
pub(crate) struct Inflation {
    inflater: Inflate,
    /// Whether a final block (BFINAL) ended and nothing came after it.
    has_ended: bool,
    /// Final blocks after which something came.
    restarts: u32,
    /// Bytes of windows that were laid out since it was asked for.
    window_bytes: usize,
}

impl Inflation {
    /// Begins a message that may refer to `history`, with any inflater.
    pub(super) fn new(mut inflater: Inflate, history: &History) -> Self {
        let window_bytes = restart(&mut inflater, history, [&[]; 2]);
        Self {
            inflater,
            has_ended: false,
            restarts: 0,
            window_bytes,
        }
    }

    /// Bytes of windows that were laid out since the last call.
    pub(crate) fn take_window_bytes(&mut self) -> usize {
        core::mem::take(&mut self.window_bytes)
    }

    pub(super) fn into_inflater(self) -> Inflate {
        self.inflater
    }

    /// Appends what the next bytes of the message inflate to, until there are at least
    /// `enough_bytes` in `payload`; returns how many it took.
    pub(crate) fn take(
        &mut self,
        compressed: &[u8],
        history: &History,
        payload: &mut Payload,
        message_bytes_max: usize,
        enough_bytes: usize,
    ) -> Result<usize, ProtocolError> {
        let (mut taken, mut is_output_full) = (0, false);
        loop {
            let rest = compressed.get(taken..).unwrap_or_default();
            // Without a byte taken nobody could tell that there was progress.
            let is_enough = payload.len() >= enough_bytes && taken > 0;
            if rest.is_empty() && !is_output_full || !rest.is_empty() && is_enough {
                return Ok(taken);
            }
            if self.has_ended {
                if self.restarts == RESTARTS_MAX {
                    return Err(ProtocolError::DeflateInvalid);
                }
                self.restarts += 1;
                self.has_ended = false;
                let window_bytes = WindowBits::MAX.window_bytes();
                let newest = payload.last(window_bytes);
                self.window_bytes += restart(&mut self.inflater, history, newest);
            }
            let step = self.step(rest, payload, message_bytes_max)?;
            taken += step.taken;
            is_output_full = step.is_output_full && !self.has_ended;
            check_length(payload, message_bytes_max)?;
        }
    }

    /// The last byte of the message was taken: what its sender left out is added. It must have
    /// ended where a block ends; otherwise it was cut off.
    pub(crate) fn finish(
        &mut self,
        history: &History,
        payload: &mut Payload,
        message_bytes_max: usize,
    ) -> Result<(), ProtocolError> {
        if self.has_ended {
            return Ok(());
        }
        let before = (payload.len(), self.restarts);
        let all = usize::MAX;
        self.take(&TAIL, history, payload, message_bytes_max, all)?;
        if !self.has_ended {
            self.take(&FINAL_BLOCK, history, payload, message_bytes_max, all)?;
        }
        // Otherwise the empty block was a final one, which only its last byte may end.
        match self.has_ended && (payload.len(), self.restarts) == before {
            true => Ok(()),
            false => Err(ProtocolError::DeflateInvalid),
        }
    }

    /// One call of the inflater, into some more room at the end of `payload`.
    fn step(
        &mut self,
        compressed: &[u8],
        payload: &mut Payload,
        message_bytes_max: usize,
    ) -> Result<Step, ProtocolError> {
        let room_bytes = room_bytes(payload.len(), compressed.len(), message_bytes_max);
        let inflater = &mut self.inflater;
        let (taken, written) = (inflater.total_in(), inflater.total_out());
        // One byte beyond the limit shows that it is passed.
        let bytes_max = message_bytes_max.saturating_add(1);
        let (is_output_full, status) = payload.write(room_bytes, bytes_max, |room| {
            let status = inflater.decompress(compressed, room, InflateFlush::NoFlush);
            // No more than the length of `room`.
            let written = (inflater.total_out() - written) as usize;
            (written, (written == room.len(), status))
        });
        // No more than the length of `compressed`.
        let taken = (inflater.total_in() - taken) as usize;
        self.has_ended = match status {
            Ok(Status::StreamEnd) => true,
            Ok(Status::Ok | Status::BufError) => false,
            Err(_) => {
                // What is too much was there before what is invalid.
                check_length(payload, message_bytes_max)?;
                return Err(ProtocolError::DeflateInvalid);
            }
        };
        Ok(Step {
            taken,
            is_output_full,
        })
    }
}

impl fmt::Debug for Inflation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflation")
            .field("has_ended", &self.has_ended)
            .field("restarts", &self.restarts)
            .finish_non_exhaustive()
    }
}

/// What one call of the inflater did.
struct Step {
    taken: usize,
    /// Whether there may be more output without more input.
    is_output_full: bool,
}

fn check_length(payload: &Payload, message_bytes_max: usize) -> Result<(), ProtocolError> {
    if payload.len() > message_bytes_max {
        return Err(ProtocolError::PayloadTooLarge {
            actual: payload.len() as u64,
            maximum: message_bytes_max as u64,
        });
    }
    Ok(())
}

/// A new stream whose window is what came before it: earlier messages, then the last bytes of this
/// one so far.
fn restart(inflater: &mut Inflate, history: &History, [before, newest]: [&[u8]; 2]) -> usize {
    inflater.reset(false);
    let parts = [history.bytes(), before, newest];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        // It can only be refused to a stream that has a header, which this is not.
        let _ = inflater.set_dictionary(part);
    }
    parts.map(<[u8]>::len).iter().sum()
}

/// How much more output to make room for: at least one byte, and one byte more than the limit
/// allows, so that a message of exactly the limit passes and one beyond it is seen.
fn room_bytes(payload_bytes: usize, compressed_bytes: usize, message_bytes_max: usize) -> usize {
    let guess = compressed_bytes.saturating_mul(4);
    let possible = message_bytes_max.saturating_sub(payload_bytes) + 1;
    guess.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX).min(possible)
}

/// Memory of an inflater, which zlib-rs takes whatever the window is.
pub(crate) const INFLATER_BYTES: usize = 48 * 1024;

/// What a sender leaves out at the end of a message (RFC 7692, 7.2.1): the lengths of an empty
/// stored block.
pub(super) const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// An empty stored block marked as final: it ends the stream if, and only if, a block can begin
/// where it stands.
const FINAL_BLOCK: [u8; 5] = [0x01, 0x00, 0x00, 0xff, 0xff];

/// Times that a message may go on after a final block. RFC 7692, 7.2.3.4 allows such blocks; each
/// lays out a window anew, so that a message full of them would cost seconds.
const RESTARTS_MAX: u32 = 64;

const ROOM_BYTES_MIN: usize = 256;
const ROOM_BYTES_MAX: usize = 32 * 1024;
