//! A virtual machine with a service's file in it: what reactive and standalone services have in
//! common.

use std::fs;
use std::time::Duration;

use mlua::chunk::ChunkMode;
use mlua::{Lua, LuaString, Table, Value};

use crate::error::{self, LOADING, Place, ScriptError};
use crate::machine;
use crate::modules::nljson::Documents;
use crate::modules::{self, Role};
use crate::source::{LoadOptions, ServiceSource};
use crate::watchdog::{Ending, TimeLimit};

pub(crate) struct Loaded {
    pub(crate) lua: Lua,
    pub(crate) documents: Documents,
    /// The service's file, without a line: where errors are, unless they say more.
    pub(crate) place: Place,
    memory_bytes_max: Option<usize>,
    time: TimeLimit,
    callback_timeout: Option<Duration>,
}

impl Loaded {
    /// Makes a machine for this role and puts nothing of the service in it yet.
    pub(crate) fn prepare(
        source: &ServiceSource,
        options: &LoadOptions,
        role: Role,
    ) -> Result<Self, ScriptError> {
        source.check()?;
        let place = Place {
            service: source.name.clone(),
            file: source.file(),
            line: None,
        };
        let failed = |error: mlua::Error| machine_failed(source, &error);
        let lua = machine::create(source).map_err(failed)?;
        let documents = Documents::new(options.memory_bytes_max);
        modules::install(&lua, source, options, role, &documents).map_err(failed)?;
        let time = TimeLimit::new(&lua).map_err(failed)?;
        if modules::is_taken(&lua, &source.name).map_err(failed)? {
            return Err(source.name_taken());
        }
        Ok(Self {
            lua,
            documents,
            place,
            memory_bytes_max: options.memory_bytes_max,
            time,
            callback_timeout: options.callback_timeout,
        })
    }

    /// Runs a callback of the service, for as long as it may take.
    pub(crate) fn call<R>(
        &self,
        callback: &'static str,
        call: impl FnOnce() -> mlua::Result<R>,
    ) -> Result<R, ScriptError> {
        let Ending { result, late } = self.time.run(self.callback_timeout, call);
        result.map_err(|error| {
            let error = self.failed(&error, callback);
            match (self.callback_timeout, late) {
                (Some(timeout), Some(late)) => error.overran(timeout, late),
                (Some(_) | None, Some(_) | None) => error,
            }
        })
    }

    /// Runs the service's file, whose value must be a table with these functions.
    pub(crate) fn run_file(&self, callbacks: &[&'static str]) -> Result<(), ScriptError> {
        let code = fs::read(&self.place.file).map_err(|error| ScriptError::Unreadable {
            at: Box::new(self.place.clone()),
            error,
        })?;
        if let Some(bytes) = self.memory_bytes_max {
            let limited = self.lua.set_memory_limit(bytes);
            limited.map_err(|error| self.failed(&error, LOADING))?;
        }
        let name = format!("@{}", self.place.file.display());
        let chunk = self
            .lua
            .load(&code)
            .set_name(name)
            .set_mode(ChunkMode::Text);
        let function = chunk.into_function().map_err(|error| {
            if let mlua::Error::SyntaxError { message, .. } = &error {
                error::syntax(message, &self.place.file, &self.place.service)
            } else {
                self.failed(&error, LOADING)
            }
        })?;
        let value = self.call(LOADING, || function.call::<Value>(()))?;
        let Value::Table(service) = value else {
            return Err(ScriptError::NotATable {
                at: Box::new(self.place.clone()),
                found: error::lua_type(&value),
            });
        };
        self.check_callbacks(&service, callbacks)?;
        let adopted = self.lua.globals().raw_set(self.name(), &service);
        adopted
            .and_then(|()| modules::provide(&self.lua, self.name(), &service))
            .map_err(|error| self.failed(&error, LOADING))
    }

    fn check_callbacks(
        &self,
        service: &Table,
        callbacks: &[&'static str],
    ) -> Result<(), ScriptError> {
        for &callback in callbacks {
            // With metamethods: a service may inherit its callbacks.
            let found = self.call(LOADING, || service.get::<Value>(callback))?;
            if !found.is_function() {
                let (at, found) = (Box::new(self.place.clone()), error::lua_type(&found));
                return Err(ScriptError::NoCallback {
                    at,
                    callback,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Whether the service has this function, which it need not have. One that it inherits counts,
    /// too; a table that raises an error for what it does not have does not have it.
    pub(crate) fn has_callback(&self, callback: &'static str) -> Result<bool, ScriptError> {
        let failed = |error| self.failed(&error, LOADING);
        let globals = self.lua.globals();
        let service: Table = globals.raw_get(self.name()).map_err(failed)?;
        let own: Value = service.raw_get(callback).map_err(failed)?;
        if own.is_nil() {
            return match self.call(LOADING, || service.get::<Value>(callback)) {
                Ok(found) if found.is_nil() => Ok(false),
                Ok(found) => self.check_function(callback, &found),
                Err(ScriptError::Raised { .. }) => Ok(false),
                Err(error) => Err(error),
            };
        }
        self.check_function(callback, &own)
    }

    fn check_function(&self, callback: &'static str, found: &Value) -> Result<bool, ScriptError> {
        if found.is_function() {
            return Ok(true);
        }
        Err(ScriptError::NoCallback {
            at: Box::new(self.place.clone()),
            callback,
            found: error::lua_type(found),
        })
    }

    /// The service's name.
    pub(crate) fn name(&self) -> &str {
        &self.place.service
    }

    /// Bytes that the machine and its documents hold now, garbage included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lua.used_memory() + self.documents.bytes()
    }

    /// A string in the machine. LuaJIT does not collect garbage when memory runs out, so a full
    /// machine gets one collection and one more try.
    pub(crate) fn string(&self, bytes: &[u8]) -> mlua::Result<LuaString> {
        self.lua.create_string(bytes).or_else(|_| {
            self.lua.gc_collect()?;
            self.lua.create_string(bytes)
        })
    }

    /// The failure of a callback as ours.
    pub(crate) fn failed(&self, error: &mlua::Error, callback: &'static str) -> ScriptError {
        let error = error::raised(error, self.place.clone(), callback, self.memory_bytes_max);
        if matches!(error, ScriptError::OutOfMemory { .. }) {
            // Until this is done every further allocation fails; if it fails too, so will the next
            // callback, which reports it.
            let _ = self.lua.gc_collect();
        }
        error
    }

    /// The machine could not be set up.
    pub(crate) fn unprepared(&self, error: &mlua::Error) -> ScriptError {
        ScriptError::Machine {
            service: self.name().to_owned(),
            message: error.to_string(),
        }
    }
}

fn machine_failed(source: &ServiceSource, error: &mlua::Error) -> ScriptError {
    ScriptError::Machine {
        service: source.name.clone(),
        message: error.to_string(),
    }
}
