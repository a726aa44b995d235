//! `nap`: sleep. The thread of the instance sleeps, and everybody whom it serves waits.

use std::thread;
use std::time::Duration;

use mlua::{Lua, Table};

use crate::modules::run_prelude;

/// The module.
pub(crate) fn module(lua: &Lua) -> mlua::Result<Table> {
    let sleep = lua.create_function(|_, nanoseconds: f64| {
        // A number of Lua can be larger than any duration, and NaN.
        thread::sleep(Duration::try_from_secs_f64(nanoseconds / 1e9).unwrap_or_default());
        Ok(())
    })?;
    run_prelude(lua, include_str!("../prelude/nap.lua"), sleep)
}
