//! The contestants of the lab that `cargo xtask peers` installs.

use std::fs;

use serde_json::Value;

use crate::harness::{moonwire, run};

/// One by one, so that what a failure says is about one.
#[test]
fn every_contestant_serves_or_sends_messages() {
    let list = run(moonwire().args(["lab", "list", "--json"]));
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    let contestants = list["contestants"].as_array().unwrap();
    let names = contestants.iter().map(|one| one["name"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    for name in [
        "axum",
        "envoy",
        "hitch-haproxy",
        "k6",
        "none",
        "uwebsockets-cpp",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let mut failed = Vec::new();
    // It builds for minutes, so that it is installed on request only.
    for name in names.into_iter().filter(|name| *name != "k6") {
        let outcome = run(moonwire().args(["lab", "check", name]));
        if outcome.code != Some(0) {
            failed.push(outcome.stdout + &outcome.stderr);
        }
    }
    assert!(failed.is_empty(), "{}", failed.concat());
}

/// A proxy that forgets one of the servers behind it is told from one that has both.
#[test]
fn a_proxy_that_reaches_one_server_only_fails_its_check() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("forgetful");
    fs::create_dir(&broken).unwrap();
    let shipped = crate::harness::root().join("lab/contestants/http-proxy");
    let description = fs::read_to_string(shipped.join("contestant.toml")).unwrap();
    let forgetful = description
        .replace("{backends}", "{backend}")
        .replace("{modules}", "{installed}/../http-proxy/node_modules");
    fs::write(broken.join("contestant.toml"), forgetful).unwrap();
    fs::copy(shipped.join("proxy.js"), broken.join("proxy.js")).unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "--contestant-folder"]).arg(folder.path());
    let outcome = run(lab.args(["check", "forgetful"]));
    assert_eq!(outcome.code, Some(98), "{outcome:?}");
    let reason = "of 2 backends 1 had any of 8 connections";
    assert!(outcome.stdout.contains(reason), "{outcome:?}");
}
