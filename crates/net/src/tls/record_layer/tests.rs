use rustls::CipherSuite;
use rustls::crypto::aws_lc_rs;

use super::*;
use crate::tls::{ClientTls, Records, ServerTls, TlsError, TlsRecords};

/// Two ends after their handshake, of which either has our layer or that of rustls.
struct Pair {
    client: Records,
    server: Records,
}

const SUITES: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
];

fn pair(client: TlsRecords, server: TlsRecords, suite: CipherSuite) -> Pair {
    let server_tls = ServerTls::self_signed().unwrap().with_records(server);
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|known| known.suite() == suite);
    let client_tls = ClientTls::of_version(&rustls::version::TLS13, provider).with_records(client);
    let mut pair = Pair {
        client: Records::client(&client_tls, "localhost").unwrap(),
        server: Records::server(&server_tls).unwrap(),
    };
    while pair.client.is_handshaking() || pair.server.is_handshaking() {
        carry(&mut pair.client, &mut pair.server);
        carry(&mut pair.server, &mut pair.client);
    }
    // The ticket.
    carry(&mut pair.server, &mut pair.client);
    let are_ours = [&mut pair.client, &mut pair.server].map(|end| end.own().is_some());
    assert_eq!(are_ours, [client, server].map(|end| end == TlsRecords::Own));
    pair
}

fn ours() -> Pair {
    pair(TlsRecords::Own, TlsRecords::Own, SUITES[0])
}

fn carry(from: &mut Records, to: &mut Records) {
    let mut wire = said(from, b"");
    assert_eq!(opened(to, &mut wire).unwrap(), b"");
}

fn said(by: &mut Records, plaintext: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    by.write(plaintext, &mut wire);
    wire
}

fn opened(by: &mut Records, wire: &mut [u8]) -> Result<Vec<u8>, TlsError> {
    let mut plain = Vec::new();
    let length = by.open(wire, &mut plain, true)?;
    plain.extend_from_slice(&wire[..length]);
    Ok(plain)
}

fn bytes(length: u32) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

/// Sends back and forth, in pieces that are cut anywhere.
fn talk(pair: &mut Pair, length: u32, step: usize) {
    tell(&mut pair.client, &mut pair.server, length, step);
    tell(&mut pair.server, &mut pair.client, length, step);
}

fn tell(from: &mut Records, to: &mut Records, length: u32, step: usize) {
    let sent = bytes(length);
    let mut wire = said(from, &sent);
    let mut received = Vec::new();
    for piece in wire.chunks_mut(step) {
        received.extend(opened(to, piece).unwrap());
    }
    assert!(received == sent, "{length} bytes in steps of {step}");
}

#[test]
fn our_layer_and_that_of_rustls_understand_each_other_in_each_suite() {
    let (own, other) = (TlsRecords::Own, TlsRecords::Rustls);
    for suite in SUITES {
        for (client, server) in [(own, own), (own, other), (other, own)] {
            let mut pair = pair(client, server, suite);
            for length in [1, 2, 16_383, 16_384, 16_385, 100_000] {
                for step in [1_000_000, 16_406, 16_405, 7000, 6, 5] {
                    talk(&mut pair, length, step);
                }
            }
            talk(&mut pair, 3000, 1);
        }
    }
}

#[test]
fn what_was_agreed_on_is_known_after_rustls_too() {
    let pair = pair(TlsRecords::Own, TlsRecords::Own, SUITES[2]);
    for end in [&pair.client, &pair.server] {
        let facts = end.facts().unwrap();
        let found = (facts.version, facts.cipher);
        assert_eq!(found, ("1.3", "TLS13_CHACHA20_POLY1305_SHA256"));
    }
    assert_eq!(pair.client.facts().unwrap().key.unwrap().kind, "ECDSA");
}

#[test]
fn whole_records_are_opened_where_they_are() {
    let Pair {
        mut client,
        mut server,
    } = ours();
    let mut wire = [said(&mut client, b"one"), said(&mut client, b" two")].concat();
    let mut out = Vec::new();
    assert_eq!(server.open(&mut wire, &mut out, true).unwrap(), 7);
    assert_eq!((&wire[..7], out.len()), (b"one two".as_slice(), 0));
    let mut wire = said(&mut client, b"three");
    assert_eq!(server.open(&mut wire, &mut out, false).unwrap(), 0);
    assert_eq!(out, b"three");
}

/// RFC 8446, 4.6.3 and 5.5.
#[test]
fn keys_change_when_they_are_used_up_and_when_the_peer_wants_it() {
    let (own, other) = (TlsRecords::Own, TlsRecords::Rustls);
    for (client, server) in [(own, own), (own, other), (other, own)] {
        let mut pair = pair(client, server, SUITES[0]);
        for end in [&mut pair.client, &mut pair.server] {
            if let Some(layer) = end.own() {
                layer.set_sealed_max(2);
            }
        }
        for _ in 0..3 {
            talk(&mut pair, 20_000, 10_000);
        }
        for is_client in [true, false] {
            let (from, to) = match is_client {
                true => (&mut pair.client, &mut pair.server),
                false => (&mut pair.server, &mut pair.client),
            };
            let mut wire = Vec::new();
            let Some(layer) = from.own() else {
                continue;
            };
            // However often it asks, it is answered once.
            for _ in 0..3 {
                layer.request_key_update(&mut wire);
            }
            assert_eq!(opened(to, &mut wire).unwrap(), b"");
            // rustls answers with what it has to say next.
            if to.own().is_some() {
                assert!(to.wants_write());
                let mut answer = said(to, b"");
                assert_eq!(answer.len(), HEADER_BYTES + 5 + 1 + TAG_BYTES);
                assert!(!to.wants_write());
                assert_eq!(opened(from, &mut answer).unwrap(), b"");
            }
            talk(&mut pair, 100, 50);
        }
    }
}

#[test]
fn the_end_is_said_and_nothing_after_it_is_heard() {
    let Pair {
        mut client,
        mut server,
    } = ours();
    let mut wire = said(&mut client, b"last words");
    client.notify_close();
    client.notify_close();
    wire.extend(said(&mut client, b"never said"));
    wire.extend(b"nor heard");
    assert_eq!(opened(&mut server, &mut wire).unwrap(), b"last words");
    assert!(server.is_ended());
    assert_eq!(
        opened(&mut server, &mut b"nor this".to_owned()).unwrap(),
        b""
    );
    // The other half is still open.
    let mut wire = said(&mut server, b"an answer");
    assert_eq!(opened(&mut client, &mut wire).unwrap(), b"an answer");
}

/// The type of a record and its content.
type Said<'a> = (u8, &'a [u8]);

/// What the server makes of a record that a client may not send, and what it tells it.
fn refused(content: &[Said<'_>]) -> (String, AlertDescription) {
    let mut pair = ours();
    let mut wire = Vec::new();
    for (kind, content) in content {
        let layer = pair.client.own().unwrap();
        layer.seal_any(*kind, content, &mut wire);
    }
    refused_wire(&mut pair, &mut wire)
}

fn refused_wire(pair: &mut Pair, wire: &mut [u8]) -> (String, AlertDescription) {
    let error = opened(&mut pair.server, wire).unwrap_err();
    assert!(pair.server.wants_write());
    let mut answer = said(&mut pair.server, b"nothing follows");
    assert!(!pair.server.wants_write());
    match opened(&mut pair.client, &mut answer) {
        Err(TlsError::Protocol(Error::AlertReceived(alert))) => (error.to_string(), alert),
        told => panic!("{error}: {told:?}"),
    }
}

#[test]
fn what_may_not_be_said_is_refused_with_the_alert_of_the_rfc() {
    const LONG: &[u8] = &[0; CONTENT_BYTES_MAX + 1];
    const NOTHING: Said<'_> = (APPLICATION_DATA, b"");
    let ticket: &[u8] = &[NEW_SESSION_TICKET, 0, 0, 1, 0];
    let update: &[u8] = &[KEY_UPDATE, 0, 0, 1, 0];
    let two_updates = [update, update].concat();
    let cases: [(&[Said<'_>], AlertDescription); 14] = [
        (&[(0, b"")], AlertDescription::UnexpectedMessage),
        (&[(20, &[1])], AlertDescription::UnexpectedMessage),
        (&[(99, b"?")], AlertDescription::UnexpectedMessage),
        (
            &[(APPLICATION_DATA, LONG)],
            AlertDescription::RecordOverflow,
        ),
        (&[(ALERT, &[1])], AlertDescription::DecodeError),
        (&[(HANDSHAKE, b"")], AlertDescription::UnexpectedMessage),
        // A server gets no tickets, and nobody a second ClientHello.
        (&[(HANDSHAKE, ticket)], AlertDescription::UnexpectedMessage),
        (
            &[(HANDSHAKE, &[1, 0, 0, 0])],
            AlertDescription::UnexpectedMessage,
        ),
        (
            &[(HANDSHAKE, &[24, 0, 0, 1, 2])],
            AlertDescription::IllegalParameter,
        ),
        (
            &[(HANDSHAKE, &[24, 0, 0, 2, 0, 0])],
            AlertDescription::DecodeError,
        ),
        (
            &[(HANDSHAKE, &two_updates)],
            AlertDescription::UnexpectedMessage,
        ),
        (
            &[(HANDSHAKE, &[24, 1, 0, 0])],
            AlertDescription::DecodeError,
        ),
        (
            &[(HANDSHAKE, &update[..3]), (APPLICATION_DATA, b"between")],
            AlertDescription::UnexpectedMessage,
        ),
        (
            &[NOTHING; EMPTY_RECORDS_MAX as usize + 1],
            AlertDescription::UnexpectedMessage,
        ),
    ];
    for (content, alert) in cases {
        let told = refused(content);
        assert_eq!(told.1, alert, "{content:?}: {}", told.0);
    }
}

#[test]
fn an_alert_of_the_peer_is_the_end_and_named() {
    let mut pair = ours();
    let mut wire = Vec::new();
    pair.client
        .own()
        .unwrap()
        .seal_any(ALERT, &[2, 40], &mut wire);
    let error = opened(&mut pair.server, &mut wire).unwrap_err().to_string();
    assert!(error.contains("HandshakeFailure"), "{error}");
}

#[test]
fn records_that_were_changed_or_are_none_end_the_connection() {
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut pair = ours();
        let mut wire = said(&mut pair.client, b"as it was");
        change(&mut wire);
        refused_wire(&mut pair, &mut wire).1
    };
    let bad_mac = AlertDescription::BadRecordMac;
    assert_eq!(changed(&|wire| wire[8] ^= 1), bad_mac);
    assert_eq!(changed(&|wire| *wire.last_mut().unwrap() ^= 1), bad_mac);
    // The version is not looked at, but it is sealed.
    assert_eq!(changed(&|wire| wire[1] ^= 1), bad_mac);
    // Shorter than a tag.
    assert_eq!(changed(&|wire| *wire = vec![23, 3, 3, 0, 1, 7]), bad_mac);
    let unexpected = AlertDescription::UnexpectedMessage;
    assert_eq!(
        changed(&|wire| *wire = b"GET / HTTP/1.1".to_vec()),
        unexpected
    );
    // Of TLS 1.3, only application data is seen from outside.
    assert_eq!(changed(&|wire| wire[0] = 20), unexpected);
    let too_long = changed(&|wire| wire[3..5].copy_from_slice(&16_641_u16.to_be_bytes()));
    assert_eq!(too_long, AlertDescription::RecordOverflow);
}

#[test]
fn what_may_be_said_between_is_no_data_and_no_end() {
    let Pair {
        mut client,
        mut server,
    } = ours();
    let mut wire = Vec::new();
    let layer = client.own().unwrap();
    // A warning, and as much of nothing as there may be.
    layer.seal_any(ALERT, &[1, 90], &mut wire);
    for _ in 0..100 {
        for _ in 0..EMPTY_RECORDS_MAX {
            layer.seal_any(APPLICATION_DATA, b"", &mut wire);
        }
        layer.seal_any(APPLICATION_DATA, b".", &mut wire);
    }
    assert_eq!(opened(&mut server, &mut wire).unwrap(), b".".repeat(100));
    assert!(!server.is_ended());
}
