//! `moonwire lab agent`: contestants for a lab on another host.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Error, Result};
use clap::Args;
use moonwire_lab::{AgentEvent, AgentSpec, Roster, Token, agent, peers_folder};

use super::place;
use crate::exit::Exit;
use crate::signals;

/// Start, sample and stop contestants on this host for a lab on another one, until Ctrl-C
///
/// It starts only contestants that it knows: those of this program and of --contestant-folder on
/// this host, by their names. It takes one lab at a time, and ends all that it has started when
/// that lab goes away. The token and what is measured cross the network as they are: use one that
/// you trust.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct AgentArgs {
    /// Address and port; contestants listen at the same address, on ports of their own
    #[arg(long, value_name = "ADDR:PORT", value_parser = place)]
    listen: SocketAddr,
    /// The file with the token that labs have to know, 16 bytes at least; needed where ADDR is not
    /// of the loopback
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Serves labs until it is interrupted.
pub(super) fn run(args: &AgentArgs, roster: Roster) -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let token = args.token_file.as_deref().map(Token::read).transpose();
    let spec = AgentSpec {
        listen: args.listen,
        token: token.map_err(|why| Error::msg(format!("--token-file: {why}")))?,
        roster,
        peers: peers_folder(&program),
        program,
    };
    let stop = signals::stop_on_interrupt()?;
    agent(spec, &stop, &mut |event| {
        let line = match event {
            AgentEvent::Listening(address) => format!("listening on {address}"),
            AgentEvent::Taken(lab) => format!("{lab}: this lab has the agent"),
            AgentEvent::Left(lab, why) => format!("{lab}: this lab is gone: {why}"),
            AgentEvent::Refused(guest, why) => format!("{guest}: not let in: {why}"),
        };
        // Whoever does not read this does not need it.
        let _ = writeln!(std::io::stdout(), "{line}");
    })?;
    Ok(Exit::Success)
}

const EXAMPLES: &str = "Examples:
  Two hosts, servers on 10.0.0.2 and the load on 10.0.0.1; on both:
    openssl rand -hex 16 > token     # once, and copied to the other host
  On 10.0.0.2:
    moonwire lab agent --listen 10.0.0.2:5090 --token-file token
  On 10.0.0.1:
    moonwire lab latency --agent 10.0.0.2:5090 --agent-token-file token
  One-way latencies with an error of up to 2 ms, over a long way:
    moonwire lab latency --agent 10.0.0.2:5090 --agent-token-file token --one-way-bound 2ms

Exit codes: 0 when it was interrupted, 104 bad configuration.";
