//! Messages that cross, and the vectors of RFC 7692.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::{Opcode, Role};

#[test]
fn the_vectors_of_rfc_7692_section_7_2_3() {
    let cases: [&[u8]; 7] = [
        // One block; in two frames; stored; marked as final, with and without the octet that
        // 7.2.3.4 asks for; two blocks; an empty one at the end that is marked as final.
        b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00",
        b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00",
        b"\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
        b"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
        b"\xc1\x07\xf3\x48\xcd\xc9\xc9\x07\x00",
        b"\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
        b"\xc1\x0c\xf2\x48\xcd\xc9\xc9\x07\x00\x00\x00\xff\xff\x01",
    ];
    for bytes in cases {
        for read_bytes in [1, 2, 100] {
            let mut client = client(&agreement(true, 15), 100);
            let told = read(&mut client, bytes, read_bytes, &mut Codec::new());
            assert_eq!(told, Ok(vec![b"Hello".to_vec()]), "{bytes:x?}");
        }
    }
    // The second message refers to the first (7.2.3.2), a plain one between them does not count.
    let bytes =
        b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\x81\x01x\xc1\x05\xf2\x00\x11\x00\x00\xc1\x01\x00";
    let mut client = client(&agreement(true, 15), 100);
    let told = read(&mut client, bytes, 100, &mut Codec::new());
    let expected: [&[u8]; 4] = [b"Hello", b"x", b"Hello", b""];
    assert_eq!(told.unwrap(), expected);
}

/// Text that repeats itself now and then, as texts do.
fn text(bytes: usize, random: &mut fastrand::Rng) -> Vec<u8> {
    let words = ["moon", "wire", "tide", "{\"id\":", "},", "κόσμε", " ", "\n"];
    let mut text = Vec::new();
    while text.len() < bytes {
        text.extend_from_slice(words[random.usize(..words.len())].as_bytes());
        if random.u8(..9) == 0 {
            text.extend_from_slice(&random.u32(..).to_string().into_bytes());
        }
    }
    text
}

#[test]
fn conversations_cross_with_every_window_and_either_takeover() {
    for seed in 0..72 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bits = 8 + (seed % 8) as u8;
        let level = 1 + (seed / 8) as u8;
        let agreement = at_level(level, random.bool(), bits);
        let mut codec = Codec::new();
        for role in [Role::Client, Role::Server] {
            let (mut sender, mut receiver) = (server(&agreement), client(&agreement, 1 << 24));
            if role == Role::Client {
                (sender, receiver) = (receiver, sender);
            }
            let (mut sent, mut wire) = (Vec::new(), Vec::new());
            for _ in 0..8 {
                let length = [0, 1, 100, 3000, 70_000][random.usize(..5)];
                let payload = match random.u8(..4) {
                    0 => (0..length).map(|_| random.u8(..)).collect(),
                    _ => text(length, &mut random),
                };
                let fragment_bytes = [usize::MAX, 1, 1000][random.usize(..3)];
                sender
                    .send_fragmented(
                        Opcode::Binary,
                        &payload,
                        fragment_bytes,
                        &mut wire,
                        &mut codec,
                    )
                    .unwrap();
                sender.ping(b"between", &mut wire).unwrap();
                sent.push(payload);
            }
            let read_bytes = [7, 1000, usize::MAX][random.usize(..3)];
            let told = read(&mut receiver, &wire, read_bytes, &mut Codec::new());
            assert!(
                told.as_ref() == Ok(&sent),
                "seed {seed}, {role:?}: {:?}",
                told.err()
            );
            let window = 1 << bits;
            for end in [&sender, &receiver] {
                assert!(end.memory_bytes() <= 2 * window + 200, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_history_makes_the_second_message_small_and_none_keeps_nothing() {
    let payload = text(2000, &mut fastrand::Rng::with_seed(1));
    let mut lengths = vec![];
    for takeover in [true, false] {
        let (mut server, mut codec) = (server(&agreement(takeover, 15)), Codec::new());
        for _ in 0..2 {
            let mut wire = vec![];
            server
                .send(Opcode::Binary, &payload, &mut wire, &mut codec)
                .unwrap();
            lengths.push(wire.len());
        }
    }
    let [first, second, alone, again] = lengths[..] else {
        panic!("two messages, twice")
    };
    assert!(first < 1500 && second < 50, "{lengths:?}");
    assert_eq!((alone, again), (first, first));
}

#[test]
fn what_is_sent_to_many_is_compressed_once() {
    let agreement = DeflateAgreement {
        threshold_bytes: 64,
        ..agreement(false, 12)
    };
    let payload = text(5000, &mut fastrand::Rng::with_seed(2));
    let (mut codec, mut first) = (Codec::new(), vec![]);
    for _ in 0..100 {
        let mut wire = vec![];
        let mut server = server(&agreement);
        server
            .send(Opcode::Text, &payload, &mut wire, &mut codec)
            .unwrap();
        if first.is_empty() {
            first.clone_from(&wire);
        }
        assert_eq!(wire, first);
    }
    assert_eq!(codec.compressions(), 1);
    // Another window is another message on the wire.
    let mut other = server(&super::agreement(false, 9));
    other
        .send(Opcode::Text, &payload, &mut vec![], &mut codec)
        .unwrap();
    assert_eq!(codec.compressions(), 2);
    // What is short is not worth it.
    let mut server = server(&agreement);
    let mut wire = vec![];
    server
        .send(Opcode::Text, &[b'a'; 63], &mut wire, &mut codec)
        .unwrap();
    assert_eq!((codec.compressions(), wire[0]), (2, 0x81));
    server
        .send(Opcode::Text, &[b'a'; 64], &mut wire, &mut codec)
        .unwrap();
    assert_eq!((codec.compressions(), wire[65]), (3, 0xc1));
}

#[test]
fn a_broadcast_of_a_mebibyte_is_compressed_once_and_a_longer_one_for_each() {
    for (length, compressions) in [(1 << 20, 1), ((1 << 20) + 1, 3)] {
        let (payload, mut codec) = (vec![b'a'; length], Codec::new());
        for _ in 0..3 {
            server(&agreement(false, 15))
                .send(Opcode::Text, &payload, &mut vec![], &mut codec)
                .unwrap();
        }
        assert_eq!(codec.compressions(), compressions, "{length}");
    }
}

#[test]
fn what_is_kept_of_a_broadcast_is_bounded() {
    let mut rng = fastrand::Rng::with_seed(4);
    // Half of it is noise, so that each of eight results is as long as that.
    let parts = std::iter::repeat_with(|| if rng.bool() { rng.u64(..) } else { 0 });
    let payload: Vec<u8> = parts.take(75_000).flat_map(u64::to_ne_bytes).collect();
    let (mut codec, mut results_bytes) = (Codec::new(), 0);
    for bits in 8..=15 {
        let mut wire = vec![];
        server(&agreement(false, bits))
            .send(Opcode::Binary, &payload, &mut wire, &mut codec)
            .unwrap();
        results_bytes += wire.len();
    }
    let deflaters = 8 * 380 * 1024;
    let kept = codec.memory_bytes() - deflaters;
    assert!(kept <= 2 << 20, "{kept}");
    assert!(payload.len() + results_bytes > 2 << 20, "{results_bytes}");
    assert!(codec.take_work() >= 8 * 24 * payload.len());
    assert_eq!(codec.take_work(), 0);
}

#[test]
fn what_is_longer_than_the_most_is_sent_as_it_is() {
    let agreement = DeflateAgreement {
        compress_bytes_max: 1000,
        ..agreement(true, 15)
    };
    let (mut server, mut codec, mut wire) = (server(&agreement), Codec::new(), vec![]);
    for (length, compressed) in [(1000, true), (1001, false)] {
        wire.clear();
        server
            .send(Opcode::Text, &vec![b'a'; length], &mut wire, &mut codec)
            .unwrap();
        assert_eq!(wire[0] & 0x40 != 0, compressed, "{length}");
        assert_eq!(wire.len() < length, compressed, "{length}");
    }
}

#[test]
fn what_is_sent_to_many_with_different_windows_is_compressed_once_for_each() {
    let payload = text(5000, &mut fastrand::Rng::with_seed(3));
    let mut codec = Codec::new();
    for round in 0..3 {
        for bits in 8..=15 {
            for takeover in [false, true] {
                // With takeover the first message has no history yet.
                let (mut wire, agreement) = (vec![], agreement(takeover, bits));
                let mut server = server(&agreement);
                server
                    .send(Opcode::Text, &payload, &mut wire, &mut codec)
                    .unwrap();
                let told = read(&mut client(&agreement, 5010), &wire, 999, &mut codec);
                assert_eq!(
                    told.unwrap(),
                    std::slice::from_ref(&payload),
                    "{round} {bits}"
                );
            }
        }
    }
    assert_eq!(codec.compressions(), 8);
}

/// Most of a window is left out for a small message, which costs nothing but a little length.
#[test]
fn a_small_message_refers_to_what_was_sent_lately() {
    let agreement = agreement(true, 15);
    let (mut server, mut client) = (server(&agreement), client(&agreement, 1 << 24));
    let (mut codec, mut random) = (Codec::new(), fastrand::Rng::with_seed(4));
    let noise: Vec<u8> = (0..40_000).map(|_| random.u8(b'a'..b'q')).collect();
    let lately = text(2000, &mut random);
    let mut lengths = vec![];
    for payload in [&*noise, &lately, &lately[..100], &noise[39_000..39_100]] {
        let mut wire = vec![];
        server
            .send(Opcode::Binary, payload, &mut wire, &mut codec)
            .unwrap();
        let told = read(&mut client, &wire, 5000, &mut codec);
        assert_eq!(told.unwrap(), [payload]);
        lengths.push(wire.len());
    }
    assert!(lengths[2] < 20 && lengths[3] < 20, "{lengths:?}");
}

/// RFC 6455, 1.4: what comes after the end was agreed on is of no use; inflating it may be dear.
#[test]
fn after_a_close_frame_compressed_messages_are_passed_over() {
    let agreement = agreement(true, 15);
    let (mut codec, mut out) = (Codec::new(), vec![]);
    let [(mut server, mut client), (mut late, _)] =
        [(); 2].map(|()| (server(&agreement), client(&agreement, 1 << 24)));
    let mut wire = vec![];
    for _ in 0..3 {
        client
            .send_fragmented(Opcode::Text, &[b'a'; 100_000], 30, &mut wire, &mut codec)
            .unwrap();
    }
    client
        .send(Opcode::Binary, b"\xff plain", &mut wire, &mut codec)
        .unwrap();
    client
        .close(crate::CloseCode::NORMAL, "", &mut wire)
        .unwrap();
    for (server, before) in [(&mut server, 0), (&mut late, 50)] {
        let (first, rest) = wire.split_at(before);
        assert_eq!(read(server, first, 7, &mut codec), Ok(vec![]));
        server
            .close(crate::CloseCode::GOING_AWAY, "", &mut out)
            .unwrap();
        let (mut rest, mut taken, mut events) = (rest.to_vec(), 0, vec![]);
        loop {
            let step = server.receive(&mut rest[taken..], &mut out, &mut codec);
            taken += step.taken;
            match step.event {
                Some(event) => events.push(std::format!("{event:?}")),
                None if step.taken == 0 => break,
                None => {}
            }
            assert!(server.memory_bytes() < 2000);
        }
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[1].starts_with("Close"), "{events:?}");
    }
}

#[test]
fn a_window_of_8_bits_is_kept_to_by_referring_to_nothing() {
    let payload = text(5000, &mut fastrand::Rng::with_seed(3));
    let mut wire = vec![];
    let (mut server, mut codec) = (server(&agreement(true, 8)), Codec::new());
    server
        .send(Opcode::Text, &payload, &mut wire, &mut codec)
        .unwrap();
    assert!(wire.len() < 4500, "{}", wire.len());
    let mut alone = zlib_rs::Inflate::new(false, 8);
    let mut output = vec![0; 6000];
    let flush = zlib_rs::InflateFlush::SyncFlush;
    alone.decompress(&wire[4..], &mut output, flush).unwrap();
    assert_eq!(alone.total_out(), payload.len() as u64);
    assert!(output.starts_with(&payload));
}

#[test]
fn the_codec_says_what_it_holds_and_forgets_large_messages() {
    let mut codec = Codec::new();
    assert_eq!(codec.memory_bytes(), 0);
    let payload = text(3_000_000, &mut fastrand::Rng::with_seed(4));
    let mut wire = vec![];
    let (mut server, mut client) = (
        server(&agreement(true, 15)),
        client(&agreement(true, 15), 1 << 24),
    );
    server
        .send(Opcode::Binary, &payload, &mut wire, &mut codec)
        .unwrap();
    assert_eq!(
        read(&mut client, &wire, 4096, &mut codec).unwrap(),
        [payload]
    );
    server
        .send(Opcode::Binary, b"short", &mut wire, &mut codec)
        .unwrap();
    let held = codec.memory_bytes();
    assert!((400_000..1_000_000).contains(&held), "{held}");
}
