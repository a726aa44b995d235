//! JSON text to Lua values.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use mlua::{Lua, Table, Value};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Parses `text`, which must be one JSON value. `array` becomes the metatable of arrays.
pub(crate) fn decode(lua: &Lua, text: &[u8], array: &Table) -> serde_json::Result<Value> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let left = Cell::new(TABLES_MAX);
    let left = &left;
    let value = Node { lua, array, left }.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// One value, made in `lua`.
#[derive(Clone, Copy)]
struct Node<'a> {
    lua: &'a Lua,
    array: &'a Table,
    /// Tables that may still be made.
    left: &'a Cell<usize>,
}

impl Node<'_> {
    /// One more table, unless the text has too many.
    fn count_table<E: Error>(self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1);
        let left = left
            .ok_or_else(|| E::custom(format_args!("more than {TABLES_MAX} arrays and objects")))?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        // Rounded beyond 2^53, like every number of Lua.
        Ok(Value::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.lua
            .create_string(value)
            .map(Value::String)
            .map_err(E::custom)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.count_table()?;
        let table = self.lua.create_table().map_err(A::Error::custom)?;
        table
            .set_metatable(Some(self.array.clone()))
            .map_err(A::Error::custom)?;
        let mut index = 1;
        while let Some(item) = items.next_element_seed(self)? {
            table.raw_set(index, item).map_err(A::Error::custom)?;
            index += 1;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        self.count_table()?;
        let table = self
            .lua
            .create_table_with_capacity(0, FIELDS_EXPECTED)
            .map_err(A::Error::custom)?;
        while let Some(key) = fields.next_key_seed(Key)? {
            let value = fields.next_value_seed(self)?;
            table
                .raw_set(key.as_ref(), value)
                .map_err(A::Error::custom)?;
        }
        Ok(Value::Table(table))
    }
}

/// A key, borrowed from the text if it has no escapes.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

/// Arrays and objects of one text. A table takes a hundred times the bytes of the `[]` that
/// asks for it, and all other clients of the worker wait while it is made.
const TABLES_MAX: usize = 131_072;

/// Most objects in messages are small; this saves a table from growing three times.
const FIELDS_EXPECTED: usize = 4;
