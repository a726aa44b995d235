//! The client's request, as a server reads it (RFC 6455, 4.2.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use super::head::Headers;
use crate::limits::Limits;

/// Reads one request head, split over any number of reads.
#[derive(Debug)]
pub struct RequestReader {
    header_bytes_max: usize,
    headers_max: usize,
}

impl RequestReader {
    /// A reader that keeps at most what `limits` allows.
    pub fn new(limits: &Limits) -> Self {
        Self {
            header_bytes_max: limits.header_bytes_max,
            headers_max: limits.headers_max,
        }
    }

    /// Takes more bytes of the peer. `Ok(None)`: all were taken and the head is not complete.
    /// `Ok(Some((request, taken)))`: the head ended after `taken` bytes of `input`; the bytes after
    /// them were not looked at. After that or an error the reader is of no further use.
    pub fn receive(&mut self, input: &[u8]) -> Result<Option<(Request, usize)>, RequestError> {
        let _ = (input, self.header_bytes_max, self.headers_max);
        Ok(None)
    }
}

/// A valid GET: an upgrade to WebSocket, or a plain one for the server to answer as it likes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    target: String,
    headers: Headers,
    is_upgrade: bool,
}

impl Request {
    /// Path and query, beginning with `/`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target
            .split_once('?')
            .map_or(&*self.target, |(path, _)| path)
    }

    /// What follows the first `?` of the target.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The value of the first header field with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.first(name)
    }

    /// All header fields.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The `Host`: there is exactly one.
    pub fn host(&self) -> &str {
        self.header("host").unwrap_or_default()
    }

    /// Whether this asks for WebSocket; if so, its key and version are valid.
    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// The client's key; valid if this is an upgrade.
    pub fn key(&self) -> Option<&str> {
        self.header("sec-websocket-key")
    }

    /// The subprotocols that the client offers, the one it likes best first.
    pub fn subprotocols(&self) -> impl Iterator<Item = &str> {
        self.headers
            .all("sec-websocket-protocol")
            .flat_map(|list| list.split(','))
            .map(|name| name.trim_matches([' ', '\t']))
            .filter(|name| !name.is_empty())
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestError {
    /// A body is announced on an upgrade.
    BodyUnexpected,
    /// Two lengths of the body, or a length and a transfer coding.
    ContentLengthConflict,
    /// Not an HTTP/1.1 head: a bare CR or LF, a control character, a folded line and the like.
    HeadMalformed,
    /// More bytes than `header_bytes_max`.
    HeadTooLarge,
    /// More fields than `headers_max`.
    HeadersTooMany,
    /// No `Host`, or more than one, or one that cannot be a host.
    HostInvalid,
    /// No `Sec-WebSocket-Key`, more than one, or not 16 bytes of base64.
    KeyInvalid,
    /// Not a GET.
    MethodNotAllowed,
    /// Neither a path nor a URL.
    TargetInvalid,
    /// Not HTTP/1.1.
    VersionNotSupported,
    /// Not version 13 of WebSocket.
    WebSocketVersionUnknown,
}

impl RequestError {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::BodyUnexpected
            | Self::ContentLengthConflict
            | Self::HeadMalformed
            | Self::HostInvalid
            | Self::KeyInvalid
            | Self::TargetInvalid => 400,
            Self::MethodNotAllowed => 405,
            Self::WebSocketVersionUnknown => 426,
            Self::HeadTooLarge | Self::HeadersTooMany => 431,
            Self::VersionNotSupported => 505,
        }
    }

    /// The whole answer, after which the connection is closed.
    pub fn response(self) -> Vec<u8> {
        Vec::new()
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BodyUnexpected => "an upgrade request must not have a body",
            Self::ContentLengthConflict => "the length of the body is given in two ways",
            Self::HeadMalformed => "the request head is malformed",
            Self::HeadTooLarge => "the request head is too large",
            Self::HeadersTooMany => "the request has too many header fields",
            Self::HostInvalid => "the request needs exactly one valid Host",
            Self::KeyInvalid => "Sec-WebSocket-Key must be 16 bytes in base64, once",
            Self::MethodNotAllowed => "the method must be GET",
            Self::TargetInvalid => "the request target is invalid",
            Self::VersionNotSupported => "only HTTP/1.1 is supported",
            Self::WebSocketVersionUnknown => "only version 13 of WebSocket is supported",
        })
    }
}

impl Error for RequestError {}
