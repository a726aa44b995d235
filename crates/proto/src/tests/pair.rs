//! A network of two in one struct: no sockets, no time.

use std::cell::Cell;
use std::vec::Vec;
use std::{mem, thread_local};

use crate::{CloseCode, Codec, Connection, Limits, Opcode};

pub(super) use crate::fuzz::Told;

/// Gives `input` to `connection` in one read, as the contract says: until nothing is taken and
/// there is no event.
pub(super) fn read(connection: &mut Connection, input: &[u8], out: &mut Vec<u8>) -> Vec<Told> {
    let mut input = input.to_vec();
    let mut told = Vec::new();
    let mut start = 0;
    loop {
        let step = connection.receive(&mut input[start..], out, &mut Codec::new());
        start += step.taken;
        match step.event {
            Some(event) => told.push(Told::from_event(event)),
            None if step.taken == 0 => break,
            None => {}
        }
    }
    assert_eq!(start, input.len(), "a connection leaves no byte behind");
    told
}

/// Masks that differ from frame to frame and are the same in each run of a test.
pub(super) fn test_mask() -> u32 {
    MASKS_TAKEN.with(|taken| {
        taken.set(taken.get() + 1);
        taken.get().wrapping_mul(0x9e37_79b9)
    })
}

/// Begins the sequence of [`test_mask`] again.
pub(super) fn restart_masks() {
    MASKS_TAKEN.with(|taken| taken.set(0));
}

thread_local! {
    static MASKS_TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// One end: what it is, what it has not sent yet, what it was told.
pub(super) struct End {
    pub(super) connection: Connection,
    pub(super) out: Vec<u8>,
    pub(super) told: Vec<Told>,
}

impl End {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            out: Vec::new(),
            told: Vec::new(),
        }
    }

    pub(super) fn server() -> Self {
        Self::new(Connection::server(&Limits::default()))
    }

    pub(super) fn client() -> Self {
        Self::new(Connection::client(&Limits::default(), test_mask))
    }

    pub(super) fn text(&mut self, text: &str) {
        let out = &mut self.out;
        self.connection
            .send(Opcode::Text, text.as_bytes(), out, &mut Codec::new())
            .expect("it is open");
    }

    pub(super) fn close(&mut self, code: CloseCode, reason: &str) {
        self.connection
            .close(code, reason, &mut self.out)
            .expect("it is open");
    }

    pub(super) fn ping(&mut self, payload: &[u8]) {
        self.connection
            .ping(payload, &mut self.out)
            .expect("it is open");
    }

    /// Reads these bytes; returns what it was told by them alone.
    pub(super) fn read(&mut self, input: &[u8]) -> Vec<Told> {
        let told = read(&mut self.connection, input, &mut self.out);
        self.told.extend_from_slice(&told);
        told
    }

    /// The bytes to send, which are taken away.
    pub(super) fn take_out(&mut self) -> Vec<u8> {
        mem::take(&mut self.out)
    }
}

/// A client and a server.
pub(super) struct Pair {
    pub(super) client: End,
    pub(super) server: End,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            client: End::client(),
            server: End::server(),
        }
    }

    /// Carries what each end has to send to the other, once.
    pub(super) fn step(&mut self) -> bool {
        let (up, down) = (self.client.take_out(), self.server.take_out());
        self.server.read(&up);
        self.client.read(&down);
        !(up.is_empty() && down.is_empty())
    }

    /// Steps until neither has anything to send.
    pub(super) fn drive(&mut self) {
        let quiet = (0..STEPS_MAX).any(|_| !self.step());
        assert!(quiet, "the two ends never fall silent");
    }
}

const STEPS_MAX: usize = 100;
