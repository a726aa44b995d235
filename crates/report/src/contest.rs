//! Where a cell of the lab stands among the contestants of its run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cross_check::CrossCheck;
use crate::evenness::BackendShare;
use crate::parameters::Parameters;

/// What servers say that they have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counted {
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
}

/// Whose figures they are, and in which round of the contest they were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contest {
    /// The contestant and its variant, such as `uwebsockets-js/1-thread`.
    pub contestant: String,
    /// Connections asked for.
    pub connections: u64,
    /// Whether they were made over TLS.
    pub tls: bool,
    /// Rounds follow each other, each with all contestants; from 1.
    pub round: u64,
    /// The size that the benchmark of LAppS would print for this cell, bytes. Only in its mode, in
    /// which no message ever has this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominal_bytes: Option<u64>,
    /// The server behind a proxy, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Why the figures are not the contestant's own: the generator or the backend was the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// What other generators measured of the same processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cross_checks: Vec<CrossCheck>,
    /// What the servers counted, where they say so and nobody else was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// What each of several servers had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<BackendShare>,
}

impl Contest {
    /// The contestant as a reader tells it from the others.
    pub(crate) fn name(&self) -> String {
        let scheme = if self.tls { "wss" } else { "ws" };
        format!("{}, {scheme}", self.contestant)
    }

    /// What names a file of this cell beside those of the others.
    pub(crate) fn key(&self) -> String {
        format!("{}_{}_", self.file_name(), self.turn())
    }

    /// The folder among the results that has all that belongs to the cell of these parameters: what
    /// its processes said, and its report.
    pub fn folder_name(&self, parameters: &Parameters) -> String {
        format!("{}_{}_{}", self.file_name(), parameters.key(), self.turn())
    }

    fn file_name(&self) -> String {
        self.name().replace(['/', ' '], "_").replace(',', "")
    }

    fn turn(&self) -> String {
        let nominal = self.nominal_bytes;
        let nominal = nominal.map_or_else(String::new, |bytes| format!("_nominal{bytes}"));
        format!("round{}{nominal}", self.round)
    }
}
