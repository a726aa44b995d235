//! The link of a battle, and how it is when nothing is on it.

use std::fs;
use std::sync::atomic::AtomicBool;

use super::{BattleError, BattleSpec};
use crate::bench::plan::Cores;
use crate::link::{IdleExchange, Link, LinkKind, LinkSpec};

/// The way between clients and contestants.
pub(super) struct Path {
    pub(super) link: Link,
    /// Empty exchanges over it; none over the loopback, which adds nothing.
    pub(super) idle: Option<IdleExchange>,
}

/// Sets the link up and measures it once: it stands for the whole battle.
pub(super) fn establish(
    spec: &BattleSpec,
    cores: &Cores,
    stop: &AtomicBool,
) -> Result<Path, BattleError> {
    let asked = &spec.scenario.link;
    let link = Link::establish(&LinkSpec {
        seed: spec.seed,
        // Beside the generator it would make that late.
        forwarder_cpus: cores.server.clone(),
        ..asked.clone()
    });
    let link = link.map_err(BattleError::Link)?;
    if matches!(link.kind(), LinkKind::Netem | LinkKind::Tun) {
        settings_of_the_machine(&link);
    }
    let idle = match asked.is_plain() {
        true => None,
        false => {
            let measured = link.measure_idle(IDLE_EXCHANGES, stop);
            measured.map_err(BattleError::Link)?
        }
    };
    Ok(Path { link, idle })
}

/// Gives both ends of a link the settings of the machine: a network namespace begins with the
/// kernel's defaults, and whoever has changed one means it.
fn settings_of_the_machine(link: &Link) {
    for (name, value) in SETTINGS.map(|name| (name, fs::read_to_string(name))) {
        let Ok(value) = value else {
            continue;
        };
        // Where it may not be written, the check of what is needed says what it is.
        let set = || drop(fs::write(name, &value));
        let _ = link.in_client(set);
        let _ = link.in_server(set);
    }
}

/// Those of a namespace that bound how many connections there can be, and how fast.
const SETTINGS: [&str; 5] = [
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/sys/net/ipv4/tcp_syncookies",
    "/proc/sys/net/ipv4/tcp_tw_reuse",
];
/// About a second over a link of 20 ms.
const IDLE_EXCHANGES: usize = 20;
