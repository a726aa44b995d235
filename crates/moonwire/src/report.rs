//! `moonwire report`: the tables, plots and the page of Run files, drawn again.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use moonwire_report::{
    Run, Style, junit, markdown, pull_request, read_run, render_all, schema, summary, write_junit,
};

use crate::exit::Exit;
use crate::output;

/// Draw the tables, plots and the HTML page of Run files again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Run files, or folders that hold a run.json
    #[arg(required_unless_present = "schema", value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Draw into this folder (a folder of its own for each of several runs) instead of beside
    /// the Run file
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the summary and write nothing, as `--print summary` does
    #[arg(long, conflicts_with_all = ["out", "print"])]
    summary: bool,
    /// Print this and write nothing
    #[arg(long, value_name = "FORMAT", conflicts_with = "out")]
    print: Option<Format>,
    /// Write JUnit XML to this file, too; of one run only
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print the JSON schema of Run files
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// What a run can be printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// What a run prints when it is over
    Summary,
    /// All tables
    Markdown,
    /// Some twenty lines of Markdown
    PullRequest,
    /// The Run file
    Json,
    /// JUnit XML
    Junit,
}

impl Format {
    fn text(self, run: &Run) -> String {
        match self {
            Self::Summary => summary(
                run,
                Style {
                    color: output::colour(),
                },
            ),
            Self::Markdown => markdown(run),
            Self::PullRequest => pull_request(run),
            Self::Json => run.to_json(),
            Self::Junit => junit(run),
        }
    }
}

/// Reads every file before drawing any, so that one bad name does not leave half the work.
pub(crate) fn run(args: &ReportArgs) -> Result<Exit> {
    if args.schema {
        output::answer(&schema())?;
        return Ok(Exit::Success);
    }
    if args.junit.is_some() && args.runs.len() > 1 {
        bail!("--junit names one file and there are several runs: give one at a time");
    }
    let files: Vec<PathBuf> = args.runs.iter().map(|path| run_file(path)).collect();
    let runs = files
        .iter()
        .map(|file| read_run(file))
        .collect::<Result<Vec<_>, _>>()?;
    let folders: Vec<PathBuf> = files.iter().map(|file| folder(file, args)).collect();
    let printed = args
        .print
        .or_else(|| args.summary.then_some(Format::Summary));
    if printed.is_none() {
        check_apart(&folders)?;
    }
    for (folder, run) in folders.iter().zip(&runs) {
        output::answer(&printed.unwrap_or(Format::Summary).text(run))?;
        if let Some(file) = &args.junit {
            write_junit(run, file)?;
        }
        if printed.is_some() {
            continue;
        }
        let page = render_all(run, folder)?;
        output::answer(&format!("\nreport: {}\n", page.display()))?;
    }
    Ok(Exit::Success)
}

/// Two reports in one folder would be one report.
fn check_apart(folders: &[PathBuf]) -> Result<()> {
    for (index, folder) in folders.iter().enumerate() {
        if folders[..index].contains(folder) {
            bail!(
                "two of the reports would be drawn into '{}': draw them one at a time, each with \
                 an --out of its own",
                folder.display()
            );
        }
    }
    Ok(())
}

/// A folder stands for the Run file in it.
pub(crate) fn run_file(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(RUN_FILE)
    } else {
        path.to_owned()
    }
}

fn folder(file: &Path, args: &ReportArgs) -> PathBuf {
    let beside = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    match &args.out {
        None => beside,
        Some(out) if args.runs.len() == 1 => out.clone(),
        Some(out) => {
            let stem = if file.file_name().is_some_and(|name| name == RUN_FILE) {
                beside.file_name()
            } else {
                file.file_stem()
            };
            out.join(stem.unwrap_or_default())
        }
    }
}

/// The name of the Run file in a results folder.
pub(crate) const RUN_FILE: &str = "run.json";

const EXAMPLES: &str = "Examples:
  moonwire report results/20261121T101500Z-bench
  moonwire report run.json --out public
  moonwire report --summary results/*/run.json
  moonwire report run.json --print pull-request
  moonwire report run.json --print summary --junit junit.xml
  moonwire report --schema";

#[cfg(test)]
mod tests {
    use super::*;

    fn args(runs: &[&str], out: Option<&str>) -> ReportArgs {
        let runs = runs.iter().map(PathBuf::from).collect();
        ReportArgs {
            runs,
            out: out.map(PathBuf::from),
            summary: false,
            print: None,
            junit: None,
            schema: false,
        }
    }

    #[test]
    fn several_runs_never_share_a_folder() {
        let two = args(&["a/run.json", "b/run.json"], Some("out"));
        assert_eq!(folder(Path::new("a/run.json"), &two), Path::new("out/a"));
        assert_eq!(folder(Path::new("b/run.json"), &two), Path::new("out/b"));
        let other = args(&["x.json", "y.json"], Some("out"));
        assert_eq!(folder(Path::new("x.json"), &other), Path::new("out/x"));
    }

    #[test]
    fn two_reports_for_one_folder_are_refused() {
        let beside = args(&["a/x.json", "a/y.json"], None);
        let folders: Vec<_> = beside
            .runs
            .iter()
            .map(|file| folder(file, &beside))
            .collect();
        assert!(check_apart(&folders).is_err());
        let apart = args(&["a/x.json", "b/y.json"], None);
        let folders: Vec<_> = apart.runs.iter().map(|file| folder(file, &apart)).collect();
        assert!(check_apart(&folders).is_ok());
    }

    #[test]
    fn one_run_is_drawn_beside_its_file_or_where_asked() {
        let file = Path::new("r/run.json");
        assert_eq!(folder(file, &args(&["r/run.json"], None)), Path::new("r"));
        assert_eq!(
            folder(file, &args(&["r/run.json"], Some("o"))),
            Path::new("o")
        );
    }
}
