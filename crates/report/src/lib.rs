//! The Run file, histograms, statistics and everything that is drawn from them.
//!
//! Every rendering is a function from a [`Run`] to text or bytes. Only `folder` touches the file
//! system, and nothing here reads a clock.

mod axis;
mod bar_chart;
mod battle;
mod capacity;
mod ceiling;
mod cell;
mod cell_report;
mod chart;
mod compare;
mod contest;
mod counts;
mod course;
mod cross_check;
mod curve;
mod doubling;
mod environment;
mod evenness;
mod fan_out;
mod folder;
mod format;
mod gc_pauses;
mod groups;
mod growth;
mod heat_map;
mod histogram;
mod interval;
mod junit;
mod knobs;
mod latency_buckets;
mod lineup;
mod live_counts;
mod markdown;
mod metric;
mod objections;
mod one_way;
mod page;
mod page_data;
mod palette;
mod parameters;
mod plot_data;
mod plots;
mod processor;
mod pull_request;
mod quantiles;
mod replies;
mod rolling;
mod run;
#[cfg(test)]
mod sample;
mod schema;
mod secrets;
mod sentences;
mod spikes;
mod stage;
mod statistics;
mod summary;
mod table;
mod tables;
mod time_block;
mod tls;
mod trend;
mod verdict;

// The public interface is:
pub use crate::battle::{Contrast, Rules, contrast};
pub use crate::capacity::{Capacity, Over};
pub use crate::ceiling::Ceiling;
pub use crate::cell::{Cell, Handshake, Latencies, Recovery};
pub use crate::compare::{Change, Comparison, compare};
pub use crate::contest::{Contest, Counted};
pub use crate::counts::{Bytes, Connects, Messages, Rate};
pub use crate::cross_check::CrossCheck;
pub use crate::environment::{Environment, Generator, Link, Server, Threshold};
pub use crate::evenness::BackendShare;
pub use crate::fan_out::FanOut;
pub use crate::folder::{
    check_run_place, read_run, render_all, write_cell_reports, write_junit, write_run,
};
pub use crate::gc_pauses::{GcPause, GcPauses};
pub use crate::growth::{Growth, GrowthVerdict, Per};
pub use crate::histogram::{Bucket, Histogram};
pub use crate::interval::{Interval, IntervalLatency};
pub use crate::junit::junit;
pub use crate::latency_buckets::LatencyBuckets;
pub use crate::live_counts::live_objection;
pub use crate::markdown::markdown;
pub use crate::metric::{Figure, Latency, METRICS, Metric, MetricUnit, Statistic};
pub use crate::one_way::{ClockOffset, OneWay};
pub use crate::page::html;
pub use crate::parameters::Parameters;
pub use crate::plots::{Plot, plots, png};
pub use crate::processor::Processor;
pub use crate::pull_request::{pull_request, run_details};
pub use crate::quantiles::Quantiles;
pub use crate::replies::{Reply, ReplyWriter};
pub use crate::run::{Content, INTERRUPTED, Run, RunError, RunProblem};
pub use crate::schema::schema;
pub use crate::secrets::{header_value_shown, without_secrets};
pub use crate::stage::Stage;
pub use crate::summary::{Style, objection, summary};
pub use crate::time_block::TimeBlock;
pub use crate::tls::Tls;
pub use crate::verdict::{Assessment, Verdict};
