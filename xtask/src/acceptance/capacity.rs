//! Searches for the most that a server stands, of servers whose capacity is known.

use std::time::Instant;

use anyhow::{Context, Result};

use super::faulty::write_contestant;
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
        let fault = ["pace", &per_s.to_string()];
        write_contestant(folder.path(), "paced", programs, &fault)?;
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
