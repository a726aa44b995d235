//! `moonwire compare`: two runs, metric by metric.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use moonwire_load::quantity;
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
    /// Exit with 99 if a metric is worse in B by more than this share (5%), and not by chance
    #[arg(long, value_name = "SHARE", value_parser = quantity::fraction)]
    fail_beyond: Option<f64>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "Examples:
  moonwire load ws://127.0.0.1:5083/echo -q 1000 -d 20s --json before.json
  moonwire compare before.json after.json
  moonwire compare results/20261121T101500Z-bench results/20261122T101500Z-bench --markdown
  moonwire compare before.json after.json --fail-beyond 5% || echo 'slower'

Exit codes: 0 compared, 99 worse by more than --fail-beyond, 104 bad input.";

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
    let Some(bound) = args.fail_beyond else {
        return Ok(Exit::Success);
    };
    let worse = comparison.regressions_beyond(bound);
    for clause in &worse {
        output::complain(&format!("worse by more than {}: {clause}", percent(bound)));
    }
    Ok(match worse.is_empty() {
        true => Exit::Success,
        false => Exit::ThresholdFailed,
    })
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 1e2)
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
