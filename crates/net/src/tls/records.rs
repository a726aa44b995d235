//! The TLS records of one connection: ciphertext in, plaintext out, and the reverse.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use rustls::{ClientConnection, Connection, ServerConnection};

use super::client::server_name;
use super::{ClientTls, ServerTls, TlsError};

/// The TLS state of one connection. It keeps plaintext in neither direction: what is opened goes
/// to the caller's buffer at once, and what is sealed is taken from it whole.
#[derive(Debug)]
pub(crate) struct Records {
    connection: Connection,
    /// Whether close_notify was queued; nothing may be sealed after it.
    notified: bool,
}

impl Records {
    pub(crate) fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        let connection = ServerConnection::new(Arc::clone(&tls.config))?;
        Ok(Self::new(connection.into()))
    }

    pub(crate) fn client(tls: &ClientTls, name: &str) -> Result<Self, TlsError> {
        let connection = ClientConnection::new(Arc::clone(&tls.config), server_name(name)?)?;
        Ok(Self::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Self {
        // The session's write queue has the bound; here everything is written out at once.
        connection.set_buffer_limit(None);
        Self {
            connection,
            notified: false,
        }
    }

    /// Opens the records in `received`, all of it, and appends the plaintext to `out`. An
    /// incomplete record is kept. After an error [`write`](Self::write) gives the alert.
    pub(crate) fn open(&mut self, mut received: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        while !received.is_empty() {
            let taken = self.connection.read_tls(&mut received).map_err(|_| {
                // Reading from memory does not fail; only a message beyond every bound does.
                TlsError::Protocol(rustls::Error::General(
                    "a TLS message is too long".to_owned(),
                ))
            })?;
            let state = self.connection.process_new_packets()?;
            if state.plaintext_bytes_to_read() > 0 {
                self.drain(out);
            }
            if taken == 0 {
                // After the peer's close_notify the rest is ignored (RFC 8446, 6.1).
                break;
            }
        }
        // rustls gives back the room for a large record only when it is about to read again.
        let _ = self.connection.read_tls(&mut NothingToRead);
        Ok(())
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        let mut reader = self.connection.reader();
        // An error only says that there is nothing more.
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let length = chunk.len();
            out.extend_from_slice(chunk);
            reader.consume(length);
        }
    }

    /// Seals `plaintext` into records appended to `out`, after whatever TLS itself has to say.
    pub(crate) fn write(&mut self, plaintext: &[u8], out: &mut Vec<u8>) {
        if !self.notified && !plaintext.is_empty() {
            // Writing into memory without a bound does not fail.
            let _ = self.connection.writer().write_all(plaintext);
        }
        while self.connection.wants_write() {
            if self.connection.write_tls(out).is_err() {
                break;
            }
        }
    }

    /// Whether TLS itself has something to send.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether no plaintext can be exchanged yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    #[cfg(test)]
    pub(super) fn cipher_suite(&self) -> Option<rustls::CipherSuite> {
        self.connection
            .negotiated_cipher_suite()
            .map(|suite| suite.suite())
    }

    /// Queues close_notify, once: the peer then knows that nothing was cut off.
    pub(crate) fn notify_close(&mut self) {
        if !self.notified {
            self.notified = true;
            self.connection.send_close_notify();
        }
    }
}

/// A source that never has anything.
struct NothingToRead;

impl Read for NothingToRead {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
