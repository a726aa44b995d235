//! A connection under any bytes in any reads; the input chooses both.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Connection, Event};
use crate::deflate::Codec;
use crate::limits::Limits;

/// Reads `input` as a role, sizes of reads and what a peer sends; checks what must always hold.
///
/// The first byte chooses the role, the second how many of the next bytes are sizes of reads.
fn fuzz_connection(input: &[u8]) {
    let Some((&[role, sizes], rest)) = input.split_first_chunk() else {
        return;
    };
    let (sizes, bytes) = rest.split_at(usize::from(sizes).min(rest.len()));
    let whole = story(role, bytes, &[]);
    let split = story(role, bytes, sizes);
    assert_eq!(whole, split, "the events depend on the reads");
    let (events, out) = whole;
    assert!(
        out.len() <= 3 * bytes.len() + 8,
        "the answers outgrow what was received"
    );
    let after_the_end = events
        .iter()
        .skip_while(|event| !event.starts_with('!'))
        .count();
    assert!(after_the_end <= 1, "something was told after the end");
}

/// What is told, in words, and what is answered. The last read has what the `sizes` left.
fn story(role: u8, bytes: &[u8], sizes: &[u8]) -> (Vec<String>, Vec<u8>) {
    let limits = Limits {
        message_bytes_max: 500,
        frames_per_message_max: 5,
        ..Limits::default()
    };
    let mut connection = match role % 2 {
        0 => Connection::server(&limits),
        _ => Connection::client(&limits, || 0x0102_0304),
    };
    let mut codec = Codec::new();
    let (mut told, mut out, mut rest) = (Vec::new(), Vec::new(), bytes);
    let sizes = sizes
        .iter()
        .map(|size| usize::from(*size))
        .chain([usize::MAX]);
    for size in sizes {
        let (now, later) = rest.split_at(size.min(rest.len()));
        let mut now = now.to_vec();
        let mut start = 0;
        loop {
            let step = connection.receive(&mut now[start..], &mut out, &mut codec);
            start += step.taken;
            match step.event {
                Some(event) => told.push(words(event)),
                None if step.taken == 0 => break,
                None => {}
            }
        }
        assert_eq!(start, now.len(), "bytes were left behind");
        rest = later;
    }
    (told, out)
}

/// An event as text; the last one of a connection begins with `!`.
fn words(event: Event<'_>) -> String {
    let end = match event {
        Event::Close { .. } | Event::Failed(_) => "!",
        Event::Message { .. } | Event::Ping(_) | Event::Pong(_) => "",
    };
    alloc::format!("{end}{event:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, FrameKind, Lead};
    use crate::opcode::Opcode;

    /// Half noise, half frames with noise in them: noise alone never gets past a header.
    fn input(seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let role = random.u8(..2);
        let sizes = random.u8(..30);
        let mut input = [
            &[role, sizes][..],
            &Vec::from_iter((0..sizes).map(|_| random.u8(..20))),
        ]
        .concat();
        for _ in 0..random.usize(1..8) {
            let mut payload: Vec<u8> = (0..random.usize(..150))
                .map(|_| random.u8(b' '..))
                .collect();
            if random.bool() {
                payload.iter_mut().for_each(|byte| *byte &= 0x7f);
            }
            let mask = (role == 0).then(|| random.u32(..).to_ne_bytes());
            let kind = [FrameKind::Data(Opcode::Text), FrameKind::Continuation][random.usize(..2)];
            let start = input.len();
            frame::encode(Lead::plain(kind, random.bool()), mask, &payload, &mut input);
            // Any opcode, mostly the good ones.
            if random.u8(..3) == 0 {
                input[start] = (input[start] & 0x80) | random.u8(..11);
            }
            if random.u8(..10) == 0 {
                let place = random.usize(start..input.len());
                input[place] = random.u8(..);
            }
        }
        input
    }

    #[test]
    fn seeds() {
        for seed in 0..2000 {
            let input = input(seed);
            std::panic::catch_unwind(|| fuzz_connection(&input))
                .unwrap_or_else(|_| panic!("seed {seed}"));
        }
    }
}
