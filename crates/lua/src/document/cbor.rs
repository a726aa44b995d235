//! Documents to CBOR (RFC 8949) and back, as LAppS has it on the wire.
//!
//! Written: integers in their shortest form, floats always as 64 bits, text, arrays and maps with
//! their length in front, keys in byte order. Read: these, floats of 16 and 32 bits, and text,
//! arrays and maps of unknown length; no byte strings, no tags, no keys that are not text, no
//! simple values but null and the booleans, and nothing behind the value.

use std::convert::Infallible;

use minicbor::Encoder;
use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode;

use super::{Array, DEPTH_MAX, Ledger, Node, Object, Problem};

/// Reads one value that takes all of `bytes`. Of equal keys the last one wins.
pub(crate) fn from_cbor(bytes: &[u8], ledger: &Ledger) -> Result<Node, Problem> {
    let mut reader = Reader {
        decoder: Decoder::new(bytes),
        ledger,
    };
    let node = ledger.reading(bytes.len(), || reader.node(DEPTH_MAX))?;
    match reader.decoder.position() {
        end if end == bytes.len() => Ok(node),
        end => Err(reader.wrong(format!(
            "{} bytes follow the value",
            bytes.len().saturating_sub(end)
        ))),
    }
}

/// Writes one value.
pub(crate) fn to_cbor(node: &Node) -> Result<Vec<u8>, Problem> {
    let mut encoder = Encoder::new(Vec::new());
    write(node, &mut encoder, DEPTH_MAX)?;
    Ok(encoder.into_writer())
}

type Output = Encoder<Vec<u8>>;

fn write(node: &Node, output: &mut Output, depth: usize) -> Result<(), Problem> {
    match node {
        Node::Null => written(output.null()),
        Node::Boolean(flag) => written(output.bool(*flag)),
        Node::Unsigned(number) => written(output.u64(*number)),
        Node::Negative(number) => written(output.i64(*number)),
        Node::Float(number) => written(output.f64(*number)),
        Node::Text(text) => write_text(text, output),
        Node::Array(array) => {
            let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
            written(output.array(array.len() as u64));
            return array.try_each(|_, item| write(item, output, depth));
        }
        Node::Object(object) => {
            let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
            written(output.map(object.len() as u64));
            return object.try_each(|key, item| {
                write_text(key, output);
                write(item, output, depth)
            });
        }
    }
    Ok(())
}

fn write_text(text: &[u8], output: &mut Output) {
    written(output.str_len(text.len() as u64));
    output.writer_mut().extend_from_slice(text);
}

fn written(result: Result<&mut Output, encode::Error<Infallible>>) {
    result.expect("a vector takes every byte, and nothing of ours fails to encode itself");
}

struct Reader<'a> {
    decoder: Decoder<'a>,
    ledger: &'a Ledger,
}

impl Reader<'_> {
    fn node(&mut self, depth: usize) -> Result<Node, Problem> {
        let kind = self.kind()?;
        let decoder = &mut self.decoder;
        let node = match kind {
            Type::Null => decoder.null().map(|()| Node::Null),
            Type::Bool => decoder.bool().map(Node::Boolean),
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => decoder.u64().map(Node::Unsigned),
            Type::I8 | Type::I16 | Type::I32 | Type::I64 => decoder.i64().map(Node::Negative),
            Type::F16 => decoder.f16().map(|number| Node::Float(number.into())),
            Type::F32 => decoder.f32().map(|number| Node::Float(number.into())),
            Type::F64 => decoder.f64().map(Node::Float),
            Type::String | Type::StringIndef => return self.text().map(Node::Text),
            Type::Array | Type::ArrayIndef => return self.array(depth),
            Type::Map | Type::MapIndef => return self.map(depth),
            Type::Int
            | Type::Bytes
            | Type::BytesIndef
            | Type::Tag
            | Type::Undefined
            | Type::Simple
            | Type::Break
            | Type::Unknown(_) => return Err(self.wrong(format!("{kind} is not expected"))),
        };
        node.map_err(|error| self.refused(&error))
    }

    fn array(&mut self, depth: usize) -> Result<Node, Problem> {
        let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
        let array = Array::new(self.ledger)?;
        let mut left = self.decoder.array().map_err(|error| self.refused(&error))?;
        while self.goes_on(&mut left)? {
            array.push(self.node(depth)?)?;
        }
        Ok(Node::Array(array))
    }

    fn map(&mut self, depth: usize) -> Result<Node, Problem> {
        let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
        let object = Object::new(self.ledger)?;
        let mut left = self.decoder.map().map_err(|error| self.refused(&error))?;
        while self.goes_on(&mut left)? {
            let kind = self.kind()?;
            if !matches!(kind, Type::String | Type::StringIndef) {
                return Err(self.wrong(format!("the key of a map is not text but {kind}")));
            }
            let key = self.text()?;
            object.set(&key, self.node(depth)?)?;
        }
        Ok(Node::Object(object))
    }

    /// Whether another item follows: `left` of them where the length was told, else up to a break.
    fn goes_on(&mut self, left: &mut Option<u64>) -> Result<bool, Problem> {
        match left {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None if self.kind()? == Type::Break => {
                let position = self.decoder.position();
                self.decoder.set_position(position + 1);
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn text(&mut self) -> Result<Box<[u8]>, Problem> {
        let parts = self.decoder.str_iter();
        let text = parts.and_then(|mut parts| {
            parts.try_fold(Vec::new(), |mut text, part| {
                text.extend_from_slice(part?.as_bytes());
                Ok(text)
            })
        });
        text.map(Vec::into_boxed_slice)
            .map_err(|error| self.refused(&error))
    }

    fn kind(&mut self) -> Result<Type, Problem> {
        self.decoder
            .datatype()
            .map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &Error) -> Problem {
        self.wrong(error.to_string())
    }

    fn wrong(&self, what: String) -> Problem {
        Problem::Syntax(format!("{what} at byte {}", self.decoder.position()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{from_json, to_json};
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn read(hex: &str) -> Result<String, Problem> {
        let node = from_cbor(&bytes(hex), &Ledger::unlimited())?;
        Ok(String::from_utf8(to_json(&node, usize::MAX).unwrap()).unwrap())
    }

    /// What LAppS writes, byte for byte.
    #[test]
    fn known_messages_are_written_as_known_bytes() {
        let cases = [
            (
                r#"{"cid":5,"message":["x"]}"#,
                "a26363696405676d657373616765816178",
            ),
            (
                r#"{"lapps":1,"method":"login","params":[{"user":"admin","password":"admin"}]}"#,
                "a3656c6170707301666d6574686f64656c6f67696e66706172616d7381a26870617373776f7264\
                 6561646d696e64757365726561646d696e",
            ),
            (
                r#"{"status":1,"result":[{"authkey":1.0}],"cid":0}"#,
                "a3636369640066726573756c7481a167617574686b6579fb3ff000000000000066737461747573\
                 01",
            ),
            (
                r#"{"status":0,"error":{"code":10,"message":"no"},"cid":0}"#,
                "a36363696400656572726f72a264636f64650a676d657373616765626e6f6673746174757300",
            ),
        ];
        for (json, hex) in cases {
            let hex = hex.replace(' ', "");
            let node = from_json(json.as_bytes(), &Ledger::unlimited()).unwrap();
            assert_eq!(to_cbor(&node).unwrap(), bytes(&hex), "{json}");
            let again = from_cbor(&bytes(&hex), &Ledger::unlimited()).unwrap();
            assert_eq!(to_cbor(&again).unwrap(), bytes(&hex), "{json}");
        }
    }

    #[test]
    fn every_form_of_a_value_is_read() {
        for (hex, json) in [
            ("f6", "null"),
            ("f4", "false"),
            ("f5", "true"),
            ("1bffffffffffffffff", "18446744073709551615"),
            ("3b7fffffffffffffff", "-9223372036854775808"),
            ("20", "-1"),
            ("f93c00", "1.0"),
            ("fa3f800000", "1.0"),
            ("fb3ff8000000000000", "1.5"),
            ("7f6161627a7aff", r#""azz""#),
            ("9f0102ff", "[1,2]"),
            ("9fff", "[]"),
            ("bf616101ff", r#"{"a":1}"#),
            ("a2616101616102", r#"{"a":2}"#),
        ] {
            assert_eq!(read(hex).as_deref(), Ok(json), "{hex}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for (hex, why) in [
            ("", "nothing"),
            ("4161", "a byte string"),
            ("c000", "a tag"),
            ("f7", "undefined"),
            ("f0", "a simple value"),
            ("ff", "a break alone"),
            ("0102", "bytes behind the value"),
            ("a10101", "a key that is a number"),
            ("61ff", "text that is not UTF-8"),
            ("8201", "an array that ends early"),
            ("9f01", "an array without an end"),
            ("3bffffffffffffffff", "a number below every 64-bit integer"),
            ("9bffffffffffffffff", "an array of declared length"),
            ("bbffffffffffffffff", "a map of declared length"),
            ("7bffffffffffffffff", "text of declared length"),
        ] {
            let problem = read(hex).unwrap_err();
            assert!(problem.to_string().contains("byte"), "{why}: {problem}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |depth: usize| "81".repeat(depth) + "00";
        assert!(read(&deep(DEPTH_MAX)).is_ok());
        assert_eq!(read(&deep(DEPTH_MAX + 1)), Err(Problem::TooDeep));
        assert_eq!(read(&"9f".repeat(10_000_000)), Err(Problem::TooDeep));
    }

    #[test]
    fn memory_is_bounded() {
        let many = [bytes("9a00100000"), vec![0xf6; 1 << 20]].concat();
        let ledger = Ledger::new(Some(1 << 20));
        assert_eq!(from_cbor(&many, &ledger).unwrap_err(), Problem::Full);
        assert_eq!(ledger.bytes(), 0);
    }
}
