//! `moonwire lab`: contestants side by side.

mod args;
mod watch;

use std::time::Duration;

use anyhow::{Context, Error, Result};
use moonwire_lab::{DoublingSpec, Roster, check_contestant, payload_doubling, peers_folder};

pub(crate) use self::args::LabArgs;
use self::args::{DoublingArgs, Scenario};
use self::watch::Watch;
use crate::exit::Exit;
use crate::load::seed_default;
use crate::output;
use crate::signals;
use crate::sweep;

/// Runs a scenario, or says what there is.
pub(crate) fn run(args: &LabArgs) -> Result<Exit> {
    let roster = Roster::load(args.contestant_folder.as_deref()).map_err(Error::msg)?;
    match &args.scenario {
        Scenario::List => list(&roster),
        Scenario::Check { names } => check(names, &roster),
        Scenario::PayloadDoubling(args) => doubling(args, &roster),
    }
}

fn list(roster: &Roster) -> Result<Exit> {
    let mut text = "scenarios:\n  payload-doubling\ncontestants:\n".to_owned();
    for contestant in roster.contestants() {
        let (name, description) = (contestant.name(), contestant.description());
        text.push_str(&format!("  {name:30} {description}\n"));
    }
    output::answer(&text)?;
    Ok(Exit::Success)
}

/// A line for each contestant; one that cannot take part is no reason not to try the others.
fn check(names: &[String], roster: &Roster) -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let peers = peers_folder(&program);
    let contestants = match names {
        [] => roster.contestants().to_vec(),
        names => roster.select(names).map_err(Error::msg)?,
    };
    let mut exit = Exit::Success;
    for contestant in contestants {
        let name = contestant.name();
        let line = match check_contestant(&contestant, &program, &peers) {
            Ok(check) => {
                if !check.is_passed() {
                    exit = Exit::Invalid;
                }
                let told = |echo: &Result<Duration, String>| match echo {
                    Ok(took) => format!("echo in {:.2} ms", took.as_secs_f64() * 1000.0),
                    Err(why) => why.clone(),
                };
                let (plain, tls) = (told(&check.plain), told(&check.tls));
                format!("{name} {}: ws {plain}; wss {tls}\n", check.version)
            }
            Err(sentence) => {
                exit = Exit::Invalid;
                format!("{name}: {sentence}\n")
            }
        };
        output::answer(&line)?;
    }
    Ok(exit)
}

fn doubling(args: &DoublingArgs, roster: &Roster) -> Result<Exit> {
    let spec = spec(args, roster)?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let stop = signals::stop_on_interrupt()?;
    let mut watch = Watch::new(args.quiet);
    let result = payload_doubling(&spec, &stop, &mut |event| watch.on_event(event));
    watch.finish();
    let outcome = result?;
    let end = match outcome.run.cells() {
        [] => "no cell was measured".to_owned(),
        _ => format!("results: {}", outcome.folder.display()),
    };
    let told = sweep::tell(&outcome.run, args.json.as_deref(), args.quiet, &end);
    let exit = sweep::exit_of(&outcome.run, outcome.interrupted);
    Ok(output::exit_after(exit, told))
}

fn spec(args: &DoublingArgs, roster: &Roster) -> Result<DoublingSpec> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let narrow = |&count: &u64| {
        u32::try_from(count).with_context(|| format!("--connections {count} is too many"))
    };
    Ok(DoublingSpec {
        contestants: roster.select(&args.contestants).map_err(Error::msg)?,
        connections: args.connections.iter().map(narrow).collect::<Result<_>>()?,
        rounds: args.rounds,
        messages: args.messages,
        fixed: args.fixed_messages,
        legacy: args.legacy,
        tls: args.tls.turns(),
        peers: peers_folder(&program),
        program,
        out: args.out.clone(),
        command_line: std::env::args().collect(),
        seed: args.seed.unwrap_or_else(seed_default),
    })
}
