//! From the peer's bytes to events.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Connection, Event, PartialHeader, Step};
use crate::close;
use crate::deflate::Codec;
use crate::error::ProtocolError;
use crate::frame::{ControlKind, Expectation, FrameKind, HEADER_BYTES_MAX, Header, OpenMessage};
use crate::mask;
use crate::message::{Assembly, ControlAssembly};
use crate::opcode::Opcode;

impl Connection {
    /// Takes what it can from the front of `input` and returns at most one event.
    ///
    /// A call stops without an event once it has done [`WORK_PER_CALL`], which [`Step::work`]
    /// counts. The caller calls again with the rest of the input until nothing is taken and there
    /// is no event; that last call also frees what a message was assembled in, as
    /// [`Self::free_delivered`] does for a caller that stops earlier. Payloads are unmasked in
    /// place; a message that arrived whole is borrowed from `input` without a copy, unless it is
    /// compressed: it is inflated with `codec`, which all connections of a thread share.
    ///
    /// Pongs and close frames are appended to `out`. While `out` holds [`PONG_OUT_BYTES_MAX`] or
    /// more, pings are not answered at once: the latest is remembered for
    /// [`Self::send_owed_pong`], the ones before it are not answered (RFC 6455, 5.5.3).
    pub fn receive<'a>(
        &'a mut self,
        input: &'a mut [u8],
        out: &mut Vec<u8>,
        codec: &mut Codec,
    ) -> Step<'a> {
        self.free_delivered();
        if out.len() < PONG_OUT_BYTES_MAX {
            self.send_owed_pong(out);
        }
        if let Some((opcode, payload)) = self.whole_message(input) {
            let taken = payload.end;
            let payload = input.get(payload).unwrap_or_default();
            return Step {
                taken,
                work: WORK_PER_FRAME,
                event: Some(Event::Message { opcode, payload }),
            };
        }
        let (mut taken, mut work) = (0, 0);
        let ended = loop {
            let rest = input.get_mut(taken..).filter(|rest| !rest.is_empty());
            let Some(rest) = rest.filter(|_| work < WORK_PER_CALL) else {
                return Step {
                    taken,
                    work,
                    event: None,
                };
            };
            if self.failed || self.close_received {
                // RFC 6455, 5.5.1 and 7.1.7: what follows is ignored.
                return Step {
                    taken: input.len(),
                    work,
                    event: None,
                };
            }
            match self.advance(rest, codec) {
                Ok(progress) => {
                    let start = taken;
                    taken += progress.taken;
                    work += WORK_PER_FRAME + progress.payload_work;
                    if let Some(ended) = progress.ended {
                        break ended.shifted(start);
                    }
                }
                Err(error) => {
                    self.fail(error, out);
                    return Step {
                        taken: input.len(),
                        work,
                        event: Some(Event::Failed(error)),
                    };
                }
            }
        };
        let event = self.event(ended, input, out);
        Step {
            taken,
            work,
            event: Some(event),
        }
    }

    /// Appends the pong that was put off, whatever `out` holds: to be called when `out` is about to
    /// be sent, or was. At most one is owed, so it is at most one per send.
    pub fn send_owed_pong(&mut self, out: &mut Vec<u8>) {
        if let Some(payload) = self.pong_owed.take() {
            self.send_control(ControlKind::Pong, &payload, out);
        }
    }

    /// Frees the message or control frame that the last call handed out.
    pub fn free_delivered(&mut self) {
        if self
            .message
            .as_ref()
            .is_some_and(|message| message.is_complete())
        {
            self.message = None;
        }
        if self
            .control
            .as_ref()
            .is_some_and(|control| control.is_complete())
        {
            self.control = None;
        }
    }

    /// The short way for what nearly every read begins with: between messages, a message in one
    /// frame that is all there. Half the instructions of the general way; everything else, each
    /// breach included, is left to that one, with `input` as it was.
    #[inline]
    fn whole_message(&self, input: &mut [u8]) -> Option<(Opcode, Range<usize>)> {
        let is_between_frames =
            self.header.length == 0 && self.message.is_none() && self.control.is_none();
        if !is_between_frames || self.failed || self.close_received {
            return None;
        }
        let header = self.expectation(None).decode(input).ok()??;
        let FrameKind::Data(opcode) = header.kind else {
            return None;
        };
        if header.compressed {
            return None;
        }
        let place = header.header_bytes..header.header_bytes + header.payload_bytes;
        let payload = input.get_mut(place.clone()).filter(|_| header.fin)?;
        match reveal(opcode, header.mask, payload) {
            Ok(()) => Some((opcode, place)),
            Err(_) => {
                // As it was: masking twice is no masking.
                header.mask.inspect(|mask| mask::apply(*mask, payload));
                None
            }
        }
    }

    /// What the next frame is checked against.
    #[inline]
    fn expectation(&self, open_message: Option<OpenMessage>) -> Expectation {
        Expectation {
            masked: self.mask_source.is_none(),
            open_message,
            deflate: self.deflate.is_some(),
            message_bytes_max: self.message_bytes_max,
            frames_per_message_max: self.frames_per_message_max,
        }
    }

    /// Takes at most one frame, or one part of a frame, from the front of `input`.
    fn advance(&mut self, input: &mut [u8], codec: &mut Codec) -> Result<Progress, ProtocolError> {
        if self.control.is_some() {
            return Ok(self.continue_control(input));
        }
        if self
            .message
            .as_ref()
            .is_some_and(|message| message.is_within_frame())
        {
            return self.continue_data(input, codec);
        }
        let Some((header, taken)) = self.next_header(input)? else {
            return Ok(Progress::new(input.len(), None));
        };
        let payload = input.get_mut(taken..).unwrap_or_default();
        let progress = match header.kind {
            FrameKind::Control(kind) => self.begin_control(kind, &header, payload),
            FrameKind::Data(opcode) => self.begin_data(opcode, &header, payload, codec)?,
            FrameKind::Continuation => self.continue_message(&header, payload, codec)?,
        };
        let ended = progress.ended.map(|ended| ended.shifted(taken));
        Ok(Progress {
            taken: taken + progress.taken,
            ended,
            ..progress
        })
    }

    /// The next header, and how many bytes of `input` belong to it. `None`: all of `input` does,
    /// and was kept. A header that came alone is kept until the first byte of its payload comes.
    fn next_header(&mut self, input: &[u8]) -> Result<Option<(Header, usize)>, ProtocolError> {
        let open_message = self.message.as_ref().map(|message| message.open());
        let expectation = self.expectation(open_message);
        let kept = usize::from(self.header.length);
        let mut bytes = self.header.bytes;
        let header = if kept == 0 {
            expectation.decode(input)?
        } else {
            let length = (kept + input.len()).min(HEADER_BYTES_MAX);
            let free = bytes.get_mut(kept..).unwrap_or_default();
            free.iter_mut()
                .zip(input)
                .for_each(|(byte, arrived)| *byte = *arrived);
            expectation.decode(bytes.get(..length).unwrap_or_default())?
        };
        let arrived = kept + input.len();
        if let Some(header) = header
            && (arrived > header.header_bytes || header.payload_bytes == 0)
        {
            self.header.length = 0;
            return Ok(Some((header, header.header_bytes.saturating_sub(kept))));
        }
        if kept == 0 {
            bytes
                .iter_mut()
                .zip(input)
                .for_each(|(byte, arrived)| *byte = *arrived);
        }
        debug_assert!(
            arrived <= HEADER_BYTES_MAX,
            "that many bytes are a whole header"
        );
        self.header = PartialHeader {
            bytes,
            length: arrived.min(HEADER_BYTES_MAX) as u8,
        };
        Ok(None)
    }

    /// A message begins: borrowed from `input` if it is all there, else assembled.
    fn begin_data(
        &mut self,
        opcode: Opcode,
        header: &Header,
        input: &mut [u8],
        codec: &mut Codec,
    ) -> Result<Progress, ProtocolError> {
        let is_plain = header.fin && !header.compressed;
        let Some(payload) = input.get_mut(..header.payload_bytes).filter(|_| is_plain) else {
            let is_inflated = header.compressed && !self.close_sent;
            let deflate = self.deflate.as_ref().filter(|_| is_inflated);
            let inflation = deflate.map(|deflate| codec.begin_inflation(&deflate.received));
            let message = Assembly::new(opcode, header.compressed, inflation);
            self.message = Some(Box::new(message));
            return self.continue_message(header, input, codec);
        };
        reveal(opcode, header.mask, payload)?;
        let place = Place::Input(0..header.payload_bytes);
        let ended = Some(Ended::Message(opcode, place));
        Ok(Progress::new(header.payload_bytes, ended))
    }

    /// A frame of the open message begins.
    fn continue_message(
        &mut self,
        header: &Header,
        input: &mut [u8],
        codec: &mut Codec,
    ) -> Result<Progress, ProtocolError> {
        if let Some(message) = &mut self.message {
            message.begin_frame(header);
        }
        self.continue_data(input, codec)
    }

    /// More of a frame of the open message arrived.
    fn continue_data(
        &mut self,
        input: &mut [u8],
        codec: &mut Codec,
    ) -> Result<Progress, ProtocolError> {
        let Some(message) = &mut self.message else {
            return Err(ProtocolError::ContinuationUnexpected);
        };
        if self.close_sent && message.open().compressed {
            if let Some(inflation) = message.end_inflation() {
                codec.end_inflation(inflation);
            }
            let taken = message.pass_over(input);
            self.free_delivered();
            return Ok(Progress::new(taken, None));
        }
        let history = self.deflate.as_ref().map(|deflate| &deflate.received);
        let inflated_bytes = message.inflated_bytes();
        let taken = message.take(input, history, self.message_bytes_max)?;
        let payload_work = match message.open().compressed {
            true => {
                let windows = message.take_window_bytes() / WINDOW_BYTES_PER_WORK;
                let inflated = message.inflated_bytes() - inflated_bytes;
                WORK_PER_COMPRESSED_BYTE * taken + inflated + windows
            }
            false => taken / BYTES_PER_WORK,
        };
        if !message.is_complete() {
            return Ok(Progress {
                payload_work,
                ..Progress::new(taken, None)
            });
        }
        if let Some(inflation) = message.end_inflation() {
            codec.end_inflation(inflation);
            if let Some(deflate) = &mut self.deflate {
                deflate.received.append(message.payload());
            }
        }
        let ended = Some(Ended::Message(message.opcode(), Place::Kept));
        Ok(Progress {
            payload_work,
            ..Progress::new(taken, ended)
        })
    }

    /// A control frame begins: borrowed from `input` if it is all there, else assembled.
    fn begin_control(&mut self, kind: ControlKind, header: &Header, input: &mut [u8]) -> Progress {
        let Some(payload) = input.get_mut(..header.payload_bytes) else {
            self.control = Some(Box::new(ControlAssembly::new(kind, header)));
            return self.continue_control(input);
        };
        if let Some(mask) = header.mask {
            mask::apply(mask, payload);
        }
        let place = Place::Input(0..header.payload_bytes);
        Progress::new(header.payload_bytes, Some(Ended::Control(kind, place)))
    }

    /// More of a control frame arrived.
    fn continue_control(&mut self, input: &[u8]) -> Progress {
        let Some(control) = &mut self.control else {
            return Progress::new(0, None);
        };
        let taken = control.take(input);
        let ended = control
            .is_complete()
            .then(|| Ended::Control(control.kind(), Place::Kept));
        Progress::new(taken, ended)
    }

    /// Acts on what ended and tells of it.
    fn event<'a>(&'a mut self, ended: Ended, input: &'a [u8], out: &mut Vec<u8>) -> Event<'a> {
        match ended {
            Ended::Message(opcode, Place::Input(range)) => Event::Message {
                opcode,
                payload: input.get(range).unwrap_or_default(),
            },
            Ended::Message(opcode, Place::Kept) => {
                let payload = self
                    .message
                    .as_ref()
                    .map_or(&[][..], |message| message.payload());
                Event::Message { opcode, payload }
            }
            Ended::Control(kind, Place::Input(range)) => {
                let payload = input.get(range).unwrap_or_default();
                self.answer(kind, payload, out);
                control_event(kind, payload)
            }
            Ended::Control(kind, Place::Kept) => {
                if let Some(control) = self.control.take() {
                    self.answer(kind, control.payload(), out);
                    self.control = Some(control);
                }
                let payload = self
                    .control
                    .as_ref()
                    .map_or(&[][..], |control| control.payload());
                control_event(kind, payload)
            }
        }
    }

    fn answer(&mut self, kind: ControlKind, payload: &[u8], out: &mut Vec<u8>) {
        match kind {
            ControlKind::Ping => self.answer_ping(payload, out),
            ControlKind::Pong => {}
            ControlKind::Close => match close::decode(payload) {
                Ok(_) => self.answer_close(payload, out),
                Err(error) => self.fail(error, out),
            },
        }
    }

    fn answer_ping(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        if self.close_sent {
            // RFC 6455, 5.5.1: nothing follows a close frame.
            return;
        }
        if out.len() < PONG_OUT_BYTES_MAX {
            self.send_control(ControlKind::Pong, payload, out);
        } else {
            self.pong_owed = Some(payload.into());
        }
    }

    /// Answers with the peer's own code, and with no code if it gave none (RFC 6455, 5.5.1).
    fn answer_close(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let code = payload.get(..2).unwrap_or_default();
        self.end(code, out);
        self.close_received = true;
    }

    /// RFC 6455, 7.1.7: a close frame with the code of the error, unless one was sent already.
    fn fail(&mut self, error: ProtocolError, out: &mut Vec<u8>) {
        self.end(&close::encode(error.close_code(), ""), out);
        self.failed = true;
    }

    /// Sends a close frame, unless one was sent, and frees what was kept for further frames.
    pub(super) fn end(&mut self, close_payload: &[u8], out: &mut Vec<u8>) {
        if !self.close_sent {
            self.send_control(ControlKind::Close, close_payload, out);
            self.close_sent = true;
        }
        self.message = None;
        self.pong_owed = None;
    }
}

/// What one call of `advance` did.
struct Progress {
    /// Bytes taken from the front of its input.
    taken: usize,
    /// The message or control frame that ended with them.
    ended: Option<Ended>,
    /// What its payload took, beyond looking at a frame.
    payload_work: usize,
}

impl Progress {
    fn new(taken: usize, ended: Option<Ended>) -> Self {
        Self {
            taken,
            ended,
            payload_work: 0,
        }
    }
}

/// A message or control frame that is complete.
enum Ended {
    Message(Opcode, Place),
    Control(ControlKind, Place),
}

/// Where the payload is.
enum Place {
    /// In this range of the input.
    Input(Range<usize>),
    /// In the connection's own assembly.
    Kept,
}

impl Ended {
    /// The same, seen from an input that begins `bytes` earlier.
    fn shifted(self, bytes: usize) -> Self {
        match self {
            Self::Message(opcode, place) => Self::Message(opcode, place.shifted(bytes)),
            Self::Control(kind, place) => Self::Control(kind, place.shifted(bytes)),
        }
    }
}

impl Place {
    fn shifted(self, bytes: usize) -> Self {
        match self {
            Self::Input(range) => Self::Input(range.start + bytes..range.end + bytes),
            Self::Kept => Self::Kept,
        }
    }
}

/// Unmasks the payload of a whole message and checks its text.
#[inline]
fn reveal(opcode: Opcode, mask: Option<[u8; 4]>, payload: &mut [u8]) -> Result<(), ProtocolError> {
    if let Some(mask) = mask {
        mask::apply(mask, payload);
    }
    if opcode == Opcode::Text && simdutf8::basic::from_utf8(payload).is_err() {
        return Err(ProtocolError::Utf8Invalid);
    }
    Ok(())
}

fn control_event(kind: ControlKind, payload: &[u8]) -> Event<'_> {
    match kind {
        ControlKind::Ping => Event::Ping(payload),
        ControlKind::Pong => Event::Pong(payload),
        ControlKind::Close => match close::decode(payload) {
            Ok((code, reason)) => Event::Close { code, reason },
            Err(error) => Event::Failed(error),
        },
    }
}

/// Where a call without an event stops: some 10 us, for which others can wait, and never above a
/// millisecond. The unit is the time to inflate to one byte, about a nanosecond. A read of 256 KiB
/// can hold 37,000 frames, or inflate to 256 MiB.
pub const WORK_PER_CALL: usize = 8 * 1024;

/// A frame, or a part of one.
const WORK_PER_FRAME: usize = 64;

/// Bytes of a message that comes in parts, which are unmasked, checked and copied.
const BYTES_PER_WORK: usize = 4;

/// A byte of a compressed message, beyond what it inflates to: usually less, and 100 where there is
/// nothing but tables of codes.
const WORK_PER_COMPRESSED_BYTE: usize = 8;

/// Bytes of earlier messages that are laid out for one that may refer to them.
const WINDOW_BYTES_PER_WORK: usize = 16;

/// While the caller's buffer holds this much, the peer does not read: pongs are put off, so that a
/// flood of pings cannot grow the buffer beyond this by more than a pong for each time it is sent.
pub const PONG_OUT_BYTES_MAX: usize = 64 * 1024;
