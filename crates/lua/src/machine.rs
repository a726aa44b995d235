//! Making a virtual machine.

#![allow(
    unsafe_code,
    reason = "the libraries debug and ffi can break memory safety"
)]

use std::sync::Once;

use mlua::{Lua, LuaOptions, StdLib};
use tracing::warn;

use crate::patterns;
use crate::sandbox;
use crate::source::{Sandbox, ServiceSource};
use crate::stack;
use crate::watchdog;

/// A LuaJIT machine with the libraries that the service may have; without `jit` nothing would be
/// compiled.
pub(crate) fn create(source: &ServiceSource) -> mlua::Result<Lua> {
    match source.sandbox {
        Sandbox::Trusted => trusted(),
        Sandbox::Restricted => {
            // `os` and `jit` lose what is more than a clock and the compiler.
            let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT;
            let libraries = libraries | StdLib::OS | StdLib::JIT;
            let lua = Lua::new_with(libraries, LuaOptions::default())?;
            compile_if_able(&lua)?;
            sandbox::restrict(&lua, source)?;
            stack::guard(&lua)?;
            Ok(lua)
        }
    }
}

fn trusted() -> mlua::Result<Lua> {
    // SAFETY: `debug`, `ffi` and C modules let a script do anything the process can. Services are
    // trusted like native code, as in LAppS: whoever may configure a service may run programs as
    // the server's user. Nothing that a peer sends is ever loaded as code, and the service's own
    // file is loaded as text, never as bytecode.
    let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) };
    lua.load(NO_EXIT).set_name("=moonwire").exec()?;
    compile_if_able(&lua)?;
    patterns::count_long(&lua)?;
    stack::guard(&lua)?;
    Ok(lua)
}

fn compile_if_able(lua: &Lua) -> mlua::Result<()> {
    if !watchdog::is_able() {
        static WARNING: Once = Once::new();
        WARNING.call_once(|| warn!("{NOT_ABLE}"));
        lua.load("jit.off()").exec()?;
    }
    Ok(())
}

const NOT_ABLE: &str = "LuaJIT was built without LUAJIT_ENABLE_CHECKHOOK, so that a compiled loop \
    could not be stopped: services run without the compiler, several times slower; build it in the \
    folder of its sources, whose .cargo/config.toml sets it";

/// It would end the process under all other services and connections, without a word.
const NO_EXIT: &str = "function os.exit()
    error('os.exit would end the whole server; return from the callback, or use error', 2)
end";
