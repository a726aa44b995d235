//! `nap`: sleep. The thread of the instance sleeps, and everybody whom it serves waits; the time
//! does not count for the callback. The order to stop ends it.

use std::thread;
use std::time::{Duration, Instant};

use mlua::{Lua, Table};

use crate::broker::StopFlag;
use crate::modules::run_prelude;
use crate::watchdog;

/// The module.
pub(crate) fn module(lua: &Lua, stop: &StopFlag) -> mlua::Result<Table> {
    let stop = stop.clone();
    let sleep = lua.create_function(move |_, nanoseconds: f64| {
        // A number of Lua can be larger than any duration, and NaN.
        let whole = Duration::try_from_secs_f64(nanoseconds / 1e9).unwrap_or_default();
        watchdog::outside(|| sleep(whole, &stop));
        Ok(())
    })?;
    run_prelude(lua, include_str!("../prelude/nap.lua"), sleep)
}

/// Sleeps for so long, or until it is to stop.
fn sleep(whole: Duration, stop: &StopFlag) {
    let began = Instant::now();
    loop {
        let left = whole.saturating_sub(began.elapsed());
        thread::sleep(left.min(LOOK_EVERY));
        if left <= LOOK_EVERY || stop.is_set() {
            return;
        }
    }
}

/// How often one that sleeps looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
