//! Properties: however a conversation is split into reads, the events are the same, and for a
//! good conversation they are the ones that were meant.

use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as many;
use proptest::prelude::*;

use super::pair::{Told, read, restart_masks, test_mask};
use crate::frame::{self, ControlKind, FrameKind, Lead};
use crate::{Connection, Limits, Opcode, Role};

/// Something one end says.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// A message, cut into fragments at these places, with a ping or pong after each.
    Message {
        opcode: Opcode,
        payload: Vec<u8>,
        cuts: Vec<(usize, Option<Heartbeat>)>,
    },
    Heartbeat(Heartbeat),
}

#[derive(Clone, Debug)]
pub(super) struct Heartbeat {
    is_ping: bool,
    payload: Vec<u8>,
}

/// What is said, as bytes and as the events that it means.
#[derive(Default)]
pub(super) struct Script {
    pub(super) bytes: Vec<u8>,
    pub(super) told: Vec<Told>,
}

impl Script {
    pub(super) fn new(speaker: Role, said: &[Said]) -> Self {
        restart_masks();
        let mut script = Self::default();
        for said in said {
            match said {
                Said::Heartbeat(heartbeat) => script.heartbeat(speaker, heartbeat),
                Said::Message {
                    opcode,
                    payload,
                    cuts,
                } => {
                    script.message(speaker, *opcode, payload, cuts);
                }
            }
        }
        script
    }

    fn frame(&mut self, speaker: Role, kind: FrameKind, fin: bool, payload: &[u8]) {
        let mask = (speaker == Role::Client).then(|| test_mask().to_ne_bytes());
        frame::encode(Lead::plain(kind, fin), mask, payload, &mut self.bytes);
    }

    fn heartbeat(&mut self, speaker: Role, heartbeat: &Heartbeat) {
        let payload = heartbeat.payload.clone();
        let kind = if heartbeat.is_ping {
            ControlKind::Ping
        } else {
            ControlKind::Pong
        };
        self.frame(speaker, FrameKind::Control(kind), true, &payload);
        self.told.push(if heartbeat.is_ping {
            Told::Ping(payload)
        } else {
            Told::Pong(payload)
        });
    }

    fn message(
        &mut self,
        speaker: Role,
        opcode: Opcode,
        payload: &[u8],
        cuts: &[(usize, Option<Heartbeat>)],
    ) {
        let mut kind = FrameKind::Data(opcode);
        let mut rest = payload;
        for (cut, heartbeat) in cuts {
            let (part, after) = rest.split_at(cut % (rest.len() + 1));
            self.frame(speaker, kind, false, part);
            (kind, rest) = (FrameKind::Continuation, after);
            if let Some(heartbeat) = heartbeat {
                self.heartbeat(speaker, heartbeat);
            }
        }
        self.frame(speaker, kind, true, rest);
        self.told.push(match opcode {
            Opcode::Text => Told::Text(String::from_utf8(payload.to_vec()).unwrap()),
            Opcode::Binary => Told::Binary(payload.to_vec()),
        });
    }
}

/// What the end that is not `speaker` is told and answers, if the reads are of these sizes, over
/// and over.
pub(super) fn heard(speaker: Role, bytes: &[u8], reads: &[usize]) -> (Vec<Told>, Vec<u8>) {
    restart_masks();
    let limits = Limits {
        message_bytes_max: MESSAGE_BYTES_MAX,
        frames_per_message_max: FRAMES_PER_MESSAGE_MAX,
        ..Limits::default()
    };
    let mut connection = match speaker {
        Role::Client => Connection::server(&limits),
        Role::Server => Connection::client(&limits, test_mask),
    };
    let (mut told, mut out, mut rest) = (vec![], vec![], bytes);
    for size in reads.iter().cycle() {
        let (now, later) = rest.split_at((*size).min(rest.len()));
        told.extend(read(&mut connection, now, &mut out));
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    (told, out)
}

pub(super) fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Client), Just(Role::Server)]
}

fn heartbeat() -> impl Strategy<Value = Heartbeat> {
    (any::<bool>(), many(any::<u8>(), 0..=125))
        .prop_map(|(is_ping, payload)| Heartbeat { is_ping, payload })
}

pub(super) fn said() -> impl Strategy<Value = Said> {
    let payload = prop_oneof![
        "\\PC{0,60}".prop_map(|text| (Opcode::Text, text.into_bytes())),
        "[a-zß-ÿ𝄞]{100,300}".prop_map(|text| (Opcode::Text, text.into_bytes())),
        many(any::<u8>(), 0..400).prop_map(|bytes| (Opcode::Binary, bytes)),
    ];
    let cuts = many((any::<usize>(), proptest::option::of(heartbeat())), 0..5);
    prop_oneof![
        4 => (payload, cuts)
            .prop_map(|((opcode, payload), cuts)| Said::Message { opcode, payload, cuts }),
        1 => heartbeat().prop_map(Said::Heartbeat),
    ]
}

/// Sizes of reads: tiny ones, which cut headers and characters, and larger ones.
fn reads() -> impl Strategy<Value = Vec<usize>> {
    many(prop_oneof![1_usize..8, 1_usize..600], 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_good_conversation_is_heard_as_it_was_meant(
        speaker in role(),
        said in many(said(), 0..8),
        reads in reads(),
    ) {
        let script = Script::new(speaker, &said);
        let (told, out) = heard(speaker, &script.bytes, &reads);
        prop_assert_eq!(&told, &script.told);
        prop_assert_eq!((told, out), heard(speaker, &script.bytes, &[usize::MAX]));
    }

    #[test]
    fn a_damaged_conversation_is_heard_alike_however_it_is_split(
        speaker in role(),
        said in many(said(), 1..6),
        damages in many((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        reads in reads(),
    ) {
        let mut bytes = Script::new(speaker, &said).bytes;
        for (place, flips) in damages {
            let place = place.index(bytes.len());
            bytes[place] ^= flips;
        }
        bytes.truncate(cut.index(bytes.len() * 2).max(1));
        let whole = heard(speaker, &bytes, &[usize::MAX]);
        prop_assert_eq!(&whole, &heard(speaker, &bytes, &reads));
        prop_assert_eq!(&whole, &heard(speaker, &bytes, &[1]));
    }

    #[test]
    fn any_bytes_are_heard_alike_however_they_are_split(
        speaker in role(),
        bytes in many(any::<u8>(), 0..300),
        reads in reads(),
    ) {
        let whole = heard(speaker, &bytes, &[usize::MAX]);
        prop_assert_eq!(&whole, &heard(speaker, &bytes, &reads));
    }
}

/// The limits of the end that listens.
pub(super) const MESSAGE_BYTES_MAX: usize = 2000;
pub(super) const FRAMES_PER_MESSAGE_MAX: u32 = 6;
