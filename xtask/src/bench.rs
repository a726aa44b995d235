//! `cargo xtask bench`: the server beside its rivals, and beside an echo of raw bytes, which is the
//! floor of any server.
//!
//! All servers of a row are started, each on the same processor and idle while it is not its turn;
//! in each round every one is loaded for some seconds by one generator on another processor, in an
//! order that moves on. What is compared is always of one round: medians of ratios to the rival,
//! with the least and the most of them.

mod contender;
mod environment;
mod measure;
mod row;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{acceptance, peers};
use contender::Contender;
use measure::Measured;
use row::{ROWS, Row};

/// What to run.
struct Plan {
    rows: Vec<&'static Row>,
    rounds: usize,
    duration: Duration,
}

/// Runs rows and prints a table of each; all of it goes to `bench/results/` as well.
pub(crate) fn run(arguments: &[&str]) -> Result<ExitCode> {
    let plan = plan(arguments)?;
    install(&plan)?;
    let program = acceptance::release_program()?;
    let begin = Instant::now();
    let mut results = table::Results::new(environment::describe());
    for (number, row) in plan.rows.iter().enumerate() {
        let elapsed = begin.elapsed().as_secs();
        eprintln!(
            "== {} ({} of {}, {elapsed} s)",
            row.name,
            number + 1,
            plan.rows.len()
        );
        match measured(row, &plan, &program) {
            Ok(rounds) => results.row(row, rounds),
            // A rival that is not here is no reason to measure nothing.
            Err(error) => results.missing(row, &format!("{error:#}")),
        }
    }
    results.finish(begin.elapsed())
}

/// One figure of each contender in each round.
fn measured(row: &'static Row, plan: &Plan, program: &Path) -> Result<Vec<Vec<Measured>>> {
    let running = row
        .contenders
        .iter()
        .map(|kind| Contender::start(*kind, row, program))
        .collect::<Result<Vec<_>>>()?;
    let mut rounds = Vec::with_capacity(plan.rounds);
    for round in 0..plan.rounds {
        let count = running.len();
        let mut figures: Vec<Option<Measured>> = vec![None; count];
        for turn in 0..count {
            let place = (round + turn) % count;
            let figure = measure::load(&running[place], row, plan.duration, program)?;
            eprintln!("   round {}: {figure}", round + 1);
            figures[place] = Some(figure);
        }
        rounds.push(figures.into_iter().flatten().collect());
    }
    Ok(rounds)
}

/// Gets the rivals of these rows that are not here yet.
fn install(plan: &Plan) -> Result<()> {
    let kinds = plan.rows.iter().flat_map(|row| row.contenders);
    let rivals = kinds.filter(|kind| kind.driver().is_none());
    let mut names: Vec<&str> = rivals.filter_map(|kind| kind.contestant()).collect();
    names.sort_unstable();
    names.dedup();
    let code = peers::run_with(&names)?;
    ensure!(
        code == ExitCode::SUCCESS,
        "not all rivals could be installed"
    );
    Ok(())
}

fn plan(arguments: &[&str]) -> Result<Plan> {
    let mut plan = Plan {
        rows: ROWS.iter().filter(|row| row.is_acceptance).collect(),
        rounds: 7,
        duration: Duration::from_secs(3),
    };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let value = rest.next().copied().unwrap_or_default();
        match *name {
            "--rows" => plan.rows = rows(value)?,
            "--rounds" => plan.rounds = positive(name, value)?,
            "--seconds" => {
                let seconds = positive(name, value)?;
                plan.duration = Duration::from_secs(seconds as u64);
            }
            _ => bail!(
                "`{name}` is no argument of bench; it takes --rows acceptance|all|NAMES, --rounds \
                 N and --seconds N"
            ),
        }
    }
    Ok(plan)
}

fn positive(name: &str, value: &str) -> Result<usize> {
    let number = value.parse().ok().filter(|number| *number > 0);
    number.with_context(|| format!("{name} {value} must be a whole number from 1 on"))
}

fn rows(names: &str) -> Result<Vec<&'static Row>> {
    match names {
        "acceptance" => Ok(ROWS.iter().filter(|row| row.is_acceptance).collect()),
        "all" => Ok(ROWS.iter().collect()),
        names => {
            let wanted: Vec<&str> = names.split(',').collect();
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            for name in &wanted {
                ensure!(
                    known.contains(name),
                    "there is no row `{name}`; there are {}",
                    known.join(", ")
                );
            }
            Ok(ROWS
                .iter()
                .filter(|row| wanted.contains(&row.name))
                .collect())
        }
    }
}
