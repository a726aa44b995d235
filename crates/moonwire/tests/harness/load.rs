//! A run of the generator against a server that nobody here wrote.

use serde_json::Value;

use crate::harness::{Outcome, moonwire, run};

/// Runs the generator against `url` and asserts that nothing was lost and that it exits with 0.
///
/// On a machine that is busy with something else a run is INVALID (98), as it should be. Such a
/// run is repeated; if it is disturbed each time, nothing may be lost all the same.
pub(crate) fn assert_no_loss(url: &str) {
    for _ in 0..ATTEMPTS_MAX {
        let (outcome, json) = load(url);
        let messages = &json["messages"];
        let count = |name: &str| {
            messages[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{messages}"))
        };
        assert!(count("sent") >= 900, "{messages}");
        assert_eq!(count("received"), count("sent"), "{messages}");
        for fault in ["lost", "duplicate", "reordered", "corrupt"] {
            assert_eq!(count(fault), 0, "{fault}: {messages}");
        }
        match outcome.code {
            Some(0) => return,
            Some(98) if is_disturbed(&json) => {}
            _ => panic!("{outcome:?}"),
        }
    }
}

fn load(url: &str) -> (Outcome, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("run.json");
    let mut load = moonwire();
    load.args([
        "load",
        url,
        "-c",
        "20",
        "-q",
        "500",
        "-d",
        "2s",
        "--message-size",
        "200",
    ]);
    load.args(["--insecure", "--drain", "5s", "--json"])
        .arg(&file);
    let outcome = run(&mut load);
    let json = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{outcome:?}"));
    (
        outcome,
        serde_json::from_str(&json).expect("the Run file is JSON"),
    )
}

/// Whether each reason of the verdict is that the generator did not get the CPU.
fn is_disturbed(json: &Value) -> bool {
    let reasons = json["verdict_reasons"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let names_cpu = |reason: &Value| reason.as_str().is_some_and(|text| text.contains("CPU"));
    !reasons.is_empty() && reasons.iter().all(names_cpu)
}

const ATTEMPTS_MAX: usize = 3;
