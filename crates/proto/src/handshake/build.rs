//! Heads that we send. Whatever would let a name or value break out of its line is refused.

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use super::key::ClientKey;
use super::request::Request;

/// A client's upgrade request (RFC 6455, 4.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpgradeRequest {
    /// The value of `Host`: the host, with the port unless it is the scheme's own.
    pub host: String,
    /// Path and query, beginning with `/`.
    pub target: String,
    /// The subprotocols to offer, the best one first.
    pub subprotocols: Vec<String>,
    /// Further header fields, such as `Origin`.
    pub headers: Vec<(String, String)>,
    /// New for each connection.
    pub key: ClientKey,
}

impl UpgradeRequest {
    /// The bytes to send.
    pub fn encode(&self) -> Result<Vec<u8>, BuildError> {
        Ok(Vec::new())
    }
}

/// The 101 response that accepts `request`, with one of its subprotocols and further fields.
pub fn accept_response(
    request: &Request,
    subprotocol: Option<&str>,
    extra_headers: &[(&str, &str)],
) -> Result<Vec<u8>, BuildError> {
    let _ = (request, subprotocol, extra_headers);
    Ok(Vec::new())
}

/// A whole response that does not upgrade, with `Content-Length` and `Connection: close`: a
/// refusal, or the answer to a plain GET. The connection is closed after it.
pub fn refusal(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<Vec<u8>, BuildError> {
    let _ = (status, headers, body);
    Ok(Vec::new())
}

/// Why a head cannot be built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BuildError {
    /// A header name that is not a token (RFC 9110, 5.6.2), or a field that the builder itself
    /// writes.
    HeaderName,
    /// A header value with a control character.
    HeaderValue,
    /// A host that is empty or has a space, a control character or a comma.
    Host,
    /// The request is not an upgrade.
    NotAnUpgrade,
    /// A status that is not of three digits.
    Status,
    /// A subprotocol that is not a token, or that the request did not offer.
    Subprotocol,
    /// A target that does not begin with `/`, or has a space, a control character or a `#`.
    Target,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeaderName => "a header name is not a token or is reserved",
            Self::HeaderValue => "a header value has a control character",
            Self::Host => "the host is empty or has a character that no host has",
            Self::NotAnUpgrade => "the request is not an upgrade to WebSocket",
            Self::Status => "the status is not of three digits",
            Self::Subprotocol => "a subprotocol is not a token or was not offered",
            Self::Target => "the target does not begin with `/` or has a forbidden character",
        })
    }
}

impl Error for BuildError {}
