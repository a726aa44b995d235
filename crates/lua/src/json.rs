//! `moonwire.json`: JSON text to Lua values and back, without a tree in between.
//!
//! | JSON | Lua |
//! |---|---|
//! | object | table; the last of equal keys wins |
//! | array | table with the metatable of `json.array` |
//! | number | number; integers are exact up to 2^53 |
//! | `null` | `json.null`, in Lua a true value |
//!
//! In the other direction a table whose n keys are exactly 1 to n is an array, an empty one only if
//! `json.array` marked it; every other key must be a string, and keys are written in byte order, so
//! that equal tables give equal text.

mod decode;
mod encode;

use std::cell::Cell;

use mlua::{Lua, LuaString, Table, Value};

use crate::modules::run_prelude;

/// The module.
pub(crate) fn module(lua: &Lua) -> mlua::Result<Table> {
    let array = lua.create_table()?;
    array.raw_set("__metatable", "json.array")?;
    let marked = array.clone();
    let decode = lua.create_function(move |lua, text: LuaString| {
        Ok(match decode::decode(lua, &text.as_bytes(), &marked) {
            Ok(value) => (value, None),
            Err(problem) => (Value::Nil, Some(problem.to_string())),
        })
    })?;
    let marked = array.clone();
    let kept = Cell::new(encode::Buffers::default());
    let encode = lua.create_function(move |lua, value: Value| {
        // Taken, not borrowed: making a string may run a finalizer that encodes in its turn.
        let mut buffers = kept.take();
        let result = match encode::encode(&value, &marked, &mut buffers) {
            Ok(text) => lua.create_string(text).map(|text| (Some(text), None)),
            Err(encode::Failure::Value(problem)) => Ok((None, Some(problem))),
            Err(encode::Failure::Lua(error)) => Err(error),
        };
        kept.set(buffers);
        result
    })?;
    let code = include_str!("prelude/json.lua");
    run_prelude(lua, code, (decode, encode, array, Value::NULL))
}

/// Containers within containers, in both directions. serde_json has the same bound built in.
const DEPTH_MAX: usize = 127;

/// The `metatable` is the one that marks arrays.
fn is_marked(table: &Table, array: &Table) -> bool {
    table
        .metatable()
        .is_some_and(|metatable| metatable == *array)
}
