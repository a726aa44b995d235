//! From the peer's bytes to events.

use alloc::vec::Vec;

use super::{Connection, Step};

impl Connection {
    /// Takes what it can from the front of `input` and returns at most one event.
    ///
    /// The caller calls again with the rest of the input until nothing is taken and there is no
    /// event. Payloads are unmasked in place; a message that arrived whole is borrowed from
    /// `input` without a copy. Pongs and close frames are appended to `out`.
    pub fn receive<'a>(&'a mut self, input: &'a mut [u8], out: &mut Vec<u8>) -> Step<'a> {
        let _ = out;
        Step {
            taken: input.len(),
            event: None,
        }
    }

    /// Appends the pong that was put off because `out` was full; call it when `out` was drained.
    pub fn send_owed_pong(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}
