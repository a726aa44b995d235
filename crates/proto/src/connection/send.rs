//! From the application's messages to bytes.

use alloc::vec::Vec;

use super::{Connection, Deflate};
use crate::close::{self, CloseCode};
use crate::deflate::Codec;
use crate::error::SendError;
use crate::frame::{self, CONTROL_BYTES_MAX, ControlKind, FrameKind, Lead};
use crate::opcode::Opcode;

impl Connection {
    /// Appends a message in one frame, compressed with `codec` where that was agreed and makes it
    /// smaller. The payload of a text message must be UTF-8: the caller knows, it is not looked at
    /// again here.
    pub fn send(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        out: &mut Vec<u8>,
        codec: &mut Codec,
    ) -> Result<(), SendError> {
        self.send_fragmented(opcode, payload, usize::MAX, out, codec)
    }

    /// Appends a message in frames of `fragment_bytes` of payload. The last one has what is left,
    /// which is less than twice as much: none is shorter than the others, as LAppS has it. No ping
    /// or close can come between them. A `fragment_bytes` of 0 counts as 1.
    pub fn send_fragmented(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        fragment_bytes: usize,
        out: &mut Vec<u8>,
        codec: &mut Codec,
    ) -> Result<(), SendError> {
        let fragment_bytes = fragment_bytes.max(1);
        let has_two = |rest: usize| rest / 2 >= fragment_bytes;
        let next = |rest: usize| has_two(rest).then_some(fragment_bytes);
        self.send_frames(opcode, payload, next, out, codec)
    }

    /// Appends a message in frames of these sizes and one with the rest, as far as there is
    /// something left for the next one: no frame is empty, unless the message is. Of a compressed
    /// message the compressed bytes are cut.
    pub fn send_in_parts(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        sizes: &[usize],
        out: &mut Vec<u8>,
        codec: &mut Codec,
    ) -> Result<(), SendError> {
        let mut sizes = sizes.iter().filter(|&&size| size > 0);
        let next = |rest: usize| sizes.next().copied().filter(|&size| size < rest);
        self.send_frames(opcode, payload, next, out, codec)
    }

    /// Appends a message in frames: `next` gives the size of the next one, which is less than the
    /// bytes that are left; with `None` it is the last one and has all of them.
    fn send_frames(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        mut next: impl FnMut(usize) -> Option<usize>,
        out: &mut Vec<u8>,
        codec: &mut Codec,
    ) -> Result<(), SendError> {
        self.check_open()?;
        let compressed = match &mut self.deflate {
            Some(deflate) => deflate.compress(payload, codec),
            None => None,
        };
        let mut lead = Lead {
            kind: FrameKind::Data(opcode),
            fin: false,
            compressed: compressed.is_some(),
        };
        let mut rest = compressed.unwrap_or(payload);
        while let Some((part, after)) =
            next(rest.len()).and_then(|size| rest.split_at_checked(size))
        {
            self.send_frame(lead, part, out);
            lead.kind = FrameKind::Continuation;
            lead.compressed = false;
            rest = after;
        }
        lead.fin = true;
        self.send_frame(lead, rest, out);
        codec.free_large();
        Ok(())
    }

    /// Appends the header of a message in one frame whose payload follows as it is. False, and
    /// nothing is appended, where it would not go as it is: a client masks it, and where
    /// compression was agreed it may be compressed.
    pub fn send_header(
        &mut self,
        opcode: Opcode,
        payload_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, SendError> {
        self.check_open()?;
        if self.deflate.is_some() || self.mask_source.is_some() {
            return Ok(false);
        }
        let lead = Lead::plain(FrameKind::Data(opcode), true);
        frame::encode_header(lead, None, payload_bytes, out);
        Ok(true)
    }

    /// Appends a ping with at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_heartbeat(ControlKind::Ping, payload, out)
    }

    /// Appends a pong that nobody asked for, with at most 125 bytes.
    pub fn pong(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_heartbeat(ControlKind::Pong, payload, out)
    }

    /// Appends a close frame; nothing can be sent after it, and compressed messages that the peer
    /// sends until it has seen it are passed over: inflating could cost much, for nothing. A reason
    /// of more than 123 bytes is cut at the last character that fits.
    pub fn close(
        &mut self,
        code: CloseCode,
        reason: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.check_open()?;
        self.send_control(ControlKind::Close, &close::encode(code, reason), out);
        self.close_sent = true;
        self.pong_owed = None;
        Ok(())
    }

    /// Ends the connection for a reason of the caller's own: appends a close frame, unless one was
    /// sent, and frees what was kept of the peer, whose further bytes are ignored.
    pub fn abandon(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) {
        self.end(&close::encode(code, reason), out);
        self.failed = true;
    }

    fn send_heartbeat(
        &mut self,
        kind: ControlKind,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.check_open()?;
        if payload.len() > CONTROL_BYTES_MAX {
            return Err(SendError::ControlTooLong);
        }
        self.send_control(kind, payload, out);
        Ok(())
    }

    fn check_open(&self) -> Result<(), SendError> {
        match self.close_sent {
            true => Err(SendError::Closed),
            false => Ok(()),
        }
    }

    /// Appends a control frame with at most 125 bytes.
    pub(super) fn send_control(&self, kind: ControlKind, payload: &[u8], out: &mut Vec<u8>) {
        debug_assert!(payload.len() <= CONTROL_BYTES_MAX);
        self.send_frame(Lead::plain(FrameKind::Control(kind), true), payload, out);
    }

    fn send_frame(&self, lead: Lead, payload: &[u8], out: &mut Vec<u8>) {
        // RFC 6455, 5.3: a new mask for each frame of a client.
        let mask_source = self.mask_source.filter(|_| !self.is_unmasked);
        let mask = mask_source.map(|source| source().to_ne_bytes());
        frame::encode(lead, mask, payload, out);
    }
}

impl Deflate {
    /// The message as it is to be sent; `None`: as it is. Only what is sent compressed becomes part
    /// of the window (RFC 7692, 7.2.3.2).
    fn compress<'a>(&mut self, payload: &[u8], codec: &'a mut Codec) -> Option<&'a [u8]> {
        if !(self.threshold_bytes..=self.compress_bytes_max).contains(&payload.len()) {
            return None;
        }
        let compressed = codec.compress(self.setting, &self.sent, payload)?;
        self.sent.append(payload);
        Some(compressed)
    }
}
