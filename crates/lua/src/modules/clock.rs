//! `moonwire.time`: the wall clock and a monotonic one; `time`: the wall clock as LAppS has it.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mlua::{Lua, Table};

/// The module. Lua's numbers are exact up to 2^53: that is the year 2255 in microseconds since the
/// epoch and 104 days in nanoseconds since the start, but `wall_ns` is rounded to 256 ns.
pub(crate) fn module(lua: &Lua) -> mlua::Result<Table> {
    // Before any service runs, so that monotonic_ns counts from the start on every thread.
    start();
    let time = lua.create_table_with_capacity(0, 4)?;
    time.raw_set(
        "wall_ns",
        lua.create_function(|_, ()| Ok(number(wall().as_nanos())))?,
    )?;
    time.raw_set(
        "wall_us",
        lua.create_function(|_, ()| Ok(number(wall().as_micros())))?,
    )?;
    time.raw_set(
        "wall_ms",
        lua.create_function(|_, ()| Ok(number(wall().as_millis())))?,
    )?;
    let monotonic = |_: &Lua, ()| Ok(number(start().elapsed().as_nanos()));
    time.raw_set("monotonic_ns", lua.create_function(monotonic)?)?;
    Ok(time)
}

/// `time`, which knows milliseconds since the epoch.
pub(crate) fn lapps_module(lua: &Lua) -> mlua::Result<Table> {
    let time = lua.create_table_with_capacity(0, 1)?;
    let now = lua.create_function(|_, ()| Ok(number(wall().as_millis())))?;
    time.raw_set("now", now)?;
    Ok(time)
}

/// Time since the epoch; zero on a machine whose clock is before 1970.
fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// When the process loaded its first service.
fn start() -> &'static Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now)
}

fn number(count: u128) -> f64 {
    count as f64
}
