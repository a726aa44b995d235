//! Heads that we send. Whatever would let a name or value break out of its line is refused.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::{fmt, str};

use super::head::{is_host, is_token};
use super::key::{ClientKey, accept_key};
use super::request::Request;
use crate::deflate::{DeflateAgreement, DeflateOffer, DeflatePolicy};

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
    /// The compression to offer.
    pub deflate: Option<DeflateOffer>,
    /// The version to speak.
    pub version: WebSocketVersion,
    /// New for each connection.
    pub key: ClientKey,
}

impl UpgradeRequest {
    /// The bytes to send.
    pub fn encode(&self) -> Result<Vec<u8>, BuildError> {
        if !self.target.starts_with('/') || !self.target.bytes().all(is_target_byte) {
            return Err(BuildError::Target);
        }
        if !is_host(&self.host) {
            return Err(BuildError::Host);
        }
        let mut head = Head::new(format!("GET {} HTTP/1.1", self.target));
        head.own("Host", &self.host);
        head.own("Upgrade", "websocket");
        head.own("Connection", "Upgrade");
        head.own("Sec-WebSocket-Key", self.key.as_str());
        head.own("Sec-WebSocket-Version", self.version.field());
        if !self.subprotocols.iter().all(|name| is_token(name)) {
            return Err(BuildError::Subprotocol);
        }
        if !self.subprotocols.is_empty() {
            head.own("Sec-WebSocket-Protocol", &self.subprotocols.join(", "));
        }
        if let Some(offer) = &self.deflate {
            head.own("Sec-WebSocket-Extensions", &offer.field());
        }
        for (name, value) in &self.headers {
            head.foreign(self.version.name_of(name), value)?;
        }
        Ok(head.end(b""))
    }
}

/// What a client says that it speaks. Frames are the same in both versions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WebSocketVersion {
    /// 8: draft-ietf-hybi-thewebsocketprotocol-08 to -12, before RFC 6455. A server that does not
    /// speak it answers 426 with those that it does.
    Hybi08,
    /// 13: RFC 6455.
    #[default]
    Rfc6455,
}

impl WebSocketVersion {
    /// The value of `Sec-WebSocket-Version`.
    pub fn field(self) -> &'static str {
        match self {
            Self::Hybi08 => "8",
            Self::Rfc6455 => "13",
        }
    }

    /// What this version calls a header field: the drafts had a name of their own for `Origin`.
    fn name_of(self, name: &str) -> &str {
        match self {
            Self::Hybi08 if name.eq_ignore_ascii_case("origin") => "Sec-WebSocket-Origin",
            Self::Hybi08 | Self::Rfc6455 => name,
        }
    }
}

/// How a server accepts a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acceptance<'a> {
    /// One of the subprotocols that the request offers.
    pub subprotocol: Option<&'a str>,
    /// Whether it may be one that the request does not offer, at which a client must fail (RFC
    /// 6455, 4.1).
    pub is_subprotocol_forced: bool,
    /// How an offer of compression is answered; `None`: it is ignored, which declines it.
    pub deflate: Option<&'a DeflatePolicy>,
    /// Further header fields.
    pub extra_headers: &'a [(&'a str, &'a str)],
}

/// The 101 response that accepts `request`, and the compression it agrees to.
pub fn accept_response(
    request: &Request,
    acceptance: &Acceptance<'_>,
) -> Result<(Vec<u8>, Option<DeflateAgreement>), BuildError> {
    let key = request
        .key()
        .filter(|_| request.is_upgrade())
        .ok_or(BuildError::NotAnUpgrade)?;
    let accept = accept_key(key);
    let mut head = Head::new("HTTP/1.1 101 Switching Protocols".into());
    head.own("Upgrade", "websocket");
    head.own("Connection", "Upgrade");
    head.own(
        "Sec-WebSocket-Accept",
        str::from_utf8(&accept).expect("base64 is ASCII"),
    );
    if let Some(chosen) = acceptance.subprotocol {
        let is_allowed = acceptance.is_subprotocol_forced
            || request.subprotocols().any(|offered| offered == chosen);
        if !is_token(chosen) || !is_allowed {
            return Err(BuildError::Subprotocol);
        }
        head.own("Sec-WebSocket-Protocol", chosen);
    }
    let offers = request.headers().all("sec-websocket-extensions");
    let granted = acceptance.deflate.and_then(|policy| policy.answer(offers));
    let agreement = granted.map(|(agreement, field)| {
        head.own("Sec-WebSocket-Extensions", &field);
        agreement
    });
    for (name, value) in acceptance.extra_headers {
        head.foreign(name, value)?;
    }
    Ok((head.end(b""), agreement))
}

/// A whole response that does not upgrade, with `Content-Length` and `Connection: close`: a
/// refusal, or the answer to a plain GET. The connection is closed after it. A 426 also names the
/// protocol and its version (RFC 6455, 4.4; RFC 9110, 15.5.22).
pub fn refusal(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<Vec<u8>, BuildError> {
    if !(200..600).contains(&status) {
        return Err(BuildError::Status);
    }
    let mut head = Head::new(format!("HTTP/1.1 {status} {}", reason_phrase(status)));
    if status == 426 {
        head.own("Upgrade", "websocket");
        head.own("Connection", "close, Upgrade");
        head.own("Sec-WebSocket-Version", "13");
    } else {
        head.own("Connection", "close");
    }
    head.own("Content-Length", &format!("{}", body.len()));
    for (name, value) in headers {
        head.foreign(name, value)?;
    }
    Ok(head.end(body))
}

/// A head under construction: whole lines only.
struct Head(String);

impl Head {
    fn new(start_line: String) -> Self {
        let mut head = Self(start_line);
        head.0.push_str("\r\n");
        head
    }

    /// Appends a field of ours, which was checked.
    fn own(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\r\n"] {
            self.0.push_str(part);
        }
    }

    /// Appends a field of the caller's, if it is one line and none of ours.
    fn foreign(&mut self, name: &str, value: &str) -> Result<(), BuildError> {
        if !is_token(name) || OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return Err(BuildError::HeaderName);
        }
        // RFC 9110, 5.5: CR, LF and NUL could end the field for some reader.
        if value
            .chars()
            .any(|character| character.is_control() && character != '\t')
        {
            return Err(BuildError::HeaderValue);
        }
        self.own(name, value);
        Ok(())
    }

    fn end(self, body: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), b"\r\n", body].concat()
    }
}

fn is_target_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

/// The phrase of the statuses that we use; a phrase may be empty (RFC 9112, 4).
const fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
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
    /// A status that is not from 200 to 599.
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
            Self::Status => "the status is not from 200 to 599",
            Self::Subprotocol => "a subprotocol is not a token or was not offered",
            Self::Target => "the target does not begin with `/` or has a forbidden character",
        })
    }
}

impl Error for BuildError {}

/// Fields that only the builders write: a second one could change the meaning of the head.
const OWN_FIELDS: [&str; 10] = [
    "Connection",
    "Content-Length",
    "Host",
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Version",
    "Transfer-Encoding",
    "Upgrade",
];

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec;

    use super::*;
    use crate::handshake::{RequestReader, ResponseReader};
    use crate::limits::Limits;

    fn upgrade() -> UpgradeRequest {
        UpgradeRequest {
            host: "[::1]:5083".to_string(),
            target: "/echo?a=b".to_string(),
            subprotocols: vec!["chat".to_string(), "v2".to_string()],
            headers: vec![("Origin".to_string(), "http://a".to_string())],
            deflate: None,
            version: WebSocketVersion::default(),
            key: ClientKey::from_nonce([7; 16]),
        }
    }

    fn as_read_by_the_server(upgrade: &UpgradeRequest) -> Request {
        let head = upgrade.encode().unwrap();
        let (request, taken) = RequestReader::new(&Limits::default())
            .receive(&head)
            .unwrap()
            .unwrap();
        assert_eq!(taken, head.len());
        request
    }

    #[test]
    fn each_end_understands_the_other() {
        let upgrade = upgrade();
        let request = as_read_by_the_server(&upgrade);
        assert!(request.is_upgrade());
        assert_eq!(request.target(), upgrade.target);
        assert_eq!(request.host(), upgrade.host);
        assert_eq!(request.header("origin"), Some("http://a"));
        let head = {
            let acceptance = Acceptance {
                subprotocol: Some("v2"),
                extra_headers: &[("Server", "moonwire")],
                ..Acceptance::default()
            };
            accept_response(&request, &acceptance).unwrap().0
        };
        let mut reader = ResponseReader::new(&upgrade, &Limits::default());
        let (response, taken) = reader.receive(&head).unwrap().unwrap();
        assert!(response.is_upgrade());
        assert_eq!(taken, head.len());
        assert_eq!(response.subprotocol(), Some("v2"));
        assert_eq!(response.header("server"), Some("moonwire"));
    }

    #[test]
    fn an_old_version_has_its_own_name_for_the_origin() {
        let mut old = upgrade();
        old.version = WebSocketVersion::Hybi08;
        let head = String::from_utf8(old.encode().unwrap()).unwrap();
        assert!(head.contains("\r\nSec-WebSocket-Version: 8\r\n"), "{head}");
        assert!(
            head.contains("\r\nSec-WebSocket-Origin: http://a\r\n"),
            "{head}"
        );
        assert!(!head.contains("\r\nOrigin"), "{head}");
        let head = String::from_utf8(upgrade().encode().unwrap()).unwrap();
        assert!(
            head.contains("\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol"),
            "{head}"
        );
        assert!(head.contains("\r\nOrigin: http://a\r\n"), "{head}");
    }

    #[test]
    fn a_refusal_is_a_whole_response() {
        let head = refusal(404, &[("Content-Type", "text/plain")], b"none\n").unwrap();
        let expected = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 5\r\n\
                        Content-Type: text/plain\r\n\r\nnone\n";
        assert_eq!(str::from_utf8(&head), Ok(expected));
        let head = refusal(426, &[], b"").unwrap();
        let expected = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n\
                        Connection: close, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                        Content-Length: 0\r\n\r\n";
        assert_eq!(str::from_utf8(&head), Ok(expected));
        assert_eq!(refusal(101, &[], b""), Err(BuildError::Status));
    }

    #[test]
    fn nothing_breaks_out_of_its_line() {
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\u{7f}", "a\u{85}b"] {
            assert_eq!(
                refusal(400, &[("A", value)], b""),
                Err(BuildError::HeaderValue)
            );
        }
        for name in [
            "",
            "a b",
            "a:",
            "a\r\n",
            "é",
            "connection",
            "CONTENT-LENGTH",
        ] {
            assert_eq!(
                refusal(400, &[(name, "a")], b""),
                Err(BuildError::HeaderName),
                "{name}"
            );
        }
        let request = as_read_by_the_server(&upgrade());
        for name in [
            "upgrade",
            "Sec-WebSocket-Accept",
            "Sec-WebSocket-Extensions",
        ] {
            let refused = accept_response(
                &request,
                &Acceptance {
                    extra_headers: &[(name, "a")],
                    ..Acceptance::default()
                },
            );
            assert_eq!(refused, Err(BuildError::HeaderName), "{name}");
        }
        for chosen in ["other", "", "chat, v2", "v2\r\nA: b"] {
            let refused = accept_response(
                &request,
                &Acceptance {
                    subprotocol: Some(chosen),
                    ..Acceptance::default()
                },
            );
            assert_eq!(refused, Err(BuildError::Subprotocol), "{chosen}");
        }
    }

    #[test]
    fn a_client_cannot_ask_for_what_is_no_request() {
        let build = |edit: fn(&mut UpgradeRequest)| {
            let mut request = upgrade();
            edit(&mut request);
            request.encode()
        };
        assert_eq!(build(|r| r.target = "echo".into()), Err(BuildError::Target));
        assert_eq!(build(|r| r.target = "/a b".into()), Err(BuildError::Target));
        assert_eq!(
            build(|r| r.target = "/a\r\n".into()),
            Err(BuildError::Target)
        );
        assert_eq!(build(|r| r.target = "/a#b".into()), Err(BuildError::Target));
        assert_eq!(build(|r| r.host = "".into()), Err(BuildError::Host));
        assert_eq!(build(|r| r.host = "a\r\nb".into()), Err(BuildError::Host));
        assert_eq!(build(|r| r.host = "a/b".into()), Err(BuildError::Host));
        assert_eq!(
            build(|r| r.subprotocols[0] = "a,b".into()),
            Err(BuildError::Subprotocol)
        );
        assert_eq!(
            build(|r| r.headers[0].0 = "Host".into()),
            Err(BuildError::HeaderName)
        );
        assert_eq!(
            build(|r| r.headers[0].1 = "\n".into()),
            Err(BuildError::HeaderValue)
        );
    }

    #[test]
    fn a_plain_get_cannot_be_accepted() {
        let mut reader = RequestReader::new(&Limits::default());
        let (request, _) = reader
            .receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap()
            .unwrap();
        assert_eq!(
            accept_response(&request, &Acceptance::default()),
            Err(BuildError::NotAnUpgrade)
        );
    }
}
