//! CPU limits of the lab's roles, with real control groups where this user may make them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Outcome, PATIENCE, Running, moonwire, run, signal};

const BAD_CONFIGURATION: i32 = 104;

/// A closed loop, which uses as much of the server's processor as it gets.
const SCENARIO: &str = "contestants = ['moonwire']\nprimary = 'rate'\nconnections = 10\n\
    in_flight = 4\nmessage_size = '64'\nrounds = 1\nceiling = '0s'\n";

fn battle(folder: &Path, arguments: &[&str]) -> Command {
    let file = folder.join("closed.toml");
    fs::write(&file, SCENARIO).expect("the folder is there");
    let mut lab = moonwire();
    lab.args(["lab", "run"]).arg(&file).args(arguments);
    lab.arg("--out").arg(folder.join("out"));
    lab.arg("--json").arg(folder.join("run.json"));
    lab
}

/// The cell of a battle; `None` where groups cannot be made, which has been said.
fn cell(folder: &Path, outcome: &Outcome) -> Option<Value> {
    if outcome.code == Some(BAD_CONFIGURATION) {
        assert!(
            outcome.stderr.contains("CPU limits cannot be set"),
            "{outcome:?}"
        );
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        assert!(!folder.join("out").exists());
        return None;
    }
    let text = fs::read_to_string(folder.join("run.json")).expect("a result");
    let run: Value = serde_json::from_str(&text).expect("JSON");
    Some(run["cells"][0].clone())
}

#[test]
fn a_server_uses_no_more_than_its_limit_and_says_that_it_was_throttled() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = battle(folder.path(), &["--duration", "2s"]);
    let outcome = run(lab.env("SERVER_CPU_LIMIT", "0.2"));
    let Some(cell) = cell(folder.path(), &outcome) else {
        return;
    };
    let server = &cell["server"];
    let figure = |name: &str| server[name].as_f64().unwrap_or_else(|| panic!("{cell}"));
    let share = figure("cpu_s") / figure("observed_s");
    assert!(
        share > 0.02 && share < 0.3,
        "{share} of a processor: {server}"
    );
    assert_eq!(figure("cpu_limit"), 0.2);
    assert!(figure("throttled_ms") > 100.0, "{server}");
    let of_interval = &cell["intervals"][0]["throttled_ms"];
    assert!(of_interval.as_f64().is_some_and(|ms| ms > 0.0), "{cell}");
    assert!(
        outcome
            .stdout
            .contains("moonwire was limited to 0.2 processors, reached that in 1 of 1"),
        "{outcome:?}"
    );
    // It is what is measured: that it was the limit is no objection.
    assert_eq!(cell["limit"], Value::Null, "{cell}");
}

#[test]
fn a_generator_that_runs_into_its_limit_was_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--duration", "2s", "--client-cpu-limit", "0.1"];
    let outcome = run(&mut battle(folder.path(), &arguments));
    let Some(cell) = cell(folder.path(), &outcome) else {
        return;
    };
    let generator = &cell["generator"];
    assert_eq!(generator["cpu_limit"], 0.1, "{cell}");
    let share = generator["cpu_s"].as_f64().unwrap() / 2.0;
    assert!(share < 0.2, "{share} of a processor: {generator}");
    assert!(
        generator["throttled_ms"].as_f64().unwrap() > 100.0,
        "{cell}"
    );
    assert_eq!(cell["verdict"], "INVALID", "{cell}");
    let limit = cell["limit"].as_str().unwrap_or_else(|| panic!("{cell}"));
    assert!(limit.starts_with("the generator was the limit"), "{limit}");
    assert_eq!(cell["server"]["cpu_limit"], Value::Null, "{cell}");
}

#[test]
fn a_lab_that_is_killed_leaves_no_control_group_behind() {
    let folder = tempfile::tempdir().unwrap();
    let limited = |duration| {
        battle(
            folder.path(),
            &["--duration", duration, "--server-cpu-limit", "0.5"],
        )
    };
    let outcome = run(&mut limited("100ms"));
    if cell(folder.path(), &outcome).is_none() {
        return;
    }
    let lab = Running::start(&mut limited("60s"));
    let pid = lab.id();
    let deadline = Instant::now() + PATIENCE;
    let server = |group: &PathBuf| group.to_str().is_some_and(|it| it.ends_with(".server"));
    while !groups_of(pid).iter().any(server) {
        assert!(Instant::now() < deadline, "no group was made");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(pid, Signal::KILL);
    lab.finish();
    while !groups_of(pid).is_empty() {
        assert!(Instant::now() < deadline + PATIENCE, "{:?}", groups_of(pid));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_limit_that_is_none_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, part) in [
        (
            ["--server-cpu-limit", "much"],
            "--server-cpu-limit: 'much' is not",
        ),
        (["--client-cpu-limit", "0.001"], "at least 0.01"),
    ] {
        let outcome = run(&mut battle(folder.path(), &arguments));
        assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    }
    // As with Docker, none is none; a variable may be there and empty.
    let mut lab = battle(folder.path(), &["--duration", "200ms"]);
    let outcome = run(lab.env("SERVER_CPU_LIMIT", "").env("CLIENT_CPU_LIMIT", "0"));
    assert_ne!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    let cell = cell(folder.path(), &outcome).unwrap();
    assert_eq!(cell["server"]["cpu_limit"], Value::Null, "{cell}");
}

#[test]
fn payload_doubling_has_limits_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args([
        "lab",
        "payload-doubling",
        "--contestants",
        "moonwire/weight-0.5",
    ]);
    lab.args(["--connections", "4", "--messages", "500", "--tls", "off"]);
    lab.args(["--server-cpu-limit", "0.2", "--client-cpu-limit", "0.1"]);
    lab.arg("--out").arg(folder.path().join("out"));
    lab.arg("--json").arg(folder.path().join("run.json"));
    let outcome = run(&mut lab);
    let Some(cell) = cell(folder.path(), &outcome) else {
        return;
    };
    assert_eq!(cell["server"]["cpu_limit"], 0.2, "{cell}");
    assert!(cell["server"]["throttled_ms"].is_number(), "{cell}");
    let generator = &cell["generator"];
    assert_eq!(generator["cpu_limit"], 0.1, "{cell}");
    let share =
        generator["cpu_s"].as_f64().unwrap() / cell["server"]["observed_s"].as_f64().unwrap();
    assert!(share < 0.3, "{share} of a processor: {generator}");
    assert!(generator["throttled_ms"].as_f64() > Some(0.0), "{cell}");
}

/// A client that says which group it is in, wants a processor for itself for a while, and prints
/// figures of its own.
const BUSY_CLIENT: &str = r#"
kind = "client"
description = "busy"
version = ["sh", "-c", "echo 1"]

[plain]
start = ["sh", "-c", '''
cat /proc/self/cgroup > cgroups
i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done
printf '\173"sent":8,"received":8,"latency_from":"sent","latency_us":'
printf '\173"p50":1,"p90":1,"p99":1,"max":1,"mean":1\175\175\n'
''']

[tls]
start = ["false"]
"#;

#[test]
fn a_generator_of_others_is_held_to_the_limit_of_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let client = folder.path().join("contestants/busy");
    fs::create_dir_all(&client).unwrap();
    let cgroups = client.join("cgroups");
    let description = BUSY_CLIENT.replace("> cgroups", &format!("> {}", cgroups.display()));
    fs::write(client.join("contestant.toml"), description).unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "--contestant-folder"]);
    lab.arg(folder.path().join("contestants"));
    lab.args(["latency", "--contestants", "moonwire", "--tls", "off"]);
    lab.args(["--connections", "4", "--batches", "2", "--wait", "200ms"]);
    lab.args(["--stagger", "200ms"]);
    lab.args(["--rounds", "1", "--ceiling", "0s", "--cross-check", "busy"]);
    lab.args(["--client-cpu-limit", "0.2"]);
    lab.arg("--out").arg(folder.path().join("out"));
    let outcome = run(lab.arg("--json").arg(folder.path().join("run.json")));
    let Some(cell) = cell(folder.path(), &outcome) else {
        return;
    };
    let check = &cell["cross_checks"][0];
    assert_eq!(check["client"], "busy", "{outcome:?}");
    assert_eq!(check["failure"], Value::Null, "{check}");
    assert_eq!(check["received"], 8, "{check}");
    assert!(check["throttled_ms"].as_f64() > Some(10.0), "{check}");
    assert_eq!(cell["generator"]["cpu_limit"], 0.2, "{cell}");
    let groups = fs::read_to_string(cgroups).unwrap();
    let own = |line: &str| line.contains("/moonwire.") && line.ends_with(".client");
    assert!(groups.lines().any(own), "{groups}");
}

/// Control groups named after a process, wherever they are.
fn groups_of(pid: u32) -> Vec<PathBuf> {
    let name = format!("moonwire.{pid}.");
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let is_ours = entry.file_name().to_string_lossy().starts_with(&name);
                found.extend(is_ours.then(|| entry.path()));
                folders.push(entry.path());
            }
        }
    }
    found
}
