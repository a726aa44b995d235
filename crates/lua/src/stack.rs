//! The stack of the thread, on which functions of C that call Lua lie within each other.
//!
//! LuaJIT bounds the calls of a coroutine, and with them most of what lies there, but neither the
//! coroutines that resume each other nor `string.gsub`, which has a buffer there. Beyond its end the
//! whole process would be gone, so those ask first.

#![allow(unsafe_code, reason = "where the stack of a thread ends")]

use std::mem;
use std::ptr;

use mlua::Lua;

use crate::modules::run_prelude;

/// What the threads need on which services run.
pub const STACK_BYTES: usize = 32 << 20;

/// What the calls of one coroutine can take besides what asks: format, sort and load, each of which
/// lies there as often as Lua has room for its frames, take 2 to 8 MiB.
const ROOM_BYTES: usize = 12 << 20;

thread_local! {
    static STACK: Stack = Stack::of_this_thread();
}

/// Where the stack of a thread is.
struct Stack {
    low: usize,
    bytes: usize,
}

impl Stack {
    fn of_this_thread() -> Self {
        let (mut low, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the attributes are those of this thread, initialised by the first call and given
        // back; both outputs are there to be written to.
        unsafe {
            let mut attributes: libc::pthread_attr_t = mem::zeroed();
            if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) == 0 {
                libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut bytes);
                libc::pthread_attr_destroy(&raw mut attributes);
            }
        }
        Self {
            low: low as usize,
            bytes,
        }
    }
}

/// Whether there is room for the calls of another coroutine. On a thread of another size, such as
/// that of a test, half of it is enough.
pub(crate) fn has_room() -> bool {
    let here = 0_u8;
    let here = (&raw const here) as usize;
    STACK.with(|stack| here.saturating_sub(stack.low) > ROOM_BYTES.min(stack.bytes / 2))
}

/// Has those functions ask that no bound of LuaJIT holds.
pub(crate) fn guard(lua: &Lua) -> mlua::Result<()> {
    let has_room = lua.create_function(|_, ()| Ok(has_room()))?;
    run_prelude(lua, include_str!("prelude/stack.lua"), has_room)
}
