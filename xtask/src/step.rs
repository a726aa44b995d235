//! One step of a chore: a command with a name, timed, its test results counted.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

/// How many checks passed and failed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) const PASSED: Self = Self {
        passed: 1,
        failed: 0,
    };
    pub(crate) const FAILED: Self = Self {
        passed: 0,
        failed: 1,
    };
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Runs `work` between two progress lines, the second with what it took.
pub(crate) fn timed(name: &str, work: impl FnOnce() -> Result<Tally>) -> Result<Tally> {
    println!("== {name}");
    let begin = Instant::now();
    let tally = work();
    let outcome = match &tally {
        Ok(tally) if tally.failed == 0 => "ok",
        Ok(_) | Err(_) => "FAILED",
    };
    println!(
        "== {name}: {outcome} in {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    tally
}

/// A command that is one check: it passes when it exits with 0.
pub(crate) fn check(command: &mut Command) -> Result<Tally> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        // A command that a signal ended says nothing itself.
        eprintln!("{command:?} ended with {status}");
    }
    Ok(if status.success() {
        Tally::PASSED
    } else {
        Tally::FAILED
    })
}

/// A `cargo test` whose `test result:` lines are summed up while they pass by.
pub(crate) fn tests(command: &mut Command) -> Result<Tally> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let output = child.stdout.take().expect("stdout is piped above");
    let mut tally = Tally::default();
    for line in BufReader::new(output).lines() {
        let line = line.context("the output of cargo test")?;
        println!("{line}");
        tally += parse(&line).unwrap_or_default();
    }
    if !child.wait()?.success() && tally.failed == 0 {
        tally.failed = 1;
    }
    Ok(tally)
}

/// `test result: ok. 3 passed; 0 failed; 0 ignored; ...`
fn parse(line: &str) -> Option<Tally> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = rest.split("; ").map(|part| part.split_once(' '));
    let (passed, _) = counts.next()??;
    let (failed, _) = counts.next()??;
    Some(Tally {
        passed: passed.parse().ok()?,
        failed: failed.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            parse(line),
            Some(Tally {
                passed: 12,
                failed: 3
            })
        );
        assert_eq!(parse("test result of a day"), None);
        assert_eq!(parse("running 3 tests"), None);
    }

    #[test]
    fn a_command_that_fails_without_a_test_counts_as_one() {
        assert_eq!(tests(&mut Command::new("false")).unwrap(), Tally::FAILED);
        assert_eq!(check(&mut Command::new("true")).unwrap(), Tally::PASSED);
        assert!(check(&mut Command::new("/nonexistent")).is_err());
    }
}
