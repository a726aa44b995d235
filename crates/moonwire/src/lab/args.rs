//! What a user types behind `moonwire lab`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use moonwire_lab::{KNOBS, LabScenario};
use moonwire_load::quantity;

use super::agent::AgentArgs;
use super::null::NullServerArgs;
use super::start::StartArgs;
use crate::output::OUT_VARIABLE;

/// Measure contestants side by side, in one run on one machine.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(super) scenario: Scenario,
    /// A folder with more contestants, a folder each, as in lab/contestants; they take the place of
    /// those of the same name
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) contestant_folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Scenario {
    /// Print the scenarios and the contestants
    List {
        /// As JSON, with versions of what is installed
        #[arg(long)]
        json: bool,
    },
    /// Start each of these contestants, send it one echo over ws and wss, and stop it
    ///
    /// Servers with an amplifying service are sent a message for that, too. A proxy stands in front
    /// of two servers and must reach both; a client sends messages for two seconds.
    Check(CheckArgs),
    Start(StartArgs),
    PayloadDoubling(Box<DoublingArgs>),
    /// Messages at fixed intervals, four replies to each: the benchmark of uwebsocket-benchmark
    Latency(Box<BattleArgs>),
    /// Connections that send one message and close, through proxies: BalancerBattle's first test
    BattleShortlived(Box<BattleArgs>),
    /// Connections that send 100 messages, through proxies: BalancerBattle's second test
    BattleMessaging(Box<BattleArgs>),
    /// Clients that send as soon as they have their reply, for half an hour and more:
    /// WebSocketListener's soak
    Soak(Box<BattleArgs>),
    /// Connections that are held and never used: memory and CPU of each
    Idle(Box<BattleArgs>),
    /// The server is killed under its clients and started again: how soon they are back
    ReconnectStorm(Box<BattleArgs>),
    /// The highest rate, or the most clients, that keep the thresholds
    FindMax(Box<BattleArgs>),
    /// What one publishes and all hear: how soon the first, the median and the last has it
    FanOut(Box<BattleArgs>),
    /// A rate that jumps to five times as much for a while: what a spike costs, and how soon its
    /// delay is worked off
    Spike(Box<BattleArgs>),
    /// Subscribers that do not read, beside others that do
    SlowConsumers(Box<BattleArgs>),
    /// A scenario file of your own
    Run(Box<RunArgs>),
    /// Serve /echo, /amplify and /broadcast with as little work as can be, until Ctrl-C
    ///
    /// What a generator reaches against it is its own ceiling, unless this one thread has no time
    /// left first. Battles measure theirs so before they begin.
    NullServer(NullServerArgs),
    Agent(AgentArgs),
}

/// A file, and what takes the place of its knobs.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The file, such as those in lab/scenarios
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) battle: BattleArgs,
}

/// Measures contestants in rounds of random order, and says which of them can be told apart.
#[derive(Debug, Args)]
#[command(after_help = BATTLE_EXAMPLES)]
pub(super) struct BattleArgs {
    #[command(flatten)]
    pub(super) knobs: KnobArgs,
    /// Write the Run file here too; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Results folder instead of results/<time>-<scenario>
    #[arg(long, value_name = "DIR", env = OUT_VARIABLE)]
    pub(super) out: Option<PathBuf>,
    /// No progress and no tables: one line on stderr if something speaks against the run
    #[arg(long)]
    pub(super) quiet: bool,
}

/// Every knob of a scenario as a flag: names and what was typed. The help of a scenario that is
/// part of this program has what its file sets.
#[derive(Debug, Clone, Default)]
pub(super) struct KnobArgs(pub(super) Vec<(String, String)>);

impl Args for KnobArgs {
    fn augment_args(command: Command) -> Command {
        let written = LabScenario::shipped_knobs(command.get_name());
        let flags = KNOBS.iter().map(|knob| {
            let written = written.get(knob.name).map(String::as_str);
            let default = written.or(knob.default);
            let default = default.map_or_else(String::new, |it| format!(" [default: {it}]"));
            let flag = Arg::new(knob.name)
                .long(knob.name.replace('_', "-"))
                .value_name(knob.value)
                .help(format!("{}{default}", knob.help))
                .help_heading("Knobs of the scenario")
                .allow_hyphen_values(true);
            match knob.variable {
                Some(variable) => flag.env(variable),
                None => flag,
            }
        });
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KnobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = KNOBS.iter().filter_map(|knob| {
            let text = matches.get_one::<String>(knob.name)?;
            Some((knob.name.to_owned(), text.clone()))
        });
        Ok(Self(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What is checked, and with whom.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// ID for all variants or ID/VARIANT; all there are if none is named
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// The server behind proxies and under clients
    #[arg(long, value_name = "NAME", default_value = "moonwire")]
    pub(super) backend: String,
}

/// Echo payloads of 1 KiB to 256 KiB: the benchmark of LAppS, with the payload on the wire.
///
/// Each client sends a message, awaits it and sends the next one. The size doubles and the
/// messages are halved, as the published benchmark has them. Each round starts every contestant's
/// server in turn, pinned away from the generator.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoublingArgs {
    /// Who takes part, ID for all variants or ID/VARIANT (`moonwire lab list` has them)
    #[arg(
        long,
        value_name = "LIST",
        default_value = "moonwire,uwebsockets-js",
        value_delimiter = ','
    )]
    pub(super) contestants: Vec<String>,
    /// Clients [default: as published, 120, and 96 for the variants of weight 0.8]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = quantity::positive)]
    pub(super) connections: Vec<u64>,
    /// Rounds: each measures every contestant once, and tables have the median
    #[arg(long, value_name = "N", default_value = "1", value_parser = quantity::positive)]
    pub(super) rounds: u64,
    /// Messages of each client at 1 KiB (`rounds_per_run` of the published benchmark); fewer make a
    /// shorter run
    #[arg(long, value_name = "N", default_value = "40k", value_parser = quantity::positive)]
    pub(super) messages: u64,
    /// As many messages at every size
    #[arg(long)]
    pub(super) fixed_messages: bool,
    /// As the published benchmark really sent: two messages in flight, of 1024 bytes and of none,
    /// whatever the size is called
    #[arg(long)]
    pub(super) legacy: bool,
    /// With TLS, without, or both
    #[arg(long, value_enum, default_value = "on", value_name = "WHEN")]
    pub(super) tls: Tls,
    /// Processors that each server may use, such as 1.5; 0 is no limit
    #[arg(long, value_name = "PROCESSORS", env = "SERVER_CPU_LIMIT")]
    pub(super) server_cpu_limit: Option<String>,
    /// The same for the generator's threads: a cell in which they run into it is not VALID
    #[arg(long, value_name = "PROCESSORS", env = "CLIENT_CPU_LIMIT")]
    pub(super) client_cpu_limit: Option<String>,
    /// Seed of the payloads
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub(super) seed: Option<u64>,
    /// Write the Run file here too; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Results folder instead of results/<time>-payload-doubling
    #[arg(long, value_name = "DIR", env = OUT_VARIABLE)]
    pub(super) out: Option<PathBuf>,
    /// No progress and no tables: one line on stderr if something speaks against the run
    #[arg(long)]
    pub(super) quiet: bool,
}

/// Which connections are made over TLS.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Tls {
    /// All.
    On,
    /// None.
    Off,
    /// First none, then all.
    Both,
}

impl Tls {
    /// The turns of a round.
    pub(super) fn turns(self) -> Vec<bool> {
        match self {
            Self::On => vec![true],
            Self::Off => vec![false],
            Self::Both => vec![false, true],
        }
    }
}

const EXAMPLES: &str = "Examples:
  Two contestants, a tenth of the messages, three rounds, some minutes:
    moonwire lab payload-doubling --messages 4k --rounds 3 \\
      --contestants moonwire/weight-0.5,uwebsockets-js
  Everything as published, which takes long:
    moonwire lab payload-doubling
  The same sizes with as many messages each:
    moonwire lab payload-doubling --messages 1k --fixed-messages
  What the published benchmark had on the wire; docs/payload-doubling.md says why:
    moonwire lab payload-doubling --legacy --messages 4k

Contestants other than moonwire are installed by `cargo xtask peers`; MOONWIRE_PEERS names their
folder where it is not target/peers.

Exit codes: 0 when a cell is valid or suspect, 98 when none is, 104 bad configuration,
105 interrupted.";

const BATTLE_EXAMPLES: &str = "Examples:
  Two proxies and the control, one number of connections, without TLS:
    moonwire lab battle-shortlived --contestants none,nginx,haproxy --connections 2k --tls off
  More rounds, because the contestants could not be told apart:
    moonwire lab latency --rounds 12
  A scenario of your own; lab/scenarios has examples:
    moonwire lab run mine.toml --rounds 7
  The contestants on another host, where `moonwire lab agent` runs:
    MOONWIRE_AGENT_TOKEN=... moonwire lab latency --agent 10.0.0.2:5090

Contestants other than moonwire are installed by `cargo xtask peers`; MOONWIRE_PEERS names their
folder where it is not target/peers.

Exit codes: 0 when a cell is valid or suspect, 98 when none is, 99 a threshold failed,
104 bad configuration, 105 interrupted.";
