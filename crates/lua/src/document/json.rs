//! Documents to JSON text and back.

use std::fmt;
use std::io::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::{Array, DEPTH_MAX, Ledger, Node, Object, Problem};

/// Reads one value, with nothing but space around it. Of equal keys the last one wins.
pub(crate) fn from_json(text: &[u8], ledger: &Ledger) -> Result<Node, Problem> {
    ledger.reading(text.len(), || parse(text, ledger))
}

fn parse(text: &[u8], ledger: &Ledger) -> Result<Node, Problem> {
    let mut full = false;
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Reading {
        ledger,
        full: &mut full,
    };
    let result = read
        .deserialize(&mut reader)
        .and_then(|node| reader.end().map(|()| node));
    match result {
        Ok(node) => Ok(node),
        Err(_) if full => Err(Problem::Full),
        Err(error) => Err(Problem::Syntax(error.to_string())),
    }
}

/// Writes without spaces; keys in byte order. A number that JSON does not have is written as null.
/// The text has at most `bytes_max`.
pub(crate) fn to_json(node: &Node, bytes_max: usize) -> Result<Vec<u8>, Problem> {
    let mut text = Bounded::new(bytes_max);
    let writer = &mut serde_json::Serializer::new(&mut text);
    serialized(node, writer)?;
    Ok(text.bytes)
}

/// Writes each value on a line, `indent` spaces for each container that it is in. The text has at
/// most `bytes_max`, which may be many times what the document takes.
pub(crate) fn to_json_pretty(
    node: &Node,
    indent: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, Problem> {
    let mut text = Bounded::new(bytes_max);
    let spaces = " ".repeat(indent);
    let format = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
    let writer = &mut serde_json::Serializer::with_formatter(&mut text, format);
    serialized(node, writer)?;
    Ok(text.bytes)
}

/// A text that is being written and must not become too long.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Bounded {
    fn new(bytes_max: usize) -> Self {
        let bytes = Vec::new();
        Self { bytes, bytes_max }
    }
}

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.bytes_max - self.bytes.len() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn serialized<S: Serializer<Error = serde_json::Error>>(
    node: &Node,
    writer: S,
) -> Result<(), Problem> {
    let writing = Writing {
        node,
        depth: DEPTH_MAX,
    };
    match writing.serialize(writer) {
        Ok(_) => Ok(()),
        // Nothing else of the writer fails.
        Err(error) if error.is_io() => Err(Problem::Full),
        Err(error) if error.to_string() == TOO_DEEP => Err(Problem::TooDeep),
        Err(_) => Err(Problem::NotUtf8),
    }
}

/// A value below which so many containers may follow.
struct Writing<'a> {
    node: &'a Node,
    depth: usize,
}

impl Writing<'_> {
    fn deeper<E: serde::ser::Error>(&self) -> Result<usize, E> {
        self.depth.checked_sub(1).ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl Serialize for Writing<'_> {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        match self.node {
            Node::Null => writer.serialize_unit(),
            Node::Boolean(flag) => writer.serialize_bool(*flag),
            Node::Unsigned(number) => writer.serialize_u64(*number),
            Node::Negative(number) => writer.serialize_i64(*number),
            Node::Float(number) => writer.serialize_f64(*number),
            Node::Text(text) => writer.serialize_str(utf8(text)?),
            Node::Array(array) => {
                let depth = self.deeper()?;
                let mut items = writer.serialize_seq(Some(array.len()))?;
                array.try_each(|_, node| items.serialize_element(&Writing { node, depth }))?;
                items.end()
            }
            Node::Object(object) => {
                let depth = self.deeper()?;
                let mut items = writer.serialize_map(Some(object.len()))?;
                object.try_each(|key, node| {
                    items.serialize_entry(utf8(key)?, &Writing { node, depth })
                })?;
                items.end()
            }
        }
    }
}

fn utf8<E: serde::ser::Error>(text: &[u8]) -> Result<&str, E> {
    simdutf8::basic::from_utf8(text).map_err(E::custom)
}

/// Reads one value. serde_json refuses more than 127 containers within each other by itself.
struct Reading<'a> {
    ledger: &'a Ledger,
    /// Set when it was memory that failed.
    full: &'a mut bool,
}

impl Reading<'_> {
    fn inner(&mut self) -> Reading<'_> {
        Reading {
            ledger: self.ledger,
            full: self.full,
        }
    }

    fn kept<T, E: serde::de::Error>(&mut self, result: Result<T, Problem>) -> Result<T, E> {
        *self.full |= matches!(result, Err(Problem::Full));
        result.map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Node, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Boolean(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(u64::try_from(number).map_or(Node::Negative(number), Node::Unsigned))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.as_bytes().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Node, A::Error> {
        let array = self.kept(Array::new(self.ledger))?;
        while let Some(item) = items.next_element_seed(self.inner())? {
            self.kept(array.push(item))?;
        }
        Ok(Node::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut items: A) -> Result<Node, A::Error> {
        let object = self.kept(Object::new(self.ledger))?;
        while let Some(key) = items.next_key::<String>()? {
            let value = items.next_value_seed(self.inner())?;
            self.kept(object.set(key.as_bytes(), value))?;
        }
        Ok(Node::Object(object))
    }
}

const TOO_DEEP: &str = "too deep";

#[cfg(test)]
mod tests {
    use super::*;

    fn through(text: &str) -> String {
        let node = from_json(text.as_bytes(), &Ledger::unlimited()).unwrap();
        String::from_utf8(to_json(&node, usize::MAX).unwrap()).unwrap()
    }

    #[test]
    fn text_comes_back_compact_with_keys_in_byte_order() {
        assert_eq!(
            through(r#" { "b" : [ 1 , -2 , 3.0, 1e300 ] , "a" : { } , "B" : null, "a": "ü\n" } "#),
            r#"{"B":null,"a":"ü\n","b":[1,-2,3.0,1e+300]}"#
        );
        assert_eq!(through("18446744073709551615"), "18446744073709551615");
        assert_eq!(through("-9223372036854775808"), "-9223372036854775808");
        assert_eq!(through("0"), "0");
        assert_eq!(through("[]"), "[]");
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        for bad in [
            "",
            "{",
            "[1,]",
            "{\"a\":}",
            "nul",
            "1 2",
            "\"\u{1}\"",
            "{\"a\":1}\0",
        ] {
            let problem = from_json(bad.as_bytes(), &Ledger::unlimited()).unwrap_err();
            assert!(problem.to_string().contains("line 1"), "{bad}: {problem}");
        }
        assert!(from_json(b"\"\xff\"", &Ledger::unlimited()).is_err());
    }

    #[test]
    fn depth_is_bounded_both_ways() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(through(&nested(DEPTH_MAX)), nested(DEPTH_MAX));
        assert!(from_json(nested(DEPTH_MAX + 1).as_bytes(), &Ledger::unlimited()).is_err());
    }

    #[test]
    fn a_text_that_is_not_utf8_is_not_written() {
        let bad = Node::Text(b"\xff".as_slice().into());
        assert_eq!(to_json(&bad, usize::MAX).unwrap_err(), Problem::NotUtf8);
        let object = Object::new(&Ledger::unlimited()).unwrap();
        object.set(b"\xff", Node::Null).unwrap();
        assert_eq!(
            to_json(&Node::Object(object), usize::MAX).unwrap_err(),
            Problem::NotUtf8
        );
    }

    #[test]
    fn a_number_that_json_does_not_have_is_null() {
        assert_eq!(
            to_json(&Node::Float(f64::NAN), usize::MAX).unwrap(),
            b"null"
        );
    }

    #[test]
    fn indented_text_has_a_value_a_line() {
        let node = from_json(br#"{"a":[1,[]],"b":{}}"#, &Ledger::unlimited()).unwrap();
        let text = String::from_utf8(to_json_pretty(&node, 2, usize::MAX).unwrap()).unwrap();
        assert_eq!(text, "{\n  \"a\": [\n    1,\n    []\n  ],\n  \"b\": {}\n}");
    }

    #[test]
    fn a_text_ends_at_its_bound() {
        let node = from_json(br#"["\u0001\u0001",1]"#, &Ledger::unlimited()).unwrap();
        let text = to_json(&node, 18).unwrap();
        assert_eq!(text.len(), 18);
        assert_eq!(to_json(&node, 17).unwrap_err(), Problem::Full);
        assert_eq!(to_json(&node, 0).unwrap_err(), Problem::Full);
        let long = to_json_pretty(&node, 32, usize::MAX).unwrap().len();
        assert_eq!(to_json_pretty(&node, 32, long).unwrap().len(), long);
        assert_eq!(
            to_json_pretty(&node, 32, long - 1).unwrap_err(),
            Problem::Full
        );
    }
}
