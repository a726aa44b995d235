//! The foreign echo server as a contestant of the lab.

use std::path::Path;

use anyhow::{Context, Result};

use super::program::Programs;

/// Writes a contestant into a folder of contestants. Over TLS it is never started.
pub(crate) fn write_contestant(
    folder: &Path,
    name: &str,
    programs: &Programs,
    fault: &[&str],
) -> Result<()> {
    let program = programs.faulty_program();
    let words: Vec<String> = fault.iter().map(|word| format!("'{word}'")).collect();
    let start = format!(
        "start = ['{}', '--port', '{{port}}', {}]",
        program.display(),
        words.join(", ")
    );
    let text = format!(
        "kind = 'server'\ndescription = 'tokio-tungstenite with {}'\n\
         version = ['echo', 'faulty']\nready = 'listening on'\n\
         [plain]\n{start}\nurl = 'ws://127.0.0.1:{{port}}/'\n\
         [tls]\n{start}\nurl = 'wss://127.0.0.1:{{port}}/'\n",
        fault.join(" ")
    );
    let place = folder.join(name);
    std::fs::create_dir(&place).with_context(|| place.display().to_string())?;
    std::fs::write(place.join("contestant.toml"), text).context("contestant.toml")
}
