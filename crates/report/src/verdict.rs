//! Whether a run may be believed, and why not.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verdict on a run, from good to bad; the order is the severity.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The generator kept its schedule; the figures are those of the server and the link.
    #[default]
    Valid,
    /// Something disturbed the run; the figures may be read, with the reason beside them.
    Suspect,
    /// The generator or the surroundings were the bottleneck; the figures are not the server's.
    Invalid,
}

/// A verdict with its reasons. Invariant: as built by a run, without a reason it is VALID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    verdict: Verdict,
    reasons: Vec<String>,
}

impl Assessment {
    /// VALID, no reason against it yet.
    pub fn valid() -> Self {
        Self::default()
    }

    /// As read back from a file.
    pub(crate) fn restored(verdict: Verdict, reasons: Vec<String>) -> Self {
        Self { verdict, reasons }
    }

    /// Adds a reason; the verdict becomes the worse of the present one and `verdict`.
    /// A reason given with `Verdict::Valid` is a remark.
    pub fn add(&mut self, verdict: Verdict, reason: impl Into<String>) {
        self.verdict = self.verdict.max(verdict);
        self.reasons.push(reason.into());
    }

    /// Adds a reason before all others, because they follow from it.
    pub fn add_cause(&mut self, verdict: Verdict, reason: impl Into<String>) {
        self.verdict = self.verdict.max(verdict);
        self.reasons.insert(0, reason.into());
    }

    /// The worst verdict given so far.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Every reason given, in order: full sentences, or parts that read after a colon.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

impl Verdict {
    /// The word in the file and on the screen.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "VALID",
            Self::Suspect => "SUSPECT",
            Self::Invalid => "INVALID",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}
