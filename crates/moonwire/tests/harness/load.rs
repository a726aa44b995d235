//! A run of the generator against a server that nobody here wrote.

use serde_json::Value;

use crate::harness::{moonwire, run};

/// Runs the generator against `url` and asserts that nothing was lost and that it exits with 0.
///
/// A machine that is busy with something else can make a run INVALID (98); such a run is repeated.
pub(crate) fn assert_no_loss(url: &str) {
    for attempt in 1..=ATTEMPTS_MAX {
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
        let json: Value = serde_json::from_str(&json).expect("the Run file is JSON");
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
            Some(98) if attempt < ATTEMPTS_MAX => {}
            _ => panic!("{outcome:?}"),
        }
    }
}

const ATTEMPTS_MAX: usize = 3;
