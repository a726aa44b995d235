//! Where a bench writes: the Run file, the report, and per cell what the server said and used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use moonwire_report::{
    Run, Style, junit, markdown, render_all, summary, write_cell_reports, write_run,
};
use serde::Serialize;

use super::BenchError;
use crate::environment::rfc3339;

/// The folder of one bench.
#[derive(Debug)]
pub(crate) struct ResultFolder {
    path: PathBuf,
    /// What was made for it, the innermost last; what is empty in the end is taken away again.
    made: Vec<PathBuf>,
}

impl ResultFolder {
    /// Makes the folder before anything is measured, so that a wrong path costs nothing.
    pub(crate) fn create(out: Option<&Path>, name: &str) -> Result<Self, BenchError> {
        let mut folder = Self {
            path: PathBuf::new(),
            made: Vec::new(),
        };
        match out {
            Some(out) => {
                out.clone_into(&mut folder.path);
                folder.make(out)?;
            }
            None => {
                // `:` is not for file names everywhere.
                let time = rfc3339(SystemTime::now()).replace([':', '-'], "");
                folder.make_new(Path::new("results"), &format!("{time}-{name}"))?;
            }
        }
        folder.make(&folder.path.join(CELLS))?;
        Ok(folder)
    }

    /// Makes a folder that nobody has: a bench that started in the same second has its own.
    fn make_new(&mut self, parent: &Path, name: &str) -> Result<(), BenchError> {
        self.make(parent)?;
        for number in 1..=SAME_SECOND_MAX {
            self.path = match number {
                1 => parent.join(name),
                _ => parent.join(format!("{name}-{number}")),
            };
            match fs::create_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unwritable(&self.path, &error)),
                Ok(()) => {
                    self.made.push(self.path.clone());
                    return Ok(());
                }
            }
        }
        let error = io::ErrorKind::AlreadyExists.into();
        Err(unwritable(&self.path, &error))
    }

    /// Makes a folder and those it is in, as far as they are not there.
    fn make(&mut self, path: &Path) -> Result<(), BenchError> {
        let missing = path.ancestors().take_while(|path| !path.exists());
        let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
        // The current folder, which a relative path ends in, is there under another name.
        missing.retain(|path| path != Path::new(""));
        let made = fs::create_dir_all(path).map_err(|error| unwritable(path, &error));
        self.made.extend(missing.into_iter().rev());
        made
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the Run file.
    pub(crate) fn write_run(&self, run: &Run) -> Result<(), BenchError> {
        Ok(write_run(run, &self.path.join("run.json"))?)
    }

    /// Draws the report; gives the page to open.
    pub(crate) fn render(&self, run: &Run) -> Result<PathBuf, BenchError> {
        self.write_run(run)?;
        Ok(render_all(run, &self.path)?)
    }

    /// Writes the tables of the report without its page: `summary.txt`, `report.md`,
    /// `junit.xml` and the report of each cell.
    pub(crate) fn write_tables(&self, run: &Run) -> Result<(), BenchError> {
        for (name, text) in [
            ("summary.txt", summary(run, Style::default())),
            ("report.md", markdown(run)),
            ("junit.xml", junit(run)),
        ] {
            let path = self.path.join(name);
            fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
        }
        Ok(write_cell_reports(run, &self.path)?)
    }

    /// The path of a file that belongs to a cell.
    pub(super) fn cell_file(&self, key: &str, what: &str) -> PathBuf {
        self.path.join(CELLS).join(format!("{key}.{what}"))
    }

    /// Writes a text that belongs to a cell; gives its path.
    pub(super) fn write_text(
        &self,
        key: &str,
        what: &str,
        text: &str,
    ) -> Result<PathBuf, BenchError> {
        let path = self.cell_file(key, what);
        fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
        Ok(path)
    }

    /// Writes a value that belongs to a cell.
    pub(super) fn write_json(
        &self,
        key: &str,
        what: &str,
        value: &impl Serialize,
    ) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| BenchError::Output(format!("{key}.{what}: {error}")))?;
        self.write_text(key, what, &text)?;
        Ok(())
    }
}

/// A bench that failed before it measured anything leaves no empty folder.
impl Drop for ResultFolder {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            // Only what is empty can be removed; it is not missed where that fails.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> BenchError {
    BenchError::Output(format!("{} cannot be written: {error}", path.display()))
}

/// Benches of one name that may start in one second; one more is refused.
const SAME_SECOND_MAX: u32 = 100;
const CELLS: &str = "cells";

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> ResultFolder {
        ResultFolder {
            path: PathBuf::new(),
            made: Vec::new(),
        }
    }

    #[test]
    fn benches_of_one_second_do_not_share_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let results = root.path().join("results");
        let (mut first, mut second) = (folder(), folder());
        first.make_new(&results, "t-bench").unwrap();
        second.make_new(&results, "t-bench").unwrap();
        assert_eq!(first.path(), results.join("t-bench"));
        assert_eq!(second.path(), results.join("t-bench-2"));
    }

    #[test]
    fn only_folders_without_a_result_are_taken_away() {
        let root = tempfile::tempdir().unwrap();
        let results = root.path().join("results");
        let mut kept = folder();
        kept.make_new(&results, "kept").unwrap();
        kept.make(&kept.path.join(CELLS)).unwrap();
        kept.write_text("c1", "log", "said").unwrap();
        let mut empty = folder();
        empty.make_new(&results, "empty").unwrap();
        empty.make(&empty.path.join(CELLS)).unwrap();
        drop((kept, empty));
        assert!(results.join("kept/cells/c1.log").is_file());
        assert!(!results.join("empty").exists());
    }
}
