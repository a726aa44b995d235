//! `moonwire lab start`: one contestant, until Ctrl-C.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use moonwire_lab::{CheckSpec, Kind, Roster, Standing, StandingSpec, peers_folder};
use moonwire_load::quantity;

use crate::exit::Exit;
use crate::output;
use crate::signals;

/// Start one contestant and tell where it echoes, until Ctrl-C.
///
/// It is started as in a battle, with the same files and policy of TLS, so that other tools can be
/// tried on what the lab measures.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StartArgs {
    /// ID or ID/VARIANT (`moonwire lab list` has them)
    #[arg(value_name = "NAME")]
    name: String,
    /// With TLS
    #[arg(long)]
    tls: bool,
    /// Its threads or processes
    #[arg(long, value_name = "N", default_value = "1", value_parser = quantity::count_u32)]
    workers: u32,
    /// Processors that it may use, such as 0 or 0,2
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// The server behind a proxy
    #[arg(long, value_name = "NAME", default_value = "moonwire")]
    backend: String,
}

/// Serves until it is interrupted, or until the contestant ends by itself.
pub(super) fn run(args: &StartArgs, roster: &Roster) -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let selected = roster
        .select(std::slice::from_ref(&args.name))
        .map_err(Error::msg)?;
    // A name alone is that of all variants, of which it means the plain one.
    let exact = selected.iter().find(|it| it.name() == args.name);
    let contestant = match (exact, selected.as_slice()) {
        (Some(contestant), _) | (None, [contestant]) => contestant,
        (None, several) => {
            let names: Vec<String> = several.iter().map(|it| it.name().to_string()).collect();
            bail!("start one of {}", names.join(", "));
        }
    };
    let backend = roster
        .one(Kind::Server, &args.backend)
        .map_err(Error::msg)?;
    let spec = StandingSpec {
        around: CheckSpec {
            backend,
            peers: peers_folder(&program),
            program,
        },
        tls: args.tls,
        workers: args.workers.max(1),
        cpus: args.cpus.clone(),
    };
    let stop = signals::stop_on_interrupt()?;
    let standing = Standing::start(contestant, &spec).map_err(Error::msg)?;
    for url in standing.urls() {
        output::answer(&format!("listening on {url}"))?;
    }
    if let Some(certificate) = standing.certificate() {
        output::answer(&format!("certificate {}", certificate.display()))?;
    }
    let pids: Vec<String> = standing.pids().iter().map(ToString::to_string).collect();
    output::answer(&format!("processes {}", pids.join(" ")))?;
    while !stop.load(Ordering::Relaxed) {
        if let Some(death) = standing.death() {
            bail!("{death}");
        }
        thread::sleep(LOOK);
    }
    standing.stop().map_err(Error::msg)?;
    Ok(Exit::Success)
}

/// How often it is looked whether it is still there.
const LOOK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "Examples:
  uWebSockets on the first processor, for a load of your own:
    moonwire lab start uwebsockets-cpp --cpus 0
  nginx with TLS in front of an echo in Lua:
    moonwire lab start nginx --tls";
