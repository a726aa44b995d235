//! The files of the repository, as git sees them: tracked, or new and not ignored.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::lexer::Source;

/// A text file of the repository.
pub(crate) struct File {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// For `.rs` files only.
    pub(crate) rust: Option<Source>,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let rust = path.ends_with(".rs").then(|| Source::new(text));
        Self {
            path: path.into(),
            text: text.into(),
            rust,
        }
    }

    /// Files that hold tests only: integration tests, and `tests.rs` or `tests/` beside a module.
    pub(crate) fn is_test(&self) -> bool {
        self.path
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
    }

    pub(crate) fn extension(&self) -> &str {
        let name = self
            .path
            .rsplit('/')
            .next()
            .expect("split gives at least one part");
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// Every text file under `root`; files with a zero byte are not text, and what lies in a folder
/// `vendor` is not ours to lay out.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(
        output.status.success(),
        "git ls-files failed: tidy needs a clone"
    );
    let mut files = Vec::new();
    for path in String::from_utf8(output.stdout)?.split_terminator('\0') {
        if path.split('/').any(|part| part == "vendor") {
            continue;
        }
        // A tracked file may have been deleted and not committed yet.
        let Ok(bytes) = std::fs::read(root.join(path)) else {
            continue;
        };
        if bytes.contains(&0) {
            continue;
        }
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(path, &text));
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup_by(|one, other| one.path == other.path);
    Ok(files)
}
