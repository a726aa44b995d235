//! The server's response, as a client reads it (RFC 6455, 4.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use httparse::Status;

use super::build::UpgradeRequest;
use super::head::{HeadError, HeadReader, Headers};
use super::key::accept_key;
use crate::deflate::{DeflateAgreement, DeflateOffer};
use crate::limits::Limits;

/// Reads the head of the response to one upgrade request, split over any number of reads.
#[derive(Debug)]
pub struct ResponseReader {
    /// What `Sec-WebSocket-Accept` must be.
    accept: [u8; 28],
    /// The subprotocols that were offered.
    subprotocols: Vec<String>,
    /// The compression that was offered.
    deflate: Option<DeflateOffer>,
    head: HeadReader,
    /// Whether an interim response came.
    has_interim: bool,
}

impl ResponseReader {
    /// A reader for the response to `request`, which keeps at most what `limits` allows.
    pub fn new(request: &UpgradeRequest, limits: &Limits) -> Self {
        Self {
            accept: accept_key(request.key.as_str()),
            subprotocols: request.subprotocols.clone(),
            deflate: request.deflate,
            head: HeadReader::new(limits),
            has_interim: false,
        }
    }

    /// Takes more bytes of the peer. `Ok(None)`: all were taken and the head is not complete.
    /// `Ok(Some((response, taken)))`: the head ended, `taken` bytes of `input` belong to the
    /// response. If it is an upgrade it is valid, and the bytes after it are frames.
    ///
    /// Interim responses before it are skipped (RFC 9110, 15.2); all heads together are bounded by
    /// `header_bytes_max`.
    pub fn receive(&mut self, input: &[u8]) -> Result<Option<(Response, usize)>, ResponseError> {
        let has_begun = self.has_interim || self.head.has_begun();
        if !has_begun && input.first() == Some(&TLS_ALERT) {
            return Err(ResponseError::TlsExpected);
        }
        let fields_max = self.head.fields_max();
        let mut taken = 0;
        let mut response = loop {
            let rest = input.get(taken..).unwrap_or_default();
            let (head, head_taken) = match self.head.receive(rest) {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(None),
                Err(HeadError::Malformed) => return Err(ResponseError::HeadMalformed),
                Err(HeadError::TooLarge) => return Err(ResponseError::HeadTooLarge),
                Err(HeadError::TooManyFields) => return Err(ResponseError::HeadersTooMany),
            };
            taken += head_taken;
            let head_bytes = head.len();
            let response = Response::parse(head, fields_max)?;
            if !response.is_interim() {
                break response;
            }
            self.head.expect_another(head_bytes);
            self.has_interim = true;
        };
        if response.is_upgrade() {
            response.deflate = self.check(&response)?;
            return Ok(Some((response, taken)));
        }
        let rest = input.get(taken..).unwrap_or_default();
        let body = rest.get(..response.body_bytes_max()).unwrap_or(rest);
        response.body = body.to_vec();
        Ok(Some((response, taken + body.len())))
    }

    /// RFC 6455, 4.1: what a client must check in a 101.
    fn check(&self, response: &Response) -> Result<Option<DeflateAgreement>, ResponseError> {
        let headers = &response.headers;
        if !headers.has_member("upgrade", "websocket") {
            return Err(ResponseError::UpgradeInvalid);
        }
        if !headers.has_member("connection", "upgrade") {
            return Err(ResponseError::ConnectionInvalid);
        }
        if headers.only("sec-websocket-accept").map(str::as_bytes) != Some(&self.accept) {
            return Err(ResponseError::AcceptInvalid);
        }
        let deflate = self.check_extensions(headers)?;
        let offered = |chosen| self.subprotocols.iter().any(|offered| offered == chosen);
        match headers.first("sec-websocket-protocol") {
            None => Ok(deflate),
            Some(_) if headers.only("sec-websocket-protocol").is_some_and(offered) => Ok(deflate),
            Some(_) => Err(ResponseError::SubprotocolUnexpected),
        }
    }
}

impl ResponseReader {
    /// The compression that the server agreed to, if it kept to what was offered.
    fn check_extensions(
        &self,
        headers: &Headers,
    ) -> Result<Option<DeflateAgreement>, ResponseError> {
        let mut fields = headers.all("sec-websocket-extensions");
        match &self.deflate {
            Some(offer) => offer
                .check(fields)
                .map_err(|_| ResponseError::ExtensionUnexpected),
            None if fields.all(|field| field.is_empty()) => Ok(None),
            None => Err(ResponseError::ExtensionUnexpected),
        }
    }
}

/// A response to an upgrade request: a valid 101, or a refusal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    status: u16,
    headers: Headers,
    deflate: Option<DeflateAgreement>,
    body: Vec<u8>,
}

impl Response {
    /// Parses a whole head.
    fn parse(head: &[u8], fields_max: usize) -> Result<Self, ResponseError> {
        let mut fields = alloc::vec![httparse::EMPTY_HEADER; fields_max];
        let mut parsed = httparse::Response::new(&mut fields);
        match parsed.parse(head) {
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::HeadersTooMany),
            Ok(Status::Partial) | Err(_) => return Err(ResponseError::HeadMalformed),
        }
        let status = parsed.code.unwrap_or_default();
        if status == 101 && parsed.version != Some(1) {
            return Err(ResponseError::HeadMalformed);
        }
        let headers = Headers::from_parsed(parsed.headers);
        Ok(Self {
            status,
            headers,
            deflate: None,
            body: Vec::new(),
        })
    }

    /// How much of the bytes after the head is kept of the body.
    fn body_bytes_max(&self) -> usize {
        let announced = self
            .header("content-length")
            .and_then(|length| length.parse().ok());
        announced.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX)
    }

    /// Whether another response to the same request follows.
    fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && !self.is_upgrade()
    }

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

    /// The compression that the server agreed to; it was offered.
    pub fn deflate(&self) -> Option<&DeflateAgreement> {
        self.deflate.as_ref()
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
    /// An extension that was not offered, or not with these parameters.
    ExtensionUnexpected,
    /// Not an HTTP/1.1 head.
    HeadMalformed,
    /// More bytes than `header_bytes_max`.
    HeadTooLarge,
    /// More fields than `headers_max`.
    HeadersTooMany,
    /// A subprotocol that was not offered, or more than one.
    SubprotocolUnexpected,
    /// An alert of TLS: the server does not speak without it.
    TlsExpected,
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
            Self::TlsExpected => "the server speaks TLS; its URL is wss://",
            Self::UpgradeInvalid => "the response lacks `Upgrade: websocket`",
        })
    }
}

impl Error for ResponseError {}

/// The first byte of an alert, with which a TLS server answers a request (RFC 8446, 5.1). No HTTP
/// begins with it.
const TLS_ALERT: u8 = 0x15;

/// The most that is kept of the body of a refusal.
const BODY_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::{format, vec};

    use super::*;
    use crate::handshake::{ClientKey, WebSocketVersion};

    const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    const UPGRADE: &str = "Upgrade: WebSocket\r\n";
    const CONNECTION: &str = "Connection: keep-alive, Upgrade\r\n";

    fn reader() -> ResponseReader {
        let request = UpgradeRequest {
            host: "a".to_string(),
            target: "/".to_string(),
            subprotocols: vec!["chat".to_string(), "v2".to_string()],
            headers: vec![],
            deflate: None,
            version: WebSocketVersion::default(),
            key: ClientKey::from_nonce(*b"the sample nonce"),
        };
        ResponseReader::new(&request, &Limits::default())
    }

    fn read(fields: &[&str]) -> Result<Response, ResponseError> {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\n{}\r\n",
            fields.concat()
        );
        reader()
            .receive(head.as_bytes())
            .map(|read| read.unwrap().0)
    }

    #[test]
    fn a_server_that_speaks_tls_is_told_apart() {
        let alert = b"\x15\x03\x03\x00\x02\x02\x46";
        assert_eq!(reader().receive(alert), Err(ResponseError::TlsExpected));
        assert_eq!(
            reader().receive(&alert[..1]),
            Err(ResponseError::TlsExpected)
        );
        let mut begun = reader();
        assert_eq!(begun.receive(b"HTTP/1.1 103\r\n\r\n"), Ok(None));
        assert_eq!(begun.receive(alert), Err(ResponseError::HeadMalformed));
    }

    #[test]
    fn a_good_101_byte_by_byte_and_the_frames_after_it() {
        let head = format!("HTTP/1.1 101\r\n{UPGRADE}{CONNECTION}{ACCEPT}\r\n");
        let mut reader = reader();
        let (last, before) = head.as_bytes().split_last().unwrap();
        for byte in before {
            assert_eq!(reader.receive(&[*byte]), Ok(None));
        }
        let (response, taken) = reader.receive(&[*last, 0x81, 0x00]).unwrap().unwrap();
        assert!(response.is_upgrade());
        assert_eq!((taken, response.subprotocol()), (1, None));
    }

    #[test]
    fn a_101_that_is_not_the_answer_to_our_request_is_refused() {
        use ResponseError::*;
        let cases = [
            (read(&[CONNECTION, ACCEPT]), UpgradeInvalid),
            (
                read(&["Upgrade: h2c\r\n", CONNECTION, ACCEPT]),
                UpgradeInvalid,
            ),
            (read(&[UPGRADE, ACCEPT]), ConnectionInvalid),
            (read(&[UPGRADE, CONNECTION]), AcceptInvalid),
            (read(&[UPGRADE, CONNECTION, ACCEPT, ACCEPT]), AcceptInvalid),
            (
                read(&[
                    UPGRADE,
                    CONNECTION,
                    "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
                ]),
                AcceptInvalid,
            ),
            (
                read(&[
                    UPGRADE,
                    CONNECTION,
                    ACCEPT,
                    "Sec-WebSocket-Extensions: x\r\n",
                ]),
                ExtensionUnexpected,
            ),
            (
                read(&[
                    UPGRADE,
                    CONNECTION,
                    ACCEPT,
                    "Sec-WebSocket-Protocol: other\r\n",
                ]),
                SubprotocolUnexpected,
            ),
            (
                read(&[
                    UPGRADE,
                    CONNECTION,
                    ACCEPT,
                    "Sec-WebSocket-Protocol: chat, v2\r\n",
                ]),
                SubprotocolUnexpected,
            ),
            (read(&["not a field\r\n"]), HeadMalformed),
            (read(&[&"a: b\r\n".repeat(65)]), HeadersTooMany),
            (
                read(&[&format!("a: {}\r\n", "b".repeat(16 * 1024))]),
                HeadTooLarge,
            ),
            (
                reader()
                    .receive(b"SSH-2.0-x\r\n\r\n")
                    .map(|read| read.unwrap().0),
                HeadMalformed,
            ),
        ];
        for (number, (result, error)) in cases.into_iter().enumerate() {
            assert_eq!(result, Err(error), "case {number}");
        }
        let chosen = read(&[
            UPGRADE,
            CONNECTION,
            ACCEPT,
            "Sec-WebSocket-Protocol: v2\r\n",
        ]);
        assert_eq!(chosen.unwrap().subprotocol(), Some("v2"));
    }

    #[test]
    fn a_refusal_gives_status_and_the_first_bytes_of_its_body() {
        let input = b"HTTP/1.0 404 Not Found\r\nContent-Length: 4\r\n\r\nnonemore";
        let (response, taken) = reader().receive(input).unwrap().unwrap();
        assert!(!response.is_upgrade());
        assert_eq!((response.status(), response.body()), (404, &b"none"[..]));
        assert_eq!(&input[taken..], b"more");
        let long = [&b"HTTP/1.1 503\r\n\r\n"[..], &[b'x'; 5000]].concat();
        let (response, taken) = reader().receive(&long).unwrap().unwrap();
        assert_eq!((response.body().len(), taken), (1024, 16 + 1024));
    }

    /// RFC 9110, 15.2: a client must be able to read any number of them.
    #[test]
    fn interim_responses_come_before_the_answer() {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100\r\n\r\n";
        let head = format!("{hints}HTTP/1.1 101\r\n{UPGRADE}{CONNECTION}{ACCEPT}\r\n");
        let input = format!("{head}frames");
        let (response, taken) = reader().receive(input.as_bytes()).unwrap().unwrap();
        assert_eq!((response.status(), taken), (101, head.len()));
        let mut slow = reader();
        let (last, before) = head.as_bytes().split_last().unwrap();
        for byte in before {
            assert_eq!(slow.receive(&[*byte]), Ok(None));
        }
        let (response, taken) = slow.receive(&[*last, 0x81]).unwrap().unwrap();
        assert_eq!((response.status(), taken), (101, 1));
    }

    #[test]
    fn interim_responses_count_as_the_head() {
        let mut reader = reader();
        let many = "HTTP/1.1 100\r\n\r\n".repeat(100);
        let result = (0..100).find_map(|_| reader.receive(many.as_bytes()).err());
        assert_eq!(result, Some(ResponseError::HeadTooLarge));
    }
}
