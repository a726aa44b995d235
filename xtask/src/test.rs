//! `cargo xtask test`: all that must hold before a change lands, in the order of how soon it tells.
//!
//! Everything is built in the one dev profile, in which dependencies are optimised and ours are
//! not, so that an empty clone is built once.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Result;

use crate::step::{self, Tally};
use crate::{autobahn, peers, place, tidy};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    /// Without what the foreign peers are needed for.
    Quick,
}

type Step = (&'static str, fn() -> Result<Tally>);

/// Runs step by step, stops at the first that fails, and ends with one line of counts.
pub(crate) fn run(extent: Extent) -> Result<ExitCode> {
    let begin = Instant::now();
    let steps = match extent {
        Extent::Full => [ALWAYS, PEERS].concat(),
        Extent::Quick => ALWAYS.to_vec(),
    };
    let mut tally = Tally::default();
    let mut left = steps.into_iter();
    for (name, work) in left.by_ref() {
        tally += step::timed(name, work).unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            Tally::FAILED
        });
        if tally.failed > 0 {
            break;
        }
    }
    let skipped: Vec<&str> = left.map(|(name, _)| name).collect();
    if !skipped.is_empty() {
        println!("== not run: {}", skipped.join(", "));
    }
    println!("== test: {:.1} s", begin.elapsed().as_secs_f64());
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

const ALWAYS: &[Step] = &[
    ("format", || step::check(&mut cargo("fmt --all --check"))),
    ("tidy", || tidy::run().map(tally)),
    ("lint", || {
        step::check(cargo("clippy --workspace --all-targets").args(["--", "-Dwarnings"]))
    }),
    // `--all-targets` leaves out tests that do not run by default.
    ("lint of peer tests", || {
        step::check(cargo("clippy --workspace --test peers").args(["--", "-Dwarnings"]))
    }),
    ("tests", || step::tests(&mut cargo("test --workspace"))),
    // The other driver than the one that is taken where nothing is said.
    ("tests of the server over io_uring", || {
        let mut tests = cargo("test --workspace --test process -- --skip lab::");
        step::tests(tests.env(DRIVER, "io_uring"))
    }),
];

/// What `moonwire serve` takes its driver from.
const DRIVER: &str = "MOONWIRE_DRIVER";

const PEERS: &[Step] = &[
    ("peers", || peers::install().map(tally)),
    // Chosen from the whole workspace, so that nothing is built again with other features.
    ("tests with peers", || {
        step::tests(&mut cargo("test --workspace --test peers"))
    }),
    ("autobahn, sections 1 to 10", autobahn::quick),
];

fn cargo(arguments: &str) -> Command {
    let mut command = place::cargo();
    command.args(arguments.split(' '));
    command
}

fn tally(code: ExitCode) -> Tally {
    if code == ExitCode::SUCCESS {
        Tally::PASSED
    } else {
        Tally::FAILED
    }
}
