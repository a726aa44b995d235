//! The record layer of TLS 1.3 (RFC 8446, 5) after the handshake, in place, on the traffic secrets
//! that rustls has agreed on; rustls keeps what makes the next ones, and tickets.

use std::fmt;

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, Error, ExtractedSecrets, InvalidMessage,
    PeerMisbehaved,
};

use super::record_key::RecordKey;

/// One connection's records. It keeps no bytes but those of a handshake message that the peer has
/// cut into several records.
pub(super) struct RecordLayer {
    sealing: RecordKey,
    opening: RecordKey,
    secrets: Secrets,
    /// The beginning of a handshake message. Holds no memory while empty. Invariant: at most
    /// `HANDSHAKE_BYTES_MAX`.
    handshake: Vec<u8>,
    /// Records without content in a row.
    empty_records: u8,
    /// Whether the peer wants us to change our key, which we have not done yet.
    owes_key_update: bool,
}

/// Where the next traffic secrets come from.
pub(super) enum Secrets {
    Client(Box<KernelConnection<ClientConnectionData>>),
    Server(Box<KernelConnection<ServerConnectionData>>),
    /// Keys that are counted, the same on both ends: without a handshake, for fuzzing.
    #[cfg(any(test, feature = "fuzzing"))]
    Counted {
        sent: u8,
        received: u8,
    },
}

/// What there was in the records that were opened.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Opened {
    /// Bytes of plaintext, at the beginning of what was given.
    pub(super) plaintext: usize,
    /// Bytes that are done with; the rest is the beginning of a record.
    pub(super) done: usize,
    /// Whether the peer says that it sends no more (close_notify). What follows it is ignored.
    pub(super) is_ended: bool,
}

/// Why a connection is over, and what its peer is to be told.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) error: Error,
    pub(super) alert: AlertDescription,
}

impl RecordLayer {
    /// Goes on where rustls has stopped. None for a suite that we have not.
    pub(super) fn new(extracted: &ExtractedSecrets, secrets: Secrets) -> Option<Self> {
        let (tx, rx) = (&extracted.tx, &extracted.rx);
        Some(Self {
            sealing: RecordKey::new(tx.0, &tx.1)?,
            opening: RecordKey::new(rx.0, &rx.1)?,
            secrets,
            handshake: Vec::new(),
            empty_records: 0,
            owes_key_update: false,
        })
    }

    /// Without a handshake, for fuzzing.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn counted() -> Self {
        let key = || RecordKey::counted(0).expect("a key has 16 bytes");
        Self {
            sealing: key(),
            opening: key(),
            secrets: Secrets::Counted {
                sent: 0,
                received: 0,
            },
            handshake: Vec::new(),
            empty_records: 0,
            owes_key_update: false,
        }
    }

    /// Opens all whole records in `bytes`; their plaintext is moved to its beginning.
    pub(super) fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, Fault> {
        let mut opened = Opened::default();
        while let Some(record) = Record::first_of(bytes, opened.done)? {
            let content = self.open_record(bytes, opened.plaintext, &record)?;
            opened.done = record.end;
            match content {
                Content::Data(length) => opened.plaintext += length,
                Content::Nothing => {}
                Content::End => {
                    opened.is_ended = true;
                    opened.done = bytes.len();
                    return Ok(opened);
                }
            }
        }
        Ok(opened)
    }

    /// Opens one record to `to`, which is in front of it.
    fn open_record(
        &mut self,
        bytes: &mut [u8],
        to: usize,
        record: &Record,
    ) -> Result<Content, Fault> {
        let room = bytes.get_mut(to..record.end).unwrap_or_default();
        let start = record.start + HEADER_BYTES - to;
        let inner = self
            .opening
            .open(record.header, room, start)
            .ok_or_else(|| fault(Error::DecryptError, AlertDescription::BadRecordMac))?;
        let (kind, content) = unpadded(inner)?;
        self.count_empty(content)?;
        if kind != HANDSHAKE && !self.handshake.is_empty() {
            // RFC 8446, 5.1: nothing comes between the records of a handshake message.
            let misbehaved = PeerMisbehaved::MessageInterleavedWithHandshakeMessage;
            return Err(unexpected(misbehaved));
        }
        match kind {
            APPLICATION_DATA => Ok(Content::Data(content.len())),
            ALERT => alerted(content),
            HANDSHAKE => self.handshake(content).map(|()| Content::Nothing),
            _ => Err(fault(
                InvalidMessage::InvalidContentType.into(),
                AlertDescription::UnexpectedMessage,
            )),
        }
    }

    /// A peer must not keep us at work with nothing.
    fn count_empty(&mut self, content: &[u8]) -> Result<(), Fault> {
        self.empty_records = match content {
            [] => self.empty_records + 1,
            [_, ..] => 0,
        };
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(unexpected(PeerMisbehaved::TooManyEmptyFragments));
        }
        Ok(())
    }

    /// Handshake messages after the handshake: a new key, or a ticket.
    fn handshake(&mut self, content: &[u8]) -> Result<(), Fault> {
        if content.is_empty() {
            // RFC 8446, 5.1: fragments of zero length are for application data alone.
            let empty = InvalidMessage::InvalidEmptyPayload;
            return Err(fault(empty.into(), AlertDescription::UnexpectedMessage));
        }
        let mut messages = std::mem::take(&mut self.handshake);
        messages.extend_from_slice(content);
        let mut rest = messages.as_slice();
        while let Some((head, body)) = rest.split_first_chunk::<4>() {
            let [kind, length @ ..] = *head;
            let length = usize::from(length[0]) << 16
                | usize::from(u16::from_be_bytes([length[1], length[2]]));
            if length > HANDSHAKE_BYTES_MAX {
                let too_large = InvalidMessage::HandshakePayloadTooLarge;
                return Err(fault(too_large.into(), AlertDescription::DecodeError));
            }
            let Some((body, behind)) = body.split_at_checked(length) else {
                break;
            };
            self.message(kind, body, behind.is_empty())?;
            rest = behind;
        }
        self.handshake = rest.to_vec();
        Ok(())
    }

    fn message(&mut self, kind: u8, body: &[u8], is_last: bool) -> Result<(), Fault> {
        match kind {
            KEY_UPDATE => self.key_updated(body, is_last),
            NEW_SESSION_TICKET => match &mut self.secrets {
                Secrets::Client(client) => client
                    .handle_new_session_ticket(body)
                    .map_err(|error| fault(error, AlertDescription::DecodeError)),
                Secrets::Server(_) => Err(unexpected_handshake()),
                #[cfg(any(test, feature = "fuzzing"))]
                Secrets::Counted { .. } => Err(unexpected_handshake()),
            },
            _ => Err(unexpected_handshake()),
        }
    }

    /// RFC 8446, 4.6.3: all that follows is sealed with the next key, so nothing may share the
    /// record with this.
    fn key_updated(&mut self, body: &[u8], is_last: bool) -> Result<(), Fault> {
        if !is_last {
            let misbehaved = PeerMisbehaved::KeyEpochWithPendingFragment;
            return Err(unexpected(misbehaved));
        }
        let is_requested = match body {
            [NOT_REQUESTED] => false,
            [REQUESTED] => true,
            [_] => {
                let invalid = InvalidMessage::InvalidKeyUpdate;
                return Err(fault(invalid.into(), AlertDescription::IllegalParameter));
            }
            _ => {
                let invalid = InvalidMessage::InvalidKeyUpdate;
                return Err(fault(invalid.into(), AlertDescription::DecodeError));
            }
        };
        self.opening = self.secrets.next(Way::Receive)?;
        self.owes_key_update |= is_requested;
        Ok(())
    }

    /// Whether the peer waits for something that is no data.
    pub(super) fn wants_write(&self) -> bool {
        self.owes_key_update
    }

    /// Seals data, or nothing but what the peer waits for, into records appended to `out`. The two
    /// parts are one after the other to the peer.
    pub(super) fn seal(&mut self, parts: [&[u8]; 2], out: &mut Vec<u8>) -> Result<(), Error> {
        if self.owes_key_update {
            self.update_key(NOT_REQUESTED, out)?;
        }
        let [mut first, mut second] = parts;
        while !(first.is_empty() && second.is_empty()) {
            let before = take(&mut first, CONTENT_BYTES_MAX);
            let behind = take(&mut second, CONTENT_BYTES_MAX - before.len());
            if self.sealing.is_used_up() {
                self.update_key(NOT_REQUESTED, out)?;
            }
            self.seal_record(APPLICATION_DATA, [before, behind], out)?;
        }
        Ok(())
    }

    /// Seals an alert; close_notify is one.
    pub(super) fn seal_alert(
        &mut self,
        alert: AlertDescription,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        // RFC 8446, 6: the level can be told from the description, and is ignored.
        let level = if alert == AlertDescription::CloseNotify {
            1
        } else {
            2
        };
        self.seal_record(ALERT, [&[level, alert.into()], &[]], out)
    }

    /// Says that our next records are sealed with another key. One answer is enough for all
    /// requests that came before it.
    fn update_key(&mut self, request: u8, out: &mut Vec<u8>) -> Result<(), Error> {
        self.seal_record(HANDSHAKE, [&[KEY_UPDATE, 0, 0, 1, request], &[]], out)?;
        self.sealing = self.secrets.next(Way::Send).map_err(|fault| fault.error)?;
        self.owes_key_update = false;
        Ok(())
    }

    fn seal_record(
        &mut self,
        kind: u8,
        content: [&[u8]; 2],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let [first, second] = content;
        let sealed = first.len() + second.len() + 1 + TAG_BYTES;
        let [high, low] = (sealed as u16).to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        out.reserve(HEADER_BYTES + sealed);
        out.extend_from_slice(&header);
        let start = out.len();
        out.extend_from_slice(first);
        out.extend_from_slice(second);
        out.push(kind);
        let inner = out.get_mut(start..).unwrap_or_default();
        let Some(tag) = self.sealing.seal(header, inner) else {
            out.truncate(start - HEADER_BYTES);
            return Err(Error::EncryptError);
        };
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Bytes that it holds in memory, as far as they can be seen.
    pub(super) fn memory_bytes(&self) -> usize {
        let secrets = match &self.secrets {
            Secrets::Client(client) => size_of_val(&**client),
            Secrets::Server(server) => size_of_val(&**server),
            #[cfg(any(test, feature = "fuzzing"))]
            Secrets::Counted { .. } => 0,
        };
        size_of::<Self>() + secrets + self.handshake.capacity()
    }

    #[cfg(test)]
    pub(super) fn set_sealed_max(&mut self, records: u64) {
        self.sealing.set_sealed_max(records);
    }

    /// Changes our key and has the peer change its own.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn request_key_update(&mut self, out: &mut Vec<u8>) {
        self.update_key(REQUESTED, out).expect("keys are left");
    }

    /// Seals any content, for tests of the peer.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn seal_any(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        self.seal_record(kind, [content, &[]], out)
            .expect("keys are left");
    }
}

impl fmt::Debug for RecordLayer {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordLayer").finish_non_exhaustive()
    }
}

/// Which of the two keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Send,
    Receive,
}

impl Secrets {
    fn next(&mut self, way: Way) -> Result<RecordKey, Fault> {
        let made = match (self, way) {
            (Self::Client(client), Way::Send) => client.update_tx_secret(),
            (Self::Client(client), Way::Receive) => client.update_rx_secret(),
            (Self::Server(server), Way::Send) => server.update_tx_secret(),
            (Self::Server(server), Way::Receive) => server.update_rx_secret(),
            #[cfg(any(test, feature = "fuzzing"))]
            (Self::Counted { sent, received }, way) => {
                let count = if way == Way::Send { sent } else { received };
                *count = count.wrapping_add(1);
                let key = RecordKey::counted(*count);
                return key
                    .ok_or_else(|| fault(Error::EncryptError, AlertDescription::InternalError));
            }
        };
        let made: Result<(u64, ConnectionTrafficSecrets), Error> = made;
        let failed = |error| fault(error, AlertDescription::InternalError);
        let (sequence, secrets) = made.map_err(failed)?;
        RecordKey::new(sequence, &secrets).ok_or_else(|| failed(Error::EncryptError))
    }
}

/// Takes so many bytes off the front at most.
fn take<'a>(bytes: &mut &'a [u8], bytes_max: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(bytes.len().min(bytes_max));
    *bytes = rest;
    taken
}

/// Where a whole record is.
struct Record {
    header: [u8; HEADER_BYTES],
    start: usize,
    end: usize,
}

impl Record {
    /// The record that begins at `start`, if all of it is there.
    fn first_of(bytes: &[u8], start: usize) -> Result<Option<Self>, Fault> {
        let rest = bytes.get(start..).unwrap_or_default();
        let Some((header, sealed)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, _, _, length @ ..] = *header;
        // RFC 8446, 5.2: all is application data from outside; the version is to be ignored.
        if kind != APPLICATION_DATA {
            let invalid = InvalidMessage::InvalidContentType;
            return Err(fault(invalid.into(), AlertDescription::UnexpectedMessage));
        }
        let length = usize::from(u16::from_be_bytes(length));
        if length > SEALED_BYTES_MAX {
            return Err(too_large());
        }
        Ok((sealed.len() >= length).then_some(Self {
            header: *header,
            start,
            end: start + HEADER_BYTES + length,
        }))
    }
}

/// What a record was good for.
enum Content {
    Data(usize),
    Nothing,
    End,
}

/// The type and the content in front of it; zeros behind it are padding (RFC 8446, 5.4).
fn unpadded(inner: &[u8]) -> Result<(u8, &[u8]), Fault> {
    if inner.len() > CONTENT_BYTES_MAX + 1 {
        return Err(too_large());
    }
    let end = inner.iter().rposition(|byte| *byte != 0);
    let (kind, content) = end
        .and_then(|end| inner.get(..=end))
        .and_then(<[u8]>::split_last)
        .ok_or_else(|| unexpected(PeerMisbehaved::IllegalTlsInnerPlaintext))?;
    Ok((*kind, content))
}

fn alerted(content: &[u8]) -> Result<Content, Fault> {
    let [_, description] = *content else {
        let invalid = InvalidMessage::MessageTooShort;
        return Err(fault(invalid.into(), AlertDescription::DecodeError));
    };
    let alert = AlertDescription::from(description);
    if alert == AlertDescription::CloseNotify {
        return Ok(Content::End);
    }
    if alert == AlertDescription::UserCanceled {
        // It precedes a close_notify (RFC 8446, 6.1).
        return Ok(Content::Nothing);
    }
    // The peer is gone: what it is told matters no more.
    let told = AlertDescription::CloseNotify;
    Err(fault(Error::AlertReceived(alert), told))
}

fn fault(error: Error, alert: AlertDescription) -> Fault {
    Fault { error, alert }
}

fn unexpected(misbehaved: PeerMisbehaved) -> Fault {
    fault(misbehaved.into(), AlertDescription::UnexpectedMessage)
}

fn unexpected_handshake() -> Fault {
    let invalid = InvalidMessage::UnexpectedMessage("a handshake message after the handshake");
    fault(invalid.into(), AlertDescription::UnexpectedMessage)
}

fn too_large() -> Fault {
    fault(
        InvalidMessage::MessageTooLarge.into(),
        AlertDescription::RecordOverflow,
    )
}

/// RFC 8446, 5.1: type, version, length.
pub(super) const HEADER_BYTES: usize = 5;

/// RFC 8446, 5.1: the content of a record.
pub(super) const CONTENT_BYTES_MAX: usize = 16 * 1024;

/// RFC 8446, 5.2: what a record may add to its content.
const SEALED_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;

/// Of all suites of TLS 1.3 that we have.
const TAG_BYTES: usize = 16;

/// The types of content (RFC 8446, B.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// The types of handshake messages (RFC 8446, B.3).
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Whether the peer is to change its key as well (RFC 8446, 4.6.3).
const NOT_REQUESTED: u8 = 0;
const REQUESTED: u8 = 1;

/// A ticket with its extensions; the largest message that rustls takes.
const HANDSHAKE_BYTES_MAX: usize = 0xffff;

/// As many as rustls lets pass.
const EMPTY_RECORDS_MAX: u8 = 32;

#[cfg(test)]
mod tests;
