//! Where a run took place: the machine, the link, the server and the generator.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gc_pauses::GcPauses;

/// The machine and the command a run came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Environment {
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Logical cores this process may use.
    pub cores: u64,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Name of the operating system.
    pub os: String,
    /// Versions of what took part: `moonwire`, the server, ...
    pub versions: BTreeMap<String, String>,
    /// SHA-256 of the files that each contestant is made of, in hexadecimal digits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contestant_files: BTreeMap<String, String>,
    /// Soft limit of file descriptors during the run.
    pub fd_limit: u64,
    /// Kernel settings that shape results, by name.
    pub sysctls: BTreeMap<String, String>,
    /// The exact command line, one argument an element.
    pub command_line: Vec<String>,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// When the run started, RFC 3339.
    pub started_at: String,
    /// How long all of it took, seconds.
    pub elapsed_s: f64,
    /// Anything else worth keeping.
    pub notes: BTreeMap<String, String>,
    /// The host of the servers, where that is another one; nothing in it is of the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Box<Self>>,
}

/// The link between generator and server, and what it added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Link {
    /// `none`, `netem`, `tun` or `stand-in`.
    pub kind: String,
    /// Delay asked for, per direction, milliseconds.
    pub delay_ms: f64,
    /// Jitter asked for, milliseconds.
    pub jitter_ms: f64,
    /// Loss asked for, 0 to 1.
    pub loss: f64,
    /// Rate asked for, bits per second; `None` is unlimited.
    pub rate_bit_per_s: Option<f64>,
    /// Minimum round trip of an empty exchange measured before the run, microseconds.
    pub empty_rtt_min_us: Option<f64>,
    /// Median round trip of an empty exchange measured before the run, microseconds.
    pub empty_rtt_p50_us: Option<f64>,
    /// Most packets (or, for the stand-in, bytes) a direction may hold.
    pub queue_max: Option<u64>,
    /// What `queue_max` counts: `packets` or `bytes`.
    pub queue_unit: String,
    /// Packets dropped because the queue was full.
    pub drops: u64,
    /// CPU the link itself used, seconds.
    pub cpu_s: Option<f64>,
    /// One sentence on what this kind of link is, when it is not a real one.
    pub note: String,
}

/// The server under test, where it is local.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Server {
    /// Name, and version if known.
    pub name: String,
    /// URLs it was reached at.
    pub urls: Vec<String>,
    /// CPU per message received by the server, user and system, nanoseconds.
    pub cpu_ns_per_message: Option<f64>,
    /// CPU used over the sending phase, seconds.
    pub cpu_s: Option<f64>,
    /// The least of it between two looks, 100 ms apart as a rule, in processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_least: Option<f64>,
    /// The most of it, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_most: Option<f64>,
    /// How long that was looked at, seconds.
    pub observed_s: Option<f64>,
    /// Resident memory at the end of the sending phase, bytes.
    pub rss_bytes: Option<u64>,
    /// Resident memory before the first connection, bytes.
    pub rss_start_bytes: Option<u64>,
    /// Largest resident memory seen, bytes.
    pub rss_peak_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// What it was allowed to use by a control group of its own, in processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// Time for which that limit kept processors from it while `observed_s` passed, milliseconds;
    /// that of several processors is added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ms: Option<f64>,
    /// Pauses of its garbage collector; `None` where its runtime tells none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gc: Option<GcPauses>,
    /// Cores it was pinned to, as a list such as `1` or `2-3`; empty when not pinned.
    pub cores: String,
    /// Why it ended before the run did; `None` when it did not.
    pub died: Option<String>,
    /// Its own counters at the end.
    pub counters: BTreeMap<String, f64>,
}

/// The generator's own use of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Generator {
    /// Worker threads.
    pub threads: u64,
    /// CPU used over the sending phase, seconds.
    pub cpu_s: Option<f64>,
    /// Share of the cores available to it that it used, 0 to 1.
    pub cpu_share: Option<f64>,
    /// Share of time in which something waited for a CPU (pressure stall information), 0 to 1.
    pub cpu_pressure: Option<f64>,
    /// Share of the time in which the host ran something else on its and the server's processors,
    /// 0 to 1: of their idle time or of the link's work, whichever is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_taken: Option<f64>,
    /// What its threads were allowed to use by a control group of their own, in processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// Time for which a limit, that one or one set by others, kept processors from it while
    /// messages were sent, milliseconds; that of several processors is added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_ms: Option<f64>,
    /// Cores it was pinned to; empty when not pinned.
    pub cores: String,
    /// Source addresses used.
    pub source_addresses: u64,
}

/// A threshold the user set, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Threshold {
    /// The expression as typed.
    pub expression: String,
    /// The value found, with its unit.
    pub actual: String,
    /// Whether it held.
    pub passed: bool,
}

impl Threshold {
    /// Why there is no answer, where that is so: it has not passed, and has not failed either.
    pub fn unanswered(&self) -> Option<&str> {
        self.actual.strip_prefix("no answer: ")
    }

    /// What came of it, in words.
    pub(crate) fn finding(&self) -> String {
        let outcome = if self.passed { "passed" } else { "failed" };
        match self.unanswered() {
            Some(why) => format!("cannot be told: {why}"),
            None => format!("{outcome}, found {}", self.actual),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "threshold {} {}", self.expression, self.finding())
    }
}
