//! One-way latency, which needs two clocks that agree.

use crate::histogram::Histogram;

/// One-way latency, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum OneWay {
    /// Both ends share a clock; one sample a message.
    Measured {
        /// The samples.
        histogram: Histogram,
        /// Resolution of the server's timestamps in microseconds: 1, or 1000 for `ms` servers.
        resolution_us: u64,
    },
    /// Not measured.
    Refused {
        /// Why, in one sentence.
        reason: String,
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
            Self::Refused { reason } => Some(reason),
        }
    }

    /// Resolution of the timestamps in microseconds, if measured.
    pub fn resolution_us(&self) -> Option<u64> {
        match self {
            Self::Measured { resolution_us, .. } => Some(*resolution_us),
            Self::Refused { .. } => None,
        }
    }
}

impl Default for OneWay {
    fn default() -> Self {
        Self::Refused {
            reason: "the server's replies carry no timestamps".to_owned(),
        }
    }
}
