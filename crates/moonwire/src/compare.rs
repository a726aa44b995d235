//! `moonwire compare`: two runs, metric by metric.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use moonwire_load::quantity;
use moonwire_report::{Comparison, Contrast, Run, Style, compare, contrast, read_run, run_details};

use crate::exit::Exit;
use crate::output;
use crate::report::run_file;

/// Compare two Run files, metric by metric.
///
/// Each metric comes with its relative change and whether the change is more than the runs' own
/// variation from second to second would explain. Two battles of the lab are compared over their
/// rounds: each contestant with itself, or with the only one of the other battle; what decides is
/// the primary metric of the first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareArgs {
    /// The run to compare with: a Run file, or the folder it is in
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The run to judge
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Exit with 99 if a metric is worse in B by more than this share (5%), and not by chance; of a
    /// battle the metric that decides
    #[arg(long, value_name = "SHARE", value_parser = quantity::fraction)]
    fail_beyond: Option<f64>,
    /// Print Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print it as this; `--markdown` and `--json` are short for two of them
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "markdown"])]
    print: Option<Format>,
}

/// What a comparison can be printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for a terminal
    Text,
    /// The same as Markdown
    Markdown,
    /// Some twenty lines of Markdown
    PullRequest,
    /// Every figure
    Json,
}

const EXAMPLES: &str = "Examples:
  moonwire load ws://127.0.0.1:5083/echo -q 1000 -d 20s --json before.json
  moonwire compare before.json after.json
  moonwire compare results/20261121T101500Z-bench results/20261122T101500Z-bench --markdown
  moonwire compare before.json after.json --fail-beyond 5% || echo 'slower'
  moonwire lab latency --contestants moonwire --out yesterday
  moonwire compare yesterday today --json
  moonwire compare yesterday today --print pull-request

Exit codes: 0 compared, 99 worse by more than --fail-beyond, 98 asked for that and not to be judged
(a run is INVALID, another load, or too few ranked rounds), 104 bad input.";

pub(crate) fn run(args: &CompareArgs) -> Result<Exit> {
    let before = named(&args.before)?;
    let after = named(&args.after)?;
    for (run, path) in [(&before, &args.before), (&after, &args.after)] {
        if !run.capacities.is_empty() {
            bail!(
                "'{}' is a search for a capacity, and its tries have no partners: compare what it \
                 found, in the first table of its report",
                path.display()
            );
        }
    }
    let found = match contrast(&before, &after) {
        Some(contrast) => Found::Battles(contrast),
        None => Found::Runs(compare(&before, Some(&after))),
    };
    if found.is_empty() {
        bail!(
            "'{}' and '{}' have no cell in common: {}",
            args.before.display(),
            args.after.display(),
            found.remarks().join(", ")
        );
    }
    output::answer(&match args.format() {
        Format::Json => found.json()?,
        Format::Markdown => found.markdown(),
        Format::PullRequest => {
            let details = [&before, &after].map(run_details);
            found.pull_request() + &details.concat()
        }
        Format::Text => found.text(Style {
            color: output::colour(),
        }),
    })?;
    let Some(bound) = args.fail_beyond else {
        return Ok(Exit::Success);
    };
    let worse = found.regressions_beyond(bound);
    for clause in &worse {
        output::complain(&format!("worse by more than {}: {clause}", percent(bound)));
    }
    let unjudged = found.unjudged();
    for clause in &unjudged {
        output::complain(clause);
    }
    Ok(match (worse.is_empty(), unjudged.is_empty()) {
        (true, true) => Exit::Success,
        (true, false) => Exit::Invalid,
        (false, _) => Exit::ThresholdFailed,
    })
}

impl CompareArgs {
    fn format(&self) -> Format {
        match (self.print, self.json, self.markdown) {
            (Some(format), _, _) => format,
            (None, true, _) => Format::Json,
            (None, false, true) => Format::Markdown,
            (None, false, false) => Format::Text,
        }
    }
}

/// What was found: over the rounds of two battles, or over the seconds of two other runs.
enum Found {
    Battles(Contrast),
    Runs(Comparison),
}

impl Found {
    fn is_empty(&self) -> bool {
        match self {
            Self::Battles(contrast) => contrast.is_empty(),
            Self::Runs(comparison) => comparison.changes().next().is_none(),
        }
    }

    fn remarks(&self) -> &[String] {
        match self {
            Self::Battles(contrast) => contrast.remarks(),
            Self::Runs(comparison) => comparison.remarks(),
        }
    }

    /// Why cells of which a bound was asked are not judged.
    fn unjudged(&self) -> Vec<String> {
        match self {
            Self::Battles(contrast) => contrast.unjudged(),
            Self::Runs(comparison) => comparison.unjudged(),
        }
    }

    fn regressions_beyond(&self, bound: f64) -> Vec<String> {
        match self {
            Self::Battles(contrast) => contrast.regressions_beyond(bound),
            Self::Runs(comparison) => comparison.regressions_beyond(bound),
        }
    }

    fn text(&self, style: Style) -> String {
        match self {
            Self::Battles(contrast) => contrast.text(style),
            Self::Runs(comparison) => comparison.text(style),
        }
    }

    fn markdown(&self) -> String {
        match self {
            Self::Battles(contrast) => contrast.markdown(),
            Self::Runs(comparison) => comparison.markdown(),
        }
    }

    fn pull_request(&self) -> String {
        match self {
            Self::Battles(contrast) => contrast.pull_request(),
            Self::Runs(comparison) => comparison.pull_request(),
        }
    }

    fn json(&self) -> Result<String> {
        let text = match self {
            Self::Battles(contrast) => serde_json::to_string_pretty(contrast)?,
            Self::Runs(comparison) => serde_json::to_string_pretty(comparison)?,
        };
        Ok(text + "\n")
    }
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
