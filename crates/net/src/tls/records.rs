//! The TLS records of one connection: ciphertext in, plaintext out, and the reverse.
//!
//! This is rustls without its buffers: they would keep 4 KiB for each idle connection.

use std::fmt;
use std::sync::Arc;

use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::client::server_name;
use super::{ClientTls, ServerTls, TlsError, TlsFacts};

/// The TLS state of one connection. It keeps plaintext in neither direction: what is opened goes
/// to the caller's buffer at once, and what is sealed is taken from it whole.
#[derive(Debug)]
pub(crate) struct Records {
    connection: Connection,
    /// Received bytes that are not done with: the beginning of a record, or records with the
    /// beginning of a handshake message, which rustls has opened in place. Holds no memory while
    /// empty. Invariant: at most `INCOMPLETE_BYTES_MAX` after `open`.
    incomplete: Vec<u8>,
    /// Sealed records with what TLS itself has to say. Holds no memory while empty.
    outgoing: Vec<u8>,
    /// Whether close_notify was queued; nothing may be sealed after it.
    notified: bool,
    /// Whether the peer's close_notify was opened; what it sends after it is ignored.
    ended: bool,
    /// Whether opening or sealing has failed; nothing but what `outgoing` holds is of use any more.
    failed: bool,
    /// Whether the keys have sealed as much as they may, and so not all there was.
    exhausted: bool,
}

impl Records {
    pub(crate) fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&tls.config))?;
        Ok(Self::new(Connection::Server(Box::new(connection))))
    }

    pub(crate) fn client(tls: &ClientTls, name: &str) -> Result<Self, TlsError> {
        let name = server_name(name)?;
        let connection = UnbufferedClientConnection::new(Arc::clone(&tls.config), name)?;
        Ok(Self::new(Connection::Client(Box::new(connection))))
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            incomplete: Vec::new(),
            outgoing: Vec::new(),
            notified: false,
            ended: false,
            failed: false,
            exhausted: false,
        }
    }

    /// Opens the records in `received`, all of it and in place, and appends the plaintext to
    /// `out`. An incomplete record is kept. After an error [`write`](Self::write) gives the alert.
    pub(crate) fn open(&mut self, received: &mut [u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        let result = self.open_all(received, out);
        if result.is_err() {
            while self.connection.common().wants_write() {
                let _ = self.connection.step(&mut [], out, &mut self.outgoing);
            }
            self.failed = true;
            self.incomplete = Vec::new();
        }
        result
    }

    fn open_all(&mut self, mut received: &mut [u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        // What is incomplete is completed first, and only that: the rest is opened where it is.
        while !self.incomplete.is_empty() && !received.is_empty() {
            let missing = missing_bytes(&self.incomplete).min(received.len());
            let (piece, rest) = received.split_at_mut(missing);
            received = rest;
            self.incomplete.extend_from_slice(piece);
            let mut bytes = std::mem::take(&mut self.incomplete);
            let done = self.open_in_place(&mut bytes, out)?;
            if done < bytes.len() {
                bytes.drain(..done);
                self.keep(bytes)?;
            }
        }
        let done = self.open_in_place(received, out)?;
        match received.get(done..) {
            Some(rest) if !rest.is_empty() => self.keep(rest.to_vec()),
            Some(_) | None => Ok(()),
        }
    }

    /// Opens what is complete in `bytes`; how many of them are done with.
    fn open_in_place(&mut self, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<usize, TlsError> {
        let (mut done, mut is_asked) = (0, false);
        while !self.ended && !self.failed {
            let rest = bytes.get_mut(done..).unwrap_or_default();
            if rest.is_empty() && !is_asked {
                return Ok(done);
            }
            let step = self.connection.step(rest, out, &mut self.outgoing);
            done += step.done;
            let progress = step.progress?;
            is_asked = matches!(progress, Progress::Said);
            match progress {
                Progress::Further | Progress::Said => {}
                Progress::Waiting => return Ok(done),
                // The rest is ignored (RFC 8446, 6.1).
                Progress::Ended => self.ended = true,
            }
        }
        Ok(bytes.len())
    }

    fn keep(&mut self, bytes: Vec<u8>) -> Result<(), TlsError> {
        if bytes.len() > INCOMPLETE_BYTES_MAX {
            return Err(TlsError::Protocol(rustls::Error::General(
                "a TLS message is too long".to_owned(),
            )));
        }
        self.incomplete = bytes;
        Ok(())
    }

    /// Seals `plaintext`, which there must not be before the handshake is done, into records
    /// appended to `out`, after whatever TLS itself has to say. All of it is sealed, or nothing
    /// ever more: see [`is_exhausted`](Self::is_exhausted).
    pub(crate) fn write(&mut self, plaintext: &[u8], out: &mut Vec<u8>) {
        self.encode_queued();
        out.append(&mut std::mem::take(&mut self.outgoing));
        if !self.notified && !self.failed && !plaintext.is_empty() {
            self.seal(Seal::Plaintext(plaintext), out);
        }
    }

    /// Seals into `out`, with nothing queued.
    fn seal(&mut self, seal: Seal<'_>, out: &mut Vec<u8>) {
        let mut sealed = self.connection.seal(seal, &mut self.incomplete, out);
        if sealed == Sealed::PeerEnded {
            self.ended = true;
            sealed = self.connection.seal(seal, &mut self.incomplete, out);
        }
        if sealed == Sealed::Exhausted {
            // It queues close_notify itself.
            self.encode_queued();
            out.append(&mut self.outgoing);
            self.outgoing = Vec::new();
            (self.exhausted, self.failed) = (true, true);
        }
    }

    /// Whether a write could not seal all that it was given, because the keys may not be used any
    /// more (RFC 8446, 5.5) and cannot be changed, as in TLS 1.2: the connection is over.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Whether TLS itself has something to send.
    pub(crate) fn wants_write(&self) -> bool {
        let is_queued = !self.failed && self.connection.common().wants_write();
        is_queued || !self.outgoing.is_empty()
    }

    /// Whether the peer has said that it sends no more (close_notify).
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether no plaintext can be exchanged yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.common().is_handshaking()
    }

    /// What the ends agreed on; `None` before they have.
    pub(crate) fn facts(&self) -> Option<TlsFacts> {
        TlsFacts::of(self.connection.common())
    }

    /// Bytes that it holds in memory, itself included, as far as they can be seen.
    pub(crate) fn memory_bytes(&self) -> usize {
        let state = match &self.connection {
            Connection::Client(client) => size_of_val(&**client),
            Connection::Server(server) => size_of_val(&**server),
        };
        size_of::<Self>() + state + self.incomplete.capacity() + self.outgoing.capacity()
    }

    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.incomplete.capacity() + self.outgoing.capacity()
    }

    /// Queues close_notify, once: the peer then knows that nothing was cut off.
    pub(crate) fn notify_close(&mut self) {
        if !self.notified && !self.failed {
            self.notified = true;
            self.encode_queued();
            let mut outgoing = std::mem::take(&mut self.outgoing);
            self.seal(Seal::CloseNotify, &mut outgoing);
            self.outgoing = outgoing;
        }
    }

    /// Moves what rustls has queued to `outgoing`.
    fn encode_queued(&mut self) {
        while !self.failed && self.connection.common().wants_write() {
            let (incomplete, outgoing) = (&mut self.incomplete, &mut self.outgoing);
            // Nothing new was received, so there is nothing to open and nothing to discard.
            let step = self.connection.step(incomplete, &mut Vec::new(), outgoing);
            debug_assert_eq!(step.done, 0, "open has opened all that can be");
            self.failed |= step.progress.is_err();
            self.ended |= matches!(step.progress, Ok(Progress::Ended));
        }
    }
}

/// One of the two roles, each boxed for itself: a server's is not to be as large as a client's.
enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl Connection {
    fn common(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }

    /// Goes one step on with what was `received`: appends what it opens to `out` and what TLS
    /// itself has to say to `outgoing`.
    fn step(&mut self, received: &mut [u8], out: &mut Vec<u8>, outgoing: &mut Vec<u8>) -> Step {
        match self {
            Self::Client(client) => Step::of(client.process_tls_records(received), out, outgoing),
            Self::Server(server) => Step::of(server.process_tls_records(received), out, outgoing),
        }
    }

    /// Seals into `out`, with `incomplete` as it was left by the last step and nothing queued.
    fn seal(&mut self, seal: Seal<'_>, incomplete: &mut [u8], out: &mut Vec<u8>) -> Sealed {
        match self {
            Self::Client(client) => seal.apply(client.process_tls_records(incomplete), out),
            Self::Server(server) => seal.apply(server.process_tls_records(incomplete), out),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self {
            Self::Client(_) => "Client",
            Self::Server(_) => "Server",
        };
        f.debug_struct(role).finish_non_exhaustive()
    }
}

/// What one step has come to.
struct Step {
    /// How many bytes from the front are done with.
    done: usize,
    progress: Result<Progress, TlsError>,
}

enum Progress {
    /// There may be more to do with what was received.
    Further,
    /// TLS itself said something. What was received before may have meant more than that, so there
    /// may be more to do even if all of it is done with: rustls tells of a close_notify then.
    Said,
    /// Nothing can be done before more is received.
    Waiting,
    /// The peer's close_notify.
    Ended,
}

impl Step {
    fn of<Data>(
        status: UnbufferedStatus<'_, '_, Data>,
        out: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Self {
        let mut done = status.discard;
        let progress = status
            .state
            .map_err(TlsError::from)
            .map(|state| match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        done += record.discard;
                        out.extend_from_slice(record.payload);
                    }
                    Progress::Further
                }
                ConnectionState::EncodeTlsData(data) => {
                    encode(data, outgoing);
                    Progress::Said
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    Progress::Said
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => Progress::Ended,
                // Nobody is offered to send early data, and rustls may have more states one day.
                ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_)
                | ConnectionState::ReadEarlyData(_)
                | _ => Progress::Waiting,
            });
        Self { done, progress }
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    fill(outgoing, 0, |room| {
        data.encode(room).map_err(|error| match error {
            EncodeError::InsufficientSize(error) => Some(error.required_size),
            EncodeError::AlreadyEncoded => None,
        })
    });
}

/// What came of sealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sealed {
    All,
    /// Nothing: first the peer's close_notify was to be taken note of.
    PeerEnded,
    /// Nothing, nor ever again.
    Exhausted,
    /// Nothing: the handshake is not done, or everything is over.
    Nothing,
}

/// What is to be sealed.
#[derive(Clone, Copy)]
enum Seal<'a> {
    Plaintext(&'a [u8]),
    CloseNotify,
}

impl Seal<'_> {
    fn apply<Data>(self, status: UnbufferedStatus<'_, '_, Data>, out: &mut Vec<u8>) -> Sealed {
        match status.state {
            Ok(ConnectionState::WriteTraffic(traffic)) => self.fill(traffic, out),
            Ok(ConnectionState::TransmitTlsData(mut data)) => {
                let traffic = data.may_encrypt_app_data();
                let sealed = traffic.map_or(Sealed::Nothing, |traffic| self.fill(traffic, out));
                data.done();
                sealed
            }
            Ok(ConnectionState::PeerClosed) => Sealed::PeerEnded,
            Ok(_) | Err(_) => Sealed::Nothing,
        }
    }

    fn fill<Data>(self, mut traffic: WriteTraffic<'_, Data>, out: &mut Vec<u8>) -> Sealed {
        let guess = match self {
            Self::Plaintext(bytes) => {
                bytes.len() + (bytes.len() / RECORD_BYTES_MAX + 1) * RECORD_OVERHEAD_BYTES
            }
            Self::CloseNotify => RECORD_OVERHEAD_BYTES,
        };
        let is_sealed = fill(out, guess, |room| {
            self.once(&mut traffic, room).map_err(|error| match error {
                EncryptError::InsufficientSize(error) => Some(error.required_size),
                EncryptError::EncryptExhausted => None,
            })
        });
        if is_sealed {
            Sealed::All
        } else {
            Sealed::Exhausted
        }
    }

    fn once<Data>(
        self,
        traffic: &mut WriteTraffic<'_, Data>,
        room: &mut [u8],
    ) -> Result<usize, EncryptError> {
        match self {
            Self::Plaintext(bytes) => traffic.encrypt(bytes, room),
            Self::CloseNotify => traffic.queue_close_notify(room),
        }
    }
}

/// Appends what `write` puts into the room it is given, which it can ask more of, once. Whether it
/// put anything there.
fn fill(
    out: &mut Vec<u8>,
    guess: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> bool {
    let start = out.len();
    out.resize(start + guess, 0);
    let mut written = write(&mut out[start..]);
    if let Err(Some(required)) = written {
        out.resize(start + required, 0);
        written = write(&mut out[start..]);
    }
    out.truncate(start + written.unwrap_or(0));
    written.is_ok()
}

/// How many bytes more make a step possible: the header of a record or the rest of the record.
fn missing_bytes(incomplete: &[u8]) -> usize {
    let Some((header, rest)) = incomplete.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return RECORD_HEADER_BYTES - incomplete.len();
    };
    let record = usize::from(u16::from_be_bytes([header[3], header[4]]));
    match record.checked_sub(rest.len()) {
        Some(missing) if missing > 0 => missing,
        // The first of several records with a handshake message: where the last one ends is for
        // rustls to say.
        Some(_) | None => HANDSHAKE_PIECE_BYTES,
    }
}

/// RFC 8446, 5.1: type, version, length.
const RECORD_HEADER_BYTES: usize = 5;

/// RFC 8446, 5.1: the plaintext of one record.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Header, nonce, type and tag, whatever the version; a guess that is too small costs a second try.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// A handshake message of several records is looked at each time that so much more of it is there.
const HANDSHAKE_PIECE_BYTES: usize = 4 * 1024;

/// A handshake message of 64 KiB, which is the largest that rustls takes, in records; a peer that
/// cuts it into smaller ones has failed.
const INCOMPLETE_BYTES_MAX: usize = 80 * 1024;
