//! `moonwire compare`: two runs, metric by metric.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use moonwire_report::{Run, Style, compare, read_run};

use crate::exit::Exit;
use crate::output;
use crate::report::run_file;

/// Compare two Run files, metric by metric.
///
/// Each metric comes with its relative change and whether the change is more than the runs' own
/// variation from second to second would explain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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

const EXAMPLES: &str = "Examples:
  moonwire load ws://127.0.0.1:5083/echo -q 1000 -d 20s --json before.json
  moonwire compare before.json after.json
  moonwire compare results/20261121T101500Z-bench results/20261122T101500Z-bench --markdown";

pub(crate) fn run(args: &CompareArgs) -> Result<Exit> {
    let before = named(&args.before)?;
    let after = named(&args.after)?;
    let comparison = compare(&before, Some(&after));
    if comparison.changes().next().is_none() {
        bail!(
            "'{}' and '{}' have no cell in common: {}",
            args.before.display(),
            args.after.display(),
            comparison.remarks().join(", ")
        );
    }
    output::answer(&if args.markdown {
        comparison.markdown()
    } else {
        comparison.text(Style {
            color: output::colour(),
        })
    })?;
    Ok(Exit::Success)
}

/// A run under the name of its file: two runs of one scenario have the same name.
fn named(path: &Path) -> Result<Run> {
    let run = read_run(&run_file(path))?;
    let name = match run.name.as_str() {
        "" => path.display().to_string(),
        name => format!("{} ({name})", path.display()),
    };
    Ok(Run { name, ..run })
}
