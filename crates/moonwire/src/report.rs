//! `moonwire report`: the tables, plots and the page of Run files, drawn again.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use moonwire_report::{Style, read_run, render_all, summary};

use crate::exit::Exit;
use crate::output;

/// Draw the tables, plots and the HTML page of Run files again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Run files, or folders that hold a run.json
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Draw into this folder (a folder of its own for each of several runs) instead of beside
    /// the Run file
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the summary and write nothing
    #[arg(long, conflicts_with = "out")]
    summary: bool,
}

/// Reads every file before drawing any, so that one bad name does not leave half the work.
pub(crate) fn run(args: &ReportArgs) -> Result<Exit> {
    let files: Vec<PathBuf> = args.runs.iter().map(|path| run_file(path)).collect();
    let runs = files
        .iter()
        .map(|file| read_run(file))
        .collect::<Result<Vec<_>, _>>()?;
    let folders: Vec<PathBuf> = files.iter().map(|file| folder(file, args)).collect();
    if !args.summary {
        check_apart(&folders)?;
    }
    for (folder, run) in folders.iter().zip(&runs) {
        output::answer(&summary(
            run,
            Style {
                color: output::colour(),
            },
        ))?;
        if args.summary {
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
  moonwire report --summary results/*/run.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn args(runs: &[&str], out: Option<&str>) -> ReportArgs {
        let runs = runs.iter().map(PathBuf::from).collect();
        ReportArgs {
            runs,
            out: out.map(PathBuf::from),
            summary: false,
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
