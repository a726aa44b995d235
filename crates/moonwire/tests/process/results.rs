//! Where results go: devices, pipes and links survive, and nothing is lost without a word.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Running, Server, moonwire, run};

const INVALID: i32 = 98;
const BAD_CONFIGURATION: i32 = 104;

#[test]
fn a_fifo_gets_the_run_file_when_the_run_is_over() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let load = Running::start(load(&server).arg("--json").arg(&fifo));
    // Nobody reads yet, and the run takes place all the same.
    server.await_messages();
    let json: Value = serde_json::from_str(&fs::read_to_string(&fifo).unwrap()).unwrap();
    assert_eq!(json["messages"]["sent"], 10, "{json}");
    let outcome = load.finish();
    // A busy machine makes the run INVALID, and the file is written all the same.
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
}

#[test]
fn whether_the_server_agreed_to_compress_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("moonwire.toml");
    fs::write(&config, "[services.echo]\ntarget = '/echo'\n").unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let file = folder.path().join("run.json");
    for (arguments, agreed, sentence) in [
        (&[][..], 1, ", 1 compressed"),
        (&config[..], 0, ", none compressed: the server declined"),
    ] {
        let server = Server::moonwire(arguments);
        let mut load = load(&server);
        let outcome = run(load.arg("--deflate").arg("--json").arg(&file));
        assert!(outcome.stdout.contains(sentence), "{outcome:?}");
        let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(json["connects"]["compressed"], agreed, "{json}");
    }
}

#[test]
fn a_run_file_that_cannot_be_written_keeps_nothing_else_from_coming() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let full = full(folder.path());
    let out = folder.path().join("out");
    let mut load = load(&server);
    load.arg("--json").arg(&full).arg("--out").arg(&out);
    let outcome = run(&mut load);
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot be written"), "{outcome:?}");
    assert!(outcome.stdout.contains("Summary"), "{outcome:?}");
    assert!(out.join("index.html").is_file());
    assert!(fs::symlink_metadata(&full).unwrap().is_symlink());
}

/// So that a folder for each server can be named outside of the command.
#[test]
fn a_variable_names_the_folder_of_the_results_unless_a_flag_does() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let amplify = format!("{}/amplify", server.url);
    let battle = [
        "lab",
        "latency",
        "--contestants",
        "moonwire",
        "--ceiling",
        "0s",
    ];
    let battle = [&battle[..], &["--connections", "2", "--rounds", "1"]].concat();
    let doubling = [
        "lab",
        "payload-doubling",
        "--contestants",
        "moonwire/weight-0.5",
    ];
    let doubling = [&doubling[..], &["--connections", "1", "--messages", "1"]].concat();
    let bench = ["bench", "--url", &amplify, "--clients", "2", "--same-host"];
    for (name, arguments) in [
        ("battle", &battle[..]),
        ("doubling", &doubling),
        ("bench", &bench),
    ] {
        let mut command = moonwire();
        command.args(arguments).current_dir(folder.path());
        if name != "doubling" {
            command.args(["--batches", "1", "--wait", "10ms"]);
        }
        let outcome = run(command.env("MOONWIRE_OUT", at(name)));
        assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
        assert!(at(name).join("run.json").is_file(), "{outcome:?}");
        let outcome = run(command.arg("--out").arg(at("flag")));
        assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
        assert!(at("flag/run.json").is_file(), "{outcome:?}");
        fs::remove_dir_all(at("flag")).unwrap();
        let verb = arguments.iter().take_while(|it| !it.starts_with("--"));
        let help = run(moonwire().args(verb).arg("--help"));
        assert!(help.stdout.contains("MOONWIRE_OUT="), "{help:?}");
    }
    assert!(!at("results").exists());
}

#[test]
fn a_result_that_a_run_replaces_is_announced() {
    let server = Server::moonwire(&[]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let sentence = format!("{} has the result of an earlier run", out.display());
    for (quiet, is_said) in [(&[][..], false), (&["--quiet"], false), (&[], true)] {
        let mut load = load(&server);
        let outcome = run(load.arg("--out").arg(&out).args(quiet));
        assert_eq!(outcome.stderr.contains(&sentence), is_said, "{outcome:?}");
    }
    let mut bench = moonwire();
    bench.args(["bench", "--clients", "1", "--batches", "1", "--wait", "10"]);
    bench.args(["--link-delay", "0", "--idle-poll", "off", "--repeats", "0"]);
    let outcome = run(bench.arg("--out").arg(&out));
    assert!(outcome.stderr.contains(&sentence), "{outcome:?}");
}

#[test]
fn a_bench_whose_run_file_cannot_be_copied_prints_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let full = full(folder.path());
    let mut bench = moonwire();
    bench.args(["bench", "--clients", "1", "--batches", "1", "--wait", "10"]);
    bench.args(["--link-delay", "0", "--idle-poll", "off", "--repeats", "0"]);
    bench.arg("--json").arg(&full);
    bench.arg("--out").arg(folder.path().join("out"));
    let outcome = run(&mut bench);
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(outcome.stderr.contains("cannot be written"), "{outcome:?}");
    assert!(outcome.stdout.contains("report: "), "{outcome:?}");
}

#[test]
fn runs_are_compared_under_the_names_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let mut bench = moonwire();
    bench.args([
        "bench",
        "--clients",
        "1,2",
        "--batches",
        "1",
        "--wait",
        "10",
    ]);
    bench.args(["--link-delay", "0", "--idle-poll", "off", "--repeats", "0"]);
    bench.arg("--json").arg(file("a.json"));
    run(bench.arg("--out").arg(file("out")));
    let mut json: Value =
        serde_json::from_str(&fs::read_to_string(file("a.json")).unwrap()).unwrap();
    // As on a machine that is not busy.
    let mut judge = |verdict: &str| {
        for cell in json["cells"].as_array_mut().unwrap() {
            cell["verdict"] = verdict.into();
        }
        json.to_string()
    };
    fs::write(file("invalid.json"), judge("INVALID")).unwrap();
    for name in ["a.json", "b.json"] {
        fs::write(file(name), judge("VALID")).unwrap();
    }
    for (clients, cell) in (3..).zip(json["cells"].as_array_mut().unwrap()) {
        cell["clients"] = clients.into();
    }
    fs::write(file("other.json"), json.to_string()).unwrap();

    let same = run(moonwire()
        .arg("compare")
        .args([file("a.json"), file("b.json")]));
    assert_eq!(same.code, Some(0), "{same:?}");
    for name in ["a.json (", "b.json (", "2 clients"] {
        assert!(same.stdout.contains(name), "{name}: {same:?}");
    }
    let bound = run(moonwire()
        .args(["compare", "--fail-beyond", "1%"])
        .args([file("a.json"), file("b.json")]));
    assert_eq!(
        (bound.code, bound.stderr.as_str()),
        (Some(0), ""),
        "{bound:?}"
    );
    let unjudged = run(moonwire()
        .args(["compare", "--fail-beyond", "1%"])
        .args([file("a.json"), file("invalid.json")]));
    assert_eq!(unjudged.code, Some(INVALID), "{unjudged:?}");
    let reason = "not judged, because B is INVALID";
    assert_eq!(unjudged.stderr.matches(reason).count(), 2, "{unjudged:?}");
    let apart = run(moonwire()
        .arg("compare")
        .args([file("a.json"), file("other.json")]));
    assert_eq!(apart.code, Some(BAD_CONFIGURATION), "{apart:?}");
    for part in ["other.json", "no cell in common", "is in B only"] {
        assert!(apart.stderr.contains(part), "{part}: {apart:?}");
    }
}

#[test]
fn a_full_stdout_is_said_and_not_a_success() {
    let server = Server::moonwire(&[]);
    let mut commands = vec![load(&server), moonwire(), moonwire()];
    commands[0].args(["--quiet", "--json", "-"]);
    commands[1].args(["completions", "bash"]);
    commands[2].arg("--help");
    for mut command in commands {
        let output = with_stdout(&mut command, File::create("/dev/full").unwrap());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(BAD_CONFIGURATION), "{said}");
        assert!(said.contains("stdout cannot be written"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn a_closed_pipe_is_a_reader_that_has_enough() {
    for line in ["completions bash", "--help", "serve --check"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = with_stdout(moonwire().args(line.split(' ')), writer);
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        assert_eq!(output.stderr, b"", "{line}");
    }
}

#[test]
fn a_full_stderr_is_no_panic() {
    let mut command = moonwire();
    command.args(["report", "/nowhere/run.json"]);
    command.stderr(File::create("/dev/full").unwrap());
    assert_eq!(command.status().unwrap().code(), Some(BAD_CONFIGURATION));
}

/// A run of ten messages.
fn load(server: &Server) -> Command {
    let mut load = moonwire();
    let url = format!("{}/echo", server.url);
    load.args(["load", &url, "-c", "1", "-q", "20", "-n", "10"]);
    load
}

/// A link to the device that is always full: what replaces files replaces the link, not the device.
fn full(folder: &Path) -> std::path::PathBuf {
    let link = folder.join("full");
    symlink("/dev/full", &link).unwrap();
    link
}

fn with_stdout(command: &mut Command, stdout: impl Into<Stdio>) -> Output {
    command.stdout(stdout).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}
