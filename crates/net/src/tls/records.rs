//! The TLS records of one connection: ciphertext in, plaintext out, and the reverse.
//!
//! rustls shakes hands. From then on the records of TLS 1.3 are opened and sealed by our own layer,
//! in place; those of TLS 1.2, and all where that is wanted, stay with rustls.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, ProtocolVersion};

use super::client::server_name;
use super::connection::{Connection, Progress, Seal, Sealed};
use super::record_layer::{Fault, HEADER_BYTES, Opened, RecordLayer};
use super::{ClientTls, ServerTls, TlsError, TlsFacts, TlsRecords};

/// The TLS state of one connection. It keeps plaintext in neither direction: what is opened goes
/// to the caller at once, and what is sealed is taken from it whole.
#[derive(Debug)]
pub(crate) struct Records {
    layer: Layer,
    /// Received bytes that are not done with: the beginning of a record, or records with the
    /// beginning of a handshake message, which rustls has opened in place. Holds no memory while
    /// empty. Invariant: at most `INCOMPLETE_BYTES_MAX` after `open`.
    incomplete: Vec<u8>,
    /// Sealed records with what TLS itself has to say. Holds no memory while empty.
    outgoing: Vec<u8>,
    /// Who is to open and seal after the handshake.
    wanted: TlsRecords,
    /// Whether close_notify was queued; nothing may be sealed after it.
    notified: bool,
    /// Whether the peer's close_notify was opened; what it sends after it is ignored.
    ended: bool,
    /// Whether opening or sealing has failed; nothing but what `outgoing` holds is of use any more.
    failed: bool,
    /// Whether the keys have sealed as much as they may, and so not all there was.
    exhausted: bool,
}

/// Who opens and seals.
#[derive(Debug)]
enum Layer {
    Rustls(Connection),
    Own {
        records: Box<RecordLayer>,
        facts: Option<Box<TlsFacts>>,
    },
    /// Nobody: the one could not hand over to the other.
    Lost,
}

impl Records {
    pub(crate) fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&tls.config))?;
        Ok(Self::new(
            Connection::Server(Box::new(connection)),
            tls.records,
        ))
    }

    pub(crate) fn client(tls: &ClientTls, name: &str) -> Result<Self, TlsError> {
        let name = server_name(name)?;
        let connection = UnbufferedClientConnection::new(Arc::clone(&tls.config), name)?;
        Ok(Self::new(
            Connection::Client(Box::new(connection)),
            tls.records,
        ))
    }

    fn new(connection: Connection, wanted: TlsRecords) -> Self {
        Self {
            layer: Layer::Rustls(connection),
            incomplete: Vec::new(),
            outgoing: Vec::new(),
            wanted,
            notified: false,
            ended: false,
            failed: false,
            exhausted: false,
        }
    }

    /// Opens the records in `received`, all of it and in place. With `is_in_place`, and where that
    /// is possible, their plaintext is then at its beginning, as many bytes as are returned;
    /// otherwise it is appended to `out`, and 0 returned. An incomplete record is kept. After an
    /// error [`write`](Self::write) gives the alert.
    pub(crate) fn open(
        &mut self,
        received: &mut [u8],
        out: &mut Vec<u8>,
        is_in_place: bool,
    ) -> Result<usize, TlsError> {
        self.take_over();
        let result = self.open_all(received, out, is_in_place);
        if result.is_err() {
            if let Layer::Rustls(connection) = &mut self.layer {
                while connection.common().wants_write() {
                    let _ = connection.step(&mut [], out, &mut self.outgoing);
                }
            }
            self.failed = true;
            self.incomplete = Vec::new();
        }
        result
    }

    /// Lets our own layer go on at the first moment when rustls has nothing half done.
    fn take_over(&mut self) {
        let Layer::Rustls(connection) = &self.layer else {
            return;
        };
        let common = connection.common();
        let is_over = self.notified || self.ended || self.failed;
        let is_busy = common.is_handshaking() || common.wants_write();
        if is_over
            || is_busy
            || self.wanted == TlsRecords::Rustls
            || !self.incomplete.is_empty()
            || common.protocol_version() != Some(ProtocolVersion::TLSv1_3)
        {
            return;
        }
        let facts = TlsFacts::of(common).map(Box::new);
        let Layer::Rustls(connection) = std::mem::replace(&mut self.layer, Layer::Lost) else {
            return;
        };
        // Where it fails both are lost, and so is the connection: `open` and `write` say so.
        match connection.into_record_layer() {
            Ok(records) => {
                let records = Box::new(records);
                self.layer = Layer::Own { records, facts };
            }
            Err(_) => self.failed = true,
        }
    }

    fn open_all(
        &mut self,
        mut received: &mut [u8],
        out: &mut Vec<u8>,
        is_in_place: bool,
    ) -> Result<usize, TlsError> {
        let is_in_place = is_in_place && self.incomplete.is_empty();
        // What is incomplete is completed first, and only that: the rest is opened where it is.
        while !self.incomplete.is_empty() && !received.is_empty() {
            let missing = missing_bytes(&self.incomplete).min(received.len());
            let (piece, rest) = received.split_at_mut(missing);
            received = rest;
            let mut bytes = std::mem::take(&mut self.incomplete);
            bytes.extend_from_slice(piece);
            let opened = self.open_whole(&mut bytes, out)?;
            out.extend_from_slice(bytes.get(..opened.plaintext).unwrap_or_default());
            if opened.done < bytes.len() {
                bytes.drain(..opened.done);
                self.keep(bytes)?;
            }
        }
        let opened = self.open_whole(received, out)?;
        let rest = received.get(opened.done..).unwrap_or_default();
        if !rest.is_empty() {
            self.keep(rest.to_vec())?;
        }
        if is_in_place {
            return Ok(opened.plaintext);
        }
        out.extend_from_slice(received.get(..opened.plaintext).unwrap_or_default());
        Ok(0)
    }

    /// Opens the whole records in `bytes`: our layer to their beginning, rustls to the end of
    /// `out`.
    fn open_whole(&mut self, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<Opened, TlsError> {
        match &self.layer {
            Layer::Own { .. } => self.open_records(bytes),
            Layer::Rustls(_) => Ok(Opened {
                done: self.step_on(bytes, out)?,
                ..Opened::default()
            }),
            Layer::Lost => Err(lost()),
        }
    }

    fn open_records(&mut self, bytes: &mut [u8]) -> Result<Opened, TlsError> {
        let Layer::Own { records, .. } = &mut self.layer else {
            return Err(lost());
        };
        if self.ended {
            // It is ignored (RFC 8446, 6.1).
            return Ok(Opened {
                done: bytes.len(),
                ..Opened::default()
            });
        }
        match records.open(bytes) {
            Ok(opened) => {
                self.ended |= opened.is_ended;
                Ok(opened)
            }
            Err(Fault { error, alert }) => {
                if !self.notified {
                    // It fails only where there is no key left, and then nothing is to be done.
                    let _ = records.seal_alert(alert, &mut self.outgoing);
                }
                Err(error.into())
            }
        }
    }

    /// Opens what is complete in `bytes`; how many of them are done with.
    fn step_on(&mut self, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<usize, TlsError> {
        let (mut done, mut is_asked) = (0, false);
        while !self.ended && !self.failed {
            let rest = bytes.get_mut(done..).unwrap_or_default();
            if rest.is_empty() && !is_asked {
                return Ok(done);
            }
            let Layer::Rustls(connection) = &mut self.layer else {
                return Err(lost());
            };
            let step = connection.step(rest, out, &mut self.outgoing);
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
        self.write_parts([plaintext, &[]], out);
    }

    /// Whether [`write_parts`](Self::write_parts) may be given two: rustls takes one.
    pub(crate) fn takes_parts(&self) -> bool {
        matches!(self.layer, Layer::Own { .. })
    }

    /// The same for plaintext in two parts, one after the other.
    pub(crate) fn write_parts(&mut self, parts: [&[u8]; 2], out: &mut Vec<u8>) {
        self.take_over();
        self.encode_queued();
        out.append(&mut std::mem::take(&mut self.outgoing));
        if self.notified || self.failed {
            return;
        }
        match &mut self.layer {
            Layer::Own { records, .. } => {
                if records.seal(parts, out).is_err() {
                    (self.exhausted, self.failed) = (true, true);
                }
            }
            Layer::Rustls(_) if !parts[0].is_empty() => {
                debug_assert!(parts[1].is_empty(), "see `takes_parts`");
                self.seal(Seal::Plaintext(parts[0]), out);
            }
            Layer::Rustls(_) | Layer::Lost => {}
        }
    }

    /// Has rustls seal into `out`, with nothing queued.
    fn seal(&mut self, seal: Seal<'_>, out: &mut Vec<u8>) {
        let Layer::Rustls(connection) = &mut self.layer else {
            return;
        };
        let mut sealed = connection.seal(seal, &mut self.incomplete, out);
        if sealed == Sealed::PeerEnded {
            self.ended = true;
            sealed = connection.seal(seal, &mut self.incomplete, out);
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
        let is_queued = match &self.layer {
            Layer::Rustls(connection) => connection.common().wants_write(),
            Layer::Own { records, .. } => !self.notified && records.wants_write(),
            Layer::Lost => false,
        };
        is_queued && !self.failed || !self.outgoing.is_empty()
    }

    /// Whether the peer has said that it sends no more (close_notify).
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether no plaintext can be exchanged yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.layer {
            Layer::Rustls(connection) => connection.common().is_handshaking(),
            Layer::Own { .. } | Layer::Lost => false,
        }
    }

    /// What the ends agreed on; `None` before they have.
    pub(crate) fn facts(&self) -> Option<TlsFacts> {
        match &self.layer {
            Layer::Rustls(connection) => TlsFacts::of(connection.common()),
            Layer::Own { facts, .. } => facts.as_deref().cloned(),
            Layer::Lost => None,
        }
    }

    /// Bytes that it holds in memory, itself included, as far as they can be seen.
    pub(crate) fn memory_bytes(&self) -> usize {
        let state = match &self.layer {
            Layer::Rustls(connection) => connection.memory_bytes(),
            Layer::Own { records, .. } => records.memory_bytes() + size_of::<TlsFacts>(),
            Layer::Lost => 0,
        };
        size_of::<Self>() + state + self.incomplete.capacity() + self.outgoing.capacity()
    }

    /// Queues close_notify, once: the peer then knows that nothing was cut off.
    pub(crate) fn notify_close(&mut self) {
        if self.notified || self.failed {
            return;
        }
        self.take_over();
        self.notified = true;
        self.encode_queued();
        let mut outgoing = std::mem::take(&mut self.outgoing);
        if let Layer::Own { records, .. } = &mut self.layer {
            let sealed = records.seal_alert(AlertDescription::CloseNotify, &mut outgoing);
            self.failed |= sealed.is_err();
        } else {
            self.seal(Seal::CloseNotify, &mut outgoing);
        }
        self.outgoing = outgoing;
    }

    /// Moves what rustls has queued to `outgoing`.
    fn encode_queued(&mut self) {
        while let Layer::Rustls(connection) = &mut self.layer
            && !self.failed
            && connection.common().wants_write()
        {
            let (incomplete, outgoing) = (&mut self.incomplete, &mut self.outgoing);
            // Nothing new was received, so there is nothing to open and nothing to discard.
            let step = connection.step(incomplete, &mut Vec::new(), outgoing);
            debug_assert_eq!(step.done, 0, "open has opened all that can be");
            self.failed |= step.progress.is_err();
            self.ended |= matches!(step.progress, Ok(Progress::Ended));
        }
    }

    /// Our own layer without a handshake.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn counted() -> Self {
        Self {
            layer: Layer::Own {
                records: Box::new(RecordLayer::counted()),
                facts: None,
            },
            incomplete: Vec::new(),
            outgoing: Vec::new(),
            wanted: TlsRecords::Own,
            notified: false,
            ended: false,
            failed: false,
            exhausted: false,
        }
    }

    /// See [`RecordLayer::request_key_update`].
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn request_key_update(&mut self, out: &mut Vec<u8>) {
        if let Layer::Own { records, .. } = &mut self.layer {
            records.request_key_update(out);
        }
    }

    /// See [`RecordLayer::seal_any`].
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn seal_any(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        if let Layer::Own { records, .. } = &mut self.layer {
            records.seal_any(kind, content, out);
        }
    }

    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.incomplete.capacity() + self.outgoing.capacity()
    }

    /// Our own layer, once it has taken over.
    #[cfg(test)]
    pub(super) fn own(&mut self) -> Option<&mut RecordLayer> {
        match &mut self.layer {
            Layer::Own { records, .. } => Some(records),
            Layer::Rustls(_) | Layer::Lost => None,
        }
    }
}

/// What can only be a defect of the handing over.
fn lost() -> TlsError {
    rustls::Error::General("the keys of the connection were lost".to_owned()).into()
}

/// How many bytes more make a step possible: the header of a record or the rest of the record.
fn missing_bytes(incomplete: &[u8]) -> usize {
    let Some((header, rest)) = incomplete.split_first_chunk::<HEADER_BYTES>() else {
        return HEADER_BYTES - incomplete.len();
    };
    let record = usize::from(u16::from_be_bytes([header[3], header[4]]));
    match record.checked_sub(rest.len()) {
        Some(missing) if missing > 0 => missing,
        // The first of several records with a handshake message: where the last one ends is for
        // rustls to say.
        Some(_) | None => HANDSHAKE_PIECE_BYTES,
    }
}

/// A handshake message of several records is looked at each time that so much more of it is there.
const HANDSHAKE_PIECE_BYTES: usize = 4 * 1024;

/// A handshake message of 64 KiB, which is the largest that rustls takes, in records; a peer that
/// cuts it into smaller ones has failed.
const INCOMPLETE_BYTES_MAX: usize = 80 * 1024;
