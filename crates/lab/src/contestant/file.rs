//! `contestant.toml` as it is written; `lab/contestants/README.md` explains every key.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::metrics::Metrics;
use crate::pauses::PauseLines;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContestantFile {
    pub(super) kind: Kind,
    /// What it is, in a few words.
    pub(super) description: String,
    /// What `cargo xtask peers` does to install it; absent for what is always here.
    pub(super) install: Option<toml::Table>,
    /// A command that prints its version; empty for what has no process.
    #[serde(default)]
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
    /// The most workers that it can have; absent for as many as it is told.
    pub(super) workers_max: Option<u32>,
    /// Where its counters stand in what it prints when it ends.
    pub(super) counters: Option<Counters>,
    /// Where it tells them while it runs.
    pub(super) metrics: Option<Metrics>,
    /// How it tells the pauses of its garbage collector.
    pub(super) gc: Option<Gc>,
    /// The unit of the times in its amplifying service.
    #[serde(default)]
    pub(super) amplify_time_unit: TimeUnit,
    /// Without TLS.
    pub(super) plain: Option<Endpoint>,
    /// With TLS.
    pub(super) tls: Option<Endpoint>,
    /// Its settings; one without a name or values when there are none.
    #[serde(default)]
    pub(super) variants: Vec<Variant>,
}

/// Which of its lines tell of pauses.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gc {
    pub(super) lines: PauseLines,
}

/// What a contestant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It answers the messages itself.
    Server,
    /// It stands between the clients and servers.
    Proxy,
    /// It sends the messages.
    Client,
}

/// The unit of times in messages.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) enum TimeUnit {
    /// Microseconds.
    #[default]
    #[serde(rename = "us")]
    Micros,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
}

/// How it is started and reached. SIGTERM stops it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Endpoint {
    pub(super) start: Vec<String>,
    /// Where a server's echo is.
    pub(super) url: Option<String>,
    /// Where a server answers each JSON message several times.
    pub(super) amplify: Option<String>,
    /// Where a server sends each message to all that have sent it the text `subscribe`.
    pub(super) broadcast: Option<String>,
    /// Other processes that belong to it, started before it.
    #[serde(default)]
    pub(super) also: Vec<Also>,
}

/// One of several processes: without `ready` the first listens on `{port2}`, the second on
/// `{port3}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Also {
    pub(super) start: Vec<String>,
    pub(super) ready: Option<String>,
}

/// One of its settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    /// Empty for the one that the contestant's own name means.
    #[serde(default)]
    pub(super) name: String,
    /// The only scenario that takes it when the contestant is named without a variant.
    pub(super) scenario: Option<String>,
    /// Whether it takes part only where it is named with its variant.
    #[serde(default)]
    pub(super) on_request: bool,
    /// What it is, where that is not what the others of its contestant are.
    pub(super) description: Option<String>,
    /// Whether, as a proxy, it sends all connections of an address to one server.
    #[serde(default)]
    pub(super) sticky: bool,
    /// Connections that it is measured with when nothing else is said.
    pub(super) connections: Option<u32>,
    /// Whether it has the amplifying service, if the others have.
    pub(super) amplify: Option<bool>,
    /// Whether it has the broadcasting service, if the others have.
    pub(super) broadcast: Option<bool>,
    /// Values of its own, by the names that stand in braces.
    #[serde(default)]
    pub(super) values: BTreeMap<String, String>,
}

/// Other processes of one contestant.
pub(super) const ALSO_MAX: usize = 3;

/// What is wrong with a file.
#[derive(Debug)]
pub(super) struct Fault {
    /// The first line with this text is the place.
    pub(super) at: String,
    /// A clause.
    pub(super) reason: String,
}

fn fault(at: &str, reason: impl Into<String>) -> Fault {
    Fault {
        at: at.to_owned(),
        reason: reason.into(),
    }
}

impl ContestantFile {
    /// What no type says.
    pub(super) fn check(&mut self, known: &[&str]) -> Result<(), Fault> {
        if self.variants.is_empty() {
            self.variants.push(Variant::default());
        }
        self.check_variants()?;
        let has_process = self.plain.is_some() || self.tls.is_some();
        if self.kind != Kind::Proxy || has_process {
            for (name, endpoint) in [("[plain]", &self.plain), ("[tls]", &self.tls)] {
                let missing = || fault("kind", format!("it needs {name} with `start`"));
                let endpoint = endpoint.as_ref().ok_or_else(missing)?;
                self.check_endpoint(endpoint, name)?;
            }
            if self.version.is_empty() {
                let reason = "`version` needs a command that prints the version";
                return Err(fault("version", reason));
            }
        }
        self.check_metrics()?;
        if self.gc.is_some() && (self.kind == Kind::Client || !has_process) {
            let reason = "`gc` is for servers and proxies that have a process";
            return Err(fault("[gc]", reason));
        }
        if self.workers_max == Some(0) {
            return Err(fault("workers_max", "`workers_max` must be 1 or more"));
        }
        self.check_names(known)
    }

    fn check_metrics(&self) -> Result<(), Fault> {
        let Some(metrics) = &self.metrics else {
            return Ok(());
        };
        if self.kind != Kind::Server {
            let reason = "`metrics` is for servers, which count messages";
            return Err(fault("metrics", reason));
        }
        match metrics.path.starts_with('/') {
            true => Ok(()),
            false => Err(fault("metrics", "`path` of `metrics` must begin with /")),
        }
    }

    fn check_variants(&self) -> Result<(), Fault> {
        let mut names = BTreeSet::new();
        for Variant { name, .. } in &self.variants {
            if !names.insert(name) {
                let reason = format!("two of [[variants]] have the name \"{name}\"");
                return Err(fault("[[variants]]", reason));
            }
        }
        Ok(())
    }

    /// `name` is that of its table, in brackets.
    fn check_endpoint(&self, endpoint: &Endpoint, name: &str) -> Result<(), Fault> {
        let commands = endpoint.also.iter().map(|also| &also.start);
        if commands.chain([&endpoint.start]).any(Vec::is_empty) {
            return Err(fault(name, format!("`start` of {name} needs a program")));
        }
        if endpoint.also.len() > ALSO_MAX {
            let reason = format!("{name} may have {ALSO_MAX} of `also` at most");
            return Err(fault(name, reason));
        }
        let is_server = self.kind == Kind::Server;
        if is_server && endpoint.url.is_none() {
            let reason = format!("{name} of a server needs `url`, where its echo is");
            return Err(fault(name, reason));
        }
        let scheme = if name == "[tls]" { "wss://" } else { "ws://" };
        let urls = [
            ("url", &endpoint.url),
            ("amplify", &endpoint.amplify),
            ("broadcast", &endpoint.broadcast),
        ];
        for (key, url) in urls {
            let Some(url) = url else { continue };
            if !is_server {
                let reason = format!("`{key}` of {name} is for servers; proxies have {{port}}");
                return Err(fault(name, reason));
            }
            if !url.starts_with(scheme) {
                return Err(fault(
                    url,
                    format!("`{key}` of {name} must begin with {scheme}"),
                ));
            }
        }
        Ok(())
    }

    /// A name in braces that nothing stands for would reach the program as it is.
    fn check_names(&self, known: &[&str]) -> Result<(), Fault> {
        for variant in &self.variants {
            let own = |name: &str| variant.values.contains_key(name);
            let mut unknown = self
                .texts()
                .chain(variant.values.values())
                .flat_map(|text| {
                    let names = names_in_braces(text);
                    names.filter(|name| !known.contains(name) && !own(name))
                });
            if let Some(name) = unknown.next() {
                let of = match variant.name.as_str() {
                    "" => String::new(),
                    variant => format!(" of the variant {variant}"),
                };
                let reason = format!(
                    "nothing stands for {{{name}}}: it is no one of `values`{of}, and none of {}",
                    known.join(", ")
                );
                return Err(fault(&format!("{{{name}}}"), reason));
            }
        }
        Ok(())
    }

    /// Everything in which names in braces are replaced, files not included.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let endpoints = [&self.plain, &self.tls].into_iter().flatten();
        let of_endpoints = endpoints.flat_map(|endpoint| {
            let also = endpoint.also.iter().flat_map(|also| &also.start);
            let urls = endpoint.url.iter().chain(&endpoint.amplify);
            let urls = urls.chain(&endpoint.broadcast);
            endpoint.start.iter().chain(also).chain(urls)
        });
        of_endpoints.chain(&self.version).chain(self.env.values())
    }
}

/// The names that stand in braces in a text.
pub(super) fn names_in_braces(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once('}')?;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        (!name.is_empty() && name.chars().all(is_name)).then_some(name)
    })
}
