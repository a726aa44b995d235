//! The hook that stops a callback.

use std::sync::OnceLock;
use std::time::Duration;

use mlua::{Lua, ffi, lua_State};

use super::TimeLimit;

/// Has every instruction from now on raise an error. To be called on the machine's own thread; a
/// signal handler may.
pub(super) fn set(machine: *mut lua_State) {
    // SAFETY: the machine is alive while one of its callbacks runs. LuaJIT makes this call safe
    // at any moment of the thread that runs the machine: its own interpreter sets a hook in the
    // handler of SIGINT.
    unsafe { ffi::lua_sethook(machine, Some(raise), ffi::LUA_MASKCOUNT, 1) };
}

/// Lets the machine run again.
pub(super) fn clear(machine: *mut lua_State) {
    // SAFETY: as above.
    unsafe { ffi::lua_sethook(machine, None, 0, 0) };
}

/// Raises an error that begins with the line that runs.
unsafe extern "C-unwind" fn raise(machine: *mut lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: LuaJIT calls its hook with the machine and room for 20 values on its stack. No value
    // with a destructor is in this frame when the error goes through it.
    unsafe {
        ffi::luaL_where(machine, 0);
        ffi::lua_pushstring(machine, MESSAGE.as_ptr());
        ffi::lua_concat(machine, 2);
        ffi::lua_error(machine)
    }
}

/// Whether a hook stops a compiled loop in this build of LuaJIT. Found out once, by a loop that
/// ends by itself after some tenths of a second if it is not.
pub(crate) fn is_able() -> bool {
    static IS_ABLE: OnceLock<bool> = OnceLock::new();
    *IS_ABLE.get_or_init(|| succeeds_once(is_stopped_in_time))
}

/// On a busy machine the loop may end before the watchdog runs, which says nothing of LuaJIT: what
/// was found is for the life of the process.
fn succeeds_once(mut trial: impl FnMut() -> bool) -> bool {
    (0..TRIALS_MAX).any(|_| trial())
}

fn is_stopped_in_time() -> bool {
    let lua = Lua::new();
    TimeLimit::new(&lua).is_ok_and(|time| {
        let ending = time.run(Some(TRIAL), || lua.load(LOOP).exec());
        ending.result.is_err()
    })
}

const MESSAGE: &std::ffi::CStr = c"it took too long and was stopped";

const LOOP: &str = "local n = 0 for i = 1, 3e8 do n = n + i end";

/// After it the loop is stopped; it has been compiled long before.
const TRIAL: Duration = Duration::from_millis(2);

const TRIALS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_ended_too_soon_is_tried_again() {
        let mut trials = 0;
        assert!(succeeds_once(|| {
            trials += 1;
            trials == 3
        }));
        assert!(!succeeds_once(|| false));
    }
}
