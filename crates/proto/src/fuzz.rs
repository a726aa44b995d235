//! What fuzzers call: functions that take any bytes and check what must hold for all of them.
//!
//! Each is the target of its name in `fuzz/`, and an ordinary test over the inputs that are kept
//! there. Every input begins with choices and the sizes of reads: what follows is heard in one
//! read and again in reads of these sizes, and both must tell the same.

use alloc::string::String;
use alloc::vec::Vec;

use crate::close::CloseCode;
use crate::connection::{Connection, Event, Role};
use crate::deflate::{Codec, DeflateAgreement, INFLATER_BYTES};
use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::opcode::Opcode;

pub use crate::connection::fuzz::{close, frames};
pub use crate::deflate::fuzz::deflate;
pub use crate::handshake::fuzz::{request, response};

/// What of an input was not looked at yet.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// One more byte; 0 if there is none.
    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// So many more bytes, or what is left.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Sizes of reads, behind their number.
    pub(crate) fn reads(&mut self) -> Reads<'a> {
        let count = self.byte();
        Reads(self.bytes(count.into()))
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sizes of reads, over and over; none: one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads<'a>(&'a [u8]);

impl Reads<'static> {
    pub(crate) const ONE: Self = Self(&[]);
}

impl Reads<'_> {
    /// `bytes` in these reads.
    pub(crate) fn of(self, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut sizes = self.0.iter().cycle();
        let mut rest = bytes;
        core::iter::from_fn(move || {
            let size = match sizes.next() {
                // Nothing is never read; it stands for a size that no other byte can say.
                Some(0) => 256,
                Some(size) => usize::from(*size),
                None => usize::MAX,
            };
            let (now, later) = rest.split_at(size.min(rest.len()));
            rest = later;
            (!now.is_empty()).then_some(now)
        })
    }
}

/// An event that owns its payload, to be compared later.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Told {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Failed(ProtocolError),
}

impl Told {
    pub(crate) fn from_event(event: Event<'_>) -> Self {
        match event {
            Event::Message {
                opcode: Opcode::Text,
                payload,
            } => Self::Text(String::from_utf8(payload.to_vec()).expect("texts are checked")),
            Event::Message {
                opcode: Opcode::Binary,
                payload,
            } => Self::Binary(payload.to_vec()),
            Event::Ping(payload) => Self::Ping(payload.to_vec()),
            Event::Pong(payload) => Self::Pong(payload.to_vec()),
            Event::Close { code, reason } => {
                Self::Close(code.map(CloseCode::as_u16), reason.into())
            }
            Event::Failed(error) => Self::Failed(error),
        }
    }

    /// Whether nothing may follow.
    fn is_last(&self) -> bool {
        match self {
            Self::Close(..) | Self::Failed(_) => true,
            Self::Text(_) | Self::Binary(_) | Self::Ping(_) | Self::Pong(_) => false,
        }
    }
}

/// One end under test: what it is, and what it does while it listens.
pub(crate) struct End<'a> {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) deflate: Option<&'a DeflateAgreement>,
    /// Whether it sends each message back.
    pub(crate) echoes: bool,
    /// After how many events it closes.
    pub(crate) closes_after: Option<usize>,
}

/// What an end was told and what it has to send.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Story {
    pub(crate) told: Vec<Told>,
    pub(crate) out: Vec<u8>,
}

impl End<'_> {
    pub(crate) fn connection(&self) -> Connection {
        let connection = match self.role {
            Role::Server => Connection::server(&self.limits),
            Role::Client => Connection::client(&self.limits, || MASK),
        };
        match self.deflate {
            Some(agreement) => connection.with_deflate(agreement),
            None => connection,
        }
    }

    /// Hears `bytes` in one read and in `reads`, and checks that nothing depends on them.
    pub(crate) fn hears(&self, bytes: &[u8], reads: Reads<'_>) -> Story {
        // Not one for both: what a compressor makes of a message may depend on those before it even
        // after a reset, as either way can be read.
        let whole = self.listen(bytes, Reads::ONE, &mut Codec::new());
        let split = self.listen(bytes, reads, &mut Codec::new());
        assert_eq!(whole, split, "the reads matter");
        let mut events = whole.told.iter();
        events.by_ref().find(|told| told.is_last());
        assert_eq!(events.next(), None, "something was told after the end");
        if self.deflate.is_none() || !self.echoes {
            let answers_max = 3 * bytes.len() + 2 * CLOSE_FRAME_BYTES;
            assert!(
                whole.out.len() <= answers_max,
                "the answers outgrow what was received"
            );
        }
        whole
    }

    fn listen(&self, bytes: &[u8], reads: Reads<'_>, codec: &mut Codec) -> Story {
        let mut connection = self.connection();
        let (mut told, mut out) = (Vec::new(), Vec::new());
        let mut arrived = 0;
        for part in reads.of(bytes) {
            arrived += part.len();
            let mut part = part.to_vec();
            let mut start = 0;
            loop {
                if self.closes_after.is_some_and(|events| told.len() >= events) {
                    // Refused once it has closed, which it may have done already.
                    let _ = connection.close(CloseCode::GOING_AWAY, "", &mut out);
                }
                let step = connection.receive(&mut part[start..], &mut out, codec);
                start += step.taken;
                let (taken, event) = (step.taken, step.event.map(Told::from_event));
                self.check_memory(&connection, arrived);
                match event {
                    Some(event) => {
                        self.echo(&event, &mut connection, &mut out, codec);
                        told.push(event);
                    }
                    None if taken == 0 => break,
                    None => {}
                }
            }
            assert_eq!(start, part.len(), "bytes were left behind");
        }
        if told.last().is_some_and(Told::is_last) {
            assert!(connection.is_closed(), "the end was told and is none");
            let kept_bytes = connection.memory_bytes();
            assert!(
                kept_bytes <= self.deflate_bytes_max(),
                "{kept_bytes} bytes after the end"
            );
        }
        Story { told, out }
    }

    fn echo(
        &self,
        event: &Told,
        connection: &mut Connection,
        out: &mut Vec<u8>,
        codec: &mut Codec,
    ) {
        let (opcode, payload) = match event {
            Told::Text(text) => (Opcode::Text, text.as_bytes()),
            Told::Binary(payload) => (Opcode::Binary, payload.as_slice()),
            Told::Ping(_) | Told::Pong(_) | Told::Close(..) | Told::Failed(_) => return,
        };
        if self.echoes {
            // Refused after a close, as it should be.
            let _ = connection.send(opcode, payload, out, codec);
        }
    }

    /// Memory is bounded by the limits and, where nothing is inflated, by what arrived.
    fn check_memory(&self, connection: &Connection, arrived: usize) {
        let kept_bytes = connection.memory_bytes();
        let message_bytes_max = match self.deflate {
            // One byte more shows that a message inflates to too much.
            Some(_) => self.limits.message_bytes_max + 1,
            None => self.limits.message_bytes_max.min(2 * arrived),
        };
        let bytes_max = message_bytes_max + ASSEMBLY_BYTES_MAX + self.deflate_bytes_max();
        assert!(
            kept_bytes <= bytes_max,
            "{kept_bytes} bytes after {arrived}"
        );
    }

    /// What compression may keep: a window for each direction with takeover, an inflater.
    fn deflate_bytes_max(&self) -> usize {
        self.deflate.map_or(0, |agreement| {
            let windows = [agreement.server, agreement.client].map(|direction| {
                let window_bytes = direction.window_bits.window_bytes();
                window_bytes * usize::from(direction.context_takeover)
            });
            windows.iter().sum::<usize>() + INFLATER_BYTES + ASSEMBLY_BYTES_MAX
        })
    }
}

/// The mask of everything that an end sends.
pub(crate) const MASK: u32 = 0x0102_0304;

/// A close frame with a code and a mask.
const CLOSE_FRAME_BYTES: usize = 8;

/// What an unfinished message and an unfinished control frame take besides the payload.
const ASSEMBLY_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{fs, panic, println};

    use super::*;

    /// Runs the target over every input that is kept for it.
    fn corpus(name: &str, target: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let mut inputs = 0;
        for entry in fs::read_dir(folder.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let input = fs::read(&path).unwrap();
            if let Err(panic) = panic::catch_unwind(|| target(&input)) {
                println!("{} fails", path.display());
                panic::resume_unwind(panic);
            }
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no corpus");
    }

    #[test]
    fn corpus_of_request() {
        corpus("request", request);
    }

    #[test]
    fn corpus_of_response() {
        corpus("response", response);
    }

    #[test]
    fn corpus_of_frames() {
        corpus("frames", frames);
    }

    #[test]
    fn corpus_of_deflate() {
        corpus("deflate", deflate);
    }

    #[test]
    fn corpus_of_close() {
        corpus("close", close);
    }

    #[test]
    fn reads_are_cut_over_and_over() {
        let parts = |sizes| Vec::from_iter(Reads(sizes).of(b"abcdefgh").map(<[u8]>::len));
        assert_eq!(parts(&[]), [8]);
        assert_eq!(parts(&[3, 1]), [3, 1, 3, 1]);
        assert_eq!(parts(&[1, 0]), [1, 7]);
    }
}
