//! rustls without its buffers, which would keep 4 KiB for each idle connection: one step of it at a
//! time, until the handshake is done or to the end of the connection.

use std::fmt;

use rustls::CommonState;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::TlsError;
use super::record_layer::{RecordLayer, Secrets};

/// One of the two roles, each boxed for itself: a server's is not to be as large as a client's.
pub(super) enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl Connection {
    /// Gives up the connection for its secrets, once the handshake is done and nothing is queued.
    pub(super) fn into_record_layer(self) -> Result<RecordLayer, TlsError> {
        let (extracted, secrets) = match self {
            Self::Client(client) => {
                let (extracted, kernel) = client.dangerous_into_kernel_connection()?;
                (extracted, Secrets::Client(Box::new(kernel)))
            }
            Self::Server(server) => {
                let (extracted, kernel) = server.dangerous_into_kernel_connection()?;
                (extracted, Secrets::Server(Box::new(kernel)))
            }
        };
        let layer = RecordLayer::new(&extracted, secrets);
        layer.ok_or_else(|| rustls::Error::General("no such suite".to_owned()).into())
    }

    /// Bytes of its state in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Client(client) => size_of_val(&**client),
            Self::Server(server) => size_of_val(&**server),
        }
    }

    pub(super) fn common(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }

    /// Goes one step on with what was `received`: appends what it opens to `out` and what TLS
    /// itself has to say to `outgoing`.
    pub(super) fn step(
        &mut self,
        received: &mut [u8],
        out: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Step {
        match self {
            Self::Client(client) => Step::of(client.process_tls_records(received), out, outgoing),
            Self::Server(server) => Step::of(server.process_tls_records(received), out, outgoing),
        }
    }

    /// Seals into `out`, with `incomplete` as it was left by the last step and nothing queued.
    pub(super) fn seal(
        &mut self,
        seal: Seal<'_>,
        incomplete: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Sealed {
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
pub(super) struct Step {
    /// How many bytes from the front are done with.
    pub(super) done: usize,
    pub(super) progress: Result<Progress, TlsError>,
}

pub(super) enum Progress {
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
pub(super) enum Sealed {
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
pub(super) enum Seal<'a> {
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

/// RFC 8446, 5.1: the plaintext of one record.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Header, nonce, type and tag, whatever the version; a guess that is too small costs a second try.
const RECORD_OVERHEAD_BYTES: usize = 32;
