//! The chores of the workspace: `cargo xtask test | bench | autobahn | fuzz | tidy | peers |
//! acceptance`.
//!
//! Everything that a person or CI does to this repository beyond `cargo build` starts here, so that
//! there is one place that knows how. It imports none of the product.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "chores talk to a terminal"
)]

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

mod acceptance;
mod autobahn;
mod bench;
mod fuzz;
mod peers;
mod place;
mod server;
mod step;
mod test;
mod tidy;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] | ["help", ..] | [.., "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        ["test"] => test::run(test::Extent::Full),
        ["test", "--quick"] => test::run(test::Extent::Quick),
        ["fuzz", "--planted"] => fuzz::planted(),
        ["fuzz", arguments @ ..] => fuzz::run(arguments),
        ["tidy"] => tidy::run(),
        ["peers", arguments @ ..] => peers::run_with(arguments),
        ["bench", arguments @ ..] => bench::run(arguments),
        ["autobahn", arguments @ ..] => autobahn::run(arguments),
        ["acceptance", "breakage"] => acceptance::breakage(),
        ["acceptance", "attacks", "--control", names @ ..] => acceptance::attacks_control(names),
        ["acceptance", "attacks", names @ ..] => acceptance::attacks(names),
        ["acceptance", "truth"] => acceptance::truth(),
        ["acceptance", "unhurried"] => acceptance::unhurried(),
        ["acceptance", "soak"] => acceptance::soak(),
        ["acceptance", "services"] => acceptance::services(SERVICES_S),
        ["acceptance", "services", "--seconds", text] => acceptance::services(seconds(text)?),
        ["acceptance", "threading"] => acceptance::threading(),
        ["acceptance", "budgets"] => acceptance::budgets(),
        ["acceptance", "handover"] => acceptance::handover(),
        ["acceptance", "capacity"] => acceptance::capacity(),
        ["acceptance", "planted"] => acceptance::planted(PLANTED_S),
        ["acceptance", "planted", "--seconds", text] => acceptance::planted(seconds(text)?),
        ["acceptance", "pools"] => acceptance::pools(false),
        ["acceptance", "pools", "--live"] => acceptance::pools(true),
        ["acceptance", "kills", names @ ..] => acceptance::kills(names),
        ["acceptance", "lapps-client"] => acceptance::lapps_client(),
        ["acceptance", "broadcast"] => acceptance::broadcast(BROADCAST_S),
        ["acceptance", "broadcast", "--seconds", text] => acceptance::broadcast(seconds(text)?),
        unknown => bail!("unknown command `{}`\n\n{USAGE}", unknown.join(" ")),
    }
}

/// How long the sound services are under load.
const SERVICES_S: u16 = 300;

/// The value of `--seconds`.
fn seconds(text: &str) -> Result<u16> {
    let wrong = || format!("--seconds {text} must be a whole number from 1 to 3600");
    let seconds = text.parse().with_context(wrong)?;
    ensure!((1..=3600).contains(&seconds), wrong());
    Ok(seconds)
}

/// How long servers are looked at that may leak.
const PLANTED_S: u16 = 600;

/// How long subscribers listen to broadcasts.
const BROADCAST_S: u16 = 300;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--quick]           everything CI checks; --quick leaves out the foreign peers
  bench [--rows acceptance|all|NAME,...] [--rounds N] [--seconds N] [--resume]
                           the server beside uWebSockets and others, and beside an echo of raw
                           bytes; results in bench/results. A quiet machine is needed; 20 min.
                           --resume goes on after the rounds of an earlier run of the same program
  fuzz [TARGET] [--minutes N]
                           looks for inputs that break a target, N minutes each, two at a time;
                           needs a nightly toolchain and cargo-fuzz, and builds for minutes first.
                           Targets: request, response, frames, deflate, close, records, session
  fuzz --planted           puts a defect before each target, which must find it in a minute
  tidy                     the rules of the house: arrows, sizes, words, manifests
  peers [--list|--check]   install the foreign peers of the tests and the contestants of the lab, or
                           show or check them
  peers [--contestant-folder DIR] [ID...]
                           install these contestants of the lab, or all of another folder
  autobahn [--server|--client] [--tls] [--driver epoll|io_uring] [--cases GLOB]... [--original]
                           the Autobahn test suite; all 517 cases unless told otherwise. Over
                           wss:// in the suite's own program, which needs a Python 2.7
  acceptance attacks [--noisy|--control] [NAME...]
                           what the neighbours of hostile clients feel of each attack, or of those
                           with these names; 50 min on a quiet machine, longer on others.
                           --noisy counts what the host disturbed, and says how much that is;
                           --control attacks another server on the same processor instead
  acceptance breakage      puts defects into a copy and sees whether the tests notice
  acceptance truth         known faults and starved generators against the release build; 10 min
  acceptance unhurried     the last line of truth alone, which needs a quiet host; 3 min and more
  acceptance services [--seconds N]
                           50 services that fail in every way beside 50 that do not, 5 minutes
  acceptance threading     callbacks on the worker's thread and on their own; 3 min
  acceptance budgets       how soon callbacks that do not end are stopped; 1 min
  acceptance handover      what it costs to hand a connection to another worker; 2 min
  acceptance soak          10,000 connections, idle and for 5 minutes; an idle machine is needed
  acceptance lapps-client  clients of the LAppS protocol that nobody here wrote, 1 min each
  acceptance broadcast [--seconds N]
                           10,000 subscribers of which 100 do not read, 5 minutes
  acceptance capacity      searches for the most that servers of known capacity stand; 4 min
  acceptance kills [NAME...]
                           each scenario, or these, with its server, its proxy or the lab killed;
                           8 min
  acceptance pools [--live] false alarms of comparisons, and a server that is 3 % slower; 15 min
  acceptance planted [--seconds N]
                           a leak, a loss and an order that the lab has to find; 22 min
";
