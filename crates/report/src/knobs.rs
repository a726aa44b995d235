//! What shapes a load or what servers may use, beside the parameters that name a cell: cells that
//! differ in it are no pair.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cell::Cell;
use crate::run::Run;

/// What cells of one load were measured with, by the names of the flags.
pub(crate) struct Knobs {
    /// Of the load; `None` where no cell got as far as to have one.
    load: Option<BTreeMap<&'static str, Value>>,
    /// Of the servers and proxies.
    resources: BTreeMap<&'static str, Value>,
}

impl Knobs {
    /// Of cells of this run that have one load.
    pub(crate) fn of(run: &Run, cells: &[&Cell]) -> Self {
        let with_load = cells.iter().find(|cell| !cell.scenario.is_empty());
        Self {
            load: with_load.map(|cell| load(&cell.scenario)),
            resources: resources(run, cells),
        }
    }

    /// That they differ, and in which; a clause, or `None` where all are the same.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let mut names = BTreeSet::new();
        if let (Some(one), Some(other)) = (&self.load, &other.load) {
            names.extend(differing(one, other));
        }
        names.extend(differing(&self.resources, &other.resources));
        let names: Vec<&str> = names.into_iter().collect();
        match names.as_slice() {
            [] => None,
            [only] => Some(format!("{only} differs")),
            names => Some(format!("{} differ", names.join(", "))),
        }
    }
}

/// Names with other values; one that is missing is as if it were not set.
fn differing(
    one: &BTreeMap<&'static str, Value>,
    other: &BTreeMap<&'static str, Value>,
) -> Vec<&'static str> {
    let names: BTreeSet<&'static str> = one.keys().chain(other.keys()).copied().collect();
    let is_same = |name| {
        let [one, other] = [one, other].map(|it| it.get(name).unwrap_or(&Value::Null));
        one == other
    };
    names.into_iter().filter(|name| !is_same(*name)).collect()
}

fn load(scenario: &BTreeMap<String, Value>) -> BTreeMap<&'static str, Value> {
    let of = |name: &str| scenario.get(name).cloned().unwrap_or_default();
    // What is sent and when are each one of several kinds, with fields of their own.
    let field = |name: &str, field: &str| {
        let kind = scenario.get(name).and_then(Value::as_object);
        let kind = kind.and_then(|it| it.values().next());
        kind.and_then(|it| it.get(field))
            .cloned()
            .unwrap_or_default()
    };
    // None is as if nothing were said.
    let is_said = |shares: &Value| shares.as_array().is_none_or(|it| !it.is_empty());
    let fragments = Some(of("fragments")).filter(is_said).unwrap_or_default();
    [
        ("driver", or_default(of("driver"), "epoll")),
        ("tls-records", or_default(of("tls_records"), "rustls")),
        (
            "tls-resume",
            Some(of("tls_resume"))
                .filter(|it| *it == Value::Bool(true))
                .unwrap_or_default(),
        ),
        ("think", of("think")),
        ("binary", field("workload", "binary")),
        ("fragments", fragments),
        ("poisson", field("pacing", "arrival")),
        ("deflate", of("deflate")),
        ("conn-rate", of("connect_rate")),
        ("conn-concurrency", of("connect_concurrency")),
        ("conn-group", of("connect_group")),
        ("start-delay", of("start_delay")),
        ("reconnect", of("reconnect")),
    ]
    .into()
}

/// Files from before there was a choice had this one.
fn or_default(value: Value, default: &str) -> Value {
    if value.is_null() {
        return default.into();
    }
    value
}

fn resources(run: &Run, cells: &[&Cell]) -> BTreeMap<&'static str, Value> {
    let notes = &run.environment.notes;
    let knob = |name: &str| notes.get(&format!("knob {name}")).map(String::as_str);
    let count = |name: &str| Value::from(knob(name).unwrap_or("1"));
    // 0 is no limit, as none is.
    let limit = |name: &str| knob(name).and_then(|it| it.trim().parse().ok());
    let of_cells = || {
        cells
            .iter()
            .find_map(|cell| cell.server.as_ref()?.cpu_limit)
    };
    let server: Option<f64> = match run.rules {
        Some(_) => limit("server_cpu_limit"),
        // Other runs have no notes of their knobs.
        None => of_cells(),
    };
    let told = |limit: Option<f64>| {
        limit
            .filter(|it| *it > 0.0)
            .map_or(Value::Null, Value::from)
    };
    [
        ("workers", count("workers")),
        ("backends", count("backends")),
        ("backend-workers", count("backend_workers")),
        ("server-cpu-limit", told(server)),
        ("proxy-cpu-limit", told(limit("proxy_cpu_limit"))),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::battle::tests;

    fn difference(scenario: &Value, note: Option<(&str, &str)>) -> Option<String> {
        let plain = json!({
            "think": null, "fragments": [], "deflate": null, "connect_rate": null,
            "workload": { "echo": { "size": 64, "binary": false } },
            "pacing": { "open": { "rate": 100.0, "arrival": "constant" } },
            "reconnect": "never",
        });
        let run = |changed: &Value, note: Option<(&str, &str)>| {
            let mut run = tests::run(&[("a", 2.0)], 1);
            let notes = note.into_iter();
            let notes = notes.map(|(name, text)| (format!("knob {name}"), text.to_owned()));
            run.environment.notes.extend(notes);
            let mut cell = run.cells()[0].clone();
            for values in [&plain, changed] {
                let values = values.as_object().unwrap().clone();
                cell.scenario.extend(values);
            }
            (run, cell)
        };
        let (a, cell_a) = run(&json!({}), None);
        let (b, cell_b) = run(scenario, note);
        Knobs::of(&a, &[&cell_a]).difference(&Knobs::of(&b, &[&cell_b]))
    }

    #[test]
    fn each_knob_that_changes_the_load_or_the_resources_is_named() {
        assert_eq!(difference(&json!({}), None), None);
        for (changed, name) in [
            (json!({ "think": { "secs": 1, "nanos": 0 } }), "think"),
            (
                json!({ "workload": { "echo": { "size": 64, "binary": true } } }),
                "binary",
            ),
            (
                json!({ "fragments": [{ "weight": 1, "cut": { "parts": 2 } }] }),
                "fragments",
            ),
            (
                json!({ "pacing": { "open": { "rate": 100.0, "arrival": "poisson" } } }),
                "poisson",
            ),
            (json!({ "deflate": "permessage-deflate" }), "deflate"),
            (json!({ "connect_rate": 100.0 }), "conn-rate"),
            (json!({ "reconnect": { "fixed": 5 } }), "reconnect"),
        ] {
            let expected = Some(format!("{name} differs"));
            assert_eq!(difference(&changed, None), expected, "{changed}");
        }
        for (note, name) in [
            (("workers", "2"), "workers"),
            (("server_cpu_limit", "0.5"), "server-cpu-limit"),
        ] {
            let expected = Some(format!("{name} differs"));
            assert_eq!(difference(&json!({}), Some(note)), expected);
        }
        let both = difference(&json!({ "think": 1 }), Some(("workers", "2")));
        assert_eq!(both.as_deref(), Some("think, workers differ"));
    }

    #[test]
    fn what_is_said_is_as_what_is_meant_without_it() {
        assert_eq!(
            difference(&json!({ "new": null }), Some(("workers", "1"))),
            None
        );
        assert_eq!(
            difference(&json!({}), Some(("server_cpu_limit", "0"))),
            None
        );
    }
}
