//! `moonwire lab`: contestants side by side.

mod agent;
mod args;
mod battle;
mod check;
mod list;
mod null;
mod start;
mod watch;

use std::net::SocketAddr;

use anyhow::{Context, Error, Result};
use moonwire_lab::{CpuLimits, DoublingSpec, Roster, payload_doubling, peers_folder};

pub(crate) use self::args::LabArgs;
use self::args::{DoublingArgs, Scenario};
use self::watch::Watch;
use crate::bench::cpu_limit;
use crate::exit::Exit;
use crate::load::seed_default;
use crate::output;
use crate::signals;
use crate::sweep;

/// Runs a scenario, or says what there is.
pub(crate) fn run(args: &LabArgs) -> Result<Exit> {
    let roster = Roster::load(args.contestant_folder.as_deref()).map_err(Error::msg)?;
    match &args.scenario {
        Scenario::List { json } => list::run(&roster, *json),
        Scenario::Check(args) => check::run(args, &roster),
        Scenario::Start(args) => start::run(args, &roster),
        Scenario::PayloadDoubling(args) => doubling(args, &roster),
        Scenario::Latency(args) => battle::run_shipped("latency", args, &roster),
        Scenario::BattleShortlived(args) => battle::run_shipped("battle-shortlived", args, &roster),
        Scenario::BattleMessaging(args) => battle::run_shipped("battle-messaging", args, &roster),
        Scenario::Soak(args) => battle::run_shipped("soak", args, &roster),
        Scenario::Idle(args) => battle::run_shipped("idle", args, &roster),
        Scenario::ReconnectStorm(args) => battle::run_shipped("reconnect-storm", args, &roster),
        Scenario::FanOut(args) => battle::run_shipped("fan-out", args, &roster),
        Scenario::Spike(args) => battle::run_shipped("spike", args, &roster),
        Scenario::SlowConsumers(args) => battle::run_shipped("slow-consumers", args, &roster),
        Scenario::FindMax(args) => battle::run_shipped("find-max", args, &roster),
        Scenario::Run(args) => battle::run_file(args, &roster),
        Scenario::NullServer(args) => null::run(args),
        Scenario::Agent(args) => agent::run(args, roster),
    }
}

/// Where to listen.
fn place(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is not a place to listen at; write ADDR:PORT such as 127.0.0.1:5090")
    })
}

fn doubling(args: &DoublingArgs, roster: &Roster) -> Result<Exit> {
    let spec = spec(args, roster)?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    output::announce_replacement(args.out.as_deref(), args.quiet);
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
        contestants: roster
            .servers("payload-doubling", &args.contestants)
            .map_err(Error::msg)?,
        connections: args.connections.iter().map(narrow).collect::<Result<_>>()?,
        rounds: args.rounds,
        messages: args.messages,
        fixed: args.fixed_messages,
        legacy: args.legacy,
        tls: args.tls.turns(),
        peers: peers_folder(&program),
        program,
        out: args.out.clone(),
        cpu_limits: CpuLimits {
            server: cpu_limit("--server-cpu-limit", args.server_cpu_limit.as_deref())?,
            proxy: None,
            client: cpu_limit("--client-cpu-limit", args.client_cpu_limit.as_deref())?,
        },
        command_line: std::env::args().collect(),
        seed: args.seed.unwrap_or_else(seed_default),
    })
}
