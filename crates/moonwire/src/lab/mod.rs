//! `moonwire lab`: contestants side by side.

mod args;
mod watch;

use std::path::Path;

use anyhow::{Context, Result};
use moonwire_lab::{Contestant, DoublingOutcome, DoublingSpec, payload_doubling, peers_folder};
use moonwire_report::{Style, Verdict, objection, summary};

pub(crate) use self::args::LabArgs;
use self::args::{DoublingArgs, Scenario};
use self::watch::Watch;
use crate::exit::Exit;
use crate::load::{seed_default, write_json};
use crate::output;
use crate::signals;

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
    let json = args.json.as_ref();
    let json = json.map_or(Ok(()), |path| write_json(&outcome.run, path));
    let json_on_stdout = args.json.as_deref() == Some(Path::new("-"));
    let mut said = Ok(());
    if outcome.run.cells().is_empty() {
        output::complain("no cell was measured");
    } else if !args.quiet && !json_on_stdout {
        let style = Style {
            color: output::colour(),
        };
        let folder = outcome.folder.display();
        let tables = summary(&outcome.run, style);
        said = output::answer(&format!("{}\n\nresults: {folder}", tables.trim_end()));
    } else {
        objection(&outcome.run)
            .iter()
            .for_each(|line| output::complain(line));
    }
    Ok(output::exit_after(exit_of(&outcome), [said, json]))
}

/// One cell that can be believed makes a run worth its time.
fn exit_of(outcome: &DoublingOutcome) -> Exit {
    let believed = |cell: &moonwire_report::Cell| cell.assessment.verdict() != Verdict::Invalid;
    match outcome.interrupted {
        true => Exit::Interrupted,
        false if outcome.run.cells().iter().any(believed) => Exit::Success,
        false => Exit::Invalid,
    }
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
