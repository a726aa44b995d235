//! The lab: links, supervised server processes, resource sampling and the latency bench.
//!
//! The server under test is always another process, also when it is ours. Nothing here prints:
//! progress goes out as events, results as `moonwire_report` values.

mod link;

pub use link::{
    DirectionStats, IdleExchange, Link, LinkError, LinkKind, LinkMark, LinkSpec, LinkStats, Spread,
};
