//! What a restricted service is kept from.
//!
//! It is left with what can only compute: no files, no programs, no native code, no bytecode, and
//! nothing that runs for long where the machine cannot be interrupted.

use std::fs;
use std::path::Path;

use mlua::{Lua, LuaString};

use crate::modules::{loaded, run_prelude};
use crate::patterns;
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
    patterns::count_all(lua)
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
