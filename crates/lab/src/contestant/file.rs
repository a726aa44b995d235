//! `contestant.toml` as it is written. A text may name values in braces, such as `{port}`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContestantFile {
    pub(super) kind: Kind,
    /// What it is, in a few words.
    pub(super) description: String,
    /// The command that installs it; none for what is always here.
    pub(super) install: Option<String>,
    /// A command that prints its version.
    pub(super) version: Vec<String>,
    /// Files of its folder in which names in braces are replaced; others are taken as they are.
    #[serde(default)]
    pub(super) templates: Vec<String>,
    /// A line of its output that contains this says that it can be connected to.
    pub(super) ready: String,
    /// Added to its environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Without TLS.
    pub(super) plain: Endpoint,
    /// With TLS.
    pub(super) tls: Endpoint,
    /// At least one.
    pub(super) variants: Vec<Variant>,
}

/// What a contestant is.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// It answers the messages itself.
    Server,
}

/// How it is started and reached. SIGTERM stops it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Endpoint {
    pub(super) start: Vec<String>,
    pub(super) url: String,
}

/// One of its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    pub(super) name: String,
    /// Connections that it is measured with when nothing else is said.
    pub(super) connections: Option<u32>,
    /// Values of its own, by the names that stand in braces.
    #[serde(default)]
    pub(super) values: BTreeMap<String, String>,
}
