//! `cargo xtask tidy`: the rules of the house that a machine can check.
//!
//! Each rule lives in a file with bad snippets as its tests. A finding says where, which rule, and
//! what would be right.

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::place;

use self::sizes::Tolerated;
use self::tree::File;

mod arrows;
mod layout;
mod lexer;
mod manifests;
mod sizes;
mod tree;
mod words;

/// Something that is not as the house wants it.
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Finding {
    fn new(file: &File, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self::at(&file.path, line, rule, advice)
    }

    fn at(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        let root = place::root().to_str().unwrap_or_default();
        let path = path
            .strip_prefix(root)
            .unwrap_or(path)
            .trim_start_matches('/');
        Self {
            path: path.into(),
            line,
            rule,
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.advice
        )
    }
}

/// Prints what is found; the exit code says whether that is nothing.
pub(crate) fn run() -> Result<ExitCode> {
    let findings = findings()?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

fn findings() -> Result<Vec<Finding>> {
    let root = place::root();
    let files = tree::files(root)?;
    let tolerated =
        std::fs::read_to_string(root.join(sizes::TOLERATED_PATH)).context(sizes::TOLERATED_PATH)?;
    let tolerated: Tolerated = toml::from_str(&tolerated).context(sizes::TOLERATED_PATH)?;
    let mut findings = Vec::new();
    arrows::check(&place::metadata()?, &mut findings);
    arrows::check_proto(&files, &mut findings);
    sizes::check(&files, &tolerated, &mut findings);
    for file in &files {
        words::check(file, &mut findings);
        layout::check(file, &mut findings);
        manifests::check(file, &mut findings);
    }
    findings.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    Ok(findings)
}

/// Lines and rules of what a check finds in one file: what the tests of the rules look at.
#[cfg(test)]
fn found(
    check: fn(&File, &mut Vec<Finding>),
    path: &str,
    text: &str,
) -> Vec<(usize, &'static str)> {
    let mut findings = Vec::new();
    check(&File::new(path, text), &mut findings);
    findings
        .iter()
        .map(|finding| (finding.line, finding.rule))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let findings: Vec<String> = super::findings()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}
