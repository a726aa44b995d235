//! `moonwire lab check`: whether contestants can take part.

use std::time::Duration;

use anyhow::{Context, Error, Result};
use moonwire_lab::{CheckSpec, Kind, Roster, Trial, check_contestant, peers_folder};

use super::args::CheckArgs;
use crate::exit::Exit;
use crate::output;

/// A line for each contestant; one that cannot take part is no reason not to try the others.
pub(super) fn run(args: &CheckArgs, roster: &Roster) -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let contestants = match args.names.as_slice() {
        [] => roster.contestants().to_vec(),
        names => roster.select(names).map_err(Error::msg)?,
    };
    let backend = roster.one(Kind::Server, &args.backend);
    let spec = CheckSpec {
        backend: backend.map_err(Error::msg)?,
        peers: peers_folder(&program),
        program,
    };
    let mut exit = Exit::Success;
    for contestant in contestants {
        let name = contestant.name();
        let line = match check_contestant(&contestant, &spec) {
            Ok(check) => {
                if !check.is_passed() {
                    exit = Exit::Invalid;
                }
                let (plain, tls) = (told(&check.plain), told(&check.tls));
                format!("{name} {}: ws {plain}; wss {tls}\n", check.version)
            }
            Err(sentence) => {
                exit = Exit::Invalid;
                format!("{name}: {sentence}\n")
            }
        };
        output::answer(&line)?;
    }
    Ok(exit)
}

fn told(trial: &Result<Trial, String>) -> String {
    let ms = |took: Duration| format!("{:.2} ms", took.as_secs_f64() * 1000.0);
    match trial {
        Ok(Trial::Served {
            echo,
            amplify,
            broadcast,
        }) => {
            let replies = amplify.map(|took| format!(", all replies in {}", ms(took)));
            let copies = broadcast.map(|took| format!(", all copies in {}", ms(took)));
            let [replies, copies] = [replies, copies].map(Option::unwrap_or_default);
            format!("echo in {}{replies}{copies}", ms(*echo))
        }
        Ok(Trial::Sent { messages, median }) => {
            format!("{messages} echoes, median {}", ms(*median))
        }
        Err(why) => why.clone(),
    }
}
