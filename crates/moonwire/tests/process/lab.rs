//! The lab as a user meets it: a contest of one, counted.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Outcome, PATIENCE, Running, moonwire, run, signal};

const INVALID: i32 = 98;
const BAD_CONFIGURATION: i32 = 104;
const INTERRUPTED: i32 = 105;

fn doubling(folder: &Path, arguments: &[&str]) -> Command {
    let mut lab = moonwire();
    lab.args(["lab", "payload-doubling", "--connections", "4"]);
    lab.args(["--contestants", "moonwire/weight-0.5-fragments"]);
    lab.arg("--out").arg(folder.join("out"));
    lab.arg("--json").arg(folder.join("run.json"));
    lab.args(arguments);
    lab
}

/// The cells of a run; a busy machine may make all of them INVALID.
fn cells(folder: &Path, outcome: &Outcome) -> Vec<Value> {
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let text = fs::read_to_string(folder.join("run.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], "moonwire.run");
    json["cells"].as_array().unwrap().clone()
}

fn assert_nothing_lost(cell: &Value, messages: u64) {
    assert_eq!(cell["messages"]["sent"], messages, "{cell}");
    assert_eq!(cell["messages"]["received"], messages, "{cell}");
    for fault in ["lost", "duplicate", "corrupt", "unexpected", "unsent"] {
        assert_eq!(cell["messages"][fault], 0, "{fault}: {cell}");
    }
    assert_eq!(cell["errors"], serde_json::json!({}), "{cell}");
    assert_eq!(cell["connects"]["ok"], 4, "{cell}");
}

/// What was seen of the server lies beside its other files, a folder for each size.
fn assert_sampled(out: &Path, cell: &Value) {
    let (round, size) = (&cell["round"], &cell["message_size"]);
    let turn = format!("moonwire_weight-0.5-fragments_ws_c4_round{round}");
    let file = out.join(format!("cells/{turn}/size{size}/samples.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let samples: Vec<Value> = serde_json::from_str(&text).unwrap();
    // One before the load and one after it.
    assert!(samples.len() >= 2, "{text}");
    let used = |sample: &Value| sample["cpu_ns"].as_u64().unwrap();
    assert!(
        used(&samples[samples.len() - 1]) > used(&samples[0]),
        "{text}"
    );
    assert!(samples[0]["at_s"].as_f64() < Some(0.0), "{text}");
}

#[test]
fn each_size_is_on_the_wire_as_it_is_said_and_every_message_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--messages", "5", "--rounds", "2", "--tls", "off"];
    let outcome = run(&mut doubling(folder.path(), &arguments));
    let cells = cells(folder.path(), &outcome);
    assert_eq!(cells.len(), 2 * 9, "{outcome:?}");
    for (index, cell) in cells.iter().enumerate() {
        let size = 1024 << (index % 9);
        assert_eq!(cell["contestant"], "moonwire/weight-0.5-fragments");
        assert_eq!(cell["connections"], 4);
        assert_eq!(cell["round"], 1 + index / 9);
        assert_eq!(cell["tls"], false);
        assert_eq!(cell["message_size"], size);
        assert_nothing_lost(cell, 4 * 5);
        // Beside the payload each message has a header of at most 14 bytes and each connection an
        // upgrade and a close frame. The server's fragments of 1392 bytes have a header each.
        let payload = 20 * size;
        let sent = cell["bytes"]["sent"].as_u64().unwrap();
        let most = payload + 20 * 14 + 4 * 1024;
        assert!((payload..=most).contains(&sent), "{size}: {sent} bytes");
        let received = cell["bytes"]["received"].as_u64().unwrap();
        let fragments = 20 * size.div_ceil(1392);
        let least = payload + 2 * fragments;
        let most = payload + 4 * fragments + 4 * 1024;
        assert!(
            (least..=most).contains(&received),
            "{size}: {received} bytes"
        );
        assert_sampled(&folder.path().join("out"), cell);
    }
    for part in [
        "Total round trips per second",
        "both ways, Gbit/s",
        "results: ",
    ] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome:?}");
    }
    let tables = fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    assert!(
        tables.contains("moonwire/weight-0.5-fragments, ws, 4 clients"),
        "{tables}"
    );
}

#[test]
fn the_legacy_mode_sends_two_small_messages_and_names_itself() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(&mut doubling(
        folder.path(),
        &["--messages", "6", "--legacy"],
    ));
    let cells = cells(folder.path(), &outcome);
    assert_eq!(cells.len(), 9, "{outcome:?}");
    for (index, cell) in cells.iter().enumerate() {
        assert_eq!(cell["nominal_bytes"], 1024 << index);
        assert_eq!(cell["message_size"], 512);
        assert_eq!(cell["in_flight"], 2);
        assert_eq!(cell["ciphers"]["TLS13_AES_128_GCM_SHA256"], 4, "{cell}");
        assert_nothing_lost(cell, 4 * 6);
    }
    let label = "legacy: 2 in flight, mean payload 512 B, nominal sizes are not on the wire";
    assert!(outcome.stdout.contains(label), "{outcome:?}");
}

#[test]
fn a_contest_that_is_interrupted_prints_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Running::start(&mut doubling(folder.path(), &["--messages", "1m"]));
    let log = folder.path().join("out/cells");
    let deadline = Instant::now() + PATIENCE;
    // The server has its configuration when its turn begins.
    while !log.is_dir() || fs::read_dir(&log).unwrap().next().is_none() {
        assert!(Instant::now() < deadline, "no turn began");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(lab.id(), Signal::INT);
    let outcome = lab.finish();
    assert_eq!(outcome.code, Some(INTERRUPTED), "{outcome:?}");
}

#[test]
fn a_contestant_that_is_not_known_or_not_here_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (name, part) in [
        ("apache", "there is no contestant 'apache'"),
        ("nginx", "nginx is no server"),
        ("uwebsockets-js", "cargo xtask peers uwebsockets-js"),
    ] {
        let mut lab = moonwire();
        lab.args(["lab", "payload-doubling", "--contestants", name]);
        lab.env("MOONWIRE_PEERS", folder.path());
        lab.arg("--out").arg(folder.path().join("out"));
        let outcome = run(&mut lab);
        assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
}

#[test]
fn the_contestants_can_be_listed() {
    let outcome = run(moonwire().args(["lab", "list"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for name in [
        "payload-doubling",
        "moonwire/weight-0.8",
        "uwebsockets-js/n-threads",
    ] {
        assert!(outcome.stdout.contains(name), "{name}: {outcome:?}");
    }
    let titles = ["servers:\n", "proxies:\n", "clients:\n"];
    let places: Vec<_> = titles
        .iter()
        .map(|title| outcome.stdout.find(title))
        .collect();
    assert!(places.is_sorted() && places[0].is_some(), "{outcome:?}");
}

#[test]
fn the_list_says_what_is_not_installed_and_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let list = |arguments: &[&str]| {
        let mut lab = moonwire();
        lab.args(["lab", "list"]).args(arguments);
        let outcome = run(lab.env("MOONWIRE_PEERS", folder.path()));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.stdout
    };
    let text = list(&[]);
    let line = |name: &str| {
        let mut lines = text.lines().map(str::trim_start);
        lines
            .find(|line| line.split(' ').next() == Some(name))
            .unwrap()
    };
    assert!(
        line("nginx").ends_with("(not installed: `cargo xtask peers nginx`)"),
        "{text}"
    );
    assert!(!line("moonwire").contains("not installed"), "{text}");
    assert!(!line("none").contains("not installed"), "{text}");

    let json: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let contestants = json["contestants"].as_array().unwrap();
    let find = |name: &str| contestants.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(find("nginx")["kind"], "proxy");
    assert_eq!(find("nginx")["version"], Value::Null);
    assert_eq!(find("k6")["kind"], "client");
    assert_eq!(find("axum")["amplify"], true);
    assert!(
        find("moonwire")["version"]
            .as_str()
            .unwrap()
            .starts_with("moonwire ")
    );
}

/// Each contestant has a line of its own, and one that cannot take part does not keep the others.
#[test]
fn a_check_starts_a_contestant_and_names_what_is_wrong_with_another() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    fs::create_dir(&broken).unwrap();
    let description = "kind = 'server'\ndescription = 'ends at once'\nversion = ['echo', '7']\n\
        [plain]\nstart = ['sh', '-c', 'echo no luck; exit 3']\nurl = 'ws://127.0.0.1:{port}/'\n\
        [tls]\nstart = ['/no/such/program']\nurl = 'wss://127.0.0.1:{port}/'\n\
        [[variants]]\nname = 'only'\n";
    fs::write(broken.join("contestant.toml"), description).unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "--contestant-folder"]).arg(folder.path());
    let outcome = run(lab.args(["check", "broken", "moonwire/weight-0.5"]));
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{outcome:?}");
    for part in ["broken/only 7: ws ", "exit code 3", "no luck", "wss "] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    assert_eq!(lines[1].matches("echo in ").count(), 2, "{}", lines[1]);

    let outcome = run(moonwire().args(["lab", "check", "moonwire/weight-0.5"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// The control has no process; what is behind it has the echo and the amplifying service.
#[test]
fn a_check_without_a_proxy_goes_to_the_servers() {
    let outcome = run(moonwire().args(["lab", "check", "none"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(
        outcome.stdout.matches("all replies in ").count(),
        2,
        "{outcome:?}"
    );
    let outcome = run(moonwire().args(["lab", "check", "none", "--backend", "nginx"]));
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(
        outcome.stderr.contains("there is no server 'nginx'"),
        "{outcome:?}"
    );
}
