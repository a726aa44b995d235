//! moonwire: a WebSocket application server scripted in Lua, and the laboratory that measures it.

mod bench;
mod cli;
mod compare;
mod exit;
mod load;
mod output;
mod progress;
mod quantity;
mod report;
mod serve;
mod signals;

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
        Verb::Report(args) => report::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "moonwire",
                &mut std::io::stdout(),
            );
            Ok(Exit::Success)
        }
    };
    outcome.unwrap_or_else(|error| {
        output::complain(&format!("{error:#}"));
        Exit::BadConfiguration
    })
}

/// Help and version are answers; everything else clap says is bad configuration.
fn refuse(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        // Nothing can be done about a closed stdout.
        let _ = error.print();
        return Exit::Success;
    }
    let _ = error.print();
    Exit::BadConfiguration
}
