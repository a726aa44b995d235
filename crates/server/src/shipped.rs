//! The services that come with the program, so that an installed binary needs no other file.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

/// The shipped services, unpacked where the Lua room can read them. The folder is private to
/// this process and is removed when this is dropped: shipped services load what they need at once.
#[derive(Debug)]
pub(crate) struct ShippedApps {
    folder: TempDir,
}

impl ShippedApps {
    /// Whether a service of this name is shipped.
    pub(crate) fn has(name: &str) -> bool {
        FILES.iter().any(|(app, _, _)| *app == name)
    }

    /// Writes all of them to a new folder.
    pub(crate) fn unpack() -> io::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("moonwire-apps-")
            .tempdir()?;
        for (app, file, text) in FILES {
            let app = folder.path().join(app);
            std::fs::create_dir_all(&app)?;
            std::fs::write(app.join(file), text)?;
        }
        Ok(Self { folder })
    }

    /// The folder of one of them.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Service, file, text.
const FILES: &[(&str, &str, &str)] = &[
    (
        "echo",
        "echo.lua",
        include_str!("../../../apps/echo/echo.lua"),
    ),
    (
        "amplify",
        "amplify.lua",
        include_str!("../../../apps/amplify/amplify.lua"),
    ),
];
