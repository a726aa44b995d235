//! `moonwire lab`: contestants side by side.

mod args;
mod watch;

use anyhow::{Context, Result};
use moonwire_lab::{Contestant, DoublingSpec, payload_doubling, peers_folder};

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
    match &args.scenario {
        Scenario::List => list(),
        Scenario::PayloadDoubling(args) => doubling(args),
    }
}

fn list() -> Result<Exit> {
    let mut text = "scenarios:\n  payload-doubling\ncontestants:\n".to_owned();
    for contestant in Contestant::all() {
        let (name, description) = (contestant.name(), contestant.description());
        text.push_str(&format!("  {name:30} {description}\n"));
    }
    output::answer(&text)?;
    Ok(Exit::Success)
}

fn doubling(args: &DoublingArgs) -> Result<Exit> {
    let spec = spec(args)?;
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

fn spec(args: &DoublingArgs) -> Result<DoublingSpec> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let narrow = |&count: &u64| {
        u32::try_from(count).with_context(|| format!("--connections {count} is too many"))
    };
    Ok(DoublingSpec {
        contestants: args.contestants.clone(),
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
