//! The Run file, histograms, statistics and everything that is drawn from them.
//!
//! Every rendering is a function from a [`Run`] to text or bytes. Only `folder` touches the file
//! system, and nothing here reads a clock.

mod cell;
mod counts;
mod environment;
mod folder;
mod histogram;
mod interval;
mod quantiles;
mod run;
mod verdict;

// The public interface is:
pub use crate::cell::{Cell, Handshake, Latencies, OneWay, Parameters};
pub use crate::counts::{Bytes, Connects, Messages, Rate};
pub use crate::environment::{Environment, Generator, Link, Server, Threshold};
pub use crate::folder::{read_run, write_run};
pub use crate::histogram::{Bucket, Histogram};
pub use crate::interval::{Interval, IntervalLatency};
pub use crate::quantiles::Quantiles;
pub use crate::run::{Content, Run, RunError, RunProblem};
pub use crate::verdict::{Assessment, Verdict};
