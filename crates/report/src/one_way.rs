//! One-way latency, which needs two clocks that agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format;
use crate::histogram::Histogram;

/// One-way latency, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum OneWay {
    /// Both ends share a clock, or the difference of theirs is known; one sample a message.
    Measured {
        /// The samples.
        histogram: Histogram,
        /// Resolution of the server's timestamps in microseconds: 1, or 1000 for `ms` servers.
        resolution_us: u64,
        /// How the server's clock was brought to ours; `None` where both are one.
        clock: Option<ClockOffset>,
    },
    /// Not measured.
    Refused {
        /// Why, in one sentence.
        reason: String,
        /// What is known of the clocks, where that is too little.
        clock: Option<ClockOffset>,
    },
}

impl OneWay {
    /// The histogram, if there is one with samples.
    pub fn histogram(&self) -> Option<&Histogram> {
        match self {
            Self::Measured { histogram, .. } if !histogram.is_empty() => Some(histogram),
            Self::Measured { .. } | Self::Refused { .. } => None,
        }
    }

    /// Why there is none, if it was refused.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Measured { .. } => None,
            Self::Refused { reason, .. } => Some(reason),
        }
    }

    /// Resolution of the timestamps in microseconds, if measured.
    pub fn resolution_us(&self) -> Option<u64> {
        match self {
            Self::Measured { resolution_us, .. } => Some(*resolution_us),
            Self::Refused { .. } => None,
        }
    }

    /// What is known of the two clocks, where they are not one.
    pub fn clock(&self) -> Option<ClockOffset> {
        match self {
            Self::Measured { clock, .. } | Self::Refused { clock, .. } => *clock,
        }
    }
}

/// The difference of two hosts' clocks, as exchanges of their times show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClockOffset {
    /// The server's clock less ours before the load, nanoseconds: what was taken off.
    pub offset_ns: i64,
    /// That is wrong by no more than this while there was load, nanoseconds.
    pub bound_ns: u64,
    /// By how much it had changed after the load, nanoseconds; it is in the bound.
    pub drift_ns: i64,
    /// The smallest round trip of the exchanges, nanoseconds.
    pub round_trip_min_ns: u64,
}

impl ClockOffset {
    /// How far a one-way latency may be off, for a reader.
    pub(crate) fn error(&self) -> String {
        format!("± {}", format::latency(self.bound_ns as f64 / 1e3))
    }
}

impl Default for OneWay {
    fn default() -> Self {
        Self::Refused {
            reason: "the server's replies carry no timestamps".to_owned(),
            clock: None,
        }
    }
}
