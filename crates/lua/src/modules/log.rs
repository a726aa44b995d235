//! `print` and `moonwire.log`.

use std::io::{self, Write};

use mlua::{Function, Lua, LuaString, Table};

use crate::line::log_line;
use crate::modules::run_prelude;

/// `print`, to the standard output as in LAppS. Lua's own goes through the buffer of C, which
/// keeps lines back when the output is a file and mixes them with ours.
pub(crate) fn print(lua: &Lua) -> mlua::Result<Function> {
    let write = lua.create_function(|_, line: LuaString| {
        let mut out = io::stdout().lock();
        // Nobody reads the output any more: that is no reason to fail a service.
        let _ = out
            .write_all(&line.as_bytes())
            .and_then(|()| out.write_all(b"\n"));
        Ok(())
    })?;
    run_prelude(lua, include_str!("../prelude/print.lua"), write)
}

/// `info`, `warn` and `error`, to the server's log under the service's name.
pub(crate) fn module(lua: &Lua, service: &str) -> mlua::Result<Table> {
    let log = lua.create_table_with_capacity(0, 3)?;
    let name = service.to_owned();
    let info = move |_: &Lua, text: LuaString| {
        tracing::info!(service = name, "{}", log_line(&text.to_string_lossy()));
        Ok(())
    };
    log.raw_set("info", lua.create_function(info)?)?;
    let name = service.to_owned();
    let warn = move |_: &Lua, text: LuaString| {
        tracing::warn!(service = name, "{}", log_line(&text.to_string_lossy()));
        Ok(())
    };
    log.raw_set("warn", lua.create_function(warn)?)?;
    let name = service.to_owned();
    let error = move |_: &Lua, text: LuaString| {
        tracing::error!(service = name, "{}", log_line(&text.to_string_lossy()));
        Ok(())
    };
    log.raw_set("error", lua.create_function(error)?)?;
    Ok(log)
}
