//! `cargo xtask bench`: the server beside its rivals, and beside an echo of raw bytes, which is the
//! floor of any server.
//!
//! All servers of a row are started, each on the same processor and idle while it is not its turn;
//! in each round every one is loaded for some seconds by one generator on another processor, in an
//! order that moves on. Where memory is measured, each is started anew. What is compared is always
//! of one round: medians of ratios to the rival, with the least and the most of them.

mod contender;
mod environment;
mod figures;
mod generator;
mod kept;
mod measure;
mod row;
mod table;

use std::hash::{DefaultHasher, Hasher as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{acceptance, peers};
use contender::Contender;
use figures::Figures;
use kept::Kept;
use row::{Driver, Kind, ROWS, Row, Work};

/// What to run.
struct Plan {
    rows: Vec<&'static Row>,
    rounds: usize,
    duration: Duration,
    /// Whether rounds of an earlier run of the same program are taken over.
    goes_on: bool,
}

/// Runs rows and prints a table of each; all of it goes to `bench/results/` as well.
pub(crate) fn run(arguments: &[&str]) -> Result<ExitCode> {
    let plan = plan(arguments)?;
    install(&plan)?;
    let program = acceptance::release_program()?;
    let made_by = made_by(&program, plan.duration)?;
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
        let kept = Kept::open(row, &made_by, plan.goes_on)?;
        match measured(row, &plan, kept, &program) {
            Ok(rounds) => results.row(row, rounds),
            // A rival that is not here is no reason to measure nothing.
            Err(error) => results.missing(row, &format!("{error:#}")),
        }
    }
    results.finish(begin.elapsed())
}

/// What rounds are of, whatever the row.
fn made_by(program: &Path, duration: Duration) -> Result<String> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:x}, {} s", hasher.finish(), duration.as_secs()))
}

/// One figure of each contender in each round.
fn measured(
    row: &'static Row,
    plan: &Plan,
    mut kept: Kept,
    program: &Path,
) -> Result<Vec<Vec<Figures>>> {
    if kept.count() > 0 {
        eprintln!("   {} rounds are there already", kept.count());
    }
    if kept.count() < plan.rounds {
        let turns = Turns::begin(row, plan.duration, program)?;
        for round in kept.count()..plan.rounds {
            kept.add(turns.round(round)?)?;
        }
    }
    Ok(kept.into_rounds(plan.rounds))
}

/// The contenders of a row, which take turns.
struct Turns<'a> {
    row: &'static Row,
    duration: Duration,
    program: &'a Path,
    /// Those that run all the time: all of them, or none.
    running: Vec<Contender>,
    /// What all of them can answer, where that is asked for.
    rate_per_s: Option<u64>,
}

impl<'a> Turns<'a> {
    fn begin(row: &'static Row, duration: Duration, program: &'a Path) -> Result<Self> {
        let mut turns = Self {
            row,
            duration,
            program,
            running: Vec::new(),
            rate_per_s: None,
        };
        let start = |kind: &Kind| Contender::start(*kind, row, program);
        match row.work {
            Work::Idle { .. } => {}
            Work::Generate(_) => turns.running = vec![start(&Kind::Native(Driver::IoUring))?],
            Work::Echo(_) | Work::Handshakes { .. } | Work::Paced(_) => {
                turns.running = row.contenders.iter().map(start).collect::<Result<_>>()?;
            }
        }
        if let Work::Paced(_) = row.work {
            turns.rate_per_s = Some(turns.bearable_per_s()?);
        }
        Ok(turns)
    }

    /// So much of what the slowest can answer at most.
    fn bearable_per_s(&self) -> Result<u64> {
        let mut least = f64::INFINITY;
        for contender in &self.running {
            let figures = self.figures(contender)?;
            eprintln!("   at most: {}", figures.sentence(self.row.work.columns()));
            least = least.min(figures.of("messages_per_s"));
        }
        Ok((least * BEARABLE_SHARE) as u64)
    }

    /// Everybody's turn, in an order that moves on with the rounds.
    fn round(&self, round: usize) -> Result<Vec<Figures>> {
        let count = self.row.contenders.len();
        let mut figures: Vec<Option<Figures>> = vec![None; count];
        for turn in 0..count {
            let place = (round + turn) % count;
            let found = self.turn(self.row.contenders[place], place)?;
            let sentence = found.sentence(self.row.work.columns());
            eprintln!("   round {}: {sentence}", round + 1);
            figures[place] = Some(found);
        }
        Ok(figures.into_iter().flatten().collect())
    }

    fn turn(&self, kind: Kind, place: usize) -> Result<Figures> {
        match (self.row.work, self.running.get(place)) {
            (Work::Generate(load), _) => {
                let server = self.running.first().context("no server runs")?;
                measure::generator(server, kind, load, self.duration, self.program)
            }
            (_, Some(contender)) => self.figures(contender),
            (_, None) => self.figures(&Contender::start(kind, self.row, self.program)?),
        }
    }

    fn figures(&self, contender: &Contender) -> Result<Figures> {
        match self.row.work {
            Work::Generate(_) => bail!("its generators are measured, and not the server"),
            Work::Echo(load) | Work::Paced(load) => measure::echo(
                contender,
                load,
                self.rate_per_s,
                self.duration,
                self.program,
            ),
            Work::Idle { connections } => measure::idle(contender, connections, self.program),
            Work::Handshakes {
                connections,
                open_max,
                is_resumed,
            } => {
                let clients = (connections, open_max, is_resumed);
                measure::handshakes(contender, clients, self.program)
            }
        }
    }
}

/// Of what the slowest contender can answer.
const BEARABLE_SHARE: f64 = 0.8;

/// Gets the rivals of these rows that are not here yet.
fn install(plan: &Plan) -> Result<()> {
    let kinds = plan.rows.iter().flat_map(|row| row.contenders);
    let rivals = kinds.filter(|kind| kind.driver().is_none());
    let contestants = rivals.filter_map(|kind| kind.contestant());
    let mut names: Vec<&str> = contestants
        .map(|name| {
            name.split_once('/')
                .map_or(name, |(contestant, _)| contestant)
        })
        .collect();
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
        goes_on: false,
    };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if *name == "--resume" {
            plan.goes_on = true;
            continue;
        }
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
                 N, --seconds N and --resume"
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
