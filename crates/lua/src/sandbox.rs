//! What a restricted service is kept from.
//!
//! It is left with what can only compute: no files, no programs, no native code, no bytecode, and
//! nothing that runs for long where the machine cannot be interrupted.

use std::fs;
use std::path::Path;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use crate::modules::{loaded, run_prelude};
use crate::pattern::{self, Capture};
use crate::source::ServiceSource;

/// Takes from a machine without dangerous libraries what these would leave. To be called before
/// anything of ours is in it.
pub(crate) fn restrict(lua: &Lua, source: &ServiceSource) -> mlua::Result<()> {
    let folder = source.folder.clone();
    let find = lua.create_function(move |lua, name: LuaString| {
        let name = name.to_string_lossy();
        Ok(match read_module(&folder, &name) {
            Ok((code, place)) => (Some(lua.create_string(code)?), place),
            Err(problem) => (None, problem),
        })
    })?;
    let arguments = (loaded(lua)?, find);
    run_prelude::<()>(lua, include_str!("prelude/restricted.lua"), arguments)?;
    let string: Table = lua.globals().raw_get("string")?;
    let search = lua.create_function(search)?;
    run_prelude(lua, include_str!("prelude/patterns.lua"), (string, search))
}

/// The text of a module in the service's folder, and its file.
fn read_module(folder: &Path, name: &str) -> Result<(Vec<u8>, String), String> {
    let is_plain = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !name.split('.').all(is_plain) {
        return Err("the name must be words of letters, digits and '_' with '.' between".into());
    }
    let stem = folder.join(name.replace('.', "/"));
    let places = [stem.with_extension("lua"), stem.join("init.lua")];
    let Some(place) = places.iter().find(|place| place.is_file()) else {
        let [file, init] = places.map(|place| place.display().to_string());
        return Err(format!("there is neither {file} nor {init}"));
    };
    // Who writes to the folder chooses what the service is; a link only must not show what is
    // elsewhere.
    let inside = folder.canonicalize().and_then(|folder| {
        let file = place.canonicalize()?;
        Ok(file.starts_with(folder).then_some(file))
    });
    let shown = place.display().to_string();
    match inside.and_then(|file| file.map(fs::read).transpose()) {
        Ok(Some(code)) => Ok((code, shown)),
        Ok(None) => Err(format!("{shown} is a link out of the service's folder")),
        Err(error) => Err(format!("{shown} cannot be read: {error}")),
    }
}

/// `search(subject, pattern, init, anchors)`, from 1: nil; nil and a problem; or start, end and
/// captures.
fn search(
    lua: &Lua,
    (subject, pattern, init, anchors): (LuaString, LuaString, usize, bool),
) -> mlua::Result<MultiValue> {
    let subject = subject.as_bytes();
    let init = init.saturating_sub(1);
    let found = match pattern::search(&subject, &pattern.as_bytes(), init, anchors) {
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
