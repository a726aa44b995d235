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
    /// A line of its output that contains this says that it can be connected to; without it
    /// somebody listens on its port then.
    pub(super) ready: Option<String>,
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

impl ContestantFile {
    /// What no type says. The error is a clause.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.variants.is_empty() {
            return Err("it needs one of [[variants]] at least".into());
        }
        for endpoint in [&self.plain, &self.tls] {
            if endpoint.start.is_empty() {
                return Err("`start` needs a program".into());
            }
        }
        Ok(())
    }
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
