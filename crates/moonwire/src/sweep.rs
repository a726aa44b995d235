//! How a run of several cells is told when it is over.

use std::path::Path;

use anyhow::Result;
use moonwire_report::{Run, Style, Verdict, objection, summary};

use crate::exit::Exit;
use crate::load::write_json;
use crate::output;

/// Writes the Run file where it is wanted, too, and prints the tables with `end` behind them, or
/// only what speaks against the run. What failed of both.
pub(crate) fn tell(run: &Run, json: Option<&Path>, quiet: bool, end: &str) -> [Result<()>; 2] {
    let json_on_stdout = json == Some(Path::new("-"));
    let json = json.map_or(Ok(()), |path| write_json(run, path));
    if quiet || json_on_stdout {
        objection(run)
            .iter()
            .for_each(|line| output::complain(line));
        return [Ok(()), json];
    }
    let style = Style {
        color: output::colour(),
    };
    let tables = summary(run, style);
    let said = output::answer(&format!("{}\n\n{end}", tables.trim_end()));
    [said, json]
}

/// One cell that can be believed makes it worth its time.
pub(crate) fn exit_of(run: &Run, interrupted: bool) -> Exit {
    let believed = |cell: &moonwire_report::Cell| cell.assessment.verdict() != Verdict::Invalid;
    match interrupted {
        true => Exit::Interrupted,
        false if run.cells().iter().any(believed) => Exit::Success,
        false => Exit::Invalid,
    }
}
