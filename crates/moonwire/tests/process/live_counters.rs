//! What a server counts while it is loaded, beside what the generator does.

use std::fs;

use serde_json::Value;

use crate::harness::{moonwire, run};

const INVALID: i32 = 98;

/// As long as a cell must be to have a course: shorter ones are not asked.
#[test]
fn a_soak_has_in_each_second_what_the_server_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "soak", "--contestants", "moonwire", "--tls", "on"]);
    lab.args(["--connections", "3", "--rate", "20", "--duration", "30s"]);
    // Half a minute is too short to tell a leak.
    lab.args(["--thresholds", "lost==0"]);
    lab.arg("--out").arg(folder.path().join("out"));
    let outcome = run(lab.arg("--json").arg(folder.path().join("run.json")));
    // A busy machine may make it INVALID.
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let text = fs::read_to_string(folder.path().join("run.json")).unwrap();
    let run: Value = serde_json::from_str(&text).unwrap();
    let cell = &run["cells"][0];
    let ours = |name: &str| cell["messages"][name].as_u64().unwrap();
    assert!(ours("sent") > 300, "{cell}");
    let intervals = cell["intervals"].as_array().unwrap();
    let sum = |name: &str| -> u64 {
        let counts = intervals.iter().map(|it| it[name].as_u64());
        counts
            .map(|it| it.unwrap_or_else(|| panic!("{name}: {cell}")))
            .sum()
    };
    assert_eq!(sum("server_received"), ours("sent"), "{cell}");
    assert_eq!(sum("server_sent"), ours("received"), "{cell}");
    // They are those of their seconds, and not all in the first or the last of them.
    let busy = intervals
        .iter()
        .filter(|it| it["server_received"].as_u64() > Some(0));
    assert!(busy.count() >= 15, "{cell}");
    let middle = &intervals[intervals.len() / 2];
    assert_eq!(middle["server_connected"], 3, "{middle}");
    let page = fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    assert!(
        page.contains("out while it was loaded, as we did"),
        "{page}"
    );
    // 20 a second, in turns.
    for bound in ["least_each_per_s", "most_each_per_s"] {
        let per_s = cell["rate"][bound].as_f64().unwrap();
        assert!((6.0..7.0).contains(&per_s), "{bound}: {per_s}");
    }
    for line in ["- each client: ", "- course of messages out, each client: "] {
        assert!(page.contains(line), "{line}: {page}");
    }
}
