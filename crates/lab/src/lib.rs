//! The lab: links, supervised server processes, resource sampling and the latency bench.
//!
//! The server under test is always another process, also when it is ours. Nothing here prints:
//! progress goes out as events, results as `moonwire_report` values.

mod agent;
mod battle;
mod bench;
mod cgroup;
mod check;
mod contestant;
mod doubling;
mod environment;
mod foreign_load;
mod idle_poll;
mod kernel;
mod link;
mod live;
mod local_server;
mod pauses;
mod process;
mod quota;
mod rations;
mod sampling;
mod scenario;
mod scheduling;
mod standing;

// The public interface is:
pub use crate::agent::{AgentError, AgentEvent, AgentSpec, AgentTarget, Token, agent};
pub use crate::battle::{
    BattleError, BattleEvent, BattleObserver, BattleOutcome, BattlePlace, BattleSpec, battle,
};
pub use crate::bench::{
    BenchEnding, BenchError, BenchEvent, BenchObserver, BenchOutcome, BenchSpec, Place, bench,
};
pub use crate::cgroup::{CpuLimits, Throttling};
pub use crate::check::{Check, CheckSpec, Trial, check_contestant, installed_version};
pub use crate::contestant::{ClientFigures, Contestant, Kind, LatencyFrom, LatencyMicros, Roster};
pub use crate::doubling::{
    DoublingError, DoublingEvent, DoublingObserver, DoublingOutcome, DoublingSpec,
    Place as CellPlace, payload_doubling, peers_folder,
};
pub use crate::environment::describe as describe_environment;
pub use crate::link::{
    DirectionStats, IdleExchange, Link, LinkEnd, LinkError, LinkKind, LinkMark, LinkSpec,
    LinkStats, Spread,
};
pub use crate::local_server::LocalServer;
pub use crate::pauses::PauseLog;
pub use crate::process::inherited::keep_inherited_files;
pub use crate::process::{ChildProcess, ChildSpec, Exit, ProcessError, Ready};
pub use crate::sampling::{
    ProcessorTimes, RareSample, Sample, Sampler, Series, TimedSample, Usage,
};
pub use crate::scenario::{AgentPlan, Fault, KNOBS, KnobKind, LabScenario, Mistake, SearchPlan};
pub use crate::standing::{Standing, StandingSpec};
