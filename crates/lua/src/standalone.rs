//! A service that serves no connections: it runs on a thread of its own until it has to stop.

use mlua::{Function, Table};

use crate::error::{LOADING, ScriptError};
use crate::loaded::Loaded;
use crate::modules::Role;
use crate::modules::bcast::Broadcasts;
use crate::source::{LoadOptions, ServiceSource};

/// One instance of a standalone service. It stays on the thread that loaded it.
pub struct Standalone {
    loaded: Loaded,
}

impl Standalone {
    /// Makes a virtual machine and runs the service's file in it. The file's value must be a table
    /// with the functions `init` and `run`; neither runs yet. `number` tells this instance from all
    /// others of the server; its decimal digits are the global `instance_id`.
    pub fn load(
        source: &ServiceSource,
        options: &LoadOptions,
        number: u64,
        broadcasts: Box<dyn Broadcasts>,
    ) -> Result<Self, ScriptError> {
        let role = Role::Standalone { number, broadcasts };
        let loaded = Loaded::prepare(source, options, role)?;
        loaded.run_file(&["init", "run"])?;
        Ok(Self { loaded })
    }

    /// Runs `init`, for as long as a callback may take. To be called once, first.
    pub fn init(&mut self) -> Result<(), ScriptError> {
        let init = self.callback("init")?;
        self.loaded.call("init", || init.call(()))
    }

    /// Runs `run`, to its end, which comes when the service likes, or must stop.
    pub fn run(&mut self) -> Result<(), ScriptError> {
        let run = self.callback("run")?;
        run.call(())
            .map_err(|error| self.loaded.failed(&error, "run"))
    }

    /// The function that the service has under this name now.
    fn callback(&self, name: &str) -> Result<Function, ScriptError> {
        let globals = self.loaded.lua.globals();
        let service = globals.raw_get::<Table>(self.name());
        let service = service.map_err(|error| self.loaded.failed(&error, LOADING))?;
        self.loaded.call(LOADING, || service.get(name))
    }

    /// The service's name.
    pub fn name(&self) -> &str {
        self.loaded.name()
    }

    /// Bytes that the virtual machine and its documents hold now, garbage included.
    pub fn memory_bytes(&self) -> usize {
        self.loaded.memory_bytes()
    }
}
