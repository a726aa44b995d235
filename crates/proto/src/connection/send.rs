//! From the application's messages to bytes.

use alloc::vec::Vec;

use super::Connection;
use crate::close::CloseCode;
use crate::error::SendError;
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
        let _ = (opcode, payload, out);
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
        let _ = (opcode, payload, fragment_bytes, out);
        Ok(())
    }

    /// Appends a ping with at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        let _ = (payload, out);
        Ok(())
    }

    /// Appends a pong that nobody asked for, with at most 125 bytes.
    pub fn pong(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        let _ = (payload, out);
        Ok(())
    }

    /// Appends a close frame; nothing can be sent after it. A reason of more than 123 bytes is cut
    /// at the last character that fits.
    pub fn close(
        &mut self,
        code: CloseCode,
        reason: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        let _ = (code, reason, out);
        Ok(())
    }
}
