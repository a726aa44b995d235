//! Battles as a user meets them: rounds of contestants that are always here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Running, moonwire, run, signal};

const INVALID: i32 = 98;
const THRESHOLD_FAILED: i32 = 99;
const BAD_CONFIGURATION: i32 = 104;
const INTERRUPTED: i32 = 105;

fn battle(folder: &Path, arguments: &[&str]) -> Command {
    let mut lab = moonwire();
    lab.args(["lab", "battle-shortlived", "--contestants", "none,moonwire"]);
    lab.args(["--connections", "60", "--open-max", "10", "--seed", "5"]);
    lab.arg("--out").arg(folder.join("out"));
    lab.arg("--json").arg(folder.join("run.json"));
    lab.args(arguments);
    lab
}

fn run_file(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("run.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What a server counts since its start has the warm-up in it.
#[test]
fn a_warm_up_is_not_in_the_counters_that_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args("lab latency --contestants moonwire --tls off --connections 10".split(' '));
    lab.args("--batches 2 --wait 100ms --warm-up 300ms --rounds 1 --ceiling 0s".split(' '));
    lab.arg("--out").arg(folder.path().join("out"));
    let outcome = run(lab.arg("--json").arg(folder.path().join("run.json")));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cell = &run_file(folder.path())["cells"][0];
    let counted = json!({ "received": 20, "sent": 80 });
    assert_eq!(cell["counted"], counted, "{cell}");
    assert!(
        !outcome.stdout.contains("the servers counted"),
        "{outcome:?}"
    );
}

#[test]
fn every_contestant_has_a_cell_in_each_round_and_serves_every_connection() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--rounds", "2", "--tls", "both"];
    let outcome = run(&mut battle(folder.path(), &arguments));
    // A busy machine may make all cells INVALID.
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json = run_file(folder.path());
    assert_eq!(json["rules"]["primary"], "handshake.mean");
    for (index, ceiling) in json["ceilings"].as_array().unwrap().iter().enumerate() {
        assert_eq!(ceiling["tls"], index == 1, "{json}");
        assert!(ceiling["replies_per_s"].as_f64() > Some(100.0), "{ceiling}");
        assert!(ceiling["generator_busy"].as_f64() > Some(0.0), "{ceiling}");
    }
    assert!(outcome.stdout.contains("what the generator does at most"));
    let cells = json["cells"].as_array().unwrap();
    let mut names: Vec<String> = Vec::new();
    for cell in cells {
        assert_eq!(cell["connects"]["ok"], 60, "{cell}");
        assert_eq!(cell["messages"]["received"], 60, "{cell}");
        assert_eq!(cell["messages"]["lost"], 0, "{cell}");
        assert!(cell["server"]["rss_peak_bytes"].is_u64(), "{cell}");
        let counted = ["received", "sent"].map(|name| cell["counted"][name].as_u64());
        assert_eq!(counted, [Some(60); 2], "{cell}");
        let agreed = &cell["tls_agreed"][0];
        match cell["tls"].as_bool().unwrap() {
            true => {
                let expected = json!({
                    "version": "1.3", "cipher": "TLS13_AES_128_GCM_SHA256", "group": "X25519",
                    "key": "ECDSA", "key_bits": 256, "alpn": "http/1.1",
                    "full": 60, "resumed": 0,
                });
                assert_eq!(agreed, &expected, "{cell}");
            }
            false => assert_eq!(agreed, &Value::Null, "{cell}"),
        }
        let is_control = cell["contestant"] == "none";
        assert_eq!(cell["backend"] == "moonwire", is_control, "{cell}");
        let name = ["contestant", "tls", "round"].map(|key| cell[key].to_string());
        names.push(name.join(" "));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:?}");
    assert!(outcome.stdout.contains("not ranked"), "{outcome:?}");
    let terms = "TLS 1.3, AES_128_GCM_SHA256, X25519, ECDSA 256, full handshakes";
    assert_eq!(outcome.stdout.matches(terms).count(), 2, "{outcome:?}");
    let out = folder.path().join("out");
    has_a_report_of_each_cell(&out);
    let sum = json["environment"]["contestant_files"]["moonwire"].as_str();
    assert_eq!(sum.map(str::len), Some(64), "{json}");
    is_told_in_all_formats(&out, &json);
    assert!(folder.path().join("out/index.html").is_file());
    let mut report = moonwire();
    report.arg("report").arg(folder.path().join("run.json"));
    let drawn = run(report.arg("--out").arg(folder.path().join("again")));
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
}

/// Nothing of one cell is left in another one: each has processes of its own, at the server and at
/// the proxy.
#[test]
fn servers_and_proxies_are_started_again_for_each_cell() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_moonwire");
    for (kind, name) in [("server", "behind"), ("proxy", "before")] {
        let own = folder.path().join(name);
        fs::create_dir(&own).unwrap();
        // What is to be a proxy answers itself, which the lab does not mind.
        let start = |tls: &str| {
            let started = own.join("started").display().to_string();
            let script = format!(
                "echo $$ >> {started}; exec {program} serve --listen {{address}}:{{port}} {tls}"
            );
            json!(["sh", "-c", script])
        };
        let table = |scheme: &str, tls: &str| {
            let url = match kind {
                "server" => format!("url = '{scheme}://{{address}}:{{port}}/echo'\n"),
                _ => String::new(),
            };
            format!("start = {}\n{url}", start(tls))
        };
        let description = format!(
            "kind = '{kind}'\ndescription = 'says who it is'\nversion = ['echo', '7']\n\
             ready = 'listening on'\n[plain]\n{}[tls]\n{}",
            table("ws", ""),
            table("wss", "--dev-tls")
        );
        fs::write(own.join("contestant.toml"), description).unwrap();
    }
    let mut lab = moonwire();
    lab.arg("lab").arg("--contestant-folder").arg(folder.path());
    lab.args("battle-shortlived --contestants none,before --backend behind".split(' '));
    lab.args("--connections 20,40 --open-max 10 --rounds 2 --tls both --ceiling 0s".split(' '));
    lab.arg("--json").arg(folder.path().join("run.json"));
    let outcome = run(lab.arg("--out").arg(folder.path().join("out")));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cells = run_file(folder.path());
    let cells = cells["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2 * 2 * 2 * 2, "{outcome:?}");
    let started = |name: &str| {
        let said = fs::read_to_string(folder.path().join(name).join("started")).unwrap();
        let ids: BTreeSet<String> = said.lines().map(str::to_owned).collect();
        (said.lines().count(), ids.len())
    };
    assert_eq!(started("behind"), (16, 16), "{outcome:?}");
    assert_eq!(started("before"), (8, 8), "{outcome:?}");
}

/// In the folder that has what the processes of the cell said, and one table for each scheme.
fn has_a_report_of_each_cell(out: &Path) {
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for scheme in ["plain (ws)", "TLS (wss)"] {
        let table = format!("\n## all loads, {scheme}: handshake mean, and who wins\n");
        assert!(report.contains(&table), "{report}");
    }
    for (contestant, scheme) in [("moonwire", "ws"), ("none", "wss")] {
        for round in 1..=2 {
            let key = "c60_p1_m1_o10_s1024_r1";
            let folder = out.join(format!("cells/{contestant}_{scheme}_{key}_round{round}"));
            let files = fs::read_dir(&folder).unwrap_or_else(|_| panic!("{folder:?}"));
            assert!(files.count() > 1, "{folder:?}");
            let report = fs::read_to_string(folder.join("report.md")).unwrap();
            let title = format!(": {contestant}, {scheme}, round {round}, 60 clients\n");
            assert!(report.lines().next().unwrap().ends_with(title.trim_end()));
            assert!(report.contains("| handshake "), "{report}");
            assert!(report.contains("60 ok, 0 failed"), "{report}");
            assert!(report.contains("## On a terminal"), "{report}");
        }
    }
}

/// What others read: the schema, JUnit XML, pictures, a text for a pull request.
fn is_told_in_all_formats(out: &Path, json: &Value) {
    let schema = run(moonwire().args(["report", "--schema"])).stdout;
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<String> = validator
        .iter_errors(json)
        .map(|it| it.to_string())
        .collect();
    assert_eq!(faults, [""; 0]);
    let junit = fs::read_to_string(out.join("junit.xml")).unwrap();
    let document = roxmltree::Document::parse(&junit).unwrap();
    let cases = document.descendants();
    let cases = cases.filter(|it| it.has_tag_name("testcase")).count();
    // Of eight cells a verdict and two thresholds each, and two places under two loads.
    assert_eq!(cases, 8 * 3 + 2 * 2, "{junit}");
    for name in [
        "battle_primary_handshake-mean",
        "battle_response_percentiles",
    ] {
        for extension in ["svg", "png"] {
            let path = out.join("plots").join(format!("{name}.{extension}"));
            assert!(path.is_file(), "{}", path.display());
        }
    }
    let print = |format: &str| {
        let outcome = run(moonwire().arg("report").arg(out).args(["--print", format]));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.stdout
    };
    assert!(print("pull-request").contains("battle-shortlived: "));
    assert_eq!(print("junit"), junit);
    assert!(print("json").contains("\"schema\": \"moonwire.run\""));
}

#[test]
fn a_threshold_that_fails_says_so_in_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--rounds", "1", "--tls", "off", "--thresholds", "sent>100"];
    let outcome = run(battle(folder.path(), &arguments).args(["--backends", "2"]));
    let codes = [Some(THRESHOLD_FAILED), Some(INVALID)];
    assert!(codes.contains(&outcome.code), "{outcome:?}");
    let json = run_file(folder.path());
    assert_eq!(json["cells"][0]["thresholds"][0]["passed"], false, "{json}");
    let cells = json["cells"].as_array().unwrap();
    let control = cells.iter().find(|cell| cell["contestant"] == "none");
    let shares = control.unwrap()["distribution"].as_array().unwrap();
    let used = shares.iter().filter(|it| it["cpu_s"].as_f64() > Some(0.0));
    assert_eq!(used.count(), 2, "{shares:?}");
    assert!(outcome.stdout.contains("how connections were spread"));
    for server in cells.iter().map(|cell| &cell["server"]) {
        let used = ["cpu_least", "cpu_most"].map(|name| server[name].as_f64());
        assert!(used[0] <= used[1] && used[1] > Some(0.0), "{server}");
    }
    let (_, used) = outcome.stdout.split_once("\nwhat each used\n").unwrap();
    let row = used.lines().find(|line| line.contains(" none "));
    assert!(row.is_some_and(|it| it.contains(" % ") && it.contains(" MiB")));
}

#[test]
fn what_is_wrong_is_one_sentence_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "contestants = ['moonwire']\nconnexions = 3\n").unwrap();
    let wrong = |lab: &mut Command, part: &str| {
        let outcome = run(lab);
        assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    };
    let at = |arguments: &[&str]| battle(folder.path(), arguments);
    wrong(&mut at(&["--rounds", "many"]), "--rounds: 'many' is not");
    wrong(&mut at(&["--backend", "nginx"]), "nginx");
    wrong(
        &mut at(&["--payload", "amplify", "--backend", "tokio-tungstenite"]),
        "amplif",
    );
    wrong(&mut at(&["--cross-check", "nobody"]), "no client 'nobody'");
    // Its connections close after each message, which generators of others do not do.
    let foreign = ["--cross-check", "tungstenite-client"];
    wrong(&mut at(&foreign), "tungstenite-client sends at a rate");
    let mut own = moonwire();
    let part = "mine.toml:2: connexions: there is no such knob; 'connections' is the nearest";
    wrong(own.args(["lab", "run"]).arg(&file), part);
    assert!(!folder.path().join("out").exists());
}

#[test]
fn what_the_kernel_does_not_allow_is_said_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let lab = battle(folder.path(), &["--tls", "off"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$@\"", "sh"]);
    limited.arg(lab.get_program()).args(lab.get_args());
    let outcome = run(&mut limited);
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    let parts = ["138 file descriptors", "may have 100", "`ulimit -n 65536`"];
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_battle_that_is_interrupted_leaves_what_it_has_and_nobody_behind() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--rounds", "1000", "--tls", "off"];
    let lab = Running::start(&mut battle(folder.path(), &arguments));
    let run_json = folder.path().join("out/run.json");
    let deadline = Instant::now() + PATIENCE;
    while !run_json.is_file() {
        assert!(Instant::now() < deadline, "no cell ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(lab.id(), Signal::INT);
    let outcome = lab.finish();
    assert_eq!(outcome.code, Some(INTERRUPTED), "{outcome:?}");
    let json = run_file(folder.path());
    let partial = json["environment"]["notes"]["partial"].as_str().unwrap();
    assert!(partial.contains("of 2000 cells were begun"), "{partial}");
    // The lab ends after those it has started: none of them knows its folder any more.
    let place = folder.path().to_str().unwrap().to_owned();
    let ours = procfs_commands().filter(|command| command.contains(&place));
    assert_eq!(ours.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_search_ends_between_what_passes_and_what_fails() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "find-max", "--contestants", "moonwire"]);
    lab.args(["--connections", "4", "--from", "300", "--duration", "500ms"]);
    // What is sent in half a second is known, and so is the rate at which it is too much.
    lab.args(["--confirm", "500ms", "--thresholds", "sent<=500"]);
    lab.arg("--out").arg(folder.path().join("out"));
    lab.arg("--json").arg(folder.path().join("run.json"));
    let outcome = run(&mut lab);
    // A busy machine may make all tries INVALID.
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json = run_file(folder.path());
    let found = &json["capacities"][0];
    let (highest, failed) = (&found["highest"], &found["lowest_failed"]);
    let (highest, failed) = (highest.as_f64().unwrap(), failed.as_f64().unwrap());
    assert!(highest <= 1002.0 && highest < failed, "{found}");
    assert!(failed <= highest * 1.03, "{found}");
    assert!(outcome.stderr.contains("passed"), "{outcome:?}");
    assert!(
        outcome.stdout.contains("that keep the thresholds"),
        "{outcome:?}"
    );
    let page = fs::read_to_string(folder.path().join("out/index.html")).unwrap();
    assert!(page.contains("Latency against load"));
    let pictures = folder.path().join("out/plots/latency-against-load.png");
    assert!(pictures.is_file());
}

#[test]
fn clients_of_a_server_that_is_killed_come_back_to_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "reconnect-storm", "--contestants", "moonwire"]);
    lab.args(["--connections", "20", "--tls", "off", "--rounds", "1"]);
    lab.args(["--conn-concurrency", "20", "--reconnect", "50ms"]);
    lab.args(["--kill-after", "500ms", "--down-for", "200ms"]);
    lab.args(["--duration", "5s"]);
    lab.arg("--out").arg(folder.path().join("out"));
    lab.arg("--json").arg(folder.path().join("run.json"));
    let outcome = run(&mut lab);
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cell = &run_file(folder.path())["cells"][0];
    for key in ["disconnected", "reconnected"] {
        assert_eq!(cell["connects"][key], 20, "{cell}");
    }
    assert_eq!(cell["recovery"]["count"], 20, "{cell}");
    assert_eq!(cell["server"]["died"], Value::Null, "{cell}");
    assert_eq!(cell["thresholds"][0]["passed"], true, "{cell}");
    let shortest_us = cell["recovery"]["min_us"].as_f64().unwrap();
    assert!(shortest_us > 200_000.0, "it was down for 200 ms: {cell}");
}

/// One command, every combination: each has the messages that its batches come to.
#[test]
fn a_sweep_over_connections_batches_and_waits_is_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args([
        "lab",
        "latency",
        "--contestants",
        "moonwire",
        "--rounds",
        "1",
    ]);
    lab.args([
        "--connections",
        "4,8",
        "--batch",
        "1,2",
        "--wait",
        "50ms,200ms",
    ]);
    lab.args(["--batches", "2", "--replies", "3", "--ceiling", "0s"]);
    lab.arg("--out").arg(folder.path().join("out"));
    lab.arg("--json").arg(folder.path().join("run.json"));
    let outcome = run(&mut lab);
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json = run_file(folder.path());
    let mut combinations = Vec::new();
    for cell in json["cells"].as_array().unwrap() {
        let of = |name: &str| cell[name].as_f64().unwrap();
        assert_eq!(of("stagger_ms"), of("wait_ms"), "{cell}");
        let messages = of("clients") * of("batch") * 2.0;
        assert_eq!(cell["messages"]["sent"].as_f64(), Some(messages), "{cell}");
        assert_eq!(
            cell["messages"]["received"].as_f64(),
            Some(messages * 3.0),
            "{cell}"
        );
        combinations.push(["clients", "batch", "wait_ms"].map(|name| of(name) as u64));
    }
    combinations.sort_unstable();
    let all = [4, 8].map(|c| [1, 2].map(|b| [50, 200].map(|w| [c, b, w])));
    assert_eq!(combinations, all.concat().concat());
}

#[test]
fn subscribers_hear_what_is_published_over_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let mut lab = moonwire();
    lab.args(["lab", "fan-out", "--contestants", "moonwire"]);
    lab.args(["--connections", "20", "--publishers", "2", "--rate", "20"]);
    lab.args(["--rounds", "1", "--duration", "1s", "--link-delay", "5"]);
    lab.arg("--out").arg(folder.path().join("out"));
    lab.arg("--json").arg(folder.path().join("run.json"));
    let outcome = run(&mut lab);
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cell = &run_file(folder.path())["cells"][0];
    let heard = &cell["fan_out"];
    assert_eq!(
        (&heard["reach"], &heard["unreached"]),
        (&1.0.into(), &0.into())
    );
    assert_eq!(heard["copies"], 400, "{heard}");
    assert_eq!(cell["link"]["delay_ms"], 5.0, "{cell}");
    let soonest_us = heard["first_receiver"]["min_us"].as_f64().unwrap();
    assert!(soonest_us >= 10_000.0, "there and back: {soonest_us}");
    assert!(
        outcome.stdout.contains("2 publishers heard by all"),
        "{outcome:?}"
    );
}

#[test]
fn every_scenario_has_a_command_of_its_own() {
    let list = run(moonwire().args(["lab", "list", "--json"]));
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    let scenarios = list["scenarios"].as_array().unwrap();
    assert!(scenarios.len() >= 10, "{scenarios:?}");
    for name in scenarios {
        let name = name.as_str().unwrap();
        let help = run(moonwire().args(["lab", name, "--help"]));
        assert_eq!(help.code, Some(0), "{name}: {help:?}");
    }
}

/// The command lines of all processes there are.
fn procfs_commands() -> impl Iterator<Item = String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| {
        let command = fs::read(process.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&command).replace('\0', " "))
    })
}
