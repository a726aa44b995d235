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
    /// Whether a `#[cfg(test)] mod ...;` elsewhere brings it in.
    is_test_module: bool,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let rust = path.ends_with(".rs").then(|| Source::new(text));
        Self {
            path: path.into(),
            text: text.into(),
            rust,
            is_test_module: false,
        }
    }

    /// Files that hold tests only: integration tests, and modules that only tests have.
    pub(crate) fn is_test(&self) -> bool {
        self.is_test_module
            || self
                .path
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

/// Every text file under `root`; files with a zero byte are not text, what lies in a folder
/// `vendor` is not ours to lay out, and what lies in a `corpus` came from a fuzzer.
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
        if path
            .split('/')
            .any(|part| matches!(part, "vendor" | "corpus"))
        {
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
    mark_test_modules(&mut files);
    Ok(files)
}

/// Finds the files of modules that are declared behind `#[cfg(test)]`.
fn mark_test_modules(files: &mut [File]) {
    let mut modules = Vec::new();
    for file in &*files {
        let Some(source) = &file.rust else { continue };
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let folder = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
            other => format!("{folder}/{}", other.trim_end_matches(".rs")),
        };
        modules.extend(
            source
                .test_modules()
                .map(|module| format!("{folder}/{module}")),
        );
    }
    for file in files {
        file.is_test_module = modules.iter().any(|module| {
            let rest = file.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_tests_are_tests() {
        let mut files = [
            File::new("a/src/lib.rs", "#[cfg(test)]\nmod pair;\nmod plain;\n"),
            File::new("a/src/pair.rs", "mod inner;\n"),
            File::new("a/src/pair/inner.rs", ""),
            File::new("a/src/plain.rs", "#[cfg(test)]\nmod world;\n"),
            File::new("a/src/plain/world/mod.rs", ""),
            File::new("a/src/pairs.rs", ""),
            File::new("a/tests/b.rs", ""),
        ];
        mark_test_modules(&mut files);
        let tests: Vec<bool> = files.iter().map(File::is_test).collect();
        assert_eq!(tests, [false, true, true, false, true, false, true]);
    }
}
