//! The messages of uwebsocket-benchmark: JSON that the server answers several times, with its own
//! clock.
//!
//! To the server: `client_id`, `msg_id`, `msg`, `created_at`. From it: `client_id`, `msg_id`,
//! `msg`, `created_at` (its own), `client_ts` (ours) and `server_latency` (the difference).

use std::io::Write as _;

use crate::payload::Filler;

/// Writes and verifies the messages of one run.
#[derive(Clone, Debug)]
pub(crate) struct AmplifyPayload {
    filler: Filler,
    /// Bytes of the whole JSON text.
    size: usize,
}

/// The fields of a reply; times are in the unit of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AmplifyReply<'a> {
    pub(crate) client_id: Option<i64>,
    pub(crate) msg_id: Option<i64>,
    pub(crate) msg: Option<&'a [u8]>,
    /// The server's clock.
    pub(crate) created_at: Option<i64>,
    /// Our clock, as the message said it.
    pub(crate) client_ts: Option<i64>,
    /// The server's clock less ours; negative when the clocks disagree.
    pub(crate) server_latency: Option<i64>,
}

impl AmplifyPayload {
    /// Messages of `size` bytes.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        Self {
            filler: Filler::new(size, seed),
            size,
        }
    }

    /// Appends message `seq` of `connection`, created at `created_at` of the wall clock.
    pub(crate) fn write(&self, connection: u32, seq: u64, created_at: u64, out: &mut Vec<u8>) {
        let filler = self.filler(connection, seq, created_at);
        let written = (|| {
            write!(out, r#"{{"client_id":{connection},"msg_id":{seq},"msg":""#)?;
            out.write_all(filler)?;
            write!(out, r#"","created_at":{created_at}}}"#)
        })();
        written.expect("a Vec takes everything");
    }

    /// Whether a reply holds the content of message `seq` of `connection`. The server had the
    /// message for `held_max` units at most.
    pub(crate) fn is_intact(
        &self,
        reply: &AmplifyReply<'_>,
        connection: u32,
        seq: u64,
        created_at: u64,
        held_max: u64,
    ) -> bool {
        reply.client_id == Some(i64::from(connection))
            && reply.client_ts == i64::try_from(created_at).ok()
            && reply.msg == Some(self.filler(connection, seq, created_at))
            && reply.is_difference_right(created_at, held_max)
    }

    fn filler(&self, connection: u32, seq: u64, created_at: u64) -> &[u8] {
        let digits = digits(u64::from(connection)) + digits(seq) + digits(created_at);
        let length = self.size.saturating_sub(FRAME_BYTES + digits);
        self.filler.slice(connection, seq, length)
    }
}

impl<'a> AmplifyReply<'a> {
    /// Reads a flat JSON object; fields that are not ours are skipped. `None` when it is not one.
    ///
    /// Our strings hold no escapes, so that a reply that is as it should be needs no more than
    /// this; a string with an escape cannot be intact and reads as such.
    pub(crate) fn read(text: &'a [u8]) -> Option<Self> {
        let mut rest = Scanner { text };
        let mut reply = Self::default();
        rest.expect(b'{')?;
        if rest.take_if(b'}') {
            return rest.is_at_end().then_some(reply);
        }
        loop {
            let name = rest.string()?;
            rest.expect(b':')?;
            let value = rest.value()?;
            reply.set(name, value);
            if rest.take_if(b'}') {
                return rest.is_at_end().then_some(reply);
            }
            rest.expect(b',')?;
        }
    }

    /// What a server answers this message with at `now` of its clock; fields that the message
    /// lacks are null.
    pub(crate) fn answer(&self, now: u64) -> Vec<u8> {
        let number = |field: Option<i64>| field.map_or_else(|| "null".into(), |it| it.to_string());
        let sent_at = self.created_at;
        let late = sent_at.map(|sent_at| now.cast_signed().wrapping_sub(sent_at));
        let mut out = Vec::with_capacity(self.msg.map_or(0, <[u8]>::len) + REPLY_FRAME_BYTES);
        let (client_id, msg_id) = (number(self.client_id), number(self.msg_id));
        let written = (|| {
            write!(
                out,
                r#"{{"client_id":{client_id},"msg_id":{msg_id},"msg":""#
            )?;
            out.write_all(self.msg.unwrap_or_default())?;
            let (sent_at, late) = (number(sent_at), number(late));
            write!(
                out,
                r#"","created_at":{now},"client_ts":{sent_at},"server_latency":{late}}}"#
            )
        })();
        written.expect("a Vec takes everything");
        out
    }

    /// Whether the difference that the server states may be that of its clock and of ours. A
    /// server may read its clock once for both of its fields or for each of them, and it reads it
    /// while it has the message: the two cannot be further apart than that took. A server that
    /// states only one of them has nothing to be held to.
    fn is_difference_right(&self, created_at: u64, held_max: u64) -> bool {
        let Some((server, stated)) = self.created_at.zip(self.server_latency) else {
            return true;
        };
        let own = i128::from(server) - i128::from(created_at);
        (own - i128::from(stated)).abs() <= i128::from(held_max) + ROUNDING
    }

    fn set(&mut self, name: &[u8], value: Value<'a>) {
        match (name, value) {
            (b"client_id", Value::Number(number)) => self.client_id = number,
            (b"msg_id", Value::Number(number)) => self.msg_id = number,
            (b"msg", Value::String(bytes)) => self.msg = Some(bytes),
            (b"created_at", Value::Number(number)) => self.created_at = number,
            (b"client_ts", Value::Number(number)) => self.client_ts = number,
            (b"server_latency", Value::Number(number)) => self.server_latency = number,
            _ => {}
        }
    }
}

enum Value<'a> {
    /// `None` when it is not a whole number.
    Number(Option<i64>),
    String(&'a [u8]),
    /// true, false or null.
    Word,
}

struct Scanner<'a> {
    text: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take_if(byte).then_some(())
    }

    fn take_if(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.first() == Some(&byte);
        if found {
            self.text = &self.text[1..];
        }
        found
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.text.is_empty()
    }

    /// The bytes between two quotes, escapes left as they are.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let mut from = 0;
        loop {
            let quote = from
                + self
                    .text
                    .get(from..)?
                    .iter()
                    .position(|&byte| byte == b'"')?;
            let escapes = self.text[..quote]
                .iter()
                .rev()
                .take_while(|&&byte| byte == b'\\');
            if escapes.count() % 2 == 0 {
                let (string, rest) = self.text.split_at(quote);
                self.text = &rest[1..];
                return Some(string);
            }
            from = quote + 1;
        }
    }

    fn value(&mut self) -> Option<Value<'a>> {
        self.skip_space();
        if self.text.first() == Some(&b'"') {
            return self.string().map(Value::String);
        }
        let length = self
            .text
            .iter()
            .position(|byte| b",} \t\r\n".contains(byte))?;
        let (word, rest) = self.text.split_at(length);
        self.text = rest;
        match word {
            b"true" | b"false" | b"null" => Some(Value::Word),
            [b'-' | b'0'..=b'9', ..] => Some(Value::Number(whole_number(word))),
            _ => None,
        }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.first() {
            self.text = &self.text[1..];
        }
    }
}

fn whole_number(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    text.parse().ok().or_else(|| {
        // Lua and JavaScript may write a large number as 1.7e15 or 12.0.
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
    })
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// `{"client_id":,"msg_id":,"msg":"","created_at":}`
const FRAME_BYTES: usize = 47;
/// All of a reply but the content, with the longest numbers there are.
const REPLY_FRAME_BYTES: usize = 200;
/// Units that the difference may be off because its parts are whole numbers.
const ROUNDING: i128 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::AMPLIFY_SIZE_MIN;

    const CREATED_AT: u64 = 1_711_700_000_000_000;

    fn message(size: usize, connection: u32, seq: u64) -> String {
        let mut out = Vec::new();
        AmplifyPayload::new(size, 7).write(connection, seq, CREATED_AT, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn messages_have_the_size_asked_for_and_are_json() {
        for (connection, seq) in [(0, 0), (9_999_999, 123_456_789_012), (5, 63)] {
            for size in [AMPLIFY_SIZE_MIN, 1024, 65_536] {
                let text = message(size, connection, seq);
                assert_eq!(text.len(), size);
                let json: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(json["client_id"], connection);
                assert_eq!(json["msg_id"], seq);
                assert_eq!(json["created_at"], CREATED_AT);
            }
        }
    }

    #[test]
    fn the_smallest_size_has_room_for_the_largest_numbers() {
        let mut out = Vec::new();
        AmplifyPayload::new(AMPLIFY_SIZE_MIN, 7).write(u32::MAX, u64::MAX, u64::MAX, &mut out);
        assert!(out.len() <= AMPLIFY_SIZE_MIN, "{}", out.len());
    }

    #[test]
    fn replies_are_read_and_verified() {
        let payload = AmplifyPayload::new(200, 7);
        let sent: serde_json::Value = serde_json::from_str(&message(200, 3, 8)).unwrap();
        let msg = sent["msg"].as_str().unwrap();
        let text = format!(
            r#" {{"client_id": 3, "msg_id":8,"extra":null,"msg":"{msg}",
               "created_at":1711700000000123,"client_ts":{CREATED_AT},"server_latency":123}} "#
        );
        let reply = AmplifyReply::read(text.as_bytes()).unwrap();
        assert_eq!(reply.msg_id, Some(8));
        assert_eq!(reply.server_latency, Some(123));
        assert!(payload.is_intact(&reply, 3, 8, CREATED_AT, 0));
        assert!(!payload.is_intact(&reply, 3, 8, CREATED_AT + 1, 0));
        assert!(!payload.is_intact(&reply, 4, 8, CREATED_AT, 0));
        let altered = text.replace(msg, &msg.to_uppercase());
        let reply = AmplifyReply::read(altered.as_bytes()).unwrap();
        assert!(!payload.is_intact(&reply, 3, 8, CREATED_AT, 0));
    }

    #[test]
    fn an_answer_is_what_a_server_would_say() {
        let payload = AmplifyPayload::new(200, 7);
        let message = message(200, 3, 8);
        let request = AmplifyReply::read(message.as_bytes()).unwrap();
        let answer = request.answer(CREATED_AT + 321);
        let reply = AmplifyReply::read(&answer).unwrap();
        assert!(payload.is_intact(&reply, 3, 8, CREATED_AT, 0), "{reply:?}");
        assert_eq!(reply.server_latency, Some(321));
        assert_eq!(reply.msg_id, Some(8));
    }

    #[test]
    fn the_difference_of_the_clocks_is_not_taken_on_trust() {
        let payload = AmplifyPayload::new(200, 7);
        let reply = |server_latency| AmplifyReply {
            client_id: Some(3),
            msg_id: Some(8),
            msg: Some(payload.filler(3, 8, CREATED_AT)),
            created_at: Some(CREATED_AT as i64 + 500),
            client_ts: Some(CREATED_AT as i64),
            server_latency,
        };
        let held = |stated, held| payload.is_intact(&reply(stated), 3, 8, CREATED_AT, held);
        let once = |stated| held(Some(stated), 0);
        assert!(once(500) && once(498) && once(502) && held(None, 0));
        assert!(!once(497) && !once(0) && !once(i64::MIN));
        // The latency was taken when the message came, the time of creation when the reply left.
        assert!(held(Some(420), 80) && !held(Some(417), 80));
        assert!(held(Some(580), 80) && !held(Some(5000), 80) && !held(Some(i64::MAX), 80));
    }

    #[test]
    fn odd_numbers_and_negative_latencies_are_read() {
        let text = br#"{"server_latency":-5,"client_ts":1.711700000000000e15,"msg_id":2.0}"#;
        let reply = AmplifyReply::read(text).unwrap();
        assert_eq!(reply.server_latency, Some(-5));
        assert_eq!(reply.client_ts, Some(CREATED_AT as i64));
        assert_eq!(reply.msg_id, Some(2));
    }

    #[test]
    fn what_is_not_a_flat_object_is_refused() {
        for text in [
            "",
            "{",
            "[]",
            "{}x",
            r#"{"a"}"#,
            r#"{"a":"#,
            r#"{"a":[1]}"#,
            r#"{"a":"b"#,
        ] {
            assert_eq!(AmplifyReply::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(AmplifyReply::read(b"{}"), Some(AmplifyReply::default()));
        let escaped = AmplifyReply::read(br#"{"msg":"a\"b\\","msg_id":1}"#).unwrap();
        assert_eq!(escaped.msg_id, Some(1));
    }
}
