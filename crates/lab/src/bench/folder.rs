//! Where a bench writes: the Run file, the report, and per cell what the server said and used.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use moonwire_report::{Run, render_all, write_run};
use serde::Serialize;

use super::{BenchError, BenchSpec};
use crate::environment::rfc3339;

/// The folder of one bench.
#[derive(Debug)]
pub(super) struct ResultFolder {
    path: PathBuf,
}

impl ResultFolder {
    /// Makes the folder before anything is measured, so that a wrong path costs nothing.
    pub(super) fn create(spec: &BenchSpec) -> Result<Self, BenchError> {
        let path = spec.out.clone().unwrap_or_else(|| {
            // `:` is not for file names everywhere.
            let time = rfc3339(SystemTime::now()).replace([':', '-'], "");
            PathBuf::from("results").join(format!("{time}-{}", spec.name))
        });
        let unwritable = |path: &Path, error| {
            BenchError::Output(format!("{} cannot be written: {error}", path.display()))
        };
        fs::create_dir_all(path.join(CELLS)).map_err(|error| unwritable(&path, error))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the Run file.
    pub(super) fn write_run(&self, run: &Run) -> Result<(), BenchError> {
        Ok(write_run(run, &self.path.join("run.json"))?)
    }

    /// Draws the report; gives the page to open.
    pub(super) fn render(&self, run: &Run) -> Result<PathBuf, BenchError> {
        self.write_run(run)?;
        Ok(render_all(run, &self.path)?)
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
        fs::write(&path, text).map_err(|error| {
            BenchError::Output(format!("{} cannot be written: {error}", path.display()))
        })?;
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

const CELLS: &str = "cells";
