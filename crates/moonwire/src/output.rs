//! The two streams of the command line: answers on stdout, everything about the work on stderr.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this file is where the program speaks"
)]

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// One sentence about what is wrong, on stderr.
pub(crate) fn complain(sentence: &str) {
    eprintln!("moonwire: {sentence}");
}

/// A remark about the work, on stderr.
pub(crate) fn remark(sentence: &str) {
    eprintln!("{sentence}");
}

/// An answer, on stdout. A closed pipe (`| head`) is the reader's way to say enough.
pub(crate) fn answer(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{}", text.trim_end());
}

/// Whether stdout may carry colours (<https://no-color.org>).
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether a result can be written to `path` (`-` is stdout): asked before a run, because after it
/// the answer would cost the run. An existing file is left as it is.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let is_new = !path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write '{}'", path.display()))?;
    if is_new {
        std::fs::remove_file(path).with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    Ok(())
}
