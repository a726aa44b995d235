//! moonwire: a WebSocket application server scripted in Lua, and the laboratory that measures it.

mod bench;
mod choice;
mod cli;
mod compare;
mod config;
mod exit;
mod lab;
mod live;
mod load;
mod output;
mod progress;
mod report;
mod serve;
mod signals;
mod sweep;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Verb};
use crate::exit::Exit;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(cli).into(),
        Err(error) => refuse(&error).into(),
    }
}

fn run(cli: Cli) -> Exit {
    let outcome = match cli.verb {
        Verb::Serve(args) => serve::run(args),
        Verb::Load(args) => load::run(*args),
        Verb::Bench(args) => bench::run(*args),
        Verb::Lab(args) => lab::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Config(args) => config::run(&args),
        Verb::Completions { shell } => {
            // Not straight to stdout: it panics where that is closed or full.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "moonwire", &mut script);
            output::answer(&String::from_utf8_lossy(&script)).map(|()| Exit::Success)
        }
    };
    outcome.unwrap_or_else(|error| output::exit_after(Exit::BadConfiguration, [Err(error)]))
}

/// Help and version are answers; everything else clap says is bad configuration.
fn refuse(error: &clap::Error) -> Exit {
    let printed = error.print();
    if error.use_stderr() {
        return Exit::BadConfiguration;
    }
    output::exit_after(Exit::Success, [output::arrived(printed)])
}
