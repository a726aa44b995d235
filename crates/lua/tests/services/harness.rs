//! A service written into a temporary folder and loaded.

use std::fs;

use moonwire_lua::{
    Effect, Effects, Handler, Instance, LoadOptions, Opcode, Outcome, Protocol, ScriptError,
    ServiceSource,
};
use tempfile::TempDir;

/// A loaded service called `s`.
pub(crate) struct Service {
    pub(crate) instance: Instance,
    pub(crate) effects: Effects,
    /// Removed with the service, and not before: modules may be required later.
    _folder: TempDir,
}

impl Service {
    /// `code` changes the table `s`, whose callbacks do nothing and return true.
    pub(crate) fn load(code: &str) -> Self {
        Self::try_load(&[("s.lua", &service(code))], &LoadOptions::default()).unwrap()
    }

    /// With the files given, as they are.
    pub(crate) fn try_load(
        files: &[(&str, &str)],
        options: &LoadOptions,
    ) -> Result<Self, ScriptError> {
        Self::with_protocol(Protocol::Raw, files, options)
    }

    /// The same as [`load`](Self::load), for the LAppS protocol.
    pub(crate) fn lapps(code: &str) -> Self {
        let (code, options) = (service(code), LoadOptions::default());
        Self::with_protocol(Protocol::Lapps, &[("s.lua", &code)], &options).unwrap()
    }

    fn with_protocol(
        protocol: Protocol,
        files: &[(&str, &str)],
        options: &LoadOptions,
    ) -> Result<Self, ScriptError> {
        let folder = folder(files);
        let source = ServiceSource {
            protocol,
            ..ServiceSource::new("s", folder.path())
        };
        let instance = Instance::load_with(&source, options)?;
        Ok(Self {
            instance,
            effects: Effects::new(),
            _folder: folder,
        })
    }

    /// One text message of connection 1.
    pub(crate) fn say(&mut self, text: &str) -> Result<Outcome, ScriptError> {
        self.instance
            .message(handler(1), Opcode::Text, text.as_bytes(), &mut self.effects)
    }

    /// What was sent by the last callback, as text.
    pub(crate) fn sent(&self) -> Vec<String> {
        let text = |effect| match effect {
            Effect::Send { payload, .. } => String::from_utf8_lossy(payload).into_owned(),
            Effect::Close { code, reason, .. } => format!("close {code} {reason}"),
            Effect::Subscribe { .. } | Effect::Unsubscribe { .. } | Effect::Broadcast { .. } => {
                format!("{effect:?}")
            }
        };
        self.effects.iter().map(text).collect()
    }

    /// Says `text` and returns the single answer.
    pub(crate) fn ask(&mut self, text: &str) -> String {
        assert_eq!(self.say(text).unwrap(), Outcome::Continue);
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.into_iter().next().unwrap()
    }
}

/// A complete service around `code`.
pub(crate) fn service(code: &str) -> String {
    format!(
        "local s = {{}}\nfunction s.onStart() end\nfunction s.onShutdown() end\n\
         function s.onMessage(h, o, m) return true end\nfunction s.onDisconnect(h) end\n\
         {code}\nreturn s\n"
    )
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

pub(crate) fn handler(number: u64) -> Handler {
    Handler::new(number).unwrap()
}
