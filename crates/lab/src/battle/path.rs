//! The link of a battle, and how it is when nothing is on it.

use std::sync::atomic::AtomicBool;

use super::{BattleError, BattleSpec};
use crate::bench::plan::Cores;
use crate::link::{IdleExchange, Link, LinkSpec};

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
    let idle = match asked.is_plain() {
        true => None,
        false => {
            let measured = link.measure_idle(IDLE_EXCHANGES, stop);
            measured.map_err(BattleError::Link)?
        }
    };
    Ok(Path { link, idle })
}

/// About a second over a link of 20 ms.
const IDLE_EXCHANGES: usize = 20;
