//! What users get wrong: one clear sentence each, and the exit code that scripts rely on.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Outcome, PATIENCE, Running, Server, certificate, moonwire, run, signal};

const INVALID: i32 = 98;
const BAD_CONFIGURATION: i32 = 104;
const INTERRUPTED: i32 = 105;

#[test]
fn urls_and_numbers_are_checked() {
    wrong("load http://127.0.0.1/echo").names("http://127.0.0.1/echo");
    wrong("load 127.0.0.1:5083/echo").names("127.0.0.1:5083/echo");
    wrong("load ws://127.0.0.1:99999/echo").names("99999");
    wrong("load ws:///echo").names("ws:///echo");
    wrong("load ws://127.0.0.1:1/ -q -5")
        .names("-5")
        .names("--rate");
    wrong("load ws://127.0.0.1:1/ -c 0")
        .names("'0'")
        .names("--connections");
    wrong("load ws://127.0.0.1:1/ -d soon")
        .names("soon")
        .names("--duration");
    wrong("load ws://127.0.0.1:1/ --message-size bananas").names("bananas");
    wrong("load ws://127.0.0.1:1/ --slo p99").names("p99");
    wrong("bench --clients many")
        .names("many")
        .names("--clients");
    wrong("bench --batches=-1").names("-1").names("--batches");
    wrong("bench --name a/../x").names("a/../x").names("--name");
    wrong("bench --clients 1,2 --batches 9007199254740992 --wait 1h")
        .names("9007199254740992")
        .names("30 days");
    wrong("serve --listen 127.0.0.1").names("127.0.0.1");
}

/// In our words, not in those of whoever reads numbers and addresses for us.
#[test]
fn what_is_no_number_or_address_is_told_what_would_be_right() {
    for (line, option, example) in [
        ("serve --workers x", "--workers", "such as 4"),
        ("serve --workers=-1", "--workers", "such as 4"),
        ("load ws://127.0.0.1:1/ --seed x", "--seed", "such as 1000"),
        ("bench --seed x", "--seed", "such as 1000"),
        ("bench --repeats 5g", "--repeats", "more than 4294967295"),
        ("lab payload-doubling --seed x", "--seed", "such as 1000"),
        ("lab null-server --replies x", "--replies", "such as 1000"),
        (
            "lab null-server --listen x",
            "--listen",
            "such as 127.0.0.1",
        ),
        ("lab agent --listen x", "--listen", "such as 127.0.0.1"),
        (
            "load ws://127.0.0.1:1/ --source-ip x",
            "--source-ip",
            "such as 127.0.0.2",
        ),
    ] {
        wrong(line).names(option).names(example);
    }
}

#[test]
fn configurations_are_checked() {
    wrong("serve --config DIR/none.toml").names("none.toml");
    config("colour = 1\n")
        .names("moonwire.toml")
        .names("colour");
    config("[server]\nworkers = \"two\"\n")
        .names("moonwire.toml")
        .names("workers");
    config("[server]\nworkers = \n").names("moonwire.toml");
    config("[limits]\nidle_timeout_ms = -1\n").names("idle_timeout_ms");
    config("[services.echo]\ntarget = \"echo\"\n").names("`echo`");
    let server = |key: &str| {
        config(&format!(
            "[server]\n{key}\n[services.echo]\ntarget = \"/echo\"\n"
        ))
    };
    server("log = \"moonwire=loud\"")
        .names("moonwire.toml:2")
        .names("moonwire=loud");
    server("listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]")
        .names("moonwire.toml:2")
        .names("127.0.0.1:1")
        .names("twice");
    wrong("serve --check --log moonwire=loud")
        .names("--log")
        .names("moonwire=loud");
    wrong("serve --check --listen 127.0.0.1:1 --listen 127.0.0.1:1")
        .names("--listen")
        .names("twice");
}

#[test]
fn services_are_checked() {
    let chat = |script: &str| {
        config("[services.chat]\ntarget = \"/chat\"\nfolder = \"chat\"\n")
            .file("chat/chat.lua", script)
    };
    config("[services.chat]\ntarget = \"/chat\"\n").names("chat.lua");
    chat("local chat = {}\n\nfunction chat.onMessage(\n").names("chat.lua");
    chat("local chat = {}\nfunction chat.onStart() end\nreturn chat\n").names("onMessage");
    chat("error(\"no luck today\")\n").names("no luck today");
}

#[test]
fn certificates_are_checked() {
    let tls = "[tls]\ncert = \"c.pem\"\nkey = \"k.pem\"\n[services.echo]\ntarget = \"/echo\"\n";
    config(tls).file("k.pem", "no key").names("c.pem");
    config(tls)
        .file("c.pem", "no certificate")
        .file("k.pem", "no key")
        .names("c.pem");
    wrong("load wss://127.0.0.1:1/ --cacert DIR/c.pem")
        .file("c.pem", "none")
        .names("c.pem");
}

#[test]
fn run_files_are_checked() {
    let file = |text: &str| wrong("report DIR/run.json").file("run.json", text);
    wrong("report DIR/none.json").names("none.json");
    file("this is not JSON").names("run.json");
    file(&json!({ "schema": "something.else", "version": 1 }).to_string()).names("run.json");
    let newer = json!({ "schema": "moonwire.run", "version": 1000 }).to_string();
    file(&newer).names("run.json").names("1000");
    wrong("compare DIR/run.json DIR/run.json")
        .file("run.json", &newer)
        .names("1000");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    wrong(&format!("serve --listen 127.0.0.1:{port}")).names(&port.to_string());
}

#[test]
fn a_refused_port_is_a_run_without_a_verdict_to_trust() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("ws://{closed}/echo");
    let outcome = run(moonwire().args(["load", &url, "-c", "2", "-n", "10", "--drain", "1s"]));
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    assert!(said(&outcome).contains("refused"), "{outcome:?}");
    assert!(!outcome.stdout.contains("Summary"), "{outcome:?}");
    let outcome = run(moonwire().args(["load", &url, "-c", "2", "-n", "10", "--quiet"]));
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    for word in ["INVALID", "refused", url.as_str()] {
        assert!(outcome.stderr.contains(word), "{word}: {outcome:?}");
    }
}

#[test]
fn a_certificate_that_nobody_signed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (other, _) = certificate::write(folder.path());
    let server = Server::moonwire(&["--dev-tls"]);
    let url = format!("{}/echo", server.url);
    let mut load = moonwire();
    load.args([
        "load", &url, "-c", "1", "-n", "10", "--drain", "1s", "--cacert",
    ])
    .arg(other);
    let outcome = run(&mut load);
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    assert!(said(&outcome).contains("certificate"), "{outcome:?}");
}

#[test]
fn a_server_that_dies_leaves_a_summary_and_a_reason() {
    let server = Server::moonwire(&[]);
    let url = format!("{}/echo", server.url);
    let mut load = moonwire();
    load.args([
        "load", &url, "-c", "4", "-q", "200", "-d", "5s", "--drain", "1s",
    ]);
    let load = Running::start(&mut load);
    server.await_messages();
    // Dropped is killed.
    drop(server);
    let outcome = load.finish();
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    assert!(outcome.stdout.contains("INVALID"), "{outcome:?}");
    assert!(said(&outcome).contains("connection"), "{outcome:?}");
}

#[test]
fn an_interrupted_run_leaves_a_summary() {
    let server = Server::moonwire(&[]);
    let url = format!("{}/echo", server.url);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut load = moonwire();
    load.args(["load", &url, "-c", "4", "-q", "200", "-d", "10m", "--json"])
        .arg(&file);
    let load = Running::start(&mut load);
    server.await_messages();
    signal(load.id(), Signal::INT);
    let outcome = load.finish();
    assert_eq!(outcome.code, Some(INTERRUPTED), "{outcome:?}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(json["messages"]["sent"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(json["messages"]["lost"], 0, "{json}");
}

/// With all that it started.
#[test]
fn an_interruption_ends_a_payload_command_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("id");
    let place = file.display();
    let command = format!("sleep 600 & echo $! >'{place}.new'; mv '{place}.new' '{place}'; wait");
    let mut load = moonwire();
    load.args(["load", "ws://127.0.0.1:1/", "--payload-command", &command]);
    let load = Running::start(&mut load);
    let deadline = Instant::now() + PATIENCE;
    while !file.exists() {
        assert!(Instant::now() < deadline, "the command does not start");
        // Nothing tells when a file comes.
        thread::sleep(Duration::from_millis(5));
    }
    signal(load.id(), Signal::INT);
    let outcome = load.finish();
    assert_eq!(outcome.code, Some(INTERRUPTED), "{outcome:?}");
    assert!(outcome.stderr.contains("was interrupted"), "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    let id = fs::read_to_string(file).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/stat", id.trim()));
    // Nobody may wait for a process whose parent has gone.
    assert!(status.map_or(true, |it| it.contains(") Z ")), "{id}");
}

/// What the user reads, wherever it was printed.
fn said(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr).to_lowercase()
}

/// A command line that cannot work; run, and its answer checked, when dropped.
struct Wrong {
    /// Words; `DIR` stands for the folder of the case.
    line: String,
    folder: tempfile::TempDir,
    names: Vec<String>,
}

fn wrong(line: &str) -> Wrong {
    Wrong {
        line: line.into(),
        folder: tempfile::tempdir().unwrap(),
        names: vec![],
    }
}

/// A configuration file that cannot work.
fn config(text: &str) -> Wrong {
    wrong("serve --check --config DIR/moonwire.toml").file("moonwire.toml", text)
}

impl Wrong {
    fn file(self, path: &str, text: &str) -> Self {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// What the answer must contain.
    fn names(mut self, part: &str) -> Self {
        self.names.push(part.into());
        self
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        let folder = self.folder.path().to_str().unwrap();
        let outcome = run(moonwire().args(self.line.replace("DIR", folder).split(' ')));
        let answer = outcome.stderr.trim();
        let case = format!("`{}` with {:?}\n{answer}\n", self.line, self.names);
        assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{case}");
        for name in &self.names {
            assert!(answer.contains(name), "{name} is not named: {case}");
        }
        let sentences = answer.lines().filter(|line| !line.trim().is_empty());
        let sentences = sentences.filter(|line| !line.starts_with("For more information"));
        assert_eq!(sentences.count(), 1, "not one sentence: {case}");
        assert!(!answer.contains("panicked"), "{case}");
    }
}
