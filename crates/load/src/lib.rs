//! The load generator: a scenario in, a result out.
//!
//! The reference of a latency is the computed intended time, never a clock read after waking.

mod amplify;
mod client;
mod cpu;
mod crew;
mod desk;
mod echo;
mod ledger;
mod outcome;
mod payload;
mod plan;
mod preflight;
mod raw;
mod records;
mod reply;
mod run;
mod scenario;
mod schedule;
mod slo;
mod sources;
mod tally;
mod target;
mod verdict;
mod worker;

// The public interface is:
pub use crate::echo::{EchoOutcome, echo};
pub use crate::run::{Control, Ending, LoadError, Outcome, Phase, Progress, run};
pub use crate::scenario::{
    Arrival, Pacing, Reconnect, Scenario, ScenarioError, Settings, Stop, TimeUnit, Workload,
};
pub use crate::slo::Slo;
pub use crate::target::Target;
pub use moonwire_proto::DeflateOffer;
