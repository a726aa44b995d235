//! `find`, `match`, `gmatch` and `gsub` of the library `string`, which LuaJIT cannot interrupt.

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use crate::modules::run_prelude;
use crate::pattern::{self, Capture, Patience};
use crate::watchdog;

/// Has every pattern matched in a bounded number of steps.
pub(crate) fn count_all(lua: &Lua) -> mlua::Result<()> {
    install(lua, &library(lua)?, true)
}

/// Has those matched so that they can be stopped which may take long, and the others by LuaJIT.
pub(crate) fn count_long(lua: &Lua) -> mlua::Result<()> {
    let string = library(lua)?;
    let counted = lua.create_table()?;
    string.for_each(|name: Value, function: Value| counted.raw_set(name, function))?;
    install(lua, &counted, false)?;
    run_prelude(
        lua,
        include_str!("prelude/long_patterns.lua"),
        (string, counted),
    )
}

fn library(lua: &Lua) -> mlua::Result<Table> {
    lua.globals().raw_get("string")
}

/// Puts functions that count their steps into `string`, a table that has the others.
fn install(lua: &Lua, string: &Table, is_short: bool) -> mlua::Result<()> {
    let patience = Patience {
        is_short,
        is_over: watchdog::is_over,
    };
    let search = move |lua: &Lua, (subject, pattern, init, anchors): Search| {
        search(lua, &subject, &pattern, init, anchors, patience)
    };
    let search = lua.create_function(search)?;
    run_prelude(lua, include_str!("prelude/patterns.lua"), (string, search))
}

type Search = (LuaString, LuaString, usize, bool);

/// `search(subject, pattern, init, anchors)`, from 1: nil; nil and a problem; or start, end and
/// captures.
fn search(
    lua: &Lua,
    subject: &LuaString,
    pattern: &LuaString,
    init: usize,
    anchors: bool,
    patience: Patience,
) -> mlua::Result<MultiValue> {
    let subject = subject.as_bytes();
    let init = init.saturating_sub(1);
    let found = match pattern::search(&subject, &pattern.as_bytes(), init, anchors, patience) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(MultiValue::from_iter([Value::Nil])),
        Err(problem) => {
            let problem = Value::String(lua.create_string(problem)?);
            return Ok(MultiValue::from_iter([Value::Nil, problem]));
        }
    };
    let mut values = MultiValue::with_capacity(2 + found.captures.len());
    values.push_back(number(found.start + 1));
    values.push_back(number(found.end));
    for capture in found.captures {
        values.push_back(match capture {
            Capture::Bytes { start, end } => {
                Value::String(lua.create_string(&subject[start..end])?)
            }
            Capture::Position(at) | Capture::Open { start: at } => number(at + 1),
        });
    }
    Ok(values)
}

/// Exact: no string of LuaJIT has 2^53 bytes.
fn number(count: usize) -> Value {
    Value::Number(count as f64)
}
