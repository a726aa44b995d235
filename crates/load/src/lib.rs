//! The load generator: a scenario in, a result out.
//!
//! The reference of a latency is the computed intended time, never a clock read after waking.

mod amplify;
mod audience;
mod block_records;
mod client;
mod cpu;
mod crew;
mod desk;
mod echo;
mod fragments;
mod latency_step;
mod ledger;
mod meter;
mod null_server;
mod outcome;
mod payload;
mod plan;
mod pool;
mod preflight;
pub mod quantity;
mod raw;
mod raw_echo;
mod reconnect;
mod records;
mod reply;
mod run;
mod scenario;
mod schedule;
mod slo;
mod sources;
mod stage_records;
mod stages;
mod tally;
mod target;
mod verdict;
mod worker;

// The public interface is:
pub use crate::echo::{EchoOutcome, echo};
pub use crate::fragments::{Cut, FragmentShare};
pub use crate::latency_step::LatencyStep;
pub use crate::null_server::{NullServer, null_server};
pub use crate::pool::PayloadSource;
pub use crate::preflight::workers_needed;
pub use crate::raw_echo::raw_echo;
pub use crate::reconnect::Reconnect;
pub use crate::run::{Control, Ending, LoadError, Outcome, Phase, Progress, run};
pub use crate::scenario::{
    Arrival, ConnectGroup, FanOut, Pacing, Scenario, ScenarioError, Settings, Stop, TimeUnit,
    Workload,
};
pub use crate::slo::Slo;
pub use crate::stages::{RateStage, RateStages};
pub use crate::target::Target;
pub use moonwire_net::{DriverChoice, RealTime, TlsRecords, prefer_real_time};
pub use moonwire_proto::{DeflateOffer, WebSocketVersion};
