//! What a user types behind `moonwire load`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use moonwire_load::{DriverChoice, TlsRecords, quantity};

use crate::choice;

/// Load one or several WebSocket servers and measure the latency of every reply.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// Targets, ws:// or wss://; the connections apply to each of them
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,

    /// Send nothing but what comes: one connection echoes until the server ends it (for conformance
    /// suites)
    #[arg(long, conflicts_with_all = ["connections", "rate", "duration", "messages", "in_flight",
          "batch", "hold", "json", "out", "slo"])]
    pub(crate) echo: bool,

    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    #[command(flatten)]
    pub(crate) pacing: PacingArgs,
    #[command(flatten)]
    pub(crate) message: MessageArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// Connections to each URL
    #[arg(short = 'c', long, value_name = "CONNS", default_value = "10",
          value_parser = quantity::positive)]
    pub(crate) connections: u64,
    /// Worker threads; one less than the cores unless given
    #[arg(short = 't', long, value_name = "THREADS", value_parser = quantity::positive)]
    pub(crate) threads: Option<u64>,
    /// How the workers ask the kernel for their sockets: epoll, io_uring, or auto, which is
    /// io_uring where it can be had. io_uring takes less time for each message; what is sent in
    /// one turn goes together, after it was stamped
    #[arg(long, value_name = "NAME", default_value = "epoll", hide_possible_values = true,
          value_parser = choice::driver())]
    pub(crate) driver: DriverChoice,
    /// Who seals and opens the records of TLS 1.3 after the handshake: own or rustls
    #[arg(long, value_name = "NAME", default_value = "rustls", hide_possible_values = true,
          value_parser = choice::tls_records())]
    pub(crate) tls_records: TlsRecords,
    /// Resume sessions of TLS where the server lets one, as clients do that come again; without it
    /// each handshake is a full one
    #[arg(long)]
    pub(crate) tls_resume: bool,
    /// New connections per second, all URLs together
    #[arg(long, value_name = "N", value_parser = quantity::rate)]
    pub(crate) conn_rate: Option<f64>,
    /// New connections in groups instead, all URLs together: how many, and how long after the group
    /// before, such as 50/500ms
    #[arg(long, value_name = "N/DURATION", conflicts_with = "conn_rate")]
    pub(crate) conn_group: Option<String>,
    /// Start each connection later by a random time below this one
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    pub(crate) start_delay: Option<Duration>,
    /// Handshakes in flight at once, 0 for no limit; 128 unless a --conn-rate is given. What a
    /// connection waits for one of these places is no part of its handshake; with --conn-rate,
    /// --conn-group or --start-delay it is part of the handshake response
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub(crate) conn_concurrency: Option<u64>,
    /// Send on each connection as soon as it is open instead of waiting for all of them
    #[arg(long)]
    pub(crate) no_barrier: bool,
    /// Messages that a connection sends, one after the other's reply, before it closes and the next
    /// one opens in its place; -c counts all of them
    #[arg(long, value_name = "MESSAGES", value_parser = quantity::positive,
          conflicts_with_all = ["rate", "batch", "hold", "messages", "stagger"])]
    pub(crate) per_connection: Option<u64>,
    /// Connections open at once, from the SYN until the socket is closed, 0 for no limit
    #[arg(long, value_name = "CONNS", requires = "per_connection", value_parser = quantity::count)]
    pub(crate) open_max: Option<u64>,
    /// Connections that publish what all of them hear: each sends the text `subscribe`, gets
    /// `subscribed`, and from then on every message of all publishers
    #[arg(long, value_name = "CONNS", value_parser = quantity::positive)]
    pub(crate) publishers: Option<u64>,
    /// Connections among -c that subscribe and do not read
    #[arg(long, value_name = "CONNS", requires = "publishers", value_parser = quantity::positive)]
    pub(crate) silent: Option<u64>,
    /// What follows a connection that failed or was lost: `never`, the pause before it is opened
    /// again, or pauses that double, `exponential:100ms..10s`; `exponential-jitter:100ms..10s`
    /// draws each of them between 0 and that
    #[arg(long, value_name = "never|PAUSE|POLICY", default_value = "never")]
    pub(crate) reconnect: String,
    /// Time allowed from the first SYN to the 101
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = quantity::duration)]
    pub(crate) handshake_timeout: Duration,
    /// Source addresses; spread over 127.0.0.0/8 by itself when the ports of one do not suffice
    #[arg(long, value_name = "IP", value_delimiter = ',', value_parser = address)]
    pub(crate) source_ip: Vec<IpAddr>,
    /// Accept any certificate
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
    /// Trust anchors (PEM) instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// Subprotocol to ask for; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) subprotocol: Vec<String>,
    /// Offer permessage-deflate, with these parameters if any are given
    #[arg(long, value_name = "PARAMETERS", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub(crate) deflate: Option<String>,
    /// Version in the handshake: 13 is RFC 6455, 8 the drafts before it
    #[arg(long, value_name = "8|13", default_value = "13")]
    pub(crate) websocket_version: String,
    /// Header of the upgrade request; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pacing")]
pub(crate) struct PacingArgs {
    /// How long to send; 10s when neither this nor a count is given
    #[arg(short = 'd', long, visible_short_alias = 'z', value_name = "DURATION",
          value_parser = quantity::duration)]
    pub(crate) duration: Option<Duration>,
    /// How many messages to send, over all connections
    #[arg(short = 'n', long, value_name = "MESSAGES", conflicts_with = "duration",
          value_parser = quantity::positive)]
    pub(crate) messages: Option<u64>,
    /// Messages per second over all connections; without -p nothing limits what is in flight
    #[arg(short = 'q', long, visible_alias = "msg-rate", value_name = "MSGS_PER_S",
          value_parser = quantity::rate, allow_negative_numbers = true)]
    pub(crate) rate: Option<f64>,
    /// How that rate changes, DURATION:RATE each: 10s:1k,30s:5k goes in a line to 1,000 a second
    /// within 10 s, from 0 or from the rate if one is given, and from there to 5,000 within 30 s;
    /// 0s:5k is a jump, 10s:0 after a 0 a pause
    #[arg(long, value_name = "STAGES", conflicts_with_all = ["duration", "messages", "batch",
          "hold", "per_connection", "think", "stagger"])]
    pub(crate) stages: Option<String>,
    /// Messages in flight on each connection; without -q the loop is closed (default 1)
    #[arg(short = 'p', long, value_name = "IN_FLIGHT", value_parser = quantity::positive)]
    pub(crate) in_flight: Option<u64>,
    /// Time from a reply to the next message of its connection, in a closed loop
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["rate", "batch"],
          value_parser = quantity::duration_ms)]
    pub(crate) think: Option<Duration>,
    /// Poisson arrivals instead of constant gaps (with -q or --stages)
    #[arg(long)]
    pub(crate) poisson: bool,
    /// Messages sent at once on each connection, every --wait (as uwebsocket-benchmark does)
    #[arg(long, value_name = "N", requires = "batches", conflicts_with = "rate",
          value_parser = quantity::positive)]
    pub(crate) batch: Option<u64>,
    /// Time between two batches, 1s unless given; a bare number is in ms
    #[arg(long, value_name = "DURATION", requires = "batch", value_parser = quantity::duration_ms)]
    pub(crate) wait: Option<Duration>,
    /// Batches each connection sends
    #[arg(long, value_name = "N", requires = "batch", conflicts_with_all = ["duration", "messages"],
          value_parser = quantity::positive)]
    pub(crate) batches: Option<u64>,
    /// Spread of the connections' first sends in batches and closed loops; as long as --wait for
    /// batches unless given (uwebsocket-benchmark: 100ms), 0 for none
    #[arg(long, value_name = "DURATION", conflicts_with = "rate",
          value_parser = quantity::duration_ms)]
    pub(crate) stagger: Option<Duration>,
    /// Only open the connections and hold them; nothing is sent
    #[arg(long, conflicts_with_all = ["rate", "in_flight", "messages", "batch"])]
    pub(crate) hold: bool,
    /// How long replies are awaited after the last send before they count as lost
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = quantity::duration)]
    pub(crate) drain: Duration,
    /// Delay added to each direction at the generator's own sockets (a stand-in for a link)
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration_ms)]
    pub(crate) link_delay: Option<Duration>,
    /// Seed of everything random in the load; printed, so that a run can be repeated
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Messages")]
pub(crate) struct MessageArgs {
    /// Bytes of one message, 64 for an echo and 1KiB for --payload amplify unless given
    #[arg(long, value_name = "BYTES", value_parser = quantity::size)]
    pub(crate) message_size: Option<usize>,
    /// Binary messages instead of text
    #[arg(long)]
    pub(crate) binary: bool,
    /// Messages of your own: a program that reads the line `SIZE text|binary COUNT SEED` and
    /// writes at most COUNT messages, each behind its length in 4 bytes (highest first); it runs
    /// before the load
    #[arg(long, value_name = "COMMAND")]
    pub(crate) payload_command: Option<String>,
    /// Messages of your own: this file is one
    #[arg(long, value_name = "FILE", conflicts_with = "payload_command")]
    pub(crate) payload_file: Option<PathBuf>,
    /// Messages of your own: each line of this file is one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload_command", "payload_file"])]
    pub(crate) payload_lines: Option<PathBuf>,
    /// Frames of a message, with how often: `40:1,40:2,20:3` sends 40 % whole, 40 % in 2 and 20 %
    /// in 3 frames; `20:100+50+rest` gives their sizes (of a compressed message after compression)
    #[arg(long, value_name = "WEIGHT:PARTS,...")]
    pub(crate) fragments: Option<String>,
    /// Send frames without a mask, which servers must refuse: for tests of servers
    #[arg(long)]
    pub(crate) no_mask: bool,
    /// Replies expected for each message, 1 for an echo and 4 for --payload amplify unless given
    #[arg(long, value_name = "N", value_parser = quantity::positive)]
    pub(crate) replies: Option<u64>,
    /// What is sent: bytes to be echoed, or the JSON of uwebsocket-benchmark's servers
    #[arg(long, value_enum, default_value = "echo")]
    pub(crate) payload: Payload,
    /// Unit of the times inside the JSON, `us` unless given; `ms` speaks to those of
    /// uwebsocket-benchmark as they are
    #[arg(long, value_enum)]
    pub(crate) time_unit: Option<TimeUnit>,
    /// The server's wall clock is this host's although its address is not: for one-way latency
    #[arg(long)]
    pub(crate) same_host: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct OutputArgs {
    /// A condition the run must meet, such as 'p(99)<5ms', 'rate>10k',
    /// 'server.memory_peak<100MiB' or 'lost==0'
    #[arg(long, value_name = "EXPR")]
    pub(crate) slo: Vec<String>,
    /// Write the Run file here; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the Run file, plots and the HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Stream one line per reply into this CSV (amplify payload only)
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// No progress and no summary: one line on stderr if something speaks against the run
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Payload {
    Echo,
    Amplify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeUnit {
    Us,
    Ms,
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is not an address; write one of IPv4 or IPv6 such as 127.0.0.2 or ::1")
    })
}

const EXAMPLES: &str = "Examples:
  One message in flight on each of 100 connections for 10 seconds:
    moonwire load ws://127.0.0.1:5083/echo -c 100
  An open loop of 10,000 messages per second, latency from the intended time:
    moonwire load ws://127.0.0.1:5083/echo -c 1000 -q 10k -d 1m
  The same, at most one in flight on each connection, failing above 5 ms:
    moonwire load ws://127.0.0.1:5083/echo -c 1000 -q 10k -p 1 --slo 'p(99)<5ms'
  Up to 1,000 messages per second within 10 s, and five times as many at once for 10 s:
    moonwire load ws://127.0.0.1:5083/echo -c 1000 --stages 10s:1k,0s:5k,10s:5k
  Compressed messages, with a window of 4 KiB for the server's:
    moonwire load ws://127.0.0.1:5083/echo --deflate='server_max_window_bits=12'
  30,000 connections of one message each, at most 100 of them open at once:
    moonwire load ws://127.0.0.1:5083/echo -c 30k --per-connection 1 --open-max 100
  Plain and TLS in one run, 1 KiB binary, a report in ./out:
    moonwire load ws://host/echo wss://host/echo -k --binary --message-size 1KiB --out out

Exit codes: 0 valid or suspect, 98 invalid, 99 a threshold failed, 104 bad configuration,
105 interrupted.";
