//! Searches for the most that a server stands, of servers whose capacity is known.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::program::Programs;
use super::table::Table;

/// What the servers answer in a second, evenly paced.
const CAPACITIES: [u32; 3] = [1500, 5000, 12_000];
const ERROR_MAX: f64 = 0.03;
const SECONDS_MAX: f64 = 180.0;

/// One search each, with what the scenario has by default.
pub(crate) fn known(programs: &Programs, table: &mut Table) -> Result<()> {
    for per_s in CAPACITIES {
        let folder = tempfile::tempdir()?;
        write_contestant(folder.path(), programs, per_s)?;
        let place = folder.path().to_str().context("a folder is not UTF-8")?;
        let started = Instant::now();
        let arguments = [
            "find-max",
            "--contestants",
            "paced",
            "--contestant-folder",
            place,
        ];
        let run = programs.lab(&arguments)?;
        let seconds = started.elapsed().as_secs_f64();
        let found = run.number("/capacities/0/highest").unwrap_or(0.0);
        let error = found / f64::from(per_s) - 1.0;
        table.line(
            format!("the most of a server that answers {per_s} messages/s"),
            format!(
                "{found:.0} messages/s ({:+.1} %) in {seconds:.0} s",
                error * 100.0
            ),
            format!("within {:.0} %, in {SECONDS_MAX} s", ERROR_MAX * 100.0),
            error.abs() <= ERROR_MAX && seconds <= SECONDS_MAX,
        );
    }
    Ok(())
}

/// The paced server as a contestant; over TLS it is never started.
fn write_contestant(folder: &Path, programs: &Programs, per_s: u32) -> Result<()> {
    let program = programs.faulty_program();
    let start = format!(
        "start = ['{}', '--port', '{{port}}', 'pace', '{per_s}']",
        program.display()
    );
    let text = format!(
        "kind = 'server'\ndescription = 'answers {per_s} messages a second'\n\
         version = ['echo', 'paced']\nready = 'listening on'\n\
         [plain]\n{start}\nurl = 'ws://127.0.0.1:{{port}}/'\n\
         [tls]\n{start}\nurl = 'wss://127.0.0.1:{{port}}/'\n"
    );
    let place = folder.join("paced");
    std::fs::create_dir(&place)?;
    std::fs::write(place.join("contestant.toml"), text).context("contestant.toml")
}
