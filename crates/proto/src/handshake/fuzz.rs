//! The readers of heads under any bytes in any reads; the input chooses both.

use alloc::string::String;
use alloc::vec::Vec;
use core::str;

use super::{
    Acceptance, ClientKey, Request, RequestReader, ResponseReader, UpgradeRequest,
    WebSocketVersion, accept_response,
};
use crate::deflate::{DeflateOffer, DeflatePolicy};
use crate::fuzz::{Input, Reads};
use crate::limits::Limits;

/// A server reads a request: a choice of limits, sizes of reads, and what a client sends. What the
/// server answers is one head without a fault, and to an upgrade one that its client accepts.
pub fn request(input: &[u8]) {
    let mut input = Input::new(input);
    let limits = limits(input.byte());
    let reads = input.reads();
    let bytes = input.rest();
    let read = |reads: Reads<'_>| {
        let mut reader = RequestReader::new(&limits);
        in_reads(bytes, reads, |part| reader.receive(part))
    };
    let found = read(Reads::ONE);
    assert_eq!(found, read(reads), "the reads matter");
    match found {
        Ok(None) => assert!(
            bytes.len() <= limits.header_bytes_max,
            "it reads without end"
        ),
        Err(error) => assert_is_head(&error.response()),
        Ok(Some((request, taken))) => {
            assert!(
                taken <= limits.header_bytes_max.min(bytes.len()),
                "{taken} bytes taken"
            );
            assert!(
                request.headers().iter().count() <= limits.headers_max,
                "too many fields"
            );
            if request.is_upgrade() {
                answer(&request);
            }
        }
    }
}

/// Accepts an upgrade in every way.
fn answer(request: &Request) {
    let policy = DeflatePolicy::default();
    let chosen = request
        .subprotocols()
        .find(|name| super::head::is_token(name));
    for (subprotocol, deflate) in [(None, None), (chosen, Some(&policy)), (chosen, None)] {
        let acceptance = Acceptance {
            subprotocol,
            deflate,
            extra_headers: &[("Server", "fuzzed")],
            ..Acceptance::default()
        };
        let (response, agreement) =
            accept_response(request, &acceptance).expect("an upgrade can be accepted");
        assert_is_head(&response);
        assert!(
            agreement.is_none() || deflate.is_some(),
            "compression without a policy"
        );
        if deflate.is_none() {
            let upgrade = upgrade(request.key(), subprotocol.map(String::from), None);
            let mut reader = ResponseReader::new(&upgrade, &Limits::default());
            let read = reader.receive(&response).expect("its client accepts it");
            let (read, taken) = read.expect("it is whole");
            assert_eq!((read.subprotocol(), taken), (subprotocol, response.len()));
        }
    }
}

/// A client reads the response to its request: a choice of limits and of what the request offers,
/// sizes of reads, and what a server sends. Nothing is agreed to that was not offered.
pub fn response(input: &[u8]) {
    let mut input = Input::new(input);
    let choice = input.byte();
    let limits = limits(choice);
    let offer = input.byte();
    let offer = (choice & OFFERS_DEFLATE != 0).then(|| {
        let fields = [
            "",
            "server_no_context_takeover; server_max_window_bits=10",
            "client_no_context_takeover; client_max_window_bits=9",
            "server_max_window_bits=8; client_max_window_bits",
        ];
        let field = fields
            .get(usize::from(offer & 3))
            .copied()
            .unwrap_or_default();
        DeflateOffer::parse(field).expect("they are valid")
    });
    let subprotocol = (choice & OFFERS_SUBPROTOCOL != 0).then(|| "chat".into());
    let upgrade = upgrade(None, subprotocol, offer);
    let reads = input.reads();
    let bytes = input.rest();
    let read = |reads: Reads<'_>| {
        let mut reader = ResponseReader::new(&upgrade, &limits);
        let response = in_reads(bytes, reads, |part| reader.receive(part));
        // How much of a refusal's body comes with its head does depend on the reads.
        response.map(|found| {
            found.map(|(response, _)| {
                let deflate = response.deflate().copied();
                (response.status(), response.headers().clone(), deflate)
            })
        })
    };
    let found = read(Reads::ONE);
    assert_eq!(found, read(reads), "the reads matter");
    let Ok(Some((status, headers, agreement))) = found else {
        return;
    };
    let chosen = headers
        .first("sec-websocket-protocol")
        .filter(|_| status == 101);
    assert!(
        chosen.is_none_or(|chosen| upgrade.subprotocols.iter().any(|offered| offered == chosen)),
        "{chosen:?} was not offered"
    );
    let is_offered = agreement.is_none_or(|agreement| {
        offer.is_some_and(|offer| {
            agreement.server.window_bits <= offer.server.window_bits
                && agreement.client.window_bits <= offer.client.window_bits
                && (offer.server.context_takeover || !agreement.server.context_takeover)
                && (offer.client.context_takeover || !agreement.client.context_takeover)
        })
    });
    assert!(is_offered, "{agreement:?} was not offered");
}

/// Tight limits or the usual ones.
fn limits(choice: u8) -> Limits {
    match choice & TIGHT {
        0 => Limits::default(),
        _ => Limits {
            header_bytes_max: 400,
            headers_max: 6,
            ..Limits::default()
        },
    }
}

/// A request with this valid key, or with that of RFC 6455, 1.3.
fn upgrade(
    key: Option<&str>,
    subprotocol: Option<String>,
    deflate: Option<DeflateOffer>,
) -> UpgradeRequest {
    let key = key.map(|key| ClientKey::of_text(key).expect("the key is valid"));
    UpgradeRequest {
        host: "a".into(),
        target: "/".into(),
        subprotocols: subprotocol.into_iter().collect(),
        headers: Vec::new(),
        deflate,
        version: WebSocketVersion::default(),
        key: key.unwrap_or_else(|| ClientKey::from_nonce(*b"the sample nonce")),
    }
}

/// Lines that end in CRLF, an empty one, and a body whose length was announced.
fn assert_is_head(response: &[u8]) {
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.expect("it ends") + 4;
    let (head, body) = response.split_at(end);
    let head = str::from_utf8(head).expect("it is text");
    assert!(
        !head.replace("\r\n", "").contains(['\r', '\n', '\0']),
        "{head:?}"
    );
    let announced = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let announced = announced.map_or(0, |length| length.parse().expect("a number"));
    assert_eq!(body.len(), announced, "{head:?}");
}

/// Gives `bytes` to `receive` in these reads, until something was found: what, and how many bytes
/// it took in all.
fn in_reads<T, E>(
    bytes: &[u8],
    reads: Reads<'_>,
    mut receive: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, E>,
) -> Result<Option<(T, usize)>, E> {
    let mut start = 0;
    for part in reads.of(bytes) {
        if let Some((found, taken)) = receive(part)? {
            return Ok(Some((found, start + taken)));
        }
        start += part.len();
    }
    Ok(None)
}

/// Choices: limits that are reached soon.
const TIGHT: u8 = 1;
/// The request offers a subprotocol.
const OFFERS_SUBPROTOCOL: u8 = 2;
/// The request offers compression.
const OFFERS_DEFLATE: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Good heads with a few bytes changed, and lines in any order; with an `offer` a response.
    fn input(seed: u64, offer: bool) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let sizes = random.u8(..40);
        let mut input = std::vec![TIGHT | random.u8(..)];
        input.extend(offer.then(|| random.u8(..)));
        input.push(sizes);
        input.extend((0..sizes).map(|_| random.u8(..20)));
        let start = input.len();
        input.extend_from_slice(FIRST_LINES[usize::from(offer)]);
        let mut lines = LINES.to_vec();
        random.shuffle(&mut lines);
        let kept = random.usize(lines.len() - 2..=lines.len());
        lines[..kept]
            .iter()
            .for_each(|line| input.extend_from_slice(line));
        input.extend_from_slice(b"\r\nafter");
        for _ in 0..random.usize(..3) {
            let place = random.usize(start..input.len());
            input[place] = *random.choice(b"\r\n \0:,=a\xff").expect("there are some");
        }
        input
    }

    const FIRST_LINES: [&[u8]; 2] = [b"GET /a?b HTTP/1.1\r\n", b"HTTP/1.1 101 Switching\r\n"];
    const LINES: [&[u8]; 9] = [
        b"Host: a:1\r\n",
        b"upgrade: websocket\r\n",
        b"Connection: keep-alive, Upgrade\r\n",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"Sec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        b"Sec-WebSocket-Protocol: chat\r\n",
        b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=9\r\n",
        b"Content-Length: 0\r\n",
    ];

    #[test]
    fn seeds() {
        for seed in 0..2000 {
            let inputs = [input(seed, false), input(seed, true)];
            std::panic::catch_unwind(|| {
                request(&inputs[0]);
                response(&inputs[1]);
            })
            .unwrap_or_else(|_| panic!("seed {seed}"));
        }
    }
}
