//! `cargo xtask fuzz`: the targets in `fuzz/`, two at a time and each for some minutes, with what
//! came of it.
//!
//! `cargo fuzz` and a nightly toolchain are needed (`rustup toolchain install nightly`,
//! `cargo install cargo-fuzz`). New inputs stay in the target folder; the corpus that is kept is
//! only read. A finding is an input in `fuzz/artifacts/TARGET`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::acceptance::table::Table;
use crate::place;

mod planted;

pub(crate) use planted::planted;

/// The targets: `fuzz/targets/NAME.rs`, and `fuzz/corpus/NAME`.
const TARGETS: [&str; 7] = [
    "request", "response", "frames", "deflate", "close", "records", "session",
];

/// Targets that run at a time.
const AT_A_TIME: usize = 2;

/// Runs one target, or each, and prints what it executed and found.
pub(crate) fn run(arguments: &[&str]) -> Result<ExitCode> {
    let (targets, duration) = parse(arguments)?;
    let mut table = Table::new("Fuzzing: no input breaks a target");
    let built = targets
        .iter()
        .map(|target| Fuzzer::build(place::root(), target));
    let fuzzers = built.collect::<Result<Vec<_>>>()?;
    let corpora = place::target()?.join("fuzz-corpus");
    for together in fuzzers.chunks(AT_A_TIME) {
        let outcomes = thread::scope(|scope| {
            let corpora = &corpora;
            let run = |fuzzer| scope.spawn(move || Fuzzer::run(fuzzer, duration, corpora));
            let running: Vec<_> = together.iter().map(run).collect();
            let joined = running.into_iter().map(|running| running.join());
            let expected = "a run that fails is an error, not a panic";
            joined
                .map(|joined| joined.expect(expected))
                .collect::<Result<Vec<_>>>()
        })?;
        for (fuzzer, outcome) in together.iter().zip(outcomes) {
            let figure = format!(
                "{} executions in {:.0} s, {} findings",
                outcome.executions,
                outcome.elapsed.as_secs_f64(),
                outcome.findings
            );
            let passed = outcome.findings == 0 && outcome.executions > 0;
            table.line(fuzzer.target, figure, "0 findings", passed);
        }
    }
    Ok(table.finish())
}

/// `[TARGET] [--minutes N]`: which, and how long each.
fn parse(arguments: &[&str]) -> Result<(Vec<&'static str>, Duration)> {
    let (mut targets, mut minutes) = (TARGETS.to_vec(), 1.0);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if *argument == "--minutes" {
            let value = arguments.next().context("--minutes needs a number")?;
            minutes = value.parse::<f64>().context("--minutes needs a number")?;
            ensure!(minutes > 0.0, "--minutes is more than 0");
        } else {
            let known = TARGETS.into_iter().find(|target| target == argument);
            match known {
                Some(target) => targets = vec![target],
                None => bail!("no target `{argument}`; there are {}", TARGETS.join(", ")),
            }
        }
    }
    Ok((targets, Duration::from_secs_f64(60.0 * minutes)))
}

/// A target that was built.
struct Fuzzer {
    target: &'static str,
    /// The repository that it was built from.
    root: PathBuf,
}

/// What came of a run.
struct Outcome {
    executions: u64,
    /// Inputs that broke the target; it stops at the first.
    findings: usize,
    elapsed: Duration,
    /// What the fuzzer said.
    log: String,
}

impl Fuzzer {
    fn build(root: &Path, target: &'static str) -> Result<Self> {
        eprintln!("{target}: building");
        let fuzzer = Self {
            target,
            root: root.into(),
        };
        let status = fuzzer.cargo_fuzz("build")?.status();
        let status = status.context("cargo fuzz")?;
        ensure!(
            status.success(),
            "the target does not build; are a nightly toolchain and cargo-fuzz installed?"
        );
        Ok(fuzzer)
    }

    /// Runs until the time is over or something is found; new inputs are kept in `found`.
    fn run(&self, duration: Duration, found: &Path) -> Result<Outcome> {
        eprintln!("{}: fuzzing for {} s", self.target, duration.as_secs());
        let found = found.join(self.target);
        std::fs::create_dir_all(&found)?;
        let artifacts = self.root.join("fuzz/artifacts").join(self.target);
        let before = files(&artifacts);
        let begin = Instant::now();
        let output = self
            .cargo_fuzz("run")?
            // The first folder gets what is new.
            .arg(found)
            .arg(self.root.join("fuzz/corpus").join(self.target))
            .args([
                "--",
                "-print_final_stats=1",
                "-timeout=10",
                "-rss_limit_mb=1024",
            ])
            .arg(format!("-max_total_time={}", duration.as_secs().max(1)))
            .args(self.dictionary())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("cargo fuzz")?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut findings = files(&artifacts).saturating_sub(before);
        if !output.status.success() {
            // What was found before has the same name.
            findings = findings.max(1);
            std::fs::write(
                place::target()?.join(format!("fuzz-{}.log", self.target)),
                &log,
            )?;
            log.lines()
                .filter(|line| line.contains("panicked at") || line.starts_with("SUMMARY"))
                .for_each(|line| eprintln!("{}: {line}", self.target));
        }
        Ok(Outcome {
            executions: executions(&log).unwrap_or_default(),
            findings,
            elapsed: begin.elapsed(),
            log,
        })
    }

    /// Words that chance would take long to spell, where the target has some.
    fn dictionary(&self) -> Option<String> {
        let file = format!("fuzz/dictionaries/{}.dict", self.target);
        let file = self.root.join(file);
        file.is_file().then(|| format!("-dict={}", file.display()))
    }

    /// Every comparison of a compressor is traced otherwise, which makes it a hundred times slower.
    fn target_flags(&self) -> &'static [&'static str] {
        match self.target {
            "deflate" => &["--no-trace-compares"],
            _ => &[],
        }
    }

    /// `cargo fuzz` of the nightly toolchain, with the target.
    fn cargo_fuzz(&self, verb: &str) -> Result<Command> {
        let mut command = Command::new("rustup");
        command
            .current_dir(&self.root)
            .args(["run", "nightly", "cargo", "fuzz", verb, "--target-dir"])
            // One for every work tree: what is foreign is built once.
            .arg(place::target()?.join("fuzz"))
            .args(self.target_flags())
            .arg(self.target)
            // It is ours that is set by the cargo which runs us.
            .env_remove("CARGO")
            .env_remove("RUSTUP_TOOLCHAIN");
        Ok(command)
    }
}

/// How many there are; none if there is no such folder.
fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// From the statistics at the end, or, if something was found, from the last line of progress.
fn executions(log: &str) -> Option<u64> {
    let last = |pick: fn(&str) -> Option<&str>| log.lines().rev().find_map(pick)?.parse().ok();
    last(|line| line.strip_prefix("stat::number_of_executed_units: "))
        .or_else(|| last(|line| line.strip_prefix('#')?.split(['\t', ' ', ':']).next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let all = (TARGETS.to_vec(), Duration::from_secs(60));
        assert_eq!(parse(&[]).unwrap(), all);
        let asked = parse(&["close", "--minutes", "0.5"]).unwrap();
        assert_eq!(asked, (vec!["close"], Duration::from_secs(30)));
        assert!(parse(&["closed"]).is_err());
        assert!(parse(&["--minutes"]).is_err());
        assert!(parse(&["--minutes", "-1"]).is_err());
    }

    #[test]
    fn executions_are_read() {
        let log = "#2\tINITED cov: 5\n#4096\tpulse  cov: 9\n==1== ERROR: libFuzzer\n";
        assert_eq!(executions(log), Some(4096));
        let log = format!("{log}stat::number_of_executed_units: 5000\nstat::peak_rss_mb: 44\n");
        assert_eq!(executions(&log), Some(5000));
        assert_eq!(executions("error: no nightly"), None);
    }

    #[test]
    fn every_target_is_there_with_its_corpus() {
        let folder = place::root().join("fuzz");
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for target in TARGETS {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target}"
            );
            assert!(
                folder.join(format!("targets/{target}.rs")).exists(),
                "{target}"
            );
            let inputs = std::fs::read_dir(folder.join("corpus").join(target)).unwrap();
            let bytes: Vec<u64> = inputs
                .map(|input| input.unwrap().metadata().unwrap().len())
                .collect();
            assert!(
                (1..=200).contains(&bytes.len()),
                "{target}: {} inputs",
                bytes.len()
            );
            assert!(bytes.iter().sum::<u64>() <= 300 * 1024, "{target}");
        }
        assert_eq!(files(&folder.join("targets")), TARGETS.len());
    }
}
