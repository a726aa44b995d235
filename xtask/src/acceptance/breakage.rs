//! Defects put in on purpose: each must make the tests of its room fail.
//!
//! They are put into a work tree of their own, so that nobody's files are touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::table::Table;
use crate::place;

/// A line of the product with what to break it into; it must occur exactly once.
struct Defect {
    name: &'static str,
    package: &'static str,
    path: &'static str,
    right: &'static str,
    wrong: &'static str,
}

const DEFECTS: &[Defect] = &[
    Defect {
        name: "payloads are not masked",
        package: "moonwire-proto",
        path: "crates/proto/src/mask.rs",
        right: "(u64::from_ne_bytes(*word) ^ wide).to_ne_bytes()",
        wrong: "(u64::from_ne_bytes(*word) ^ (wide & 0)).to_ne_bytes()",
    },
    Defect {
        name: "UTF-8 of whole messages is not checked",
        package: "moonwire-proto",
        path: "crates/proto/src/connection/receive.rs",
        right: "simdutf8::basic::from_utf8(payload).is_err()",
        wrong: "payload.len() == usize::MAX",
    },
    Defect {
        name: "UTF-8 of fragments is not checked",
        package: "moonwire-proto",
        path: "crates/proto/src/message.rs",
        right: "match simdutf8::compat::from_utf8(unchecked) {",
        wrong: "match simdutf8::compat::from_utf8(&unchecked[..0]) {",
    },
    Defect {
        name: "latency is taken from the actual send",
        package: "moonwire-load",
        path: "crates/load/src/tally.rs",
        right: "now_ns.saturating_sub(reply.entry.intended_ns)",
        wrong: "now_ns.saturating_sub(reply.entry.wire_ns)",
    },
];

/// Breaks the committed state in each of the ways and runs the tests that must notice.
pub(crate) fn defects(table: &mut Table) -> Result<()> {
    let tree = WorkTree::new()?;
    for defect in DEFECTS {
        let path = tree.0.join(defect.path);
        let text = std::fs::read_to_string(&path).with_context(|| defect.path)?;
        let found = text.matches(defect.right).count();
        ensure!(
            found == 1,
            "{}: `{}` occurs {found} times",
            defect.path,
            defect.right
        );
        ensure!(
            tree.tests_pass(defect.package)?,
            "{} fails as it is",
            defect.package
        );
        std::fs::write(&path, text.replace(defect.right, defect.wrong))?;
        ensure!(
            tree.builds(defect.package)?,
            "`{}` does not compile",
            defect.wrong
        );
        let passed = tree.tests_pass(defect.package)?;
        std::fs::write(&path, text)?;
        let figure = if passed { "tests pass" } else { "tests fail" };
        table.line(defect.name, figure, "tests fail", !passed);
    }
    Ok(())
}

/// A second work tree of this repository, removed when dropped.
struct WorkTree(PathBuf);

impl WorkTree {
    fn new() -> Result<Self> {
        let tree = Self(place::target()?.join("breakage"));
        tree.remove();
        let added = git(&["worktree", "add", "--detach", "--force"])
            .arg(&tree.0)
            .status()?;
        ensure!(added.success(), "git worktree add failed");
        Ok(tree)
    }

    fn builds(&self, package: &str) -> Result<bool> {
        self.test(package, &["--no-run"])
    }

    fn tests_pass(&self, package: &str) -> Result<bool> {
        self.test(package, &[])
    }

    fn test(&self, package: &str, arguments: &[&str]) -> Result<bool> {
        let status = place::cargo()
            .current_dir(&self.0)
            .args(["test", "--quiet", "-p", package, "--lib"])
            .args(arguments)
            // Foreign crates are built already.
            .env("CARGO_TARGET_DIR", place::target()?)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success())
    }

    fn remove(&self) {
        let path: &Path = &self.0;
        git(&["worktree", "remove", "--force"])
            .arg(path)
            .stderr(Stdio::null())
            .status()
            .ok();
    }
}

impl Drop for WorkTree {
    fn drop(&mut self) {
        self.remove();
    }
}

fn git(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(place::root()).args(arguments);
    command
}
