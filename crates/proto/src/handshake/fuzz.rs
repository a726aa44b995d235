//! The readers of heads under any bytes in any reads; the input chooses both.

use alloc::vec::Vec;

use super::{Acceptance, RequestReader, ResponseReader, UpgradeRequest, accept_response};
use crate::handshake::ClientKey;
use crate::limits::Limits;

/// Reads `input` as sizes of reads and a head, by a server and by a client; checks that the reads
/// do not matter, and that a request that was accepted can be answered.
///
/// The first byte chooses how many of the next bytes are sizes of reads.
fn fuzz_handshake(input: &[u8]) {
    let Some((&sizes, rest)) = input.split_first() else {
        return;
    };
    let (sizes, bytes) = rest.split_at(usize::from(sizes).min(rest.len()));
    let limits = Limits {
        header_bytes_max: 400,
        headers_max: 10,
        ..Limits::default()
    };

    let read = |sizes: &[u8]| {
        let mut reader = RequestReader::new(&limits);
        in_reads(bytes, sizes, |part| reader.receive(part))
    };
    let request = read(&[]);
    assert_eq!(request, read(sizes), "the request depends on the reads");
    if let Ok(Some((request, _))) = request
        && request.is_upgrade()
    {
        accept_response(&request, &Acceptance::default()).expect("an upgrade can be accepted");
    }

    let upgrade = UpgradeRequest {
        host: "a".into(),
        target: "/".into(),
        subprotocols: Vec::new(),
        headers: Vec::new(),
        deflate: None,
        key: ClientKey::from_nonce(*b"the sample nonce"),
    };
    let read = |sizes: &[u8]| {
        let mut reader = ResponseReader::new(&upgrade, &limits);
        // How much of a refusal's body comes with its head does depend on the reads.
        let response = in_reads(bytes, sizes, |part| reader.receive(part));
        response.map(|found| found.map(|(response, _)| response.head()))
    };
    assert_eq!(read(&[]), read(sizes), "the response depends on the reads");
}

/// Gives `bytes` to `receive` in reads of these sizes, and what is left in a last one. What was
/// found, and how many bytes it took in all.
fn in_reads<T, E>(
    bytes: &[u8],
    sizes: &[u8],
    mut receive: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, E>,
) -> Result<Option<(T, usize)>, E> {
    let mut start = 0;
    for size in sizes
        .iter()
        .map(|size| usize::from(*size))
        .chain([usize::MAX])
    {
        let rest = bytes.get(start..).unwrap_or_default();
        let part = rest.get(..size).unwrap_or(rest);
        if let Some((found, taken)) = receive(part)? {
            return Ok(Some((found, start + taken)));
        }
        start += part.len();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Good heads with a few bytes changed, and lines in any order.
    fn input(seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let sizes = random.u8(..40);
        let mut input = alloc::vec![sizes];
        input.extend((0..sizes).map(|_| random.u8(..20)));
        let start = input.len();
        input.extend_from_slice(FIRST_LINES[random.usize(..FIRST_LINES.len())]);
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
    const LINES: [&[u8]; 7] = [
        b"Host: a:1\r\n",
        b"upgrade: websocket\r\n",
        b"Connection: keep-alive, Upgrade\r\n",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"Sec-WebSocket-Version: 13\r\n",
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        b"Content-Length: 0\r\n",
    ];

    #[test]
    fn seeds() {
        for seed in 0..2000 {
            let input = input(seed);
            std::panic::catch_unwind(|| fuzz_handshake(&input))
                .unwrap_or_else(|_| panic!("seed {seed}"));
        }
    }
}
