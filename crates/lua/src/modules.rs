//! What a service finds in its virtual machine: the modules of LAppS and those of `moonwire.*`.

pub(crate) mod bcast;
mod clock;
mod config;
mod connection;
mod cws;
mod log;
mod mqr;
mod murmur;
mod nap;
pub(crate) mod nljson;
pub(crate) mod pam_auth;
mod ws;

use mlua::{Lua, Table};

use crate::error::PRELUDE;
use crate::instance::SharedTurn;
use crate::json;
use crate::modules::bcast::{Broadcasts, Outlet};
use crate::modules::mqr::AtBound;
use crate::modules::nljson::Documents;
use crate::source::{LoadOptions, Module, Protocol, Sandbox, ServiceSource};

pub(crate) use ws::CLOSE_REASON_BYTES_MAX;

/// What a service is there for, and with it which modules it finds.
pub(crate) enum Role {
    /// It answers messages: it has `ws`, and `bcast` if its protocol is that of LAppS.
    Reactive { turn: SharedTurn },
    /// It runs for itself: it has `bcast`, `must_stop` and `instance_id`.
    Standalone {
        number: u64,
        broadcasts: Box<dyn Broadcasts>,
    },
}

/// Puts everything of ours in place, before the service's file runs.
pub(crate) fn install(
    lua: &Lua,
    source: &ServiceSource,
    options: &LoadOptions,
    role: Role,
    documents: &Documents,
) -> mlua::Result<()> {
    let globals = lua.globals();
    let at_bound = match &role {
        Role::Reactive { .. } => AtBound::Refuse,
        Role::Standalone { .. } => AtBound::Wait,
    };
    for module in &source.preload {
        let table = match module {
            Module::Cws => cws::module(lua, source, options)?,
            Module::Mqr => mqr::module(lua, &options.broker, &options.stop, documents, at_bound)?,
            Module::Murmur => murmur::module(lua)?,
            Module::Nap => nap::module(lua, &options.stop)?,
            Module::PamAuth => pam_auth::module(lua)?,
            Module::Time => clock::lapps_module(lua)?,
        };
        globals.raw_set(module.name(), table)?;
    }
    install_role(lua, source, options, role)?;
    globals.raw_set("nljson", nljson::module(lua, documents)?)?;
    globals.raw_set("print", log::print(lua)?)?;
    provide(lua, "moonwire.json", &json::module(lua)?)?;
    provide(lua, "moonwire.time", &clock::module(lua)?)?;
    provide(lua, "moonwire.log", &log::module(lua, &source.name)?)?;
    provide(lua, "moonwire.config", &config::table(lua, &source.config)?)?;
    match source.sandbox {
        Sandbox::Trusted => {
            let package: Table = lua.globals().raw_get("package")?;
            package.raw_set(
                "path",
                package_path(source, &package.raw_get::<String>("path")?),
            )
        }
        Sandbox::Restricted => Ok(()),
    }
}

fn install_role(
    lua: &Lua,
    source: &ServiceSource,
    options: &LoadOptions,
    role: Role,
) -> mlua::Result<()> {
    let globals = lua.globals();
    let outlet = match role {
        Role::Reactive { turn } => {
            globals.raw_set("ws", ws::table(lua, &turn)?)?;
            let connection = connection::module(lua, &turn, options.round_trips.clone())?;
            provide(lua, "moonwire.connection", &connection)?;
            if source.protocol == Protocol::Raw {
                return Ok(());
            }
            Outlet::Turn(turn)
        }
        Role::Standalone { number, broadcasts } => {
            globals.raw_set("instance_id", number.to_string())?;
            let stop = options.stop.clone();
            let must_stop = lua.create_function(move |_, ()| Ok(stop.is_set()))?;
            globals.raw_set("must_stop", must_stop)?;
            Outlet::Now(broadcasts)
        }
    };
    globals.raw_set("bcast", bcast::table(lua, &options.broker, outlet)?)
}

/// Whether a service of this name would overwrite a global or a module of a fresh machine, or be
/// overwritten by one.
pub(crate) fn is_taken(lua: &Lua, name: &str) -> mlua::Result<bool> {
    let mut is_taken = name == "moonwire" || lua.globals().contains_key(name)?;
    for modules in [LOADED, PRELOADED] {
        let modules: Table = lua.named_registry_value(modules)?;
        is_taken |= modules.contains_key(name)?;
    }
    Ok(is_taken)
}

/// Makes `require(name)` give `module`.
pub(crate) fn provide(lua: &Lua, name: &str, module: &Table) -> mlua::Result<()> {
    loaded(lua)?.raw_set(name, module)
}

/// The modules that `require` gives without looking for a file: `package.loaded`, where there is a
/// `package`.
pub(crate) fn loaded(lua: &Lua) -> mlua::Result<Table> {
    lua.named_registry_value(LOADED)
}

/// Runs Lua code of ours with `arguments` and returns what it returns.
pub(crate) fn run_prelude<R: mlua::FromLuaMulti>(
    lua: &Lua,
    code: &str,
    arguments: impl mlua::IntoLuaMulti,
) -> mlua::Result<R> {
    lua.load(code)
        .set_name(format!("={PRELUDE}"))
        .call(arguments)
}

/// The service's folder before everything else, as in LAppS.
fn package_path(source: &ServiceSource, inherited: &str) -> String {
    let folder = source.folder.display();
    format!("{folder}/?.lua;{folder}/?/init.lua;{inherited}")
}

/// Where Lua keeps `package.loaded`.
const LOADED: &str = "_LOADED";

/// Where Lua keeps `package.preload`.
const PRELOADED: &str = "_PRELOAD";
