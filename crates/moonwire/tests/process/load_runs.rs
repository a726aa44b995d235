//! Whole runs of `moonwire load`: several servers, certificates, and an end before the time.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{PATIENCE, Running, Server, certificate, moonwire, run, signal};
use crate::tungstenite::{Echo, acceptor};

const INVALID: i32 = 98;
const INTERRUPTED: i32 = 105;

#[test]
fn plain_and_tls_are_loaded_in_one_run() {
    let (plain, secure) = (Server::moonwire(&[]), Server::moonwire(&["--dev-tls"]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut load = moonwire();
    load.arg("load")
        .args([&plain, &secure].map(|server| format!("{}/echo", server.url)))
        .args(["-k", "-c", "6", "--per-connection", "20", "--json"]);
    let outcome = run(load.arg(&file));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    // Six connections of twenty messages to each of the two.
    assert_eq!(json["connects"]["ok"], 12, "{json}");
    assert_eq!(json["messages"]["received"], 240, "{json}");
    assert_eq!(json["tls_agreed"][0]["full"], 6, "{json}");
    assert_eq!(plain.gauge("moonwire_connections_total"), 6);
    assert_eq!(plain.gauge("moonwire_messages_in_total"), 120);
}

/// By default the service answers four times, and the generator expects that.
#[test]
fn the_amplifying_service_is_measured_in_both_directions() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (file, csv) = (
        folder.path().join("run.json"),
        folder.path().join("raw.csv"),
    );
    let mut load = moonwire();
    load.arg("load").arg(format!("{}/amplify", server.url));
    load.args(["--payload", "amplify", "-c", "5", "-n", "100"]);
    load.arg("--csv").arg(&csv).arg("--json").arg(&file);
    let outcome = run(&mut load);
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let messages = &json["messages"];
    let counts = ["sent", "received", "corrupt"].map(|name| messages[name].as_u64());
    assert_eq!(counts, [100, 400, 0].map(Some), "{json}");
    assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), 401);
    let mut lines = outcome.stdout.lines().map(str::trim_start);
    let header = lines.find(|line| line.starts_with("mean ")).unwrap();
    let columns: Vec<&str> = header.split_whitespace().collect();
    for column in ["mean", "max", "min", "p50", "p90", "p99"] {
        assert!(columns.contains(&column), "{header}");
    }
    for (row, count) in [("one-way ", "100"), ("round trip, seed ", "400")] {
        let line = outcome
            .stdout
            .lines()
            .find(|line| line.trim_start().starts_with(row));
        assert!(line.unwrap().ends_with(count), "{outcome:?}");
    }
}

#[test]
fn a_certificate_that_nobody_trusts_is_accepted_on_request_only() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate::write(folder.path());
    let echo = Echo::start(Some(acceptor(&files)));
    let load = |trust: &[&str]| {
        let mut load = moonwire();
        load.args(["load", &echo.url, "-c", "2", "-n", "40"]);
        run(load.args(trust))
    };
    let refused = load(&[]);
    assert_eq!(refused.code, Some(INVALID), "{refused:?}");
    assert!(refused.stdout.contains("certificate"), "{refused:?}");
    assert_eq!(echo.messages(), 0);
    let trusted = load(&["-k"]);
    assert!(matches!(trusted.code, Some(0 | INVALID)), "{trusted:?}");
    assert_eq!(echo.messages(), 40);
}

#[test]
fn an_interrupted_load_closes_its_connections_and_prints_what_it_has() {
    let echo = Echo::start(None);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    for order in [Signal::INT, Signal::TERM] {
        let before = (echo.messages(), echo.farewells().len());
        let mut load = moonwire();
        load.args(["load", &echo.url, "-c", "20", "-d", "1h", "--json"]);
        let load = Running::start(load.arg(&file));
        let deadline = Instant::now() + PATIENCE;
        while echo.messages() < before.0 + 100 {
            assert!(Instant::now() < deadline, "nothing was sent");
            // Nothing tells when a message comes.
            thread::sleep(Duration::from_millis(5));
        }
        signal(load.id(), order);
        let outcome = load.finish();
        assert_eq!(outcome.code, Some(INTERRUPTED), "{outcome:?}");
        for part in ["Connections  20 ok, 0 failed", "response", "p99"] {
            assert!(outcome.stdout.contains(part), "{part}: {outcome:?}");
        }
        let done = (1000, "done".to_owned());
        assert_eq!(echo.farewells()[before.1..], vec![done; 20]);
        let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(json["closes"]["1000"], 20, "{json}");
        let messages = &json["messages"];
        assert_eq!(messages["sent"], echo.messages() - before.0, "{json}");
        assert_eq!(messages["received"], messages["sent"], "{json}");
    }
}
