//! `moonwire compare`: two runs, metric by metric.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use moonwire_report::{Style, compare, read_run};

use crate::exit::Exit;
use crate::output;
use crate::report::run_file;

/// Compare two Run files, metric by metric.
///
/// Each metric comes with its relative change and whether the change is more than the runs' own
/// variation from second to second would explain.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The run to compare with: a Run file, or the folder it is in
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The run to judge
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(args: &CompareArgs) -> Result<Exit> {
    let before = read_run(&run_file(&args.before))?;
    let after = read_run(&run_file(&args.after))?;
    let comparison = compare(&before, Some(&after));
    output::answer(&if args.markdown {
        comparison.markdown()
    } else {
        comparison.text(Style {
            color: output::colour(),
        })
    })?;
    Ok(Exit::Success)
}
