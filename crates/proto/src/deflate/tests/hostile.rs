//! What a peer can try with compressed messages.

use std::vec;
use std::vec::Vec;

use zlib_rs::{Deflate, DeflateFlush};

use super::*;
use crate::WORK_PER_CALL;

/// `bytes` zeros, compressed at most.
fn zeros(bytes: usize) -> Vec<u8> {
    let mut deflate = Deflate::new(9, false, 15);
    let mut output = vec![0; bytes / 500 + 1000];
    deflate
        .compress(&vec![0; bytes], &mut output, DeflateFlush::SyncFlush)
        .unwrap();
    output.truncate(deflate.total_out() as usize - 4);
    output
}

#[test]
fn a_bomb_stops_at_the_limit_of_a_message_and_holds_no_more_than_that() {
    const LIMIT: usize = 1 << 20;
    for (bytes, passes) in [(LIMIT, true), (LIMIT + 1, false), (50 * LIMIT, false)] {
        let bomb = zeros(bytes);
        assert!(bomb.len() < 60_000);
        for read_bytes in [1000, usize::MAX] {
            let mut client = client(&agreement(false, 15), LIMIT);
            let wire = frame(0xc2, &bomb);
            let mut most = 0;
            let mut told = Ok(vec![]);
            for part in wire.chunks(read_bytes) {
                told = read(&mut client, part, usize::MAX, &mut Codec::new());
                most = most.max(client.memory_bytes());
                if told.is_err() {
                    break;
                }
            }
            assert!(most <= LIMIT + 60_000, "{most}");
            match told {
                Ok(messages) => assert!(passes && messages == [vec![0; LIMIT]]),
                Err(error) => {
                    let actual = LIMIT as u64 + 1;
                    let maximum = LIMIT as u64;
                    assert_eq!(error, ProtocolError::PayloadTooLarge { actual, maximum });
                    assert!(!passes);
                }
            }
        }
    }
}

/// The work until the message has come; each call must do only a part of it.
fn work_of(mut wire: Vec<u8>, length: usize) -> usize {
    let mut client = client(&agreement(false, 15), length.max(1 << 20));
    let (mut taken, mut work, mut out, mut codec) = (0, 0, vec![], Codec::new());
    loop {
        let step = client.receive(&mut wire[taken..], &mut out, &mut codec);
        (taken, work) = (taken + step.taken, work + step.work);
        assert!(step.taken > 0 && step.work < 3 * WORK_PER_CALL, "{step:?}");
        match step.event {
            Some(Event::Message { payload, .. }) => {
                assert_eq!(payload, vec![0; length]);
                assert_eq!(taken, wire.len());
                return work;
            }
            Some(Event::Ping(_)) => {}
            event => assert!(event.is_none() && step.work >= WORK_PER_CALL, "{event:?}"),
        }
    }
}

/// Others are to be served in between, also where there is nothing to be told, and where there is
/// much.
#[test]
fn one_call_does_only_so_much() {
    const BYTES: usize = 4 << 20;
    let bomb = zeros(BYTES);
    assert!(work_of(frame(0xc2, &bomb), BYTES) >= BYTES);
    // Each part inflates to about 20 KiB.
    let mut parts = bomb.chunks(20).peekable();
    let mut wire = frame(0x42, parts.next().unwrap());
    while let Some(part) = parts.next() {
        wire.extend(frame(0x89, b""));
        let is_last = parts.peek().is_none();
        wire.extend(frame(if is_last { 0x80 } else { 0x00 }, part));
    }
    assert!(work_of(wire, BYTES) >= BYTES);
    // Empty blocks inflate to nothing, and take their time.
    let nothing = b"\x00\x00\x00\xff\xff".repeat(12_000);
    let wire = frame(0xc2, &[&*nothing, b"\x00"].concat());
    assert!(work_of(wire, 0) >= 8 * nothing.len());
}

#[test]
fn the_limit_counts_across_fragments_and_not_across_messages() {
    let half = zeros(600);
    let mut codec = Codec::new();
    let mut one = client(&agreement(true, 15), 1000);
    let wire = [frame(0xc2, &half), frame(0xc2, &half)].concat();
    assert_eq!(
        read(&mut one, &wire, 100, &mut codec).map(|told| told.len()),
        Ok(2)
    );
    let whole = zeros(1001);
    let (first, second) = whole.split_at(5);
    let wire = [frame(0x42, first), frame(0x80, second)].concat();
    let told = read(&mut one, &wire, 100, &mut codec);
    assert!(
        matches!(
            told,
            Err(ProtocolError::PayloadTooLarge { actual: 1001, .. })
        ),
        "{told:?}"
    );
}

#[test]
fn bytes_that_cannot_be_inflated_and_messages_cut_off_fail() {
    let whole = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    let cases: [&[u8]; 5] = [
        b"",
        b"\xff",
        b"\x06",
        b"\x00\x05\x00\xfa\xfe",
        b"\x03\x00\xff",
    ];
    let cut = (0..whole.len() - 1).map(|length| &whole[..length]);
    for payload in cases.into_iter().chain(cut) {
        let mut client = client(&agreement(true, 15), 1000);
        let told = read(&mut client, &frame(0xc2, payload), 3, &mut Codec::new());
        assert_eq!(told, Err(ProtocolError::DeflateInvalid), "{payload:x?}");
    }
}

#[test]
fn a_reference_to_a_message_that_must_be_forgotten_fails() {
    let bytes = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00";
    let mut client = client(&agreement(false, 15), 100);
    let told = read(&mut client, bytes, 100, &mut Codec::new());
    assert_eq!(told, Err(ProtocolError::DeflateInvalid));
}

#[test]
fn final_blocks_may_be_many_but_not_without_end() {
    let empty_final = [0x03, 0x00];
    for (blocks, passes) in [(64, true), (65, true), (66, false), (500, false)] {
        let mut client = client(&agreement(true, 15), 100);
        let payload = empty_final.repeat(blocks);
        let told = read(&mut client, &frame(0xc2, &payload), 100, &mut Codec::new());
        let expected = match passes {
            true => Ok(vec![vec![]]),
            false => Err(ProtocolError::DeflateInvalid),
        };
        assert_eq!(told, expected, "{blocks}");
    }
}

#[test]
fn windows_that_are_laid_out_count_as_work() {
    let mut client = client(&agreement(true, 15), 1 << 20);
    let (mut codec, mut out) = (Codec::new(), vec![]);
    // Stored, so that the history is full.
    let mut stored = vec![0x00, 0x00, 0x80, 0xff, 0x7f];
    stored.resize(5 + 32_768, b'a');
    stored.push(0x00);
    let mut works = vec![];
    for payload in [&stored[..], &[0x03, 0x00].repeat(60)] {
        let mut bytes = frame(0xc2, payload);
        let (mut taken, mut work) = (0, 0);
        loop {
            let step = client.receive(&mut bytes[taken..], &mut out, &mut codec);
            taken += step.taken;
            work += step.work;
            match step.event {
                Some(Event::Message { .. }) => break,
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
        works.push(work);
    }
    let window = 32 * 1024 / 16;
    assert!(works[1] >= 60 * window, "{works:?}");
}

#[test]
fn text_is_checked_as_it_inflates() {
    let mut deflate = Deflate::new(6, false, 15);
    let mut output = vec![0; 100];
    deflate
        .compress(
            b"\xce\xba\xff, and more",
            &mut output,
            DeflateFlush::SyncFlush,
        )
        .unwrap();
    let mut client = client(&agreement(true, 15), 100);
    let first_part = frame(0x41, &output[..deflate.total_out() as usize - 4]);
    let told = read(&mut client, &first_part, 100, &mut Codec::new());
    assert_eq!(told, Err(ProtocolError::Utf8Invalid));
}

#[test]
fn of_several_breaches_the_first_is_told_however_they_arrive() {
    // A stored block, then one of a type that there is not.
    let broken = |block: &[u8]| {
        let length = u16::try_from(block.len()).unwrap();
        let lengths = [length.to_le_bytes(), (!length).to_le_bytes()].concat();
        frame(
            0xc1,
            &[b"\x00", lengths.as_slice(), block, b"\x07"].concat(),
        )
    };
    let too_large = ProtocolError::PayloadTooLarge {
        actual: 11,
        maximum: 10,
    };
    let cases: [(&[u8], ProtocolError); 5] = [
        (b"good", ProtocolError::DeflateInvalid),
        (b"cut \xce", ProtocolError::DeflateInvalid),
        (b"bad \xff", ProtocolError::Utf8Invalid),
        (b"0123456789\n", too_large),
        (b"bad \xff too long", ProtocolError::Utf8Invalid),
    ];
    for (block, expected) in cases {
        for read_bytes in [1, 2, 5, 100] {
            let mut client = client(&agreement(true, 15), 10);
            let told = read(&mut client, &broken(block), read_bytes, &mut Codec::new());
            assert_eq!(told, Err(expected), "{block:x?} by {read_bytes}");
        }
    }
}

#[test]
fn a_compressed_frame_without_the_extension_is_a_breach() {
    let mut client = Connection::client(&Limits::default(), || 0);
    let told = read(&mut client, b"\xc1\x01\x00", 100, &mut Codec::new());
    assert_eq!(told, Err(ProtocolError::ReservedBits));
}
