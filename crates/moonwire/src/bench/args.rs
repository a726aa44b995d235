//! What a user types behind `moonwire bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::load::TimeUnit;
use crate::output::OUT_VARIABLE;
use moonwire_load::quantity;

/// Measure how a server's latency behaves as clients grow, and draw the report.
///
/// Without --url the built-in server is started as a child process, pinned away from the
/// generator, behind a link that delays each direction.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Measure this server instead of the built-in one (the JSON protocol of uwebsocket-benchmark)
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Client counts, a column each
    #[arg(long, value_name = "LIST", default_value = "1000,3000,5000,10000",
          value_delimiter = ',', value_parser = quantity::positive)]
    pub(crate) clients: Vec<u64>,
    /// Messages per batch
    #[arg(long, value_name = "LIST", default_value = "1", value_delimiter = ',',
          value_parser = quantity::positive)]
    pub(crate) batch: Vec<u64>,
    /// Time between batches; a bare number is in ms
    #[arg(long, value_name = "LIST", default_value = "1000", value_delimiter = ',',
          value_parser = quantity::duration_ms)]
    pub(crate) wait: Vec<Duration>,
    /// Spread of the clients' first batches; as long as --wait unless given, which makes the load
    /// steady. uwebsocket-benchmark sends within 100ms of each wait; 0 sends all at once
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration_ms)]
    pub(crate) stagger: Option<Duration>,
    /// Bytes of one message
    #[arg(long, value_name = "LIST", default_value = "1KiB", value_delimiter = ',',
          value_parser = quantity::size)]
    pub(crate) message_size: Vec<usize>,
    /// Batches each client sends
    #[arg(long, value_name = "N", default_value = "20", value_parser = quantity::positive)]
    pub(crate) batches: u64,
    /// Replies to each message
    #[arg(long, value_name = "N", default_value = "4", value_parser = quantity::positive)]
    pub(crate) replies: u64,
    /// Delay of each direction of the link; 20ms with the built-in server, none with --url
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration_ms)]
    pub(crate) link_delay: Option<Duration>,
    /// Each packet takes up to this much longer; not with --url
    #[arg(long, value_name = "DURATION", default_value = "0", conflicts_with = "url",
          value_parser = quantity::duration_ms)]
    pub(crate) link_jitter: Duration,
    /// Share of packets the link drops at random, such as 0.01 or 1%; not with --url
    #[arg(long, value_name = "FRACTION", default_value = "0", conflicts_with = "url",
          value_parser = quantity::fraction)]
    pub(crate) link_loss: f64,
    /// Bottleneck of each direction in bits per second, such as 10m or 1g; not with --url
    #[arg(long, value_name = "BITS_PER_S", conflicts_with = "url",
          value_parser = quantity::positive)]
    pub(crate) link_rate: Option<u64>,
    /// Bytes each direction of the link holds at most, 64MiB normally; not with --url
    #[arg(long, value_name = "BYTES", conflicts_with = "url", value_parser = quantity::size)]
    pub(crate) link_queue: Option<usize>,
    /// Unit of the times inside the JSON; `ms` speaks to servers of uwebsocket-benchmark
    #[arg(long, value_enum, default_value = "us")]
    pub(crate) time_unit: TimeUnit,
    /// The --url server's wall clock is this host's, so that one-way latency can be given
    #[arg(long, requires = "url")]
    pub(crate) same_host: bool,
    /// Accept any certificate of --url
    #[arg(short = 'k', long, requires = "url")]
    pub(crate) insecure: bool,
    /// Keep the processors from halting with threads of idle priority, so that waking them is in no
    /// latency; `auto` does so in a virtual machine without a CPU quota
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(crate) idle_poll: IdlePoll,
    /// Processors that the built-in server may use, such as 1.5; 0 is no limit, as --url has none
    #[arg(long, value_name = "PROCESSORS", env = "SERVER_CPU_LIMIT")]
    pub(crate) server_cpu_limit: Option<String>,
    /// The same for the generator's threads: a cell in which they run into it is not VALID
    #[arg(long, value_name = "PROCESSORS", env = "CLIENT_CPU_LIMIT")]
    pub(crate) client_cpu_limit: Option<String>,
    /// How often, in all, a cell is measured again that is not VALID while the host took the
    /// processors away; at most twice a cell, and the result says so
    #[arg(long, value_name = "N", default_value = "6",
          value_parser = quantity::count_u32)]
    pub(crate) repeats: u32,
    /// How long replies are awaited after the last send before they count as lost
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = quantity::duration)]
    pub(crate) drain: Duration,
    /// Seed of everything random in the load
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub(crate) seed: Option<u64>,
    /// Name of the results folder
    #[arg(long, value_name = "NAME", default_value = "bench", value_parser = plain_name)]
    pub(crate) name: String,
    /// Write the Run file here too; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Results folder instead of results/<time>-<name>
    #[arg(long, value_name = "DIR", env = OUT_VARIABLE)]
    pub(crate) out: Option<PathBuf>,
    /// Stream one line per reply into a CSV of each cell beside the report
    #[arg(long)]
    pub(crate) csv: bool,
    /// No progress and no tables: one line on stderr if something speaks against the run
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// When processors are kept from halting.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum IdlePoll {
    /// In a virtual machine.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl IdlePoll {
    /// `None` leaves it to the bench.
    pub(crate) fn choice(self) -> Option<bool> {
        match self {
            Self::Auto => None,
            Self::On => Some(true),
            Self::Off => Some(false),
        }
    }
}

/// The end of a folder's name, which must not lead anywhere else.
fn plain_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| !c.is_control() && !std::path::is_separator(c);
    if text.is_empty() || !text.chars().all(is_plain) {
        let sentence = "is not a plain name; a place for the results is given with --out";
        return Err(format!("'{}' {sentence}", text.escape_debug()));
    }
    Ok(text.to_owned())
}

const EXAMPLES: &str = "Examples:
  The main job, about a minute and a half:
    moonwire bench
  The suite of uwebsocket-benchmark in full, steady and with its bursts:
    moonwire bench --batches 100
    moonwire bench --batches 100 --stagger 100ms
  Two client counts, three waits, one report:
    moonwire bench --clients 1k,2k --wait 100ms,500ms,1s
  A server of uwebsocket-benchmark, unchanged, whose clock counts milliseconds:
    moonwire bench --url ws://127.0.0.1:3000/ws --time-unit ms --replies 2 --same-host

Exit codes: 0 when a cell is valid or suspect, 98 when none is, 104 bad configuration,
105 interrupted.";
