//! The command line: one verb each, and nothing of what the verbs do.

use clap::{Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::compare::CompareArgs;
use crate::config;
use crate::lab::LabArgs;
use crate::load::LoadArgs;
use crate::report::ReportArgs;
use crate::serve;

/// A WebSocket application server scripted in Lua, and the laboratory that measures it.
#[derive(Debug, Parser)]
#[command(name = "moonwire", version, propagate_version = true, max_term_width = 100,
          after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the application server
    Serve(serve::Args),
    /// Load WebSocket servers and measure the latency of every reply
    Load(Box<LoadArgs>),
    /// Measure how a server's latency behaves as clients grow, and draw the report
    Bench(Box<BenchArgs>),
    /// Measure contestants side by side, in one run on one machine
    Lab(LabArgs),
    /// Draw the tables, plots and the HTML page of Run files again
    Report(ReportArgs),
    /// Compare two Run files, metric by metric
    Compare(CompareArgs),
    Config(config::Args),
    /// Print the completions of a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

const EXAMPLES: &str = "Examples:
  moonwire bench                                  the latency suite against the built-in server
  moonwire serve                                  echo on /echo and amplify on /amplify, port 5083
  moonwire load ws://127.0.0.1:5083/echo -c 100   one load run
  moonwire lab payload-doubling --messages 4k     moonwire beside uWebSockets
  moonwire report results/*/run.json              draw the reports again
  moonwire completions bash > /etc/bash_completion.d/moonwire";
