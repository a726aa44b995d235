//! Defects put in on purpose: each must make the tests of its room fail.
//!
//! They are put into a work tree of their own, so that nobody's files are touched.

use std::process::Stdio;

use anyhow::{Result, ensure};

use super::table::Table;
use super::work_tree::{Defect, WorkTree};
use crate::place;

/// Each with the package whose tests must notice.
const DEFECTS: &[(&str, Defect)] = &[
    (
        "moonwire-proto",
        Defect {
            name: "payloads are not masked",
            path: "crates/proto/src/mask.rs",
            right: "(u64::from_ne_bytes(*word) ^ wide).to_ne_bytes()",
            wrong: "(u64::from_ne_bytes(*word) ^ (wide & 0)).to_ne_bytes()",
        },
    ),
    (
        "moonwire-proto",
        Defect {
            name: "UTF-8 of whole messages is not checked",
            path: "crates/proto/src/connection/receive.rs",
            right: "simdutf8::basic::from_utf8(payload).is_err()",
            wrong: "payload.len() == usize::MAX",
        },
    ),
    (
        "moonwire-proto",
        Defect {
            name: "UTF-8 of fragments is not checked",
            path: "crates/proto/src/payload.rs",
            right: "simdutf8::compat::from_utf8(tail(&self.newest, self.unchecked_bytes))",
            wrong: "simdutf8::compat::from_utf8(tail(&self.newest, 0))",
        },
    ),
    (
        "moonwire-load",
        Defect {
            name: "latency is taken from the actual send",
            path: "crates/load/src/tally.rs",
            right: "now_ns.saturating_sub(reply.entry.intended_ns)",
            wrong: "now_ns.saturating_sub(reply.entry.wire_ns)",
        },
    ),
];

/// Breaks the committed state in each of the ways and runs the tests that must notice.
pub(crate) fn defects(table: &mut Table) -> Result<()> {
    let tree = WorkTree::new("breakage")?;
    for (package, defect) in DEFECTS {
        ensure!(tests_pass(&tree, package, &[])?, "{package} fails as it is");
        let planted = tree.plant(defect)?;
        ensure!(
            tests_pass(&tree, package, &["--no-run"])?,
            "`{}` does not compile",
            defect.wrong
        );
        let passed = tests_pass(&tree, package, &[])?;
        drop(planted);
        let figure = if passed { "tests pass" } else { "tests fail" };
        table.line(defect.name, figure, "tests fail", !passed);
    }
    Ok(())
}

fn tests_pass(tree: &WorkTree, package: &str, arguments: &[&str]) -> Result<bool> {
    let status = place::cargo()
        .current_dir(tree.path())
        .args(["test", "--quiet", "-p", package, "--lib"])
        .args(arguments)
        // Foreign crates are built already.
        .env("CARGO_TARGET_DIR", place::target()?)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_defect_has_its_place() {
        for (_, defect) in DEFECTS {
            defect.find(place::root()).unwrap();
        }
    }
}
