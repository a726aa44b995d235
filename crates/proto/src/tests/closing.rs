//! How conversations end, each named by its story.

use std::string::ToString;
use std::vec;

use super::pair::{End, Pair, Told};
use super::scenarios::{CLOSE, PING, TEXT, close, masked, plain, text};
use crate::{CloseCode, Codec, Opcode, ProtocolError, SendError};

#[test]
fn the_client_closes() {
    let mut pair = Pair::new();
    pair.client.text("last words");
    pair.client.close(CloseCode::NORMAL, "done");
    assert!(pair.client.connection.is_closing() && !pair.client.connection.is_closed());
    pair.drive();
    assert_eq!(pair.server.told, [text("last words"), close(1000, "done")]);
    assert_eq!(pair.client.told, [close(1000, "")]);
    assert!(pair.client.connection.is_closed() && pair.server.connection.is_closed());
}

#[test]
fn the_server_closes_while_the_client_still_talks() {
    let mut pair = Pair::new();
    pair.server.close(CloseCode::GOING_AWAY, "");
    pair.client.text("on its way");
    pair.drive();
    assert_eq!(pair.server.told, [text("on its way"), close(1001, "")]);
    assert_eq!(pair.client.told, [close(1001, "")]);
    assert!(pair.client.connection.is_closed() && pair.server.connection.is_closed());
}

#[test]
fn both_close_at_once() {
    let mut pair = Pair::new();
    pair.client.close(CloseCode::NORMAL, "");
    pair.server.close(CloseCode::new(4000).unwrap(), "mine");
    pair.drive();
    assert_eq!(pair.client.told, [close(4000, "mine")]);
    assert_eq!(pair.server.told, [close(1000, "")]);
    assert!(pair.client.connection.is_closed() && pair.server.connection.is_closed());
}

#[test]
fn an_empty_close_is_answered_with_an_empty_close() {
    let mut server = End::server();
    assert_eq!(
        server.read(&masked(CLOSE, true, b"")),
        [Told::Close(None, "".to_string())]
    );
    assert_eq!(server.out, b"\x88\x00");
    assert!(server.connection.is_closed());
}

#[test]
fn a_bad_close_frame_is_answered_with_its_error() {
    let cases: [(&[u8], ProtocolError, &[u8]); 5] = [
        (
            b"\x03",
            ProtocolError::ClosePayloadTooShort,
            b"\x88\x02\x03\xea",
        ),
        (
            b"\x03\xed",
            ProtocolError::CloseCodeInvalid(1005),
            b"\x88\x02\x03\xea",
        ),
        (
            b"\x03\xee",
            ProtocolError::CloseCodeInvalid(1006),
            b"\x88\x02\x03\xea",
        ),
        (
            b"\x13\x88",
            ProtocolError::CloseCodeInvalid(5000),
            b"\x88\x02\x03\xea",
        ),
        (
            b"\x03\xe8\xff",
            ProtocolError::Utf8Invalid,
            b"\x88\x02\x03\xef",
        ),
    ];
    for (payload, error, answer) in cases {
        let mut server = End::server();
        assert_eq!(
            server.read(&masked(CLOSE, true, payload)),
            [Told::Failed(error)]
        );
        assert_eq!(server.out, answer);
        assert!(server.connection.is_closed());
    }
}

#[test]
fn nothing_is_sent_after_a_close_frame() {
    let mut server = End::server();
    server.close(CloseCode::NORMAL, "");
    let sent = server.out.len();
    let End {
        connection, out, ..
    } = &mut server;
    assert_eq!(
        connection.send(Opcode::Text, b"a", out, &mut Codec::new()),
        Err(SendError::Closed)
    );
    assert_eq!(
        connection.send_fragmented(Opcode::Text, b"a", 1, out, &mut Codec::new()),
        Err(SendError::Closed)
    );
    assert_eq!(connection.ping(b"", out), Err(SendError::Closed));
    assert_eq!(
        connection.close(CloseCode::NORMAL, "", out),
        Err(SendError::Closed)
    );
    // No pong, and no second close frame for a breach.
    let told = server.read(&[masked(PING, true, b""), plain(TEXT, true, b"")].concat());
    assert_eq!(
        told,
        [
            Told::Ping(vec![]),
            Told::Failed(ProtocolError::FrameUnmasked)
        ]
    );
    assert_eq!(server.out.len(), sent);
}

#[test]
fn what_follows_a_close_frame_is_ignored() {
    let mut server = End::server();
    let bytes = [
        masked(CLOSE, true, b"\x03\xe8"),
        masked(TEXT, true, b"late"),
        vec![0xff; 9],
    ];
    assert_eq!(server.read(&bytes.concat()), [close(1000, "")]);
    assert_eq!(server.read(&masked(PING, true, b"later")), []);
    assert_eq!(server.out, b"\x88\x02\x03\xe8");
}
