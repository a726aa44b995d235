//! JSON as the CBOR of the LAppS protocol, and back.

use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use serde_json::{Map, Value};

pub(crate) fn encode(value: &Value) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    write(value, &mut encoder);
    encoder.into_writer()
}

fn write(value: &Value, to: &mut Encoder<Vec<u8>>) {
    match value {
        Value::Null => to.null().unwrap(),
        Value::Bool(flag) => to.bool(*flag).unwrap(),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), _, _) => to.u64(number).unwrap(),
            (None, Some(number), _) => to.i64(number).unwrap(),
            (None, None, number) => to.f64(number.unwrap()).unwrap(),
        },
        Value::String(text) => to.str(text).unwrap(),
        Value::Array(items) => {
            to.array(items.len() as u64).unwrap();
            items.iter().for_each(|item| write(item, to));
            to
        }
        Value::Object(members) => {
            to.map(members.len() as u64).unwrap();
            for (key, value) in members {
                to.str(key).unwrap();
                write(value, to);
            }
            to
        }
    };
}

/// Reads what a server writes; any other form fails the test.
pub(crate) fn decode(bytes: &[u8]) -> Value {
    let mut decoder = Decoder::new(bytes);
    let value = read(&mut decoder);
    assert_eq!(decoder.position(), bytes.len(), "{bytes:x?}");
    value
}

fn read(from: &mut Decoder<'_>) -> Value {
    let kind = from.datatype().unwrap();
    if [Type::U8, Type::U16, Type::U32, Type::U64].contains(&kind) {
        return from.u64().unwrap().into();
    }
    if [Type::I8, Type::I16, Type::I32, Type::I64].contains(&kind) {
        return from.i64().unwrap().into();
    }
    if kind == Type::F64 {
        return from.f64().unwrap().into();
    }
    if kind == Type::String {
        return from.str().unwrap().into();
    }
    if kind == Type::Bool {
        return from.bool().unwrap().into();
    }
    if kind == Type::Array {
        let count = from.array().unwrap().expect("a length");
        return (0..count).map(|_| read(from)).collect();
    }
    if kind == Type::Map {
        let count = from.map().unwrap().expect("a length");
        let member = |_| (from.str().unwrap().to_owned(), read(from));
        return (0..count).map(member).collect::<Map<_, _>>().into();
    }
    from.null().unwrap();
    Value::Null
}
