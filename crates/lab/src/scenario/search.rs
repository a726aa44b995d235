//! What a search for the most that contestants stand raises, and how far.

use std::time::Duration;

use moonwire_load::quantity;
use moonwire_report::Over;

use super::knobs::{Knobs, Mistake};

/// A search. Its thresholds are those of the scenario, and its tries as long as `duration`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchPlan {
    /// What is raised.
    pub over: Over,
    /// The first value that is tried.
    pub from: f64,
    /// No higher one is tried.
    pub to: f64,
    /// The gap that may be left between what passes and what fails, as a share.
    pub precision: f64,
    /// How long the highest that passed is tried in the end.
    pub confirm: Duration,
}

impl SearchPlan {
    pub(super) fn of(knobs: &Knobs) -> Result<Option<Self>, Mistake> {
        let Some(over) = knobs.one("over", over)? else {
            for name in ["from", "to", "precision", "confirm"] {
                if let Some(knob) = knobs.get(name) {
                    let clause = "nothing is looked for: give 'over', too";
                    return Err(knob.mistake(name, clause));
                }
            }
            return Ok(None);
        };
        let (from, to) = match over {
            Over::Rate => (RATE_FROM, RATE_TO),
            Over::Connections => (CONNECTIONS_FROM, CONNECTIONS_TO),
        };
        let plan = Self {
            over,
            from: knobs.one("from", quantity::rate)?.unwrap_or(from),
            to: knobs.one("to", quantity::rate)?.unwrap_or(to),
            precision: knobs
                .one("precision", quantity::fraction)?
                .unwrap_or(PRECISION),
            confirm: knobs.one("confirm", quantity::duration)?.unwrap_or(CONFIRM),
        };
        let mistake = |name: &str, clause: &str| {
            let knob = knobs.get(name).or_else(|| knobs.get("over"));
            let knob = knob.expect("without `over` there is no plan");
            Err(knob.mistake(name, clause))
        };
        if plan.from > plan.to {
            return mistake("from", "it is above 'to': give a range from low to high");
        }
        let ends = [("from", plan.from), ("to", plan.to)];
        let broken = ends.iter().find(|(_, value)| value.fract() != 0.0);
        if let Some((name, _)) = broken.filter(|_| over == Over::Connections) {
            return mistake(
                name,
                "there are no parts of connections: give a whole number",
            );
        }
        if plan.confirm.is_zero() {
            return mistake("confirm", "it must be more than 0");
        }
        if plan.precision < PRECISION_MIN {
            return mistake("precision", "less than 0.1% drowns in noise: give 1% or so");
        }
        Ok(Some(plan))
    }
}

fn over(text: &str) -> Result<Over, String> {
    match text {
        "rate" => Ok(Over::Rate),
        "connections" => Ok(Over::Connections),
        _ => Err(format!("'{text}' is not one of rate, connections")),
    }
}

const RATE_FROM: f64 = 1000.0;
/// More than one machine sends.
const RATE_TO: f64 = 10e6;
const CONNECTIONS_FROM: f64 = 100.0;
/// Two addresses' worth of ports.
const CONNECTIONS_TO: f64 = 100e3;
const PRECISION: f64 = 0.02;
const PRECISION_MIN: f64 = 0.001;
const CONFIRM: Duration = Duration::from_secs(10);
