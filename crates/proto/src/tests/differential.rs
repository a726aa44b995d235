//! Thousands of conversations, good and bad, for us and for an implementation that nobody here
//! wrote. Both are told the same, or differ in a way that [`DIFFERENCES`] explains.
//!
//! `SEED=n cargo test` shows one conversation.

use std::string::String;
use std::vec::Vec;
use std::{env, format, println, vec};

use fastrand::Rng;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::foreign::{foreign, foreign_told};
use super::pair::{End, Told};
use super::splits::{FRAMES_PER_MESSAGE_MAX, MESSAGE_BYTES_MAX, heard};
use crate::{ProtocolError, Role};

/// What one end made of a conversation.
#[derive(Debug, Eq, PartialEq)]
struct Heard {
    told: Vec<Told>,
    /// The close code for the breach that ended it.
    failed: Option<u16>,
}

/// A way in which the two may differ.
struct Difference {
    name: &'static str,
    /// Why we are right to differ, with the section of RFC 6455.
    reason: &'static str,
    explains: fn(&Case, &Heard, &Heard) -> bool,
}

/// Every difference there is; one that does not occur any more is to be taken out.
const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "length not minimal",
        reason: "5.2: the minimal number of bytes MUST be used; they take any",
        explains: |case, ours, theirs| {
            case.breach == Some(ProtocolError::LengthNotMinimal) && goes_on(ours, theirs)
        },
    },
    Difference {
        name: "length of a control frame not minimal",
        reason: "5.5 and 5.2: at most 125 bytes, which take no longer form; they take any",
        explains: |case, ours, theirs| {
            case.breach == Some(ProtocolError::ControlTooLong) && goes_on(ours, theirs)
        },
    },
    Difference {
        name: "length with its top bit set",
        reason: "5.2: the most significant bit MUST be 0, so 1002; to them it is only too long",
        explains: |case, ours, theirs| {
            case.breach == Some(ProtocolError::LengthOutOfRange)
                && ours.told == theirs.told
                && theirs.failed == Some(1009)
        },
    },
    Difference {
        name: "too many fragments",
        reason: "10.4: a limit of ours on what an endless message costs; they have none",
        explains: |case, ours, theirs| {
            case.breach == Some(ProtocolError::TooManyFragments) && goes_on(ours, theirs)
        },
    },
    Difference {
        name: "close code that must not be sent",
        reason: "7.4: a breach, as 5.5.1 allows no such frame; they tell of it as a close of 1002",
        explains: |case, ours, theirs| {
            let violation = Told::Close(Some(1002), String::from("Protocol violation"));
            matches!(case.breach, Some(ProtocolError::CloseCodeInvalid(_)))
                && theirs.told.strip_prefix(ours.told.as_slice()) == Some(&[violation])
        },
    },
    Difference {
        name: "close code 1014",
        reason: "7.4.2: registered since as Bad Gateway; they take it for a breach",
        explains: |_, ours, theirs| {
            let told = |heard: &Heard| match heard.told.last() {
                Some(Told::Close(code, _)) => *code,
                _ => None,
            };
            told(ours) == Some(1014) && told(theirs) == Some(1002)
        },
    },
    Difference {
        name: "frames after a close frame",
        reason: "1.4: what follows it is discarded; their client fails on it",
        explains: |case, ours, theirs| {
            case.speaker == Role::Server
                && matches!(ours.told.last(), Some(Told::Close(..)))
                && ours.told == theirs.told
                && ours.failed.is_none()
                && theirs.failed.is_some()
        },
    },
    Difference {
        name: "breach in a frame that is not whole",
        reason: "7.1.7 and 8.1: we fail as soon as it is seen; they wait for the whole frame",
        explains: |case, ours, theirs| {
            case.is_cut
                && ours.failed.is_some()
                && ours.told == theirs.told
                && theirs.failed.is_none()
        },
    },
    Difference {
        name: "two breaches in one header",
        reason: "7.1.7: we tell the first one; they look at the length before anything else",
        explains: |_, ours, theirs| {
            ours.told == theirs.told && ours.failed == Some(1002) && theirs.failed == Some(1009)
        },
    },
    Difference {
        name: "two breaches in one close frame",
        reason: "7.1.7: we tell of the code, which is the first one; they of the reason's text",
        explains: |case, ours, theirs| {
            matches!(case.breach, Some(ProtocolError::CloseCodeInvalid(_)))
                && ours.told == theirs.told
                && theirs.failed == Some(1007)
        },
    },
];

/// We refuse what they take: all that we were told before, they were told too.
fn goes_on(ours: &Heard, theirs: &Heard) -> bool {
    theirs.told.starts_with(&ours.told)
}

/// A conversation of one speaker, made of a seed.
struct Case {
    speaker: Role,
    bytes: Vec<u8>,
    /// Whether it may end inside a frame.
    is_cut: bool,
    /// What we found wrong with it.
    breach: Option<ProtocolError>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let speaker = [Role::Client, Role::Server][random.usize(..2)];
        // Half of the conversations have no fault, or only one.
        let fault_percent = [0, 5, 30][random.usize(..3)];
        let mut script = Script {
            random,
            speaker,
            fault_percent,
            bytes: vec![],
        };
        for _ in 0..script.random.usize(1..8) {
            script.say();
        }
        if script.random.u8(..3) == 0 {
            script.close();
        }
        let Script {
            mut random,
            mut bytes,
            ..
        } = script;
        let is_cut = random.u8(..5) == 0;
        if is_cut {
            bytes.truncate(random.usize(..=bytes.len()));
        } else {
            // They refuse a frame only once it is whole: so let each one become whole.
            bytes.extend([0xff; MESSAGE_BYTES_MAX + 20]);
        }
        Self {
            speaker,
            bytes,
            is_cut,
            breach: None,
        }
    }

    /// What we make of it, in reads of these sizes.
    fn ours(&mut self, reads: &[usize]) -> Heard {
        let (mut told, _) = heard(self.speaker, &self.bytes, reads);
        let failed = told.pop_if(|told| matches!(told, Told::Failed(_)));
        if let Some(Told::Failed(error)) = failed {
            self.breach = Some(error);
        }
        let failed = self.breach.map(|error| error.close_code().as_u16());
        Heard { told, failed }
    }

    fn theirs(&self) -> Heard {
        let (told, error) = foreign_told(&mut foreign(self.speaker, &self.bytes));
        let failed = error.map(|error| {
            if matches!(error, Error::Capacity(_)) {
                return 1009;
            }
            if matches!(error, Error::Utf8(_)) {
                return 1007;
            }
            assert!(matches!(error, Error::Protocol(_)), "{error}");
            1002
        });
        Heard { told, failed }
    }
}

/// Frames as they are said, with a fault now and then.
struct Script {
    random: Rng,
    speaker: Role,
    /// How often something is wrong.
    fault_percent: u8,
    bytes: Vec<u8>,
}

impl Script {
    /// A message in some fragments, with control frames between them, or a control frame.
    fn say(&mut self) {
        if self.random.u8(..4) == 0 {
            return self.heartbeat();
        }
        let is_text = self.random.bool();
        let payload = self.payload(is_text);
        let mut opcode = if is_text { TEXT } else { BINARY };
        if self.is_faulty() {
            opcode = CONTINUATION;
        }
        let mut rest = payload.as_slice();
        let mut cuts = [0, 0, 1, 3, FRAMES_PER_MESSAGE_MAX - 1][self.random.usize(..5)];
        cuts += u32::from(self.is_faulty());
        for _ in 0..cuts {
            let (part, after) = rest.split_at(self.random.usize(..=rest.len()));
            self.frame(opcode, false, part);
            rest = after;
            if !self.is_faulty() {
                opcode = CONTINUATION;
            }
            if self.random.u8(..3) == 0 {
                self.heartbeat();
            }
        }
        self.frame(opcode, true, rest);
    }

    fn payload(&mut self, is_text: bool) -> Vec<u8> {
        let most = [10, 130, 700][self.random.usize(..3)];
        let mut length = self.random.usize(..most);
        if self.is_faulty() {
            length = MESSAGE_BYTES_MAX - 2 + self.random.usize(..5);
        }
        if !is_text {
            return (0..length).map(|_| self.random.u8(..)).collect();
        }
        let mut text = String::new();
        while text.len() < length {
            text.push(self.random.char(..));
        }
        let mut text = text.into_bytes();
        if self.is_faulty() && !text.is_empty() {
            let place = self.random.usize(..text.len());
            text[place] = self.random.u8(0x80..);
        }
        text
    }

    fn heartbeat(&mut self) {
        let opcode = [PING, PONG][self.random.usize(..2)];
        let most = if self.is_faulty() { 300 } else { 126 };
        let payload: Vec<u8> = (0..self.random.usize(..most)).map(|_| 7).collect();
        let fin = !self.is_faulty();
        self.frame(opcode, fin, &payload);
    }

    fn close(&mut self) {
        let code = match self.random.u8(..4) {
            0 => self.random.u16(..),
            1 => self.random.u16(999..1018),
            _ => [1000, 1001, 1014, 3000, 4999][self.random.usize(..5)],
        };
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice("bye κόσμε".as_bytes());
        let length = match self.is_faulty() {
            // Nothing, half a code, half a character.
            true => [0, 1, payload.len() - 1][self.random.usize(..3)],
            false => [0, 2, payload.len()][self.random.usize(..3)],
        };
        self.frame(CLOSE, true, &payload[..length]);
    }

    fn frame(&mut self, opcode: u8, fin: bool, payload: &[u8]) {
        let mut first = opcode | (u8::from(fin) << 7);
        if self.is_faulty() {
            first |= 0x10 << self.random.u8(..3);
        }
        if self.is_faulty() {
            first = (first & 0xf0) | self.random.u8(..16);
        }
        let is_masked = (self.speaker == Role::Client) != self.is_faulty();
        let mask_bit = if is_masked { 0x80 } else { 0 };
        let mut length = payload.len() as u64;
        let mut form = match length {
            _ if self.is_faulty() => self.random.u8(..3),
            0..126 => 0,
            126..0x1_0000 => 1,
            _ => 2,
        };
        if self.is_faulty() {
            form = 2;
            length |= 1 << 63;
        }
        self.bytes.push(first);
        match form {
            0 => self.bytes.push(mask_bit | (length as u8 & 0x7f)),
            1 => {
                self.bytes.push(mask_bit | 126);
                self.bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                self.bytes.push(mask_bit | 127);
                self.bytes.extend(length.to_be_bytes());
            }
        }
        let mask = self.random.u32(..).to_be_bytes();
        if is_masked {
            self.bytes.extend(mask);
            let masked = payload.iter().zip(mask.iter().cycle());
            self.bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
        } else {
            self.bytes.extend_from_slice(payload);
        }
    }

    fn is_faulty(&mut self) -> bool {
        // Several are asked for in each frame.
        self.random.u16(..1000) < u16::from(self.fault_percent)
    }
}

#[test]
fn conversations_are_told_alike_or_the_difference_is_explained() {
    let chosen = env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = chosen.map_or(0..CASES, |seed: u64| seed..seed + 1);
    let mut occurrences = vec![0; DIFFERENCES.len()];
    let (mut failures, mut messages) = (0, 0);
    for seed in seeds {
        let mut case = Case::new(seed);
        let reads = [1 + (seed % 50) as usize, usize::MAX];
        let ours = case.ours(&reads[usize::from(seed % 2 == 0)..]);
        let theirs = case.theirs();
        failures += u64::from(ours.failed.is_some());
        messages += ours.told.len();
        if ours == theirs {
            continue;
        }
        let explained = DIFFERENCES
            .iter()
            .position(|difference| (difference.explains)(&case, &ours, &theirs));
        let Some(place) = explained else {
            panic!(
                "SEED={seed}, {:?} speaks:\n{:x?}\nours: {ours:?} {:?}\ntheirs: {theirs:?}",
                case.speaker, case.bytes, case.breach
            );
        };
        occurrences[place] += 1;
    }
    println!("{CASES} conversations, {messages} events, {failures} breaches");
    for (difference, count) in DIFFERENCES.iter().zip(&occurrences) {
        println!("{count:>5} {}: {}", difference.name, difference.reason);
    }
    let gone = DIFFERENCES
        .iter()
        .zip(&occurrences)
        .find(|(_, count)| **count == 0);
    if let (None, Some((difference, _))) = (chosen, gone) {
        panic!("`{}` does not occur any more", difference.name);
    }
}

#[test]
fn we_hear_what_a_foreign_end_says() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (mut ours, speaker) = match seed % 2 {
            0 => (End::server(), Role::Server),
            _ => (End::client(), Role::Client),
        };
        // It takes the role opposite to the one that it would hear.
        let mut theirs = foreign(speaker, &[]);
        let mut expected = vec![];
        for number in 0..random.usize(1..10) {
            let payload: Vec<u8> = (0..random.usize(..400)).map(|_| random.u8(..)).collect();
            let (message, told) = match random.u8(..3) {
                0 => {
                    let text = format!("{number} {}", String::from_utf8_lossy(&payload));
                    (Message::text(text.clone()), Told::Text(text))
                }
                1 => (Message::binary(payload.clone()), Told::Binary(payload)),
                _ => {
                    let payload = payload[..payload.len().min(125)].to_vec();
                    (Message::Ping(payload.clone().into()), Told::Ping(payload))
                }
            };
            theirs.send(message).unwrap();
            expected.push(told);
        }
        let bytes = core::mem::take(&mut theirs.get_mut().outgoing);
        for part in bytes.chunks(random.usize(1..300)) {
            ours.read(part);
        }
        assert_eq!(ours.told, expected, "seed {seed}");
    }
}

const CASES: u64 = 6000;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
