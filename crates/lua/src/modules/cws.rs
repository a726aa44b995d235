//! `cws`: connections to other servers. The time that it waits does not count for the callback.

use std::cell::{RefCell, RefMut};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mlua::{Lua, LuaString, Table, Value};
use moonwire_proto::Opcode;
use tracing::error;

use crate::client::{Client, ClientEvent, Connector};
use crate::error::{self, Place};
use crate::live::Handler;
use crate::modules::run_prelude;
use crate::source::{LoadOptions, ServiceSource};
use crate::watchdog;

/// The connections of one instance. Borrowed only where no callback of the service can run. The
/// garbage collector can, and leaves the sockets that it finds in `abandoned`.
struct Connections {
    connector: Option<Arc<dyn Connector>>,
    /// Made for the first connection.
    client: Option<Box<dyn Client>>,
    abandoned: Abandoned,
    /// The callbacks of each connection that has not ended, by handler.
    callbacks: Table,
}

/// Connections whose sockets were collected. They are closed with the next call.
type Abandoned = Rc<RefCell<Vec<Handler>>>;

type Shared = Rc<RefCell<Connections>>;

/// A connection as a script holds it.
struct Socket {
    handler: Handler,
    abandoned: Abandoned,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.abandoned.borrow_mut().push(self.handler);
    }
}

/// The module.
pub(crate) fn module(
    lua: &Lua,
    source: &ServiceSource,
    options: &LoadOptions,
) -> mlua::Result<Table> {
    let callbacks = lua.create_table()?;
    let shared = Rc::new(RefCell::new(Connections {
        connector: options.connector.clone(),
        client: None,
        abandoned: Abandoned::default(),
        callbacks: callbacks.clone(),
    }));
    let host = lua.create_table()?;
    host.raw_set("events_max", EVENTS_PER_LOOP_MAX)?;
    connecting(lua, &host, &shared)?;
    sending(lua, &host, &shared)?;
    turning(lua, &host, &shared)?;
    failing(lua, &host, source, options)?;
    let code = include_str!("../prelude/cws.lua");
    let (module, methods): (Table, Table) = run_prelude(lua, code, (host, callbacks))?;
    lua.register_userdata_type::<Socket>(|registry| {
        use mlua::UserDataFields;
        registry.add_meta_field("__index", methods);
    })?;
    // As in `nljson`: its metatable is made while there is memory. Nobody has this handler.
    let abandoned = Abandoned::default();
    drop(lua.create_any_userdata(Socket {
        handler: Handler::MAX,
        abandoned,
    })?);
    Ok(module)
}

/// Refused to finalizers of the service that run while a message becomes a string.
fn lend(shared: &Shared) -> mlua::Result<RefMut<'_, Connections>> {
    let refused = |_| mlua::Error::runtime("cws cannot be used while garbage is collected");
    shared.try_borrow_mut().map_err(refused)
}

fn connecting(lua: &Lua, host: &Table, shared: &Shared) -> mlua::Result<()> {
    let connections = Rc::clone(shared);
    let connect = move |lua: &Lua, (url, callbacks): (LuaString, Table)| {
        let connections = &mut *lend(&connections)?;
        connections.close_abandoned()?;
        let handler = match connections.connect(&url.to_string_lossy()) {
            Ok(handler) => handler,
            Err(problem) => return Ok((None, Some(problem))),
        };
        // From here on a failure closes the connection: it drops this.
        let socket = Socket {
            handler,
            abandoned: Rc::clone(&connections.abandoned),
        };
        let known = &connections.callbacks;
        known.raw_set(handler.to_number(), callbacks)?;
        Ok((Some(lua.create_any_userdata(socket)?), None))
    };
    host.raw_set("connect", lua.create_function(connect)?)?;
    let connections = Rc::clone(shared);
    let close = move |_: &Lua, socket: Value| {
        let handler = socket
            .as_userdata()
            .and_then(|data| data.borrow::<Socket>().ok())
            .map(|socket| socket.handler);
        if let Some(handler) = handler {
            lend(&connections)?.close(handler)?;
        }
        Ok(handler.is_some())
    };
    host.raw_set("close", lua.create_function(close)?)
}

fn sending(lua: &Lua, host: &Table, shared: &Shared) -> mlua::Result<()> {
    let connections = Rc::clone(shared);
    let send = move |_: &Lua, (handler, opcode, data): (f64, u8, LuaString)| {
        let sent = lend(&connections)?.send(handler, opcode, &data.as_bytes());
        Ok(sent.err())
    };
    host.raw_set("send", lua.create_function(send)?)
}

fn turning(lua: &Lua, host: &Table, shared: &Shared) -> mlua::Result<()> {
    let connections = Rc::clone(shared);
    let begin = move |_: &Lua, ()| {
        let connections = &mut *lend(&connections)?;
        connections.close_abandoned()?;
        match &mut connections.client {
            Some(client) => watchdog::outside(|| client.begin(LOOP_WAIT_MAX)),
            None => watchdog::outside(|| thread::sleep(LOOP_WAIT_MAX)),
        }
        Ok(())
    };
    host.raw_set("begin", lua.create_function(begin)?)?;
    let connections = Rc::clone(shared);
    let next = move |lua: &Lua, ()| lend(&connections)?.next(lua);
    host.raw_set("next", lua.create_function(next)?)?;
    let connections = Rc::clone(shared);
    let finish = move |_: &Lua, ()| {
        if let Some(client) = &mut lend(&connections)?.client {
            client.end();
        }
        Ok(())
    };
    host.raw_set("finish", lua.create_function(finish)?)
}

/// Logs an error that a callback has raised, like one of the service's own callbacks.
fn failing(
    lua: &Lua,
    host: &Table,
    source: &ServiceSource,
    options: &LoadOptions,
) -> mlua::Result<()> {
    let place = Place {
        service: source.name.clone(),
        file: source.file(),
        line: None,
    };
    let memory_bytes_max = options.memory_bytes_max;
    let failed = move |lua: &Lua, (name, handler, text): (LuaString, f64, LuaString)| {
        let text = text.to_string_lossy();
        let is_full = text == OUT_OF_MEMORY;
        let cause = match is_full {
            true => mlua::Error::MemoryError(text),
            false => mlua::Error::RuntimeError(text),
        };
        let callback = CALLBACKS.into_iter().find(|known| name == *known);
        let callback = callback.unwrap_or_default();
        let failure = error::raised(&cause, place.clone(), callback, memory_bytes_max);
        error!(handler = handler as u64, "{}", failure.log_lines());
        if is_full {
            // Until this is done every further allocation fails.
            lua.gc_collect()?;
        }
        Ok(())
    };
    host.raw_set("failed", lua.create_function(failed)?)
}

/// What the prelude calls: the name of a callback and its arguments.
type Call = (
    Option<&'static str>,
    Option<f64>,
    Option<LuaString>,
    Option<u8>,
);

impl Connections {
    fn connect(&mut self, url: &str) -> Result<Handler, String> {
        let client = match &mut self.client {
            Some(client) => client,
            None => {
                let connector = self.connector.clone();
                let connector = connector.ok_or("no connections can be made here")?;
                self.client.insert(connector.client()?)
            }
        };
        watchdog::outside(|| client.connect(url))
    }

    fn send(&mut self, handler: f64, opcode: u8, data: &[u8]) -> Result<(), String> {
        let handler = Handler::from_number(handler);
        let (Some(client), Some(handler)) = (&mut self.client, handler) else {
            return Err(NOT_LIVE.to_owned());
        };
        let opcode = Opcode::from_u8(opcode).ok_or("opcode must be 1 (text) or 2 (binary)")?;
        // A peer must fail the connection on text that is not UTF-8 (RFC 6455, 8.1).
        if opcode == Opcode::Text && simdutf8::basic::from_utf8(data).is_err() {
            return Err("data of a text message must be UTF-8, send it with opcode 2".to_owned());
        }
        client.send(handler, opcode, data)
    }

    fn close(&mut self, handler: Handler) -> mlua::Result<()> {
        if let Some(client) = &mut self.client {
            client.close(handler);
        }
        self.callbacks.raw_set(handler.to_number(), Value::Nil)
    }

    fn close_abandoned(&mut self) -> mlua::Result<()> {
        let abandoned = mem::take(&mut *self.abandoned.borrow_mut());
        abandoned
            .into_iter()
            .try_for_each(|handler| self.close(handler))
    }

    /// The next thing that happened, as a call of a callback.
    fn next(&mut self, lua: &Lua) -> mlua::Result<Call> {
        let Some(client) = &mut self.client else {
            return Ok((None, None, None, None));
        };
        let mut told = None;
        client.next(&mut |handler, event| told = Some((handler, arguments(lua, event))));
        let Some((handler, call)) = told else {
            return Ok((None, None, None, None));
        };
        let (name, data, opcode) = match call {
            Ok(call) => call,
            // The message that does not fit ends its connection and nothing else.
            Err(mlua::Error::MemoryError(_)) => {
                client.close(handler);
                let reason = "a message does not fit into the memory of the service";
                ("onerror", Some(lua.create_string(reason)?), None)
            }
            Err(error) => return Err(error),
        };
        Ok((Some(name), Some(handler.to_number()), data, opcode))
    }
}

fn arguments(
    lua: &Lua,
    event: ClientEvent<'_>,
) -> mlua::Result<(&'static str, Option<LuaString>, Option<u8>)> {
    match event {
        ClientEvent::Opened => Ok(("onopen", None, None)),
        ClientEvent::Message { opcode, payload } => {
            let data = string(lua, payload)?;
            Ok(("onmessage", Some(data), Some(opcode.as_u8())))
        }
        ClientEvent::Closed { payload } if payload.is_empty() => Ok(("onclose", None, None)),
        ClientEvent::Closed { payload } => Ok(("onclose", Some(string(lua, &payload)?), None)),
        ClientEvent::Failed { reason } => {
            Ok(("onerror", Some(string(lua, reason.as_bytes())?), None))
        }
    }
}

/// A string in the machine, if need be once its garbage is gone.
fn string(lua: &Lua, bytes: &[u8]) -> mlua::Result<LuaString> {
    lua.create_string(bytes).or_else(|_| {
        lua.gc_collect()?;
        lua.create_string(bytes)
    })
}

/// What a service may react to.
const CALLBACKS: [&str; 4] = ["onopen", "onmessage", "onerror", "onclose"];

/// How long one call of `cws:eventLoop` waits for something to happen, and how many callbacks it
/// runs: as much as LAppS takes at once. The rest is for the next call.
const LOOP_WAIT_MAX: Duration = Duration::from_millis(1);
const EVENTS_PER_LOOP_MAX: usize = 2048;

const NOT_LIVE: &str = "no live connection has this handler";

/// What LuaJIT raises then, without a place.
const OUT_OF_MEMORY: &str = "not enough memory";
