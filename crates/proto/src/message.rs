//! What is kept of a message, or of a control frame, that did not arrive in one read.

use crate::connection::WORK_PER_CALL;
use crate::deflate::{History, INFLATER_BYTES, Inflation};
use crate::error::ProtocolError;
use crate::frame::{CONTROL_BYTES_MAX, ControlKind, Header, OpenMessage};
use crate::mask;
use crate::opcode::Opcode;
use crate::payload::Payload;

/// A message of which something is still missing, or that was completed by the last call.
#[derive(Debug)]
pub(crate) struct Assembly {
    opcode: Opcode,
    /// The unmasked, inflated payload so far; its memory grows with what arrived, never with what
    /// was announced, and never beyond the limit of a message. Joined once it is complete.
    payload: Payload,
    /// Of a compressed message that is not complete: how its payload goes on.
    inflation: Option<Inflation>,
    /// Whether it is compressed.
    compressed: bool,
    /// Payload bytes of its frames so far, as they came.
    wire_bytes: usize,
    /// Frames of this message that began.
    frames: u32,
    /// Whether the current frame is the last one.
    fin: bool,
    /// The mask for the next byte of the current frame.
    mask: Option<[u8; 4]>,
    /// Bytes of the current frame that did not arrive yet.
    missing_bytes: usize,
}

impl Assembly {
    /// An empty message. One that is compressed is inflated by `inflation`, or passed over.
    pub(crate) fn new(opcode: Opcode, compressed: bool, inflation: Option<Inflation>) -> Self {
        Self {
            opcode,
            payload: Payload::new(opcode == Opcode::Text),
            compressed,
            inflation,
            wire_bytes: 0,
            frames: 0,
            fin: false,
            mask: None,
            missing_bytes: 0,
        }
    }

    /// Begins the next frame; the one before it is complete.
    pub(crate) fn begin_frame(&mut self, header: &Header) {
        debug_assert!(self.missing_bytes == 0 && !self.fin);
        self.frames += 1;
        self.fin = header.fin;
        self.mask = header.mask;
        self.missing_bytes = header.payload_bytes;
    }

    /// Takes bytes of the current frame from the front of `input`; returns how many: all, or of a
    /// compressed message at most [`PIECE_BYTES`], and fewer if they inflate to much. It may refer
    /// to `history`.
    pub(crate) fn take(
        &mut self,
        input: &mut [u8],
        history: Option<&History>,
        message_bytes_max: usize,
    ) -> Result<usize, ProtocolError> {
        let arrived = input.len().min(self.missing_bytes);
        let part = input.get_mut(..arrived).unwrap_or_default();
        let Some(history) = history.filter(|_| self.compressed) else {
            self.unmask(part);
            self.passed(arrived);
            let possible = self.possible_bytes(arrived, message_bytes_max);
            self.payload.extend(part, possible);
            self.check(self.is_complete())?;
            return Ok(arrived);
        };
        let inflated = self.inflate(part, history, message_bytes_max);
        // What was inflated before an error comes first, as if an earlier read had brought it.
        self.check(inflated.is_ok() && self.is_complete())?;
        inflated
    }

    /// Fails as soon as a text cannot become valid any more (RFC 6455, 8.1).
    fn check(&mut self, is_complete: bool) -> Result<(), ProtocolError> {
        if !self.payload.is_valid(is_complete) {
            return Err(ProtocolError::Utf8Invalid);
        }
        if is_complete {
            self.payload.join();
        }
        Ok(())
    }

    /// Inflates bytes of the current frame, and the end of the message with its last one.
    fn inflate(
        &mut self,
        part: &mut [u8],
        history: &History,
        message_bytes_max: usize,
    ) -> Result<usize, ProtocolError> {
        let Some(mut inflation) = self.inflation.take() else {
            return Ok(0);
        };
        let enough_bytes = self.payload.len().saturating_add(WORK_PER_CALL);
        let length = part.len().min(PIECE_BYTES);
        let piece = part.get_mut(..length).unwrap_or_default();
        self.unmask(piece);
        let payload = &mut self.payload;
        let taken = inflation.take(piece, history, payload, message_bytes_max, enough_bytes)?;
        self.passed(taken);
        // As it came, for the next call.
        self.unmask(piece.get_mut(taken..).unwrap_or_default());
        if self.is_complete() {
            inflation.finish(history, &mut self.payload, message_bytes_max)?;
        }
        self.inflation = Some(inflation);
        Ok(taken)
    }

    /// Unmasks bytes that come next, or masks them again.
    fn unmask(&self, bytes: &mut [u8]) {
        if let Some(mask) = self.mask {
            mask::apply(mask, bytes);
        }
    }

    /// So many bytes of the current frame are taken.
    fn passed(&mut self, bytes: usize) {
        self.mask = self.mask.map(|mask| mask::after(mask, bytes));
        self.missing_bytes -= bytes;
        self.wire_bytes += bytes;
    }

    /// Takes bytes of the current frame from the front of `input` without looking at them, and
    /// frees what was kept; returns how many.
    pub(crate) fn pass_over(&mut self, input: &[u8]) -> usize {
        self.payload = Payload::default();
        let taken = input.len().min(self.missing_bytes);
        self.passed(taken);
        taken
    }

    /// What this message can become at most; `bytes` more of it were taken.
    fn possible_bytes(&self, bytes: usize, message_bytes_max: usize) -> usize {
        match self.fin {
            true => self.payload.len() + bytes + self.missing_bytes,
            false => message_bytes_max,
        }
    }

    /// Whether the next byte of data belongs to the current frame.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.missing_bytes > 0
    }

    /// Whether the whole message arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.fin && self.missing_bytes == 0
    }

    pub(crate) fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// The payload of a message that is complete.
    pub(crate) fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// What the next header is checked against.
    pub(crate) fn open(&self) -> OpenMessage {
        OpenMessage {
            wire_bytes: self.wire_bytes,
            frames: self.frames,
            compressed: self.compressed,
        }
    }

    /// Bytes that it was inflated to; 0 if it is not compressed.
    pub(crate) fn inflated_bytes(&self) -> usize {
        match self.compressed {
            true => self.payload.len(),
            false => 0,
        }
    }

    /// Bytes of windows that were laid out for it since the last call; 0 if it is not compressed.
    pub(crate) fn take_window_bytes(&mut self) -> usize {
        let inflation = self.inflation.as_mut();
        inflation.map_or(0, Inflation::take_window_bytes)
    }

    /// The inflation, once nothing more is to be inflated.
    pub(crate) fn end_inflation(&mut self) -> Option<Inflation> {
        self.inflation.take()
    }

    /// Bytes that it holds in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let inflater = self.inflation.as_ref().map_or(0, |_| INFLATER_BYTES);
        size_of::<Self>() + self.payload.memory_bytes() + inflater
    }
}

/// Bytes of a compressed message that are looked at before anybody asks how long it took.
const PIECE_BYTES: usize = 1024;

/// A control frame of which something is still missing, or that was completed by the last call.
#[derive(Debug)]
pub(crate) struct ControlAssembly {
    kind: ControlKind,
    mask: Option<[u8; 4]>,
    /// `received_bytes <= payload_bytes <= CONTROL_BYTES_MAX`.
    received_bytes: usize,
    payload_bytes: usize,
    /// The first `received_bytes` are the payload, unmasked once it is complete.
    bytes: [u8; CONTROL_BYTES_MAX],
}

impl ControlAssembly {
    /// `header` has passed the check of control frames: at most 125 bytes.
    pub(crate) fn new(kind: ControlKind, header: &Header) -> Self {
        debug_assert!(header.payload_bytes <= CONTROL_BYTES_MAX);
        Self {
            kind,
            mask: header.mask,
            received_bytes: 0,
            payload_bytes: header.payload_bytes.min(CONTROL_BYTES_MAX),
            bytes: [0; CONTROL_BYTES_MAX],
        }
    }

    /// Takes bytes of the frame from the front of `input`; returns how many.
    pub(crate) fn take(&mut self, input: &[u8]) -> usize {
        let missing = self.bytes.get_mut(self.received_bytes..self.payload_bytes);
        let missing = missing.unwrap_or_default();
        let taken = input.len().min(missing.len());
        for (byte, arrived) in missing.iter_mut().zip(input) {
            *byte = *arrived;
        }
        self.received_bytes += taken;
        if self.is_complete()
            && let Some(mask) = self.mask
        {
            mask::apply(
                mask,
                self.bytes.get_mut(..self.payload_bytes).unwrap_or_default(),
            );
        }
        taken
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.received_bytes == self.payload_bytes
    }

    pub(crate) fn kind(&self) -> ControlKind {
        self.kind
    }

    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(..self.payload_bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameKind;

    fn frame(fin: bool, payload_bytes: usize) -> Header {
        let kind = FrameKind::Continuation;
        Header {
            fin,
            kind,
            compressed: false,
            mask: None,
            header_bytes: 2,
            payload_bytes,
        }
    }

    #[test]
    fn memory_grows_with_what_arrived_and_stops_at_the_limit() {
        let mut message = Assembly::new(Opcode::Binary, false, None);
        message.begin_frame(&frame(false, 1 << 30));
        message.take(&mut [0; 100], None, 1 << 30).unwrap();
        assert!(message.payload.memory_bytes() < 300);

        let mut message = Assembly::new(Opcode::Binary, false, None);
        for part in 0..10 {
            message.begin_frame(&frame(part == 9, 100));
            message.take(&mut [0; 100], None, 1000).unwrap();
            assert!(message.payload.memory_bytes() <= 1000);
        }
        assert!(message.is_complete());
    }

    /// Every prefix of a text, byte by byte: the first byte that cannot be right is refused.
    fn first_refused_byte(text: &[u8]) -> Option<usize> {
        let mut message = Assembly::new(Opcode::Text, false, None);
        message.begin_frame(&frame(true, text.len()));
        text.iter()
            .position(|byte| message.take(&mut [*byte], None, 1000).is_err())
    }

    #[test]
    fn text_fails_at_the_first_byte_that_cannot_be_right() {
        let cases: &[(&[u8], Option<usize>)] = &[
            ("κόσμε 𝄞 \u{10ffff}".as_bytes(), None),
            (b"ab\xff", Some(2)),
            (b"\xce\xba\xed\xa0\x80 surrogate", Some(3)),
            (b"\xf4\x90\x80\x80 above 10ffff", Some(1)),
            (b"\xf5 never", Some(0)),
            (b"\xc0\xaf overlong", Some(0)),
            (b"\xe0\x80\xaf overlong", Some(1)),
            (b"\xf0\x80\x80\xaf overlong", Some(1)),
            (b"\x80 alone", Some(0)),
            (b"\xe2\x82x cut short", Some(2)),
            (b"ends too early \xf0\x9d\x84", Some(17)),
        ];
        for (text, refused) in cases {
            assert_eq!(first_refused_byte(text), *refused, "{text:x?}");
        }
    }

    #[test]
    fn a_character_may_span_frames_but_not_end_the_message_unfinished() {
        let mut message = Assembly::new(Opcode::Text, false, None);
        message.begin_frame(&frame(false, 1));
        assert_eq!(message.take(&mut [0xce], None, 10), Ok(1));
        message.begin_frame(&frame(false, 0));
        assert_eq!(message.take(&mut [], None, 10), Ok(0));
        message.begin_frame(&frame(true, 1));
        assert_eq!(message.take(&mut [0xba, 0xff], None, 10), Ok(1));
        assert_eq!(message.payload(), "κ".as_bytes());
        assert!(message.is_complete());

        let mut message = Assembly::new(Opcode::Text, false, None);
        message.begin_frame(&frame(false, 1));
        message.take(&mut [0xce], None, 10).unwrap();
        message.begin_frame(&frame(true, 0));
        assert_eq!(
            message.take(&mut [], None, 10),
            Err(ProtocolError::Utf8Invalid)
        );
    }
}
