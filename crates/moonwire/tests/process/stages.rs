//! Loads whose rate changes, as a user starts them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Outcome, Server, moonwire, run};

const INVALID: i32 = 98;
const BAD_CONFIGURATION: i32 = 104;

fn run_file(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn load(url: &str, file: &Path, arguments: &[&str]) -> Outcome {
    let mut load = moonwire();
    load.args(["load", url]).args(arguments);
    run(load.arg("--json").arg(file))
}

/// Of each stage the messages that were sent.
fn sent(cell: &Value) -> Vec<u64> {
    let stages = cell["stage_figures"].as_array().unwrap();
    let sent = stages.iter().map(|it| it["sent"].as_u64().unwrap());
    sent.collect()
}

#[test]
fn a_load_in_stages_sends_the_messages_of_each_of_them() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let url = format!("{}/echo", server.url);
    // Up, a jump, steady, a pause, and down from a jump.
    let stages = "1s:200,0s:400,500ms:400,0s:0,300ms:0,0s:100,1s:0";
    let outcome = load(&url, &file, &["-c", "7", "-t", "2", "--stages", stages]);
    // A busy machine may make it INVALID.
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cell = run_file(&file);
    assert_eq!(sent(&cell), [100, 0, 200, 0, 0, 0, 50], "{cell}");
    assert_eq!(cell["messages"]["sent"], 350);
    assert_eq!(cell["messages"]["received"], 350);
    for (index, stage) in cell["stage_figures"].as_array().unwrap().iter().enumerate() {
        assert_eq!(stage["received"], stage["sent"], "{index}: {cell}");
        assert_eq!(stage["response"]["count"], stage["sent"], "{index}: {cell}");
        assert_eq!(stage["lost"], 0, "{index}: {cell}");
        assert_eq!(stage["unsent"], 0, "{index}: {cell}");
    }
    // Longer where the machine was late with the last of them.
    let duration_s = cell["rate"]["duration_s"].as_f64();
    assert!(duration_s >= Some(2.8), "{cell}");
    assert_eq!(cell["rate"]["target_per_s"], 125.0);
    assert_eq!(
        cell["stages"],
        "1s:200,0s:400,500ms:400,0s:0,300ms:0,0s:100,1s:0"
    );
    let per_second: u64 = cell["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(sent_in)
        .sum();
    assert_eq!(per_second, 350);
    let told = &outcome.stdout;
    assert!(told.contains("Stages, by the intended times"), "{told}");
    let row = told
        .lines()
        .find(|line| line.trim().starts_with("3: 500 ms"));
    assert!(row.is_some_and(|row| row.contains("400")), "{told}");
    // It is drawn again from its file.
    let again = run(moonwire().arg("report").arg(&file));
    assert!(again.stdout.contains("3: 500 ms"), "{again:?}");
}

fn sent_in(interval: &Value) -> u64 {
    interval["sent"].as_u64().unwrap()
}

#[test]
fn a_rate_before_the_first_stage_is_where_that_begins() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let url = format!("{}/echo", server.url);
    let stages = ["-q", "100", "--stages", "1s:300", "-p", "1", "-c", "20"];
    let outcome = load(&url, &file, &stages);
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cell = run_file(&file);
    assert_eq!(sent(&cell), [200], "{cell}");
    assert_eq!(
        (&cell["rate_per_s"], &cell["in_flight"]),
        (&100.0.into(), &1.into())
    );
}

#[test]
fn what_stages_cannot_go_with_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    for (arguments, said) in [
        (&["--stages", "10s"][..], "such as 10s:1k"),
        (&["--stages", "10s:0"], "sends nothing"),
        (&["--stages", "10s:fast"], "such as 500 or 10k"),
        (&["--stages", "1s:1k", "-q", "1k", "-d", "1s"], "--duration"),
        (&["--stages", "1s:1k", "-n", "5"], "--messages"),
        (
            &["--stages", "1s:1k", "--batch", "1", "--batches", "1"],
            "--batch",
        ),
        (
            &["--stages", "1s:1k", "--per-connection", "1"],
            "--per-connection",
        ),
        (&["--stages", "1s:1k", "--hold"], "--hold"),
        (&["--stages", "1s:1k", "--think", "1s"], "--think"),
        (&["--poisson"], "give -q or --stages"),
    ] {
        let outcome = load("ws://127.0.0.1:9/", &file, arguments);
        assert_eq!(
            outcome.code,
            Some(BAD_CONFIGURATION),
            "{arguments:?}: {outcome:?}"
        );
        // The command line tells its usage behind the sentence.
        let sentence = outcome.stderr.lines().next().unwrap();
        assert!(sentence.contains(said), "{arguments:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{arguments:?}");
        assert!(!file.exists());
    }
}

#[test]
fn the_scenario_spike_tells_what_each_stage_did() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut lab = moonwire();
    lab.args(["lab", "spike", "--contestants", "moonwire", "--rounds", "2"]);
    lab.args(["--connections", "20", "--rate", "100", "--ceiling", "200ms"]);
    lab.args([
        "--stages",
        "1s:100,0s:500,1s:500,0s:100,1s:100",
        "--seed",
        "5",
    ]);
    lab.arg("--out").arg(folder.path().join("out"));
    let outcome = run(lab.arg("--json").arg(&file));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json = run_file(&file);
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        assert_eq!(sent(cell), [100, 0, 500, 0, 100], "{cell}");
        assert_eq!(cell["messages"]["received"], 700, "{cell}");
    }
    let ceiling = &json["ceilings"][0];
    assert_eq!(ceiling["stages"], Value::Null, "{ceiling}");
    let name = "c20_q100_stages1s-100-0s-500-1s-500-0s-100-1s-100_s256_r1";
    let folders = fs::read_dir(folder.path().join("out/cells")).unwrap();
    let folders: Vec<String> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(folders.iter().any(|it| it.contains(name)), "{folders:?}");
    let markdown = fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    assert!(
        markdown.contains("Stages, by the intended times"),
        "{markdown}"
    );
    assert!(markdown.contains("| 3: 1 s"), "{markdown}");
    // The battle's own table has ranked rounds only, and a busy machine may leave none.
    if outcome.code == Some(0) && !outcome.stdout.contains("0 of 2") {
        let title = "by stage, by the intended times";
        assert!(outcome.stdout.contains(title), "{outcome:?}");
    }
    assert!(
        outcome
            .stdout
            .contains("100 messages/s in total, then in stages")
    );
}
