//! The one module that touches the file system: reads and writes Run files and reports.
//! Everything it writes comes ready from the pure functions beside it.

use std::fs;
use std::path::Path;

use crate::run::{Run, RunError, RunProblem};

/// Reads a Run file.
pub fn read_run(path: &Path) -> Result<Run, RunError> {
    let file = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Run::parse(&text, &file),
        Err(error) => Err(RunError {
            file,
            problem: RunProblem::Unreadable(error.to_string()),
        }),
    }
}

/// Writes a Run file; an older one of that name is replaced as a whole.
pub fn write_run(run: &Run, path: &Path) -> Result<(), RunError> {
    write(path, run.to_json().as_bytes())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    fs::write(path, bytes).map_err(|error| RunError {
        file: path.display().to_string(),
        problem: RunProblem::Unwritable(error.to_string()),
    })
}
