//! `cargo xtask acceptance`: what takes minutes and an otherwise idle machine, and is therefore
//! not part of the test command.
//!
//! Progress goes to stderr; stdout gets a Markdown table that can be kept as it is.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use self::attacks::{Disturbed, Victim};
use self::program::Programs;
use self::table::Table;

mod attacks;
mod breakage;
mod broadcast;
mod budgets;
mod capacity;
mod disturbance;
mod faulty;
mod handover;
mod kills;
mod lapps_client;
mod memory;
mod planted;
mod pools;
mod program;
mod run_file;
mod services;
mod soak;
mod spinner;
mod starvation;
pub(crate) mod table;
mod threading;
mod truth;
pub(crate) mod work_tree;

pub(crate) use self::program::pinned;

/// Builds the program for release; where it is.
pub(crate) fn release_program() -> Result<PathBuf> {
    Ok(Programs::build()?.program())
}

/// The generator against servers whose faults are known, and short of CPU.
pub(crate) fn truth() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Truth: known faults, found and counted");
    truth::stalls(&programs, &mut table)?;
    truth::faults(&programs, &mut table)?;
    starvation::starved(&programs, &mut table)?;
    starvation::unhurried(&programs, &mut table)?;
    Ok(table.finish())
}

/// The line of [`truth`] that needs a quiet host.
pub(crate) fn unhurried() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Truth: a generator that has plenty");
    starvation::unhurried(&programs, &mut table)?;
    Ok(table.finish())
}

/// Defects put in on purpose, each of which the tests must notice.
pub(crate) fn breakage() -> Result<ExitCode> {
    let mut table = Table::new("Breakage: defects that the tests notice");
    breakage::defects(&mut table)?;
    Ok(table.finish())
}

/// What the neighbours of hostile clients feel of the attacks with these names, or of all.
pub(crate) fn attacks(names: &[&str]) -> Result<ExitCode> {
    let (disturbed, names) = match names {
        ["--noisy", names @ ..] => (Disturbed::Counted, names),
        names => (Disturbed::Repeated, names),
    };
    let programs = Programs::build()?;
    let mut table = Table::new("Attacks: what a well-behaved neighbour feels");
    let attacks = attacks::chosen(&programs, names)?;
    attacks::slow_handshakes(&programs, &mut table)?;
    attacks::neighbour(&programs, attacks, Victim::Server, disturbed, &mut table)?;
    Ok(table.finish())
}

/// What the clients of a server feel when another one beside it is attacked.
pub(crate) fn attacks_control(names: &[&str]) -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Attacks at another server: what a well-behaved neighbour feels");
    let attacks = attacks::chosen(&programs, names)?;
    let (victim, disturbed) = (Victim::Another, Disturbed::Repeated);
    attacks::neighbour(&programs, attacks, victim, disturbed, &mut table)?;
    Ok(table.finish())
}

/// A hundred services, half of which fail.
pub(crate) fn services(seconds: u16) -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Services: fifty that fail beside fifty that do not");
    services::hundred(&programs, seconds, &mut table)?;
    Ok(table.finish())
}

/// Callbacks on the worker's thread and on their own, one worker and two.
pub(crate) fn threading() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Threading: inline and threaded echo");
    threading::echo(&programs, &mut table)?;
    Ok(table.finish())
}

/// How soon a callback that does not end is stopped.
pub(crate) fn budgets() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Budgets: callbacks that do not end");
    budgets::stopped(&programs, &mut table)?;
    Ok(table.finish())
}

/// What a connection costs that another worker serves than the one that accepted it.
pub(crate) fn handover() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Hand-over: connections that change their worker");
    handover::price(&programs, &mut table)?;
    Ok(table.finish())
}

/// Clients of the LAppS protocol that nobody here wrote, for a minute each.
pub(crate) fn lapps_client() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("LAppS protocol: foreign clients");
    lapps_client::foreign(&programs, &mut table)?;
    Ok(table.finish())
}

/// One broadcast a second to many, some of whom do not read.
pub(crate) fn broadcast(seconds: u16) -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Broadcast: ten thousand subscribers");
    broadcast::subscribers(&programs, seconds, &mut table)?;
    Ok(table.finish())
}

/// Searches for the most that servers of known capacity stand.
pub(crate) fn capacity() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Capacity: servers whose capacity is known");
    capacity::known(&programs, &mut table)?;
    Ok(table.finish())
}

/// Rare faults of servers, and a leak.
pub(crate) fn planted(seconds: u16) -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Planted: faults that the lab has to find");
    planted::found(&programs, seconds, &mut table)?;
    Ok(table.finish())
}

/// Scenarios of which a part is killed in the middle.
pub(crate) fn kills(names: &[&str]) -> Result<ExitCode> {
    crate::peers::install()?;
    let programs = Programs::build()?;
    let mut table = Table::new("Kills: what is left of a scenario without a part of it");
    kills::survived(&programs, names, &mut table)?;
    Ok(table.finish())
}

/// Comparisons of one server with itself and with one that is slower, over recorded rounds or, if
/// `is_live`, over rounds of their own.
pub(crate) fn pools(is_live: bool) -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Pools: false alarms, and differences that are found");
    pools::judged(&programs, is_live, &mut table)?;
    Ok(table.finish())
}

/// The server holding many connections: for how long, and at what price.
pub(crate) fn soak() -> Result<ExitCode> {
    let programs = Programs::build()?;
    let mut table = Table::new("Soak: many connections");
    memory::idle(&programs, &mut table)?;
    memory::compressed(&programs, &mut table)?;
    soak::five_minutes(&programs, &mut table)?;
    Ok(table.finish())
}
