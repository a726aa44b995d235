//! What a service is loaded from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::{Broker, StopFlag};
use crate::client::Connector;
use crate::effects::EffectLimits;
use crate::error::ScriptError;
use crate::modules::pam_auth;
use crate::round_trips::RoundTrips;

/// Where a service is and how it is configured.
#[derive(Clone, Debug)]
pub struct ServiceSource {
    /// The service's name: its file is `folder/name.lua`, its table the global `name`.
    pub name: String,
    /// The folder with the service's file and the modules it requires.
    pub folder: PathBuf,
    /// The service's own settings (`[services.NAME.config]`), as `moonwire.config` shows them.
    pub config: serde_json::Value,
    /// What its clients send.
    pub protocol: Protocol,
    /// Modules of LAppS that it finds as globals.
    pub preload: Vec<Module>,
    /// What its code may do to the rest of the process and the system.
    pub sandbox: Sandbox,
}

/// What the code of a service may do besides computing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Whatever the user may that the server runs as: every library, C modules included.
    #[default]
    Trusted,
    /// Nothing beyond the modules that it is given: no files but Lua modules in its folder, no
    /// programs, no native code, no bytecode.
    Restricted,
}

/// A module of LAppS that a service has only if it asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// Connections to other servers.
    Cws,
    /// Queues between services.
    Mqr,
    /// Hashes of strings.
    Murmur,
    /// Sleeping.
    Nap,
    /// Logins that PAM checks.
    PamAuth,
    /// The time of day.
    Time,
}

impl Module {
    /// All of them, by name.
    pub const ALL: [Self; 6] = [
        Self::Cws,
        Self::Mqr,
        Self::Murmur,
        Self::Nap,
        Self::PamAuth,
        Self::Time,
    ];

    /// The global that it becomes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cws => "cws",
            Self::Mqr => "mqr",
            Self::Murmur => "murmur",
            Self::Nap => "nap",
            Self::PamAuth => "pam_auth",
            Self::Time => "time",
        }
    }

    /// The module with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|module| module.name() == name)
    }
}

/// What the messages of a service are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Text or bytes, whatever they mean.
    #[default]
    Raw,
    /// Requests, responses and notifications of LAppS in CBOR, one in each binary message.
    Lapps,
}

impl ServiceSource {
    /// A RAW service called `name` in `folder`, without settings.
    pub fn new(name: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            folder: folder.into(),
            config: serde_json::Value::Null,
            protocol: Protocol::Raw,
            preload: Vec::new(),
            sandbox: Sandbox::Trusted,
        }
    }

    /// The file that is loaded.
    pub fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.lua", self.name))
    }

    /// Refuses names and folders that cannot be found again by `require`, and what needs a library
    /// that is not there.
    pub(crate) fn check(&self) -> Result<(), ScriptError> {
        let reason = if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            format!("the name must have 1 to {NAME_BYTES_MAX} characters")
        } else if !self
            .name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        {
            "the name may have letters, digits, '_' and '-' only".to_owned()
        } else if self
            .folder
            .to_str()
            .is_none_or(|folder| folder.contains(['?', ';']))
        {
            // package.path is a list of patterns separated by ';' with '?' for the module's name.
            format!(
                "the folder {} must be UTF-8 without '?' and ';'",
                self.folder.display()
            )
        } else if !self.config.is_object() && !self.config.is_null() {
            "its config must be a table".to_owned()
        } else if self.preload.contains(&Module::PamAuth)
            && let Err(problem) = pam_auth::check()
        {
            problem
        } else {
            return Ok(());
        };
        Err(self.refused(reason))
    }

    /// That the service's table would take the place of something in the machine.
    pub(crate) fn name_taken(&self) -> ScriptError {
        self.refused("the name is taken by Lua or by moonwire itself".to_owned())
    }

    fn refused(&self, reason: String) -> ScriptError {
        ScriptError::Source {
            service: self.name.clone(),
            reason,
        }
    }
}

/// How much one instance may use.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Bytes the virtual machine may hold, code of the JIT compiler not counted; `None` is
    /// unlimited. Beyond it a callback fails with [`ScriptError::OutOfMemory`] and the garbage is
    /// collected; the instance could go on, but has lost what it was about to do. With a limit
    /// every string and table that enters Lua is made under protection, which costs up to a tenth
    /// of a microsecond each.
    pub memory_bytes_max: Option<usize>,
    /// How long one callback may take, and the file when it is loaded; after it they are stopped
    /// with [`ScriptError::Overran`]. `None` is unlimited. The `run` of a standalone service has no
    /// limit. What blocks on purpose does not count: sleeping, waiting at a queue.
    pub callback_timeout: Option<Duration>,
    /// A function named `onHandshake` is then one like any other, and never called from here.
    pub is_handshake_hook_off: bool,
    /// Bounds on what one callback may ask for.
    pub effects: EffectLimits,
    /// The channels and queues that it shares with all other services of the server.
    pub broker: Arc<Broker>,
    /// The order to stop, which ends what waits in a call.
    pub stop: StopFlag,
    /// What makes its connections to other servers; `None`: it cannot have any.
    pub connector: Option<Arc<dyn Connector>>,
    /// What knows the round trips of its connections; `None`: nothing is known.
    pub round_trips: Option<Arc<dyn RoundTrips>>,
}

/// Longest name of a service.
const NAME_BYTES_MAX: usize = 64;
