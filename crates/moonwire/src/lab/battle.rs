//! `moonwire lab SCENARIO`: contestants in rounds, and which of them can be told apart.

use std::time::Duration;

use anyhow::{Context, Error, Result};
use moonwire_lab::{
    AgentTarget, BattleEvent, BattlePlace, BattleSpec, Contestant, Kind, LabScenario, Mistake,
    Roster, Token, battle, peers_folder,
};

use moonwire_report::{Cell, Run};

use super::args::{BattleArgs, RunArgs};
use crate::exit::Exit;
use crate::load::seed_default;
use crate::output;
use crate::progress::LoadProgress;
use crate::signals;
use crate::sweep;

/// One that is part of this program.
pub(super) fn run_shipped(name: &str, args: &BattleArgs, roster: &Roster) -> Result<Exit> {
    let scenario = LabScenario::of_name(name, &args.knobs.0)?;
    run(scenario, args, roster)
}

/// One of the user's.
pub(super) fn run_file(args: &RunArgs, roster: &Roster) -> Result<Exit> {
    let scenario = LabScenario::of_file(&args.file, &args.battle.knobs.0)?;
    run(scenario, &args.battle, roster)
}

fn run(scenario: LabScenario, args: &BattleArgs, roster: &Roster) -> Result<Exit> {
    let spec = spec(scenario, args, roster)?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    output::announce_replacement(args.out.as_deref(), args.quiet);
    if !args.quiet {
        spec.scenario
            .remarks
            .iter()
            .for_each(|it| output::remark(it));
    }
    let stop = signals::stop_on_interrupt()?;
    let mut watch = Watch::new(args.quiet);
    let result = battle(&spec, &stop, &mut |event| watch.on_event(event));
    watch.progress.finish();
    let outcome = result?;
    let end = match outcome.run.cells() {
        [] => "no cell was measured".to_owned(),
        _ => format!("results: {}", outcome.folder.display()),
    };
    let told = sweep::tell(&outcome.run, args.json.as_deref(), args.quiet, &end);
    let mut exit = sweep::exit_of(&outcome.run, outcome.interrupted);
    if exit == Exit::Success && has_failed(&outcome.run) {
        exit = Exit::ThresholdFailed;
    }
    Ok(output::exit_after(exit, told))
}

/// Whether a threshold was not kept. A search goes beyond them on purpose: it has failed where no
/// load kept them and that was the contestant's fault, or where the contestant died.
fn has_failed(run: &Run) -> bool {
    let is_broken = |cell: &Cell| cell.thresholds.iter().any(|it| !it.passed);
    let is_dead = |cell: &Cell| cell.server.as_ref().is_some_and(|it| it.died.is_some());
    let mut searches = run.capacities.iter();
    match run.capacities.is_empty() {
        true => run.cells().iter().any(is_broken),
        false => {
            let has_none = searches.any(|it| it.highest.is_none() && it.limit.is_none());
            has_none || run.cells().iter().any(is_dead)
        }
    }
}

fn spec(scenario: LabScenario, args: &BattleArgs, roster: &Roster) -> Result<BattleSpec> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let wrong = |knob: &'static str| {
        let scenario = &scenario;
        move |sentence: String| scenario.mistake(knob, &sentence)
    };
    let contestants = roster.participants(&scenario.contestants);
    let contestants = contestants.map_err(wrong("contestants"))?;
    check_control(&scenario, &contestants, roster)?;
    let backend = roster.one(Kind::Server, &scenario.backend);
    let backend = backend.map_err(wrong("backend"))?;
    let clients = scenario.cross_check.iter();
    let clients: Result<Vec<_>, String> =
        clients.map(|name| roster.one(Kind::Client, name)).collect();
    let clients = clients.map_err(wrong("cross_check"))?;
    if scenario.agent.is_none() {
        let processors = std::thread::available_parallelism().map_or(usize::MAX, Into::into);
        scenario.check_processors(processors)?;
    }
    Ok(BattleSpec {
        contestants,
        backend,
        clients,
        agent: agent(&scenario)?,
        null_server: roster.one(Kind::Server, NULL_SERVER).map_err(Error::msg)?,
        peers: peers_folder(&program),
        program,
        out: args.out.clone(),
        command_line: std::env::args().collect(),
        seed: scenario.seed.unwrap_or_else(seed_default),
        scenario,
    })
}

/// A control takes part. That of a file may be left out by a flag that says who does.
fn check_control(
    scenario: &LabScenario,
    contestants: &[Contestant],
    roster: &Roster,
) -> Result<(), Mistake> {
    let Some(control) = &scenario.rules.control else {
        return Ok(());
    };
    let is_named = |one: &Contestant| one.name() == *control;
    let may_be_out = scenario.is_flag("contestants") && !scenario.is_flag("control");
    let is_known = may_be_out && roster.contestants().iter().any(is_named);
    if is_known || contestants.iter().any(is_named) {
        return Ok(());
    }
    let names: Vec<String> = contestants.iter().map(Contestant::name).collect();
    let clause = format!(
        "'{control}' does not take part: give one of {}",
        names.join(", ")
    );
    Err(scenario.mistake("control", &clause))
}

/// The agent that starts the contestants, if one does. What is secret is in no flag.
fn agent(scenario: &LabScenario) -> Result<Option<AgentTarget>> {
    let Some(plan) = &scenario.agent else {
        return Ok(None);
    };
    let place = plan.place.clone();
    let token = match &plan.token_file {
        Some(file) => Some(Token::read(file)),
        None => {
            let text = std::env::var(TOKEN_VARIABLE).ok();
            let text = text.filter(|text| !text.trim().is_empty());
            text.map(|text| {
                let token = Token::new(&text);
                token.map_err(|why| format!("{TOKEN_VARIABLE}: {why}"))
            })
        }
    };
    let wrong = |sentence: String| match plan.token_file {
        Some(_) => Error::new(scenario.mistake("agent_token_file", &sentence)),
        None => Error::msg(sentence),
    };
    let token = token.transpose().map_err(wrong)?;
    Ok(Some(AgentTarget { place, token }))
}

/// Where the token of the agent is, if no file has it.
const TOKEN_VARIABLE: &str = "MOONWIRE_AGENT_TOKEN";
/// The folder of what only answers.
const NULL_SERVER: &str = "null-server";

/// What a person who waits sees.
struct Watch {
    progress: LoadProgress,
    quiet: bool,
    /// What the moving line is about.
    label: String,
}

impl Watch {
    fn new(quiet: bool) -> Self {
        Self {
            progress: LoadProgress::new(quiet),
            quiet,
            label: String::new(),
        }
    }

    fn above(&mut self, line: &str) {
        if !self.quiet {
            self.progress.above(line);
        }
    }

    fn on_event(&mut self, event: &BattleEvent<'_>) {
        match event {
            BattleEvent::Progress {
                place,
                progress,
                usage,
            } => {
                let label = format!("{} ", label(place));
                if self.label != label {
                    self.progress.label(&label);
                    self.label = label;
                }
                self.progress.show(progress, usage);
            }
            BattleEvent::Warning { sentence } => self.above(&format!("warning: {sentence}")),
            BattleEvent::TryEnded {
                place,
                cell,
                failure,
            } => {
                if self.quiet {
                    return;
                }
                let p99_ns = cell.latency.response.quantile_ns(0.99).unwrap_or(0);
                let outcome =
                    failure.map_or_else(|| "passed".to_owned(), |it| format!("failed: {it}"));
                let line = format!(
                    "{}: p99 {:.2} ms, {outcome}",
                    label(place),
                    p99_ns as f64 / 1e6
                );
                self.progress.above(&line);
            }
            BattleEvent::CeilingEnded { place, ceiling } => {
                let found = ceiling.map_or_else(
                    || "it could not be measured".to_owned(),
                    |it| {
                        let more = if it.is_of_generator() { "" } else { " or more" };
                        format!("{:.0} replies/s{more}", it.replies_per_s)
                    },
                );
                self.above(&format!("{}: {found}", place.name));
            }
            BattleEvent::CellEnded {
                place,
                cell,
                left_s,
            } => {
                if self.quiet {
                    return;
                }
                let verdict = cell.assessment.verdict();
                let limit = cell.contest.as_ref().and_then(|it| it.limit.as_deref());
                let limit = limit.map_or_else(String::new, |limit| format!(", {limit}"));
                let left = match Duration::from_secs(*left_s as u64) {
                    Duration::ZERO => String::new(),
                    left => format!("; about {left:?} left"),
                };
                let line = format!(
                    "{}: {} of {} lost, {verdict}{limit}{left}",
                    label(place),
                    cell.messages.lost,
                    cell.messages.sent
                );
                self.progress.above(&line);
            }
        }
    }
}

fn label(place: &BattlePlace) -> String {
    match place.count {
        0 => place.name.clone(),
        count => format!("[{}/{count}] {}", place.number, place.name),
    }
}
