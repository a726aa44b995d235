//! The client's request, as a server reads it (RFC 6455, 4.2.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use httparse::Status;

use super::build::refusal;
use super::head::{HeadError, HeadReader, Headers, is_host};
use super::key::is_client_key;
use crate::deflate;
use crate::limits::Limits;

/// Reads one request head, split over any number of reads.
#[derive(Debug)]
pub struct RequestReader {
    head: HeadReader,
}

impl RequestReader {
    /// A reader that keeps at most what `limits` allows.
    pub fn new(limits: &Limits) -> Self {
        Self {
            head: HeadReader::new(limits),
        }
    }

    /// Whether a part of a head has come.
    pub fn has_begun(&self) -> bool {
        self.head.has_begun()
    }

    /// Bytes that it holds in memory beyond itself.
    pub fn memory_bytes(&self) -> usize {
        self.head.memory_bytes()
    }

    /// Takes more bytes of the peer. `Ok(None)`: all were taken and the head is not complete.
    /// `Ok(Some((request, taken)))`: the head ended after `taken` bytes of `input`; the bytes after
    /// them were not looked at. After that or an error the reader is of no further use.
    pub fn receive(&mut self, input: &[u8]) -> Result<Option<(Request, usize)>, RequestError> {
        let fields_max = self.head.fields_max();
        let (head, taken) = match self.head.receive(input) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(None),
            Err(HeadError::Malformed) => return Err(RequestError::HeadMalformed),
            Err(HeadError::TooLarge) => return Err(RequestError::HeadTooLarge),
            Err(HeadError::TooManyFields) => return Err(RequestError::HeadersTooMany),
        };
        Ok(Some((Request::parse(head, fields_max)?, taken)))
    }
}

/// A valid GET or HEAD: an upgrade to WebSocket, or a plain one for the server to answer as it
/// likes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    target: String,
    /// The host of a target in absolute form.
    authority: Option<String>,
    headers: Headers,
    is_upgrade: bool,
    is_head: bool,
}

impl Request {
    /// Parses and checks a whole head.
    fn parse(head: &[u8], fields_max: usize) -> Result<Self, RequestError> {
        let mut fields = alloc::vec![httparse::EMPTY_HEADER; fields_max];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(head) {
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(RequestError::HeadersTooMany),
            Err(httparse::Error::Version) => return Err(RequestError::VersionNotSupported),
            Ok(Status::Partial) | Err(_) => return Err(RequestError::HeadMalformed),
        }
        if parsed.version != Some(1) {
            return Err(RequestError::VersionNotSupported);
        }
        let is_head = match parsed.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(RequestError::MethodNotAllowed),
        };
        let parts = authority_and_target(parsed.path.unwrap_or_default());
        let (authority, target) = parts.ok_or(RequestError::TargetInvalid)?;
        let headers = Headers::from_parsed(parsed.headers);
        // RFC 6455, 4.1: the method of an upgrade is GET.
        let is_upgrade = !is_head
            && headers.has_member("connection", "upgrade")
            && headers.has_member("upgrade", "websocket");
        let request = Self {
            target,
            authority,
            headers,
            is_upgrade,
            is_head,
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), RequestError> {
        if !self.headers.only("host").is_some_and(is_host) {
            return Err(RequestError::HostInvalid);
        }
        let has_body = self.announces_body()?;
        if !self.is_upgrade {
            return Ok(());
        }
        if has_body {
            return Err(RequestError::BodyUnexpected);
        }
        if self.headers.only("sec-websocket-version") != Some("13") {
            return Err(RequestError::WebSocketVersionUnknown);
        }
        let mut extensions = self.headers.all("sec-websocket-extensions");
        if !extensions.all(deflate::is_extension_list) {
            return Err(RequestError::ExtensionsMalformed);
        }
        match self.headers.only("sec-websocket-key") {
            Some(key) if is_client_key(key) => Ok(()),
            _ => Err(RequestError::KeyInvalid),
        }
    }

    /// Whether a body follows; its length must be given once at most (RFC 9112, 6.3).
    fn announces_body(&self) -> Result<bool, RequestError> {
        let is_chunked = self.header("transfer-encoding").is_some();
        let Some(length) = self.header("content-length") else {
            return Ok(is_chunked);
        };
        if is_chunked || self.headers.only("content-length").is_none() || length.contains(',') {
            return Err(RequestError::ContentLengthConflict);
        }
        match !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) {
            true => Ok(length.bytes().any(|digit| digit != b'0')),
            false => Err(RequestError::HeadMalformed),
        }
    }

    /// Bytes that it holds in memory beyond itself.
    pub fn memory_bytes(&self) -> usize {
        let authority = self.authority.as_ref().map_or(0, String::capacity);
        self.target.capacity() + authority + self.headers.memory_bytes()
    }

    /// Whether the answer must have no body (RFC 9110, 9.3.2).
    pub fn is_head(&self) -> bool {
        self.is_head
    }

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

    /// The host and port that the client wants: those of a target in absolute form, which go before
    /// the `Host` (RFC 9112, 3.2.2), of which there is exactly one.
    pub fn host(&self) -> &str {
        let authority = self.authority.as_deref();
        authority
            .or_else(|| self.header("host"))
            .unwrap_or_default()
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
        self.headers.members("sec-websocket-protocol")
    }
}

/// The host of a target in absolute form, and the path and query of one in that or in origin form
/// (RFC 9112, 3.2), without a fragment (RFC 6455, 3).
fn authority_and_target(target: &str) -> Option<(Option<String>, String)> {
    if target.contains('#') {
        return None;
    }
    if target.starts_with('/') {
        return Some((None, target.into()));
    }
    let (scheme, rest) = target.split_once("://")?;
    if !SCHEMES
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return None;
    }
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if !is_host(host) {
        return None;
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some((Some(host.into()), [slash, path].concat()))
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestError {
    /// A body is announced on an upgrade.
    BodyUnexpected,
    /// Two lengths of the body, or a length and a transfer coding.
    ContentLengthConflict,
    /// A `Sec-WebSocket-Extensions` that is not a list of extensions (RFC 6455, 9.1).
    ExtensionsMalformed,
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
    /// Neither GET nor HEAD.
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
            | Self::ExtensionsMalformed
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
        let mut headers = alloc::vec![("Content-Type", "text/plain; charset=utf-8")];
        if self == Self::MethodNotAllowed {
            headers.push(("Allow", "GET, HEAD"));
        }
        let body = alloc::format!("{self}\n");
        refusal(self.status(), &headers, body.as_bytes()).expect("these fields are well-formed")
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BodyUnexpected => "an upgrade request must not have a body",
            Self::ContentLengthConflict => "the length of the body is given in two ways",
            Self::ExtensionsMalformed => "Sec-WebSocket-Extensions is not a list of extensions",
            Self::HeadMalformed => "the request head is malformed",
            Self::HeadTooLarge => "the request head is too large",
            Self::HeadersTooMany => "the request has too many header fields",
            Self::HostInvalid => "the request needs exactly one valid Host",
            Self::KeyInvalid => "Sec-WebSocket-Key must be 16 bytes in base64, once",
            Self::MethodNotAllowed => "the method must be GET or HEAD",
            Self::TargetInvalid => "the request target is invalid",
            Self::VersionNotSupported => "only HTTP/1.1 is supported",
            Self::WebSocketVersionUnknown => "only version 13 of WebSocket is supported",
        })
    }
}

impl Error for RequestError {}

/// The schemes of targets in absolute form.
const SCHEMES: [&str; 4] = ["http", "https", "ws", "wss"];

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::{format, vec};

    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn read(head: &str) -> Result<Request, RequestError> {
        let (request, taken) = RequestReader::new(&Limits::default())
            .receive(head.as_bytes())?
            .expect("the head is whole");
        assert_eq!(taken, head.len());
        Ok(request)
    }

    /// The lines of a good upgrade, after which `edit` is applied.
    fn upgrade_with(edit: impl FnOnce(&mut Vec<String>)) -> Result<Request, RequestError> {
        let mut lines = vec![
            "GET /chat?room=1 HTTP/1.1".to_string(),
            "Host: server.example.com:5083".to_string(),
            "Upgrade: websocket".to_string(),
            "Connection: Upgrade".to_string(),
            format!("Sec-WebSocket-Key: {KEY}"),
            "Sec-WebSocket-Version: 13".to_string(),
        ];
        edit(&mut lines);
        read(&format!("{}\r\n\r\n", lines.join("\r\n")))
    }

    /// The good upgrade with one more line at its end.
    fn upgrade_and(line: &str) -> Result<Request, RequestError> {
        upgrade_with(|lines| lines.push(line.to_string()))
    }

    /// The good upgrade with the line of this number replaced, or removed if empty.
    fn upgrade_but(number: usize, line: &str) -> Result<Request, RequestError> {
        upgrade_with(|lines| match line {
            "" => drop(lines.remove(number)),
            line => lines[number] = line.to_string(),
        })
    }

    #[test]
    fn an_upgrade_tells_what_it_wants() {
        let request = upgrade_and("Sec-WebSocket-Protocol: chat, ,\tsuperchat").unwrap();
        assert!(request.is_upgrade());
        assert_eq!(request.target(), "/chat?room=1");
        assert_eq!((request.path(), request.query()), ("/chat", Some("room=1")));
        assert_eq!(request.host(), "server.example.com:5083");
        assert_eq!(request.key(), Some(KEY));
        assert_eq!(
            request.subprotocols().collect::<Vec<_>>(),
            ["chat", "superchat"]
        );
        assert_eq!(request.header("sec-websocket-VERSION"), Some("13"));
        assert_eq!(request.header("absent"), None);
    }

    #[test]
    fn names_and_tokens_are_found_in_any_case_and_in_lists() {
        let request = upgrade_with(|lines| {
            lines[1] = "HOST:  example.com \t".to_string();
            lines[2] = "upgrade: h2c, WebSocket".to_string();
            lines[3] = "CONNECTION: keep-alive".to_string();
            lines.push("connection: ,uPgRaDe".to_string());
        })
        .unwrap();
        assert!(request.is_upgrade());
        assert_eq!(request.host(), "example.com");
    }

    #[test]
    fn other_gets_are_left_to_the_server() {
        for head in [
            "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "GET /health HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUpgrade: websocket\r\n\r\n",
            "GET http://a/health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let request = read(head).unwrap();
            assert!(!request.is_upgrade(), "{head}");
            assert_eq!(request.path(), "/health");
        }
    }

    #[test]
    fn the_host_of_the_target_goes_before_the_field() {
        let request = upgrade_but(0, "GET http://victim.example:1/chat HTTP/1.1").unwrap();
        assert_eq!(
            (request.host(), request.path()),
            ("victim.example:1", "/chat")
        );
    }

    #[test]
    fn targets_lose_scheme_and_host_and_may_not_have_a_fragment() {
        let target = |line: &str| upgrade_but(0, line).map(|request| request.target);
        let ok = |text: &str| Ok(text.to_string());
        assert_eq!(target("GET ws://h:1/a?b HTTP/1.1"), ok("/a?b"));
        assert_eq!(target("GET HTTPS://h HTTP/1.1"), ok("/"));
        assert_eq!(target("GET http://h?q HTTP/1.1"), ok("/?q"));
        for line in [
            "GET * HTTP/1.1",
            "GET a/b HTTP/1.1",
            "GET ftp://h/ HTTP/1.1",
            "GET http:///a HTTP/1.1",
            "GET http://u@h/a HTTP/1.1",
            "GET /a#b HTTP/1.1",
        ] {
            assert_eq!(target(line), Err(RequestError::TargetInvalid), "{line}");
        }
    }

    fn assert_refused(error: RequestError, status: u16, lines: &[&str]) {
        assert_eq!(error.status(), status);
        for line in lines {
            assert_eq!(upgrade_and(line), Err(error), "{line}");
        }
    }

    #[test]
    fn each_bad_or_missing_line_has_its_error() {
        use RequestError::*;
        for (number, line, error) in [
            (0, "POST / HTTP/1.1", MethodNotAllowed),
            (0, "get / HTTP/1.1", MethodNotAllowed),
            (0, "GET / HTTP/1.0", VersionNotSupported),
            (0, "PRI * HTTP/2.0", VersionNotSupported),
            (0, "GET  / HTTP/1.1", HeadMalformed),
            (0, "\u{7f}", HeadMalformed),
            (1, "", HostInvalid),
            (1, "Host:", HostInvalid),
            (1, "Host: :80", HostInvalid),
            (1, "Host: a, b", HostInvalid),
            (1, "Host: a/b", HostInvalid),
            (4, "", KeyInvalid),
            (4, "Sec-WebSocket-Key: c2hvcnQ=", KeyInvalid),
            (5, "", WebSocketVersionUnknown),
            (5, "Sec-WebSocket-Version: 8", WebSocketVersionUnknown),
            (5, "Sec-WebSocket-Version: 13, 8", WebSocketVersionUnknown),
        ] {
            assert_eq!(upgrade_but(number, line), Err(error), "{number}: {line}");
        }
    }

    #[test]
    fn each_line_too_many_has_its_status() {
        use RequestError::*;
        assert_eq!(MethodNotAllowed.status(), 405);
        assert_eq!(VersionNotSupported.status(), 505);
        assert_refused(HostInvalid, 400, &["host: server.example.com:5083"]);
        assert_refused(KeyInvalid, 400, &[&format!("sec-websocket-key: {KEY}")]);
        assert_refused(WebSocketVersionUnknown, 426, &["Sec-WebSocket-Version: 13"]);
        let bodies = ["Content-Length: 1", "Transfer-Encoding: chunked"];
        assert_refused(BodyUnexpected, 400, &bodies);
        let conflicts = [
            "Content-Length: 0\r\nContent-Length: 0",
            "Content-Length: 0, 0",
            "Content-Length: 0\r\nTransfer-Encoding: chunked",
        ];
        assert_refused(ContentLengthConflict, 400, &conflicts);
        let malformed = [
            "Content-Length: +1",
            "Content-Length:",
            "Folded: a\r\n b",
            "Bare: a\rb",
            "Bare: a\nb",
            "Name : a",
            ": a",
            "no colon",
        ];
        assert_refused(HeadMalformed, 400, &malformed);
        assert_refused(HeadersTooMany, 431, &["a: b\r\n".repeat(64).trim_end()]);
        assert_refused(
            HeadTooLarge,
            431,
            &[&format!("Long: {}", "a".repeat(16 * 1024))],
        );
    }

    #[test]
    fn a_length_of_zero_is_no_body() {
        assert!(upgrade_and("Content-Length: 0").unwrap().is_upgrade());
    }

    #[test]
    fn every_error_has_a_whole_answer() {
        use RequestError::*;
        for (error, line) in [
            (MethodNotAllowed, "Allow: GET, HEAD\r\n"),
            (WebSocketVersionUnknown, "Sec-WebSocket-Version: 13\r\n"),
            (HeadTooLarge, "Connection: close\r\n"),
            (HeadMalformed, "\r\n\r\nthe request head is malformed\n"),
        ] {
            let response = String::from_utf8(error.response()).unwrap();
            assert!(
                response.starts_with(&format!("HTTP/1.1 {} ", error.status())),
                "{response}"
            );
            assert!(response.contains(line), "{response}");
        }
    }

    #[test]
    fn what_follows_the_head_is_left_to_the_caller() {
        let input = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\x81\x80";
        let mut reader = RequestReader::new(&Limits::default());
        assert_eq!(reader.receive(&input[..10]), Ok(None));
        let (_, taken) = reader.receive(&input[10..]).unwrap().unwrap();
        assert_eq!(&input[10 + taken..], b"\x81\x80");
    }
}
