//! The stack of the thread, on which functions of C that call Lua lie within each other.
//!
//! LuaJIT bounds the calls of a coroutine, and with them most of what lies there, but neither the
//! coroutines that resume each other nor `string.gsub`, which has a buffer there, nor `load`, whose
//! reader may be called within many brackets. Beyond its end the whole process would be gone, so
//! those ask first.

#![allow(unsafe_code, reason = "where the stack of a thread ends")]

use std::mem;
use std::ptr;

use mlua::Lua;

use crate::modules::run_prelude;

/// What the threads need on which services run.
pub const STACK_BYTES: usize = 32 << 20;

/// How much of it may be taken where a function goes on that asks: that is some 200 calls of
/// `gsub`. The rest is for what does not ask, as format and sort, each of which lies there as often
/// as one coroutine has room for its frames.
const CALLS_BYTES: usize = 2 << 20;

/// The same for coroutines, of which it is some thousands. Each may put its line in front of an
/// error that goes through it, and all these texts together grow with the square of their number.
const COROUTINES_BYTES: usize = 512 << 10;

thread_local! {
    static STACK: Stack = Stack::of_this_thread();
}

/// Where the stack of a thread is.
struct Stack {
    top: usize,
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
            top: low as usize + bytes,
            bytes,
        }
    }
}

/// Whether less than that is taken. On a thread of another size, such as that of a test, it is a
/// quarter at most.
fn has_room(bytes_max: usize) -> bool {
    let here = 0_u8;
    let here = (&raw const here) as usize;
    STACK.with(|stack| stack.top.saturating_sub(here) < bytes_max.min(stack.bytes / 4))
}

/// Has those functions ask that no bound of LuaJIT holds.
pub(crate) fn guard(lua: &Lua) -> mlua::Result<()> {
    let may_call = lua.create_function(|_, ()| Ok(has_room(CALLS_BYTES)))?;
    let may_resume = lua.create_function(|_, ()| Ok(has_room(COROUTINES_BYTES)))?;
    let code = include_str!("prelude/stack.lua");
    run_prelude(lua, code, (may_call, may_resume))
}
