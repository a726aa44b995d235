//! `moonwire lab list`: who can take part in what.

use anyhow::{Context, Result};
use moonwire_lab::{Contestant, Kind, LabScenario, Roster, installed_version, peers_folder};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::output;

/// Those of each kind, and which of them are not installed.
pub(super) fn run(roster: &Roster, as_json: bool) -> Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let peers = peers_folder(&program);
    let entries: Vec<Entry<'_>> = roster
        .contestants()
        .iter()
        .map(|contestant| Entry {
            contestant,
            version: installed_version(contestant, &program, &peers).ok(),
        })
        .collect();
    output::answer(&match as_json {
        true => serde_json::to_string_pretty(&document(&entries))? + "\n",
        false => text(&entries),
    })?;
    Ok(Exit::Success)
}

/// One line, or one object.
struct Entry<'a> {
    contestant: &'a Contestant,
    /// `None` if it is not installed.
    version: Option<String>,
}

fn text(entries: &[Entry<'_>]) -> String {
    let mut text = "scenarios:\n".to_owned();
    for (name, description) in scenarios() {
        text.push_str(&format!("  {name:30} {description}\n"));
    }
    for (kind, title) in KINDS {
        text.push_str(&format!("{title}:\n"));
        for entry in entries
            .iter()
            .filter(|entry| entry.contestant.kind() == kind)
        {
            let (name, description) = (entry.contestant.name(), entry.contestant.description());
            let missing = match (&entry.version, entry.contestant.install_command()) {
                (Some(_), _) => String::new(),
                (None, Some(command)) => format!(" (not installed: `{command}`)"),
                (None, None) => " (not installed)".to_owned(),
            };
            text.push_str(&format!("  {name:30} {description}{missing}\n"));
        }
    }
    text
}

fn document(entries: &[Entry<'_>]) -> Value {
    let contestants = entries.iter().map(|entry| {
        let contestant = entry.contestant;
        json!({
            "name": contestant.name(),
            "kind": contestant.kind(),
            "description": contestant.description(),
            "version": entry.version,
            "install": contestant.install_command(),
            "amplify": contestant.is_amplifying(),
            "broadcast": contestant.is_broadcasting(),
            "workers_max": contestant.workers_max(),
        })
    });
    json!({
        "scenarios": scenarios().into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "contestants": contestants.collect::<Vec<_>>(),
    })
}

/// Names, and what they are.
fn scenarios() -> Vec<(String, String)> {
    let mut scenarios = LabScenario::shipped();
    let doubling = "Echo payloads of 1 KiB to 256 KiB, as the benchmark of LAppS had them";
    scenarios.push(("payload-doubling".to_owned(), doubling.to_owned()));
    scenarios.sort();
    scenarios
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Server, "servers"),
    (Kind::Proxy, "proxies"),
    (Kind::Client, "clients"),
];
