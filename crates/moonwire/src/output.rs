//! The two streams of the command line: answers on stdout, everything about the work on stderr.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use moonwire_report::check_run_place;

use crate::exit::Exit;
use crate::report::RUN_FILE;

/// Names the folder of the results of a lab and of a bench where no `--out` does.
pub(crate) const OUT_VARIABLE: &str = "MOONWIRE_OUT";

/// One sentence about what is wrong, on stderr.
pub(crate) fn complain(sentence: &str) {
    remark(&format!("moonwire: {sentence}"));
}

/// A remark about the work, on stderr. When that is closed or full, nobody is left to be told.
pub(crate) fn remark(sentence: &str) {
    let _ = writeln!(io::stderr().lock(), "{sentence}");
}

/// An answer, on stdout.
pub(crate) fn answer(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush());
    arrived(written)
}

/// Whether what was written to stdout arrived. A closed pipe (`| head`) is the reader's way to say
/// enough; anything else lost the answer.
pub(crate) fn arrived(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("stdout cannot be written")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The exit of a verb after several things that do not depend on each other: `exit` when all of
/// them were done, else each failure is said.
pub(crate) fn exit_after(exit: Exit, done: impl IntoIterator<Item = Result<()>>) -> Exit {
    let complaints = done.into_iter().filter_map(Result::err);
    complaints.fold(exit, |_, error| {
        complain(&format!("{error:#}"));
        Exit::BadConfiguration
    })
}

/// Whether stdout may carry colours (<https://no-color.org>).
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && is_colour_wanted()
}

/// The same of stderr.
pub(crate) fn colour_on_stderr() -> bool {
    io::stderr().is_terminal() && is_colour_wanted()
}

fn is_colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Says that the result of an earlier run will be lost, before the run, while it can still be moved
/// away.
pub(crate) fn announce_replacement(folder: Option<&Path>, quiet: bool) {
    if let Some(folder) = folder
        && !quiet
        && folder.join(RUN_FILE).is_file()
    {
        remark(&format!(
            "{} has the result of an earlier run, which this one replaces; give another --out to \
             keep it",
            folder.display()
        ));
    }
}

/// Whether a Run file can be written to `path` (`-` is stdout): asked before a run, because after
/// it the answer would cost the run.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    if path != Path::new("-") {
        check_run_place(path)?;
    }
    Ok(())
}
