//! The contestants of the lab that `cargo xtask peers` installs.

use std::fs;

use serde_json::Value;

use crate::harness::{Server, moonwire, run};

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
        "haproxy/sticky",
        "hitch-haproxy",
        "k6",
        "nginx/sticky",
        "none",
        "null-server",
        "tungstenite-client",
        "uwebsockets-cpp",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    // They build for minutes, so that they are installed on request only.
    let on_request = ["k6", "fastwebsockets", "uwebsockets-epoll"];
    let mut failed = Vec::new();
    for name in names.into_iter().filter(|name| {
        let contestant = name.split('/').next().unwrap_or_default();
        !on_request.contains(&contestant)
    }) {
        let outcome = run(moonwire().args(["lab", "check", name]));
        if outcome.code != Some(0) {
            failed.push(outcome.stdout + &outcome.stderr);
        }
    }
    assert!(failed.is_empty(), "{}", failed.concat());
}

/// Those of uwebsocket-benchmark, behind one client that asks the same of each.
#[test]
fn three_servers_are_interchangeable_behind_one_client() {
    let folder = tempfile::tempdir().unwrap();
    let servers = ["axum", "uwebsockets-cpp", "uwebsockets-js/1-thread"];
    let mut lab = moonwire();
    lab.args(["lab", "latency", "--contestants", &servers.join(",")]);
    lab.args("--connections 20 --batches 2 --rounds 1 --ceiling 0s --tls off --json -".split(' '));
    let outcome = run(lab.arg("--out").arg(folder.path().join("out")));
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let cells = json["cells"].as_array().unwrap();
    let names = cells
        .iter()
        .map(|cell| cell["contestant"].as_str().unwrap());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    assert_eq!(names, servers, "{json}");
    for cell in cells {
        let messages = &cell["messages"];
        assert_eq!(messages["sent"], 40, "{cell}");
        // Four replies to each, with the server's clock in them.
        assert_eq!(messages["received"], 160, "{cell}");
        assert_eq!(messages["corrupt"], 0, "{cell}");
        assert_eq!(cell["latency"]["one_way"]["count"], 40, "{cell}");
    }
}

/// What a generator of somebody else's measures of the same processes is near what ours does.
#[test]
fn another_generator_sends_the_same_load_and_stands_beside_ours() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args([
        "lab",
        "latency",
        "--contestants",
        "moonwire",
        "--connections",
        "20",
    ]);
    lab.args([
        "--batches",
        "2",
        "--rounds",
        "1",
        "--tls",
        "both",
        "--ceiling",
        "0s",
    ]);
    lab.args(["--cross-check", "tungstenite-client", "--json", "-"]);
    let outcome = run(lab.arg("--out").arg(folder.path().join("out")));
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{json}");
    for cell in cells {
        let check = &cell["cross_checks"][0];
        assert_eq!(check["client"], "tungstenite-client", "{check}");
        let counts = ["sent", "received"].map(|name| check[name].as_u64());
        assert_eq!(counts, [Some(40); 2], "{check}");
        assert_eq!(check["failure"], Value::Null);
        let ours_us = cell["latency"]["service"]["p50_us"].as_f64();
        let ratio = check["p50_us"].as_f64().unwrap() / ours_us.unwrap_or(f64::NAN);
        // Another unit or another reference would be off by more.
        assert!(ratio > 0.1 && ratio < 10.0, "{ratio}: {cell}");
    }
}

/// What nginx and the servers behind it used, and how it spread what came.
#[test]
fn a_proxy_has_its_range_of_cpu_and_its_servers_their_connections() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut lab = moonwire();
    let contest = ["battle-messaging", "--contestants", "nginx,none"];
    lab.arg("lab").args(contest).args(["--connections", "40"]);
    lab.args(["--backends", "2", "--rounds", "1", "--tls", "off"]);
    lab.args(["--ceiling", "0s", "--json", "-"]);
    let outcome = run(lab.arg("--out").arg(&out));
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let cells = json["cells"].as_array().unwrap();
    let nginx = cells.iter().find(|cell| cell["contestant"] == "nginx");
    let nginx = nginx.unwrap();
    for role in ["server", "backends"] {
        let used = |name: &str| nginx[role][name].as_f64().unwrap();
        let mean = used("cpu_s") / used("observed_s");
        let (least, most) = (used("cpu_least"), used("cpu_most"));
        assert!(least <= mean + 1e-6 && mean <= most + 1e-6, "{nginx}");
        assert!(most > 0.0, "{nginx}");
    }
    assert_eq!(nginx["distribution"].as_array().unwrap().len(), 2);
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for (table, columns) in [
        ("what each used", 8),
        ("how connections were spread over the servers", 7),
    ] {
        let (_, table) = report.split_once(&format!("\n## {table}\n")).unwrap();
        let mut rows = table.lines().filter(|line| line.contains(" nginx |"));
        let row = rows.next().unwrap_or_else(|| panic!("{table}"));
        let cells = row.trim_matches('|').split('|').map(str::trim);
        let told = cells.filter(|cell| *cell != "–").count();
        assert_eq!(told, columns, "{row}");
    }
}

/// Of a load on ws and on moonwire, whose collector tells nothing, here or at an agent.
fn assert_pauses_are_told(agent: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args([
        "lab",
        "soak",
        "--contestants",
        "ws,moonwire",
        "--tls",
        "off",
    ]);
    lab.args([
        "--connections",
        "20",
        "--rate",
        "2000",
        "--message-size",
        "1000",
    ]);
    lab.args(["--duration", "3s", "--ceiling", "0s", "--json", "-"]);
    lab.args(agent.iter().flat_map(|agent| ["--agent", agent]));
    let outcome = run(lab.arg("--out").arg(folder.path().join("out")));
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let cell = |contestant: &str| {
        let mut cells = json["cells"].as_array().unwrap().iter();
        cells.find(|it| it["contestant"] == contestant).unwrap()
    };
    let gc = &cell("ws")["server"]["gc"];
    let count = gc["count"].as_u64().unwrap();
    assert!(count > 0, "{gc}");
    let intervals = cell("ws")["intervals"].as_array().unwrap();
    let of_each = intervals.iter().map(|it| it["gc_pauses"].as_u64().unwrap());
    assert_eq!(of_each.sum::<u64>(), count, "{gc}");
    let longest = gc["longest"].as_array().unwrap().iter();
    let ms: Vec<f64> = longest.map(|it| it["ms"].as_f64().unwrap()).collect();
    assert!(ms.iter().all(|ms| *ms > 0.0), "{gc}");
    let max_ms = ms.into_iter().fold(0.0, f64::max);
    assert_eq!(gc["max_ms"].as_f64(), Some(max_ms));
    let silent = cell("moonwire");
    assert_eq!(silent["server"]["gc"], Value::Null);
    assert_eq!(silent["intervals"][0]["gc_pauses"], Value::Null);
}

#[test]
fn pauses_of_a_collector_are_told_by_the_second() {
    assert_pauses_are_told(None);
}

#[test]
fn pauses_at_an_agent_are_told_likewise() {
    let mut agent = moonwire();
    agent.args(["lab", "agent", "--listen", "127.0.0.1:0"]);
    let agent = Server::start(&mut agent);
    assert_pauses_are_told(Some(&agent.url));
}

/// A proxy that forgets one of the servers behind it is told from one that has both, and one whose
/// servers take turns from one that keeps a client at its server.
#[test]
fn a_proxy_that_does_not_spread_connections_as_it_says_fails_its_check() {
    let shipped = crate::harness::root().join("lab/contestants/http-proxy");
    let description = fs::read_to_string(shipped.join("contestant.toml")).unwrap();
    let description = description.replace("{modules}", "{installed}/../http-proxy/node_modules");
    let forgetful = description.replace("{backends}", "{backend}");
    let fickle = description.clone() + "\n[[variants]]\nsticky = true\n";
    for (name, text, reason) in [
        (
            "forgetful",
            forgetful,
            "of 2 backends 1 had any of 8 connections",
        ),
        (
            "fickle",
            fickle,
            "from 127.0.0.1 reached two servers: it is not sticky",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join(name);
        fs::create_dir(&broken).unwrap();
        fs::write(broken.join("contestant.toml"), text).unwrap();
        fs::copy(shipped.join("proxy.js"), broken.join("proxy.js")).unwrap();
        let mut lab = moonwire();
        lab.args(["lab", "--contestant-folder"]).arg(folder.path());
        let outcome = run(lab.args(["check", name]));
        assert_eq!(outcome.code, Some(98), "{outcome:?}");
        assert!(outcome.stdout.contains(reason), "{outcome:?}");
    }
}
