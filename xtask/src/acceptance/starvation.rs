//! A generator that lacks CPU must say so, and one that has plenty must not.

use std::fmt;

use anyhow::Result;

use super::disturbance::{self, HostMoment, Moment};
use super::program::Programs;
use super::spinner::{Priority, Spinner};
use super::table::Table;
use crate::server::Server;

const RUNS: usize = 20;
/// Where the server runs, and where the generator does.
const SERVER_CORE: u8 = 0;
const GENERATOR_CORE: u8 = 1;
/// Processes that do nothing but spin on the generator's core.
const SPINNERS: usize = 4;
/// The share of the machine that others may use before a run counts as disturbed: processes that
/// are none of ours, and what a hypervisor takes. What the run says of itself is no evidence.
const OUTSIDE_MAX: f64 = 0.05;
/// The share that a hypervisor alone may take, as in a bench: the other one is also of what the
/// kernel cannot tell from our own traffic, and hides some of it.
const STOLEN_MAX: f64 = 0.01;
/// Disturbed runs that are repeated before we give up.
const REPEATS_MAX: usize = 60;

/// Messages in flight on each connection while a ceiling is measured. Several leave in one write,
/// so that this is the most the generator can send at all ...
const PIPELINED: u32 = 8;
/// ... and this is what it can send when each message leaves in a write of its own, as those of an
/// open loop that is in time do.
const ONE_BY_ONE: u32 = 1;

/// Half of what the generator could send, with a fifth of the core that it needs for that.
pub(crate) fn starved(programs: &Programs, table: &mut Table) -> Result<()> {
    let server = programs.serve(Some(SERVER_CORE), &[])?;
    let ceiling = ceiling(programs, &server, PIPELINED)?;
    let rate = (ceiling / 2.0).round();
    let spinners: Vec<Spinner> = (0..SPINNERS)
        .map(|_| Spinner::start(GENERATOR_CORE, Priority::Normal))
        .collect::<Result<_>>()?;
    let mut invalid = 0;
    for _ in 0..RUNS {
        let run = open_loop(programs, &server, rate)?;
        eprintln!("   {}: {}", run.verdict(), run.reasons());
        invalid += usize::from(run.is_invalid());
    }
    drop(spinners);
    table.line(
        format!("starved: {rate:.0} msg/s of a ceiling of {ceiling:.0}, a fifth of a core"),
        format!("{invalid} of {RUNS} INVALID"),
        format!("{RUNS} of {RUNS}"),
        invalid == RUNS,
    );
    Ok(())
}

/// A fifth of what the generator could send, on a core of its own.
pub(crate) fn unhurried(programs: &Programs, table: &mut Table) -> Result<()> {
    let server = programs.serve(Some(SERVER_CORE), &[])?;
    let ceiling = ceiling(programs, &server, ONE_BY_ONE)?;
    let rate = (ceiling / 5.0).floor();
    let runs = undisturbed(|| {
        disturbance::wait_for_quiet(&server.proc(), OUTSIDE_MAX)?;
        let (before, host) = (Moment::now(&server.proc())?, HostMoment::now()?);
        let run = open_loop(programs, &server, rate)?;
        let outside = Moment::now(&server.proc())?.outside_since(before);
        let stolen = HostMoment::now()?.stolen_since(host);
        let (verdict, reasons) = (run.verdict(), run.reasons());
        eprintln!(
            "   {verdict}, {:.1} % outside, {:.1} % stolen: {reasons}",
            100.0 * outside,
            100.0 * stolen
        );
        let is_disturbed = outside > OUTSIDE_MAX || stolen > STOLEN_MAX;
        Ok((
            run.is_invalid(),
            is_disturbed.then_some(outside.max(stolen)),
        ))
    })?;
    table.line(
        format!("unhurried: {rate:.0} msg/s of a ceiling of {ceiling:.0}"),
        runs.to_string(),
        format!(
            "0 of {RUNS}; disturbed is over {:.0} % of the machine used by others, or {:.0} % by \
             the host",
            100.0 * OUTSIDE_MAX,
            100.0 * STOLEN_MAX
        ),
        runs.invalid == 0 && runs.counted == RUNS,
    );
    Ok(())
}

/// Runs, those that were disturbed from outside apart.
#[derive(Debug, Default, PartialEq)]
struct Runs {
    counted: usize,
    /// Those of the counted ones that were INVALID.
    invalid: usize,
    /// Shares of the machine that others used in the runs that do not count, in order.
    disturbed: Vec<f64>,
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} INVALID", self.invalid, self.counted)?;
        if self.disturbed.is_empty() {
            return Ok(());
        }
        let shares: Vec<String> = self
            .disturbed
            .iter()
            .map(|share| format!("{:.0}", 100.0 * share))
            .collect();
        let (count, shares) = (shares.len(), shares.join(", "));
        write!(
            f,
            "; {count} disturbed from outside and repeated ({shares} %)"
        )
    }
}

/// Runs until enough count, or too many were disturbed. `run` gives whether it was INVALID, and,
/// if that disturbed it, the share of the machine that others used meanwhile.
fn undisturbed(mut run: impl FnMut() -> Result<(bool, Option<f64>)>) -> Result<Runs> {
    let mut runs = Runs::default();
    while runs.counted < RUNS && runs.disturbed.len() < REPEATS_MAX {
        let (invalid, disturbance) = run()?;
        if let Some(outside) = disturbance {
            eprintln!("   does not count: disturbed from outside");
            runs.disturbed.push(outside);
            continue;
        }
        runs.counted += 1;
        runs.invalid += usize::from(invalid);
    }
    Ok(runs)
}

/// Messages per second in a closed loop, generator and server on a core each.
fn ceiling(programs: &Programs, server: &Server, in_flight: u32) -> Result<f64> {
    let url = format!("{}/echo", server.url);
    let arguments = format!("-t 1 -c 50 -p {in_flight} -d 5s");
    let run = programs.load(Some(GENERATOR_CORE), &url, &arguments)?;
    run.number("/rate/sent_per_s")
}

fn open_loop(programs: &Programs, server: &Server, rate: f64) -> Result<super::run_file::RunFile> {
    let url = format!("{}/echo", server.url);
    programs.load(
        Some(GENERATOR_CORE),
        &url,
        &format!("-t 1 -c 50 -q {rate} -d 5s"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_did_makes_a_run_not_count() {
        let mut number = 0;
        let runs = undisturbed(|| {
            number += 1;
            // One that is INVALID by itself, and one that others made so.
            Ok(match number {
                2 => (true, None),
                5 => (true, Some(0.31)),
                _ => (false, None),
            })
        });
        let runs = runs.unwrap();
        assert_eq!((runs.counted, runs.invalid), (RUNS, 1));
        assert_eq!(
            runs.to_string(),
            "1 of 20 INVALID; 1 disturbed from outside and repeated (31 %)"
        );
    }

    #[test]
    fn a_machine_that_others_use_is_given_up() {
        let mut number = 0;
        let runs = undisturbed(|| {
            number += 1;
            Ok((false, Some(0.5)))
        });
        assert_eq!(
            (number, runs.unwrap().disturbed.len()),
            (REPEATS_MAX, REPEATS_MAX)
        );
    }
}
