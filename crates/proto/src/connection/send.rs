//! From the application's messages to bytes.

use alloc::vec::Vec;

use super::Connection;
use crate::close::{self, CloseCode};
use crate::error::SendError;
use crate::frame::{self, CONTROL_BYTES_MAX, ControlKind, FrameKind};
use crate::opcode::Opcode;

impl Connection {
    /// Appends a message in one frame. The payload of a text message must be UTF-8: the caller
    /// knows, it is not looked at again here.
    pub fn send(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.check_open()?;
        self.send_frame(FrameKind::Data(opcode), true, payload, out);
        Ok(())
    }

    /// Appends a message in frames of `fragment_bytes` of payload, the last one with the rest. No
    /// ping or close can come between them. A `fragment_bytes` of 0 counts as 1.
    pub fn send_fragmented(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        fragment_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.check_open()?;
        let mut kind = FrameKind::Data(opcode);
        let mut rest = payload;
        while let Some((part, after)) = rest.split_at_checked(fragment_bytes.max(1))
            && !after.is_empty()
        {
            self.send_frame(kind, false, part, out);
            kind = FrameKind::Continuation;
            rest = after;
        }
        self.send_frame(kind, true, rest, out);
        Ok(())
    }

    /// Appends a ping with at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_heartbeat(ControlKind::Ping, payload, out)
    }

    /// Appends a pong that nobody asked for, with at most 125 bytes.
    pub fn pong(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.send_heartbeat(ControlKind::Pong, payload, out)
    }

    /// Appends a close frame; nothing can be sent after it. A reason of more than 123 bytes is cut
    /// at the last character that fits.
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
        self.send_frame(FrameKind::Control(kind), true, payload, out);
    }

    fn send_frame(&self, kind: FrameKind, fin: bool, payload: &[u8], out: &mut Vec<u8>) {
        // RFC 6455, 5.3: a new mask for each frame of a client.
        let mask = self.mask_source.map(|source| source().to_ne_bytes());
        frame::encode(kind, fin, mask, payload, out);
    }
}
