//! The agent of a scenario, which starts the contestants on another host.

use std::path::PathBuf;
use std::time::Duration;

use moonwire_load::quantity;

use super::knobs::{Knobs, Mistake};
use super::{link, word};

/// Which agent, and how well the clocks of both hosts must be known.
#[derive(Debug, Clone)]
pub struct AgentPlan {
    /// A name or an address, with a port.
    pub place: String,
    /// The file with its token.
    pub token_file: Option<PathBuf>,
    /// How far one-way latencies may be off.
    pub one_way_bound: Duration,
}

impl AgentPlan {
    /// The one that the scenario names, if it does.
    pub(super) fn of(knobs: &Knobs, place: &str) -> Result<Option<Self>, Mistake> {
        let agent = knobs.one("agent", word)?;
        let token_file = knobs.one("agent_token_file", word)?;
        let bound = knobs.one("one_way_bound", quantity::duration)?;
        for name in ["agent_token_file", "one_way_bound"] {
            if let (None, Some(knob)) = (&agent, knobs.get(name)) {
                let clause = "there is no agent: give 'agent', too";
                return Err(knob.mistake(name, clause));
            }
        }
        if agent.is_some() && !link::link(knobs, place)?.is_plain() {
            let sentence = "'agent' is reached over the network that there is: leave out \
                            'link_delay', 'link_jitter', 'link_loss' and 'link_rate'";
            return Err(knobs.mistake(place, sentence));
        }
        Ok(agent.map(|place| Self {
            place,
            token_file: token_file.map(PathBuf::from),
            one_way_bound: bound.unwrap_or(ONE_WAY_BOUND),
        }))
    }
}

/// Some round trips of a network in one place.
const ONE_WAY_BOUND: Duration = Duration::from_micros(500);
