//! Conversations, each named by its story.

use std::string::ToString;
use std::vec::Vec;
use std::{format, vec};

use super::pair::{End, Pair, Told, test_mask};
use crate::frame::{self, ControlKind, FrameKind, Lead};
use crate::{
    CloseCode, Codec, Connection, Event, Limits, Opcode, PONG_OUT_BYTES_MAX, ProtocolError, Role,
    SendError,
};

const MASK: Option<[u8; 4]> = Some([0xa5, 0x00, 0x7f, 0x11]);
pub(super) const TEXT: FrameKind = FrameKind::Data(Opcode::Text);
const BINARY: FrameKind = FrameKind::Data(Opcode::Binary);
const MORE: FrameKind = FrameKind::Continuation;
pub(super) const PING: FrameKind = FrameKind::Control(ControlKind::Ping);
pub(super) const CLOSE: FrameKind = FrameKind::Control(ControlKind::Close);

/// A frame as a client sends it.
pub(super) fn masked(kind: FrameKind, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    frame::encode(Lead::plain(kind, fin), MASK, payload, &mut out);
    out
}

/// A frame as a server sends it.
pub(super) fn plain(kind: FrameKind, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    frame::encode(Lead::plain(kind, fin), None, payload, &mut out);
    out
}

pub(super) fn text(text: &str) -> Told {
    Told::Text(text.to_string())
}

pub(super) fn close(code: u16, reason: &str) -> Told {
    Told::Close(Some(code), reason.to_string())
}

fn server_with(limits: Limits) -> End {
    End::new(Connection::server(&limits))
}

#[test]
fn a_message_each_way() {
    let mut pair = Pair::new();
    pair.client.text("hello");
    pair.server.text("κόσμε");
    pair.drive();
    assert_eq!(pair.server.told, [text("hello")]);
    assert_eq!(pair.client.told, [text("κόσμε")]);
    assert_eq!(pair.client.connection.role(), Role::Client);
    assert_eq!(pair.server.connection.role(), Role::Server);
}

#[test]
fn the_masked_hello_of_rfc_6455_section_5_7() {
    let mut server = End::server();
    let told = server.read(b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
    assert_eq!(told, [text("Hello")]);
}

#[test]
fn a_fragmented_message_with_a_ping_in_its_middle() {
    let mut server = End::server();
    assert_eq!(server.read(&masked(TEXT, false, b"Hel")), []);
    assert_eq!(
        server.read(&masked(PING, true, b"?")),
        [Told::Ping(b"?".to_vec())]
    );
    assert_eq!(server.take_out(), b"\x8a\x01?");
    assert_eq!(server.read(&masked(MORE, false, b"")), []);
    assert_eq!(server.read(&masked(MORE, true, b"lo")), [text("Hello")]);
}

#[test]
fn messages_in_fragments_of_every_size() {
    for fragment_bytes in [0, 1, 3, 4, 5, 100] {
        let mut pair = Pair::new();
        let End {
            connection, out, ..
        } = &mut pair.client;
        connection
            .send_fragmented(
                Opcode::Text,
                "aκκκb".as_bytes(),
                fragment_bytes,
                out,
                &mut Codec::new(),
            )
            .unwrap();
        connection
            .send_fragmented(Opcode::Binary, b"", fragment_bytes, out, &mut Codec::new())
            .unwrap();
        pair.drive();
        assert_eq!(pair.server.told, [text("aκκκb"), Told::Binary(vec![])]);
    }
}

#[test]
fn a_message_in_parts_of_given_sizes() {
    for (length, sizes, frames) in [
        (275, &[100, 50][..], &[100, 50, 125][..]),
        (150, &[100, 50], &[100, 50]),
        (100, &[100, 50], &[100]),
        (5, &[0, 2], &[2, 3]),
        (0, &[1], &[0]),
        (7, &[], &[7]),
    ] {
        let mut pair = Pair::new();
        let payload = vec![7; length];
        let (out, codec) = (&mut pair.server.out, &mut Codec::new());
        let connection = &mut pair.server.connection;
        connection
            .send_in_parts(Opcode::Binary, &payload, sizes, out, codec)
            .unwrap();
        let mut expected = vec![];
        for (index, &size) in frames.iter().enumerate() {
            let kind = if index == 0 { BINARY } else { MORE };
            let fin = index + 1 == frames.len();
            expected.extend(plain(kind, fin, &vec![7; size]));
        }
        assert_eq!(pair.server.out, expected, "{length} {sizes:?}");
        pair.drive();
        assert_eq!(pair.client.told, [Told::Binary(payload)]);
    }
}

#[test]
fn a_client_without_masks_is_refused() {
    let mut pair = Pair::new();
    pair.client.connection = Connection::client(&Limits::default(), test_mask).without_masks();
    assert_eq!(pair.client.connection.role(), Role::Client);
    pair.client.text("hello");
    assert_eq!(pair.client.out, plain(TEXT, true, b"hello"));
    pair.drive();
    assert_eq!(
        pair.server.told,
        [Told::Failed(ProtocolError::FrameUnmasked)]
    );
    let told = &pair.client.told;
    assert!(matches!(told[..], [Told::Close(Some(1002), _)]), "{told:?}");
}

/// No frame is shorter than the others but the only one.
#[test]
fn the_last_fragment_has_the_rest() {
    for (length, frames) in [
        (0, &[0][..]),
        (1392, &[1392]),
        (2783, &[2783]),
        (2784, &[1392, 1392]),
        (5000, &[1392, 1392, 2216]),
    ] {
        let mut pair = Pair::new();
        let End {
            connection, out, ..
        } = &mut pair.server;
        connection
            .send_fragmented(
                Opcode::Binary,
                &vec![7; length],
                1392,
                out,
                &mut Codec::new(),
            )
            .unwrap();
        let mut lengths = Vec::new();
        let mut rest = &out[..];
        while let [lead, length, after @ ..] = rest {
            let (length, after) = match length {
                126 => {
                    let (length, after) = after.split_first_chunk().unwrap();
                    (usize::from(u16::from_be_bytes(*length)), after)
                }
                length => (usize::from(*length), after),
            };
            rest = &after[length..];
            let first = if lengths.is_empty() { 2 } else { 0 };
            let fin = if rest.is_empty() { 0x80 } else { 0 };
            assert_eq!(*lead, fin | first);
            lengths.push(length);
        }
        assert_eq!(lengths, frames);
    }
}

/// Others are to be served in between.
#[test]
fn one_call_passes_only_so_many_frames() {
    let middle = masked(MORE, false, b"a").repeat(10_000);
    let mut flood = [
        masked(BINARY, false, b"a"),
        middle,
        masked(MORE, true, b"a"),
    ]
    .concat();
    let mut server = Connection::server(&Limits::default());
    let (mut taken, mut calls, mut out, mut codec) = (0, 0, vec![], Codec::new());
    loop {
        let step = server.receive(&mut flood[taken..], &mut out, &mut codec);
        (taken, calls) = (taken + step.taken, calls + 1);
        match step.event {
            Some(event) => {
                let payload = [b'a'; 10_002].as_slice();
                let opcode = Opcode::Binary;
                assert_eq!(event, Event::Message { opcode, payload });
                break;
            }
            None => assert!(step.taken > 0 && step.taken <= 128 * 7, "{step:?}"),
        }
    }
    assert_eq!((taken, calls), (flood.len(), 10_002_usize.div_ceil(128)));
}

#[test]
fn the_bytes_of_an_unfinished_message_are_work() {
    let mut frame = masked(BINARY, true, &[0; 300_000]);
    let mut server = Connection::server(&Limits::default());
    let step = server.receive(&mut frame[..262_144], &mut vec![], &mut Codec::new());
    assert!(step.event.is_none() && step.taken == 262_144);
    assert!(step.work > 60_000, "{}", step.work);
}

#[test]
fn fragments_are_of_the_size_asked_for() {
    let mut server = End::server();
    let End {
        connection, out, ..
    } = &mut server;
    connection
        .send_fragmented(Opcode::Text, b"Hello!", 3, out, &mut Codec::new())
        .unwrap();
    assert_eq!(server.out, b"\x01\x03Hel\x80\x03lo!");
}

#[test]
fn a_client_takes_a_new_mask_for_each_frame_and_a_server_none() {
    let mut client = End::client();
    client
        .connection
        .send_fragmented(
            Opcode::Binary,
            &[0; 8],
            4,
            &mut client.out,
            &mut Codec::new(),
        )
        .unwrap();
    client.ping(&[0; 4]);
    // Masked zeros are the mask itself.
    let masks: Vec<_> = client
        .out
        .chunks(10)
        .map(|frame| (&frame[2..6], &frame[6..]))
        .collect();
    assert!(masks.iter().all(|(mask, payload)| mask == payload));
    assert!(masks[0].0 != masks[1].0 && masks[1].0 != masks[2].0);
    let mut server = End::server();
    server.ping(b"a");
    assert_eq!(server.out, b"\x89\x01a");
}

#[test]
fn a_ping_is_answered_and_a_pong_is_not() {
    let mut pair = Pair::new();
    pair.client.ping(b"");
    pair.server.ping(b"are you there");
    pair.server
        .connection
        .pong(b"news", &mut pair.server.out)
        .unwrap();
    pair.drive();
    assert_eq!(
        pair.server.told,
        [Told::Ping(vec![]), Told::Pong(b"are you there".to_vec())]
    );
    let client = [
        Told::Ping(b"are you there".to_vec()),
        Told::Pong(b"news".to_vec()),
        Told::Pong(vec![]),
    ];
    assert_eq!(pair.client.told, client);
}

#[test]
fn heartbeats_carry_at_most_125_bytes() {
    let mut server = End::server();
    let End {
        connection, out, ..
    } = &mut server;
    assert_eq!(connection.ping(&[0; 125], out), Ok(()));
    let length = out.len();
    assert_eq!(
        connection.ping(&[0; 126], out),
        Err(SendError::ControlTooLong)
    );
    assert_eq!(
        connection.pong(&[0; 126], out),
        Err(SendError::ControlTooLong)
    );
    assert_eq!(out.len(), length);
}

#[test]
fn what_follows_a_breach_is_ignored() {
    let mut server = End::server();
    let bytes = [plain(TEXT, true, b"unmasked"), masked(TEXT, true, b"late")].concat();
    assert_eq!(
        server.read(&bytes),
        [Told::Failed(ProtocolError::FrameUnmasked)]
    );
    assert_eq!(server.read(&masked(CLOSE, true, b"")), []);
    assert_eq!(server.out, b"\x88\x02\x03\xea");
    let End {
        connection, out, ..
    } = &mut server;
    assert_eq!(
        connection.send(Opcode::Text, b"", out, &mut Codec::new()),
        Err(SendError::Closed)
    );
}

#[test]
fn a_client_refuses_masked_frames_with_a_masked_close() {
    let mut client = End::client();
    let told = client.read(&masked(TEXT, true, b"masked"));
    assert_eq!(told, [Told::Failed(ProtocolError::FrameMasked)]);
    let mut server = End::server();
    assert_eq!(server.read(&client.out), [close(1002, "")]);
}

#[test]
fn text_fails_in_the_middle_of_its_frame() {
    let mut server = End::server();
    let frame = masked(TEXT, true, b"good \xc0 and a long rest");
    assert_eq!(server.read(&frame[..11]), []);
    assert_eq!(
        server.read(&frame[11..12]),
        [Told::Failed(ProtocolError::Utf8Invalid)]
    );
    assert_eq!(server.out, b"\x88\x02\x03\xef");
}

#[test]
fn text_that_ends_inside_a_character_fails() {
    for frames in [
        masked(TEXT, true, b"\xce"),
        [masked(TEXT, false, b"\xce"), masked(MORE, true, b"")].concat(),
    ] {
        let mut server = End::server();
        assert_eq!(
            server.read(&frames),
            [Told::Failed(ProtocolError::Utf8Invalid)]
        );
    }
    let mut server = End::server();
    let frames = [masked(BINARY, false, b"\xce"), masked(MORE, true, b"\xff")].concat();
    assert_eq!(server.read(&frames), [Told::Binary(b"\xce\xff".to_vec())]);
}

#[test]
fn a_message_too_large_is_refused_on_its_header() {
    let limits = Limits {
        message_bytes_max: 100,
        ..Limits::default()
    };
    let refused = |actual| {
        Told::Failed(ProtocolError::PayloadTooLarge {
            actual,
            maximum: 100,
        })
    };
    let mut server = server_with(limits);
    assert_eq!(server.read(&masked(BINARY, true, &[1; 100])).len(), 1);
    // Two bytes are enough to see it: the mask and the payload never come.
    assert_eq!(
        server.read(&masked(BINARY, true, &[1; 101])[..2]),
        [refused(101)]
    );
    assert_eq!(server.out, b"\x88\x02\x03\xf1");
    let mut server = server_with(limits);
    assert_eq!(server.read(&masked(BINARY, false, &[1; 60])), []);
    assert_eq!(
        server.read(&masked(MORE, false, &[1; 60])[..2]),
        [refused(120)]
    );
    let mut server = server_with(limits);
    assert_eq!(
        server.read(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff"),
        [refused(u64::MAX >> 1)]
    );
}

#[test]
fn a_message_of_too_many_frames_is_refused() {
    let mut server = server_with(Limits {
        frames_per_message_max: 4,
        ..Limits::default()
    });
    let message = |frames: usize| {
        let middle = masked(MORE, false, b"").repeat(frames - 2);
        [masked(TEXT, false, b"a"), middle, masked(MORE, true, b"b")].concat()
    };
    assert_eq!(server.read(&message(4)), [text("ab")]);
    assert_eq!(
        server.read(&message(5)),
        [Told::Failed(ProtocolError::TooManyFragments)]
    );
    assert_eq!(server.out, b"\x88\x02\x03\xf0");
}

#[test]
fn a_flood_of_pings_cannot_grow_the_buffer_of_a_peer_that_does_not_read() {
    let mut server = End::server();
    for number in 0..10_000 {
        let payload = format!("{number:0>100}");
        assert_eq!(
            server.read(&masked(PING, true, payload.as_bytes())).len(),
            1
        );
    }
    assert!(
        server.out.len() < PONG_OUT_BYTES_MAX + 127,
        "{} bytes",
        server.out.len()
    );
    // About to be sent, all of it: then the latest pong goes with it.
    let length = server.out.len();
    server.connection.send_owed_pong(&mut server.out);
    server.out.drain(..length);
    let latest = format!("{:0>100}", 9999);
    assert_eq!(
        server.out,
        plain(
            FrameKind::Control(ControlKind::Pong),
            true,
            latest.as_bytes()
        )
    );
    server.connection.send_owed_pong(&mut server.out);
    assert_eq!(server.out.len(), 102, "it is owed once");
}

#[test]
fn an_owed_pong_leaves_with_the_next_read_but_not_after_a_close() {
    let mut server = End::server();
    server.out = vec![0; PONG_OUT_BYTES_MAX];
    server.read(&masked(PING, true, b"a"));
    server.out.clear();
    server.read(&masked(TEXT, true, b""));
    assert_eq!(server.out, b"\x8a\x01a");
    server.out = vec![0; PONG_OUT_BYTES_MAX];
    server.read(&masked(PING, true, b"b"));
    server.out.clear();
    server.close(CloseCode::NORMAL, "");
    server.connection.send_owed_pong(&mut server.out);
    assert_eq!(server.out, b"\x88\x02\x03\xe8");
}

#[test]
fn a_message_that_arrived_whole_is_not_copied() {
    let mut server = Connection::server(&Limits::default());
    let mut input = masked(BINARY, true, &[7; 1000]);
    let place = input[8..].as_ptr();
    let step = server.receive(&mut input, &mut vec![], &mut Codec::new());
    let Some(Event::Message { payload, .. }) = step.event else {
        panic!("{step:?}")
    };
    assert_eq!((payload.as_ptr(), payload.len()), (place, 1000));
    // Nor if its header came with an earlier read.
    let mut input = masked(BINARY, true, &[7; 1000]);
    let (header, payload) = input.split_at_mut(8);
    let place = payload.as_ptr();
    assert!(
        server
            .receive(header, &mut vec![], &mut Codec::new())
            .event
            .is_none()
    );
    let step = server.receive(payload, &mut vec![], &mut Codec::new());
    let Some(Event::Message { payload, .. }) = step.event else {
        panic!("{step:?}")
    };
    assert_eq!(payload.as_ptr(), place);
}

#[test]
fn one_event_at_a_time_and_the_rest_is_left() {
    let mut server = Connection::server(&Limits::default());
    let first = masked(TEXT, true, b"a");
    let mut input = [first.clone(), masked(TEXT, true, b"b")].concat();
    let step = server.receive(&mut input, &mut vec![], &mut Codec::new());
    assert_eq!(step.taken, first.len());
    assert_eq!(
        step.event,
        Some(Event::Message {
            opcode: Opcode::Text,
            payload: b"a"
        })
    );
}

#[test]
fn a_connection_is_small_and_keeps_nothing_between_messages() {
    let size = size_of::<Connection>();
    std::println!("an idle connection takes {size} bytes");
    assert!(size <= 80, "{size} bytes");
    let mut server = End::server();
    let frames = [
        masked(TEXT, false, b"a"),
        masked(PING, true, b"ping"),
        masked(MORE, true, &[b'a'; 5000]),
    ];
    for byte in frames.concat() {
        server.read(&[byte]);
    }
    assert_eq!(server.told.len(), 2);
    assert!(!server.connection.keeps_anything());
}

#[test]
fn a_header_without_payload_costs_no_allocation() {
    let mut server = Connection::server(&Limits::default());
    let mut header = masked(BINARY, true, &[0; 70_000])[..14].to_vec();
    server.receive(&mut header, &mut vec![], &mut Codec::new());
    assert!(!server.keeps_anything());
}

#[test]
fn a_breach_and_a_close_free_an_open_message() {
    for last in [masked(CLOSE, true, b""), plain(CLOSE, true, b"")] {
        let mut server = End::server();
        server.read(&[masked(TEXT, false, b"never ends"), last].concat());
        assert!(!server.connection.keeps_anything());
    }
}

/// A message is unfinished from the first byte of its first header to the last byte of its last
/// frame, whatever comes in between.
#[test]
fn what_has_begun_is_unfinished_and_accounted_until_it_is_whole() {
    let mut server = End::server();
    let frames = [
        masked(TEXT, false, b"a"),
        masked(PING, true, b"ping"),
        masked(MORE, true, &[b'a'; 500]),
    ];
    let mut rest = frames.concat();
    let last = rest.pop().unwrap();
    assert!(!server.connection.is_unfinished());
    for byte in rest {
        server.read(&[byte]);
        assert!(server.connection.is_unfinished());
    }
    let held = server.connection.memory_bytes();
    assert!((500..2000).contains(&held), "{held}");
    server.read(&[last]);
    assert!(!server.connection.is_unfinished());
    assert_eq!(server.connection.memory_bytes(), 0);
}

#[test]
fn an_abandoned_connection_says_why_and_holds_nothing() {
    let mut server = End::server();
    server.read(&masked(TEXT, false, &[b'a'; 500]));
    let (code, mut out) = (CloseCode::POLICY_VIOLATION, vec![]);
    server.connection.abandon(code, "enough", &mut out);
    assert_eq!(out, plain(CLOSE, true, b"\x03\xf0enough"));
    assert_eq!(server.connection.memory_bytes(), 0);
    server.connection.abandon(code, "enough", &mut out);
    assert_eq!(out.len(), 10, "one close frame is all");
    assert_eq!(server.read(&masked(MORE, true, b"b")), []);
    assert!(server.connection.is_closed());
}

#[test]
fn large_messages_cross_in_many_reads() {
    let mut client = Connection::client(&Limits::default(), test_mask);
    let payload: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
    let mut bytes = vec![];
    client
        .send(Opcode::Binary, &payload, &mut bytes, &mut Codec::new())
        .unwrap();
    let mut server = End::server();
    for part in bytes.chunks(4093) {
        server.read(part);
    }
    assert!(server.told == [Told::Binary(payload)]);
}
