//! The server's response, as a client reads it (RFC 6455, 4.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use super::build::UpgradeRequest;
use super::head::Headers;
use super::key::accept_key;
use crate::limits::Limits;

/// Reads the head of the response to one upgrade request, split over any number of reads.
#[derive(Debug)]
pub struct ResponseReader {
    /// What `Sec-WebSocket-Accept` must be.
    accept: [u8; 28],
    /// The subprotocols that were offered.
    subprotocols: Vec<String>,
    header_bytes_max: usize,
    headers_max: usize,
}

impl ResponseReader {
    /// A reader for the response to `request`, which keeps at most what `limits` allows.
    pub fn new(request: &UpgradeRequest, limits: &Limits) -> Self {
        Self {
            accept: accept_key(request.key.as_str()),
            subprotocols: request.subprotocols.clone(),
            header_bytes_max: limits.header_bytes_max,
            headers_max: limits.headers_max,
        }
    }

    /// Takes more bytes of the peer. `Ok(None)`: all were taken and the head is not complete.
    /// `Ok(Some((response, taken)))`: the head ended, `taken` bytes of `input` belong to the
    /// response. If it is an upgrade it is valid, and the bytes after it are frames.
    pub fn receive(&mut self, input: &[u8]) -> Result<Option<(Response, usize)>, ResponseError> {
        let _ = (
            input,
            self.accept,
            &self.subprotocols,
            self.header_bytes_max,
            self.headers_max,
        );
        Ok(None)
    }
}

/// A response to an upgrade request: a valid 101, or a refusal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
}

impl Response {
    /// Whether the server accepted: then the head was checked and is valid.
    pub fn is_upgrade(&self) -> bool {
        self.status == 101
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The value of the first header field with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.first(name)
    }

    /// All header fields.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The subprotocol that the server chose; it was offered.
    pub fn subprotocol(&self) -> Option<&str> {
        self.header("sec-websocket-protocol")
    }

    /// Of a refusal, the first bytes of the body: those that came with the end of the head, at most
    /// 1 KiB.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Why a response is not one to our upgrade request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResponseError {
    /// `Sec-WebSocket-Accept` is missing, doubled or wrong.
    AcceptInvalid,
    /// A 101 whose `Connection` lacks `upgrade`.
    ConnectionInvalid,
    /// An extension that was not offered.
    ExtensionUnexpected,
    /// Not an HTTP/1.1 head.
    HeadMalformed,
    /// More bytes than `header_bytes_max`.
    HeadTooLarge,
    /// More fields than `headers_max`.
    HeadersTooMany,
    /// A subprotocol that was not offered, or more than one.
    SubprotocolUnexpected,
    /// A 101 whose `Upgrade` is not `websocket`.
    UpgradeInvalid,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AcceptInvalid => "the response has no valid Sec-WebSocket-Accept",
            Self::ConnectionInvalid => "the response lacks `Connection: Upgrade`",
            Self::ExtensionUnexpected => "the server chose an extension that was not offered",
            Self::HeadMalformed => "the response is not an HTTP/1.1 response",
            Self::HeadTooLarge => "the response head is too large",
            Self::HeadersTooMany => "the response has too many header fields",
            Self::SubprotocolUnexpected => "the server chose a subprotocol that was not offered",
            Self::UpgradeInvalid => "the response lacks `Upgrade: websocket`",
        })
    }
}

impl Error for ResponseError {}
