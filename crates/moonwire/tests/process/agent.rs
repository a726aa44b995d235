//! Contestants on another host: an agent in one network namespace, its lab in another one, and a
//! cable between them. Without root there are no namespaces, and the tests that need them say so.

mod hosts;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use self::hosts::Hosts;
use crate::harness::{PATIENCE, Running, Server, moonwire, root, run, signal};

const INVALID: i32 = 98;
const BAD_CONFIGURATION: i32 = 104;
const TOKEN: &str = "0123456789abcdef";

/// An agent on the loopback, which needs no token.
fn agent(folder: &Path) -> Server {
    let mut command = moonwire();
    command.args(["lab", "agent", "--listen", "127.0.0.1:0"]);
    Server::start(command.env("TMPDIR", folder))
}

/// So many messages of four connections, five a second.
fn latency(mut lab: Command, folder: &Path, agent: &str, batches: &str) -> Command {
    lab.args(["latency", "--connections", "4", "--batches", batches]);
    lab.args(["--wait", "200ms", "--stagger", "200ms"]);
    lab.args(["--rounds", "1", "--ceiling", "0s", "--agent", agent]);
    lab.arg("--out").arg(folder.join("out"));
    lab.arg("--json").arg(folder.join("run.json"));
    lab
}

/// Such a load on moonwire, for two seconds.
fn short(lab: Command, folder: &Path, agent: &str) -> Command {
    let mut lab = latency(lab, folder, agent, "10");
    lab.args(["--contestants", "moonwire"]);
    lab
}

/// The same for longer than any test.
fn long(lab: Command, folder: &Path, agent: &str) -> Command {
    let mut lab = latency(lab, folder, agent, "1000");
    lab.args(["--contestants", "moonwire"]);
    lab
}

/// A folder with a contestant `mine`, which is moonwire with a changed file.
fn contestant(folder: &Path, place: &str, change: impl Fn(String) -> String) -> PathBuf {
    let place = folder.join(place);
    fs::create_dir_all(place.join("mine")).unwrap();
    for entry in fs::read_dir(root().join("lab/contestants/moonwire")).unwrap() {
        let file = entry.unwrap();
        fs::copy(file.path(), place.join("mine").join(file.file_name())).unwrap();
    }
    let file = place.join("mine/contestant.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(file, change(text)).unwrap();
    place
}

/// An agent on one of two hosts, and the file with its token; `None` where there can be none.
fn two_hosts() -> Option<(Hosts, TempDir, PathBuf, Server)> {
    let hosts = Hosts::join()?;
    let folder = tempfile::tempdir().unwrap();
    let token = hosts::token_file(folder.path(), TOKEN);
    let agent = hosts.agent(folder.path(), &token, None);
    Some((hosts, folder, token, agent))
}

fn here() -> Command {
    let mut lab = moonwire();
    lab.arg("lab");
    lab
}

fn run_file(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("run.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn one_way_latencies_between_two_hosts_have_an_error_bound() {
    let Some((hosts, folder, token, agent)) = two_hosts() else {
        return;
    };
    let mut lab = short(hosts.lab(), folder.path(), &agent.url);
    // A machine that is busy with other tests delays each exchange of times.
    lab.args(["--one-way-bound", "100ms"]);
    let outcome = run(lab.arg("--agent-token-file").arg(&token));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json = run_file(folder.path());
    let cell = &json["cells"][0];
    let latency = &cell["latency"];
    assert_eq!(latency["one_way"]["count"], 40, "{latency}");
    let clock = &latency["one_way_clock"];
    let (offset_ns, bound_ns) = (clock["offset_ns"].as_i64(), clock["bound_ns"].as_u64());
    let (offset_ns, bound_ns) = (offset_ns.unwrap(), bound_ns.unwrap());
    // Both namespaces have the same time of day.
    assert!(
        bound_ns > 0 && offset_ns.unsigned_abs() <= bound_ns,
        "{clock}"
    );
    assert!(clock["round_trip_min_ns"].as_u64() > Some(1000), "{clock}");
    let address = hosts.agent_address();
    let url = cell["server"]["urls"][0].as_str().unwrap();
    assert!(url.starts_with(&format!("ws://{address}:")), "{url}");
    assert!(cell["server"]["cpu_s"].as_f64() > Some(0.0), "{cell}");
    assert!(
        cell["server"]["rss_peak_bytes"].as_u64() > Some(1 << 20),
        "{cell}"
    );
    // The agent's monotonic clock is a day ahead where the kernel has namespaces of time.
    for interval in cell["intervals"].as_array().unwrap() {
        assert!(interval["server_rss_bytes"].is_u64(), "{interval}");
    }
    let servers = &json["environment"]["servers"];
    assert!(
        servers["sysctls"]["net.core.somaxconn"].is_string(),
        "{servers}"
    );
    assert!(servers["versions"]["moonwire"].is_string(), "{servers}");
    assert!(
        !fs::read_to_string(folder.path().join("run.json"))
            .unwrap()
            .contains(TOKEN)
    );
    let told = "one-way latencies are good to ±";
    assert!(outcome.stdout.contains(told), "{outcome:?}");
    for report in ["report.md", "index.html"] {
        let text = fs::read_to_string(folder.path().join("out").join(report)).unwrap();
        assert!(text.contains(told), "{report}");
        assert!(text.contains("smallest round trip"), "{report}");
    }
    assert!(agent.await_line("this lab is gone").contains("closed"));
    assert!(agent.terminate().success());
    assert_eq!(hosts::left_in(folder.path()), [""; 0]);
}

#[test]
fn clocks_that_are_known_too_badly_give_no_one_way_latency() {
    let Some((hosts, folder, _, agent)) = two_hosts() else {
        return;
    };
    let mut lab = short(hosts.lab(), folder.path(), &agent.url);
    lab.args(["--one-way-bound", "1us", "--tls", "on"]);
    let outcome = run(lab.env("MOONWIRE_AGENT_TOKEN", TOKEN));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let json = run_file(folder.path());
    let cell = &json["cells"][0];
    // It is trusted by the certificate that the agent has made.
    assert_eq!(cell["connects"]["ok"], 4, "{cell}");
    assert_eq!(cell["latency"]["one_way"], Value::Null, "{cell}");
    assert_eq!(cell["intervals"][0]["one_way"], Value::Null, "{cell}");
    let refused = cell["latency"]["one_way_refused"].as_str().unwrap();
    let parts = [
        "the clocks of both hosts are known to within",
        "'one_way_bound' is 1.0 us",
    ];
    for part in parts {
        assert!(refused.contains(part), "{refused}");
        assert!(outcome.stdout.contains(part), "{outcome:?}");
    }
    let response = &cell["latency"]["response"]["count"];
    assert_eq!(response, 40, "what one clock measures stays: {cell}");
}

#[test]
fn a_lab_that_is_killed_leaves_nobody_at_its_agent() {
    let Some((hosts, folder, _, agent)) = two_hosts() else {
        return;
    };
    let start = || {
        let mut lab = long(hosts.lab(), folder.path(), &agent.url);
        lab.env("MOONWIRE_AGENT_TOKEN", TOKEN);
        lab
    };
    let lab = Running::start(&mut start());
    await_that("a server runs", || hosts::left_in(folder.path()).len() == 1);
    // While it works for that one, it works for nobody else.
    let second = run(&mut start());
    assert_eq!(second.code, Some(BAD_CONFIGURATION), "{second:?}");
    assert!(second.stderr.contains("for one at a time"), "{second:?}");
    signal(lab.id(), Signal::KILL);
    lab.finish();
    agent.await_line("this lab is gone");
    await_that("the server ended", || {
        hosts::left_in(folder.path()).is_empty()
    });
    let lab = Running::start(&mut start());
    await_that("a server runs", || hosts::left_in(folder.path()).len() == 1);
    // An agent that is asked to end ends all of it, and the lab says why it ends.
    assert!(agent.terminate().success());
    let outcome = lab.finish();
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(outcome.stderr.contains("is lost: "), "{outcome:?}");
    await_that("the server ended", || {
        hosts::left_in(folder.path()).is_empty()
    });
    let partial = fs::read_to_string(folder.path().join("out/run.json")).unwrap();
    let partial: Value = serde_json::from_str(&partial).unwrap();
    let note = partial["environment"]["notes"]["partial"].as_str();
    assert!(note.is_some_and(|it| it.contains("is lost: ")), "{partial}");
    assert_eq!(partial["cells"][0]["verdict"], "INVALID", "{partial}");
}

/// No end of a connection tells either of them.
#[test]
fn a_lab_and_its_agent_that_are_parted_both_end_what_they_do() {
    let Some((hosts, folder, _, agent)) = two_hosts() else {
        return;
    };
    let mut lab = long(hosts.lab(), folder.path(), &agent.url);
    let lab = Running::start(lab.env("MOONWIRE_AGENT_TOKEN", TOKEN));
    // That to the agent, and those of the load; the state of one that is up is 1.
    let sockets = format!("/proc/{}/net/tcp", lab.id());
    await_that("the load is connected", || {
        let table = fs::read_to_string(&sockets).unwrap_or_default();
        table.matches(" 01 ").count() == 1 + 4
    });
    hosts.part();
    agent.await_line("this lab is gone: nothing came for 10s");
    await_that("the server ended", || {
        hosts::left_in(folder.path()).is_empty()
    });
    // The load would go on for minutes.
    let outcome = lab.finish();
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(outcome.stderr.contains("is lost: "), "{outcome:?}");
}

/// An answer that takes minutes is awaited, but not from a host that is cut off meanwhile.
#[test]
fn a_lab_that_is_parted_from_an_agent_at_work_does_not_wait_for_its_answer() {
    let Some(hosts) = Hosts::join() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let never_ready = |text: String| text.replace("\"listening on\"", "\"never said\"");
    let own = contestant(folder.path(), "own", never_ready);
    let token = hosts::token_file(folder.path(), TOKEN);
    let agent = hosts.agent(folder.path(), &token, Some(&own));
    let mut lab = latency(hosts.lab(), folder.path(), &agent.url, "10");
    lab.args(["--contestants", "mine", "--contestant-folder"]);
    let lab = Running::start(lab.arg(&own).env("MOONWIRE_AGENT_TOKEN", TOKEN));
    await_that("the server starts", || {
        !hosts::left_in(folder.path()).is_empty()
    });
    hosts.part();
    let outcome = lab.finish();
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(outcome.stderr.contains("is lost: "), "{outcome:?}");
}

#[test]
fn an_agent_that_is_killed_takes_its_servers_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path());
    let lab = Running::start(&mut long(here(), folder.path(), &agent.url));
    await_that("a server runs", || hosts::left_in(folder.path()).len() == 1);
    signal(agent.id(), Signal::KILL);
    let outcome = lab.finish();
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    assert!(outcome.stderr.contains("is lost: "), "{outcome:?}");
    await_that("the server ended", || {
        hosts::left_in(folder.path()).is_empty()
    });
    // What was measured until then can be read all the same.
    for report in ["summary.txt", "report.md", "index.html"] {
        let report = folder.path().join("out").join(report);
        assert!(report.exists(), "{}", report.display());
    }
}

#[test]
fn servers_behind_a_proxy_come_back_at_an_agent_when_they_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path());
    let mut lab = here();
    lab.args([
        "reconnect-storm",
        "--contestants",
        "none",
        "--backends",
        "2",
    ]);
    lab.args(["--connections", "20", "--tls", "off", "--rounds", "1"]);
    lab.args(["--conn-concurrency", "20", "--reconnect", "50ms"]);
    lab.args(["--kill-after", "1500ms", "--down-for", "200ms"]);
    lab.args(["--duration", "4s", "--ceiling", "0s", "--agent", &agent.url]);
    lab.arg("--out").arg(folder.path().join("out"));
    let outcome = run(lab.arg("--json").arg(folder.path().join("run.json")));
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    let cell = &run_file(folder.path())["cells"][0];
    assert_eq!(cell["connects"]["reconnected"], 20, "{cell}");
    assert_eq!(cell["server"]["died"], Value::Null, "{cell}");
    assert_eq!(cell["distribution"].as_array().unwrap().len(), 2, "{cell}");
    let connections = &cell["distribution"][0]["connections"];
    assert!(connections.as_f64() > Some(0.0), "{cell}");
}

#[test]
fn the_files_of_contestants_are_those_of_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    // Both know a server of this name, and one has another comment in its file.
    let [here_folder, there_folder] = ["here", "there"].map(|place| {
        let change = |text: String| format!("{text}# {place}\n");
        contestant(folder.path(), place, change)
    });
    let mut command = moonwire();
    command.args(["lab", "agent", "--listen", "127.0.0.1:0"]);
    command.arg("--contestant-folder").arg(&there_folder);
    let agent = Server::start(command.env("TMPDIR", folder.path()));
    let sum = |lab: &mut Command, own: &Path| {
        lab.args(["--contestants", "mine", "--contestant-folder"]);
        let outcome = run(lab.arg(own));
        assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
        fs::remove_dir_all(folder.path().join("out")).unwrap();
        let files = &run_file(folder.path())["environment"]["contestant_files"];
        files["mine"].as_str().unwrap().to_owned()
    };
    let mut remote = latency(here(), folder.path(), &agent.url, "2");
    let remote = sum(&mut remote, &here_folder);
    let local = |own: &Path| {
        let mut lab = here();
        lab.args(["latency", "--connections", "1", "--batches", "1"]);
        lab.args(["--rounds", "1", "--ceiling", "0s", "--tls", "off", "--out"]);
        lab.arg(folder.path().join("out")).arg("--json");
        sum(lab.arg(folder.path().join("run.json")), own)
    };
    assert_eq!(remote, local(&there_folder));
    assert_ne!(remote, local(&here_folder));
}

#[test]
fn what_an_agent_does_not_do_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |command: &mut Command, part: &str| {
        let outcome = run(command);
        assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    };
    let listen = |address: &str| {
        let mut agent = moonwire();
        agent.args(["lab", "agent", "--listen", address]);
        agent
    };
    wrong(
        &mut listen("0.0.0.0:0"),
        "--token-file FILE, or listen on 127.0.0.1",
    );
    let weak = hosts::token_file(folder.path(), "short");
    wrong(
        listen("127.0.0.1:0").arg("--token-file").arg(&weak),
        "at least 16 bytes",
    );
    let token = hosts::token_file(folder.path(), TOKEN);
    let agent = Server::start(listen("127.0.0.1:0").arg("--token-file").arg(&token));
    let lab = || short(here(), folder.path(), &agent.url);
    wrong(&mut lab(), "it asks for its token");
    wrong(
        lab().env("MOONWIRE_AGENT_TOKEN", "0123456789abcdeX"),
        "another one",
    );
    wrong(
        lab().env("MOONWIRE_AGENT_TOKEN", "short"),
        "MOONWIRE_AGENT_TOKEN: a token has",
    );
    wrong(
        lab().args(["--link-delay", "5ms"]),
        "over the network that there is",
    );
    wrong(
        &mut short(here(), folder.path(), "127.0.0.1"),
        "give ADDR:PORT",
    );
    let mut nobody = short(here(), folder.path(), "127.0.0.1:1");
    wrong(&mut nobody, "there is no agent at 127.0.0.1:1");
    let mut alone = moonwire();
    alone
        .args(["lab", "latency", "--agent-token-file"])
        .arg(&token);
    wrong(&mut alone, "there is no agent: give 'agent', too");
    let own = folder.path().join("own/mine");
    fs::create_dir_all(&own).unwrap();
    fs::copy(
        root().join("lab/contestants/null-server/contestant.toml"),
        own.join("contestant.toml"),
    )
    .unwrap();
    let mut foreign = latency(here(), folder.path(), &agent.url, "10");
    foreign.env("MOONWIRE_AGENT_TOKEN", TOKEN);
    foreign.args(["--contestants", "mine", "--contestant-folder"]);
    // What the agent does not know by itself is not started by it.
    wrong(
        foreign.arg(own.parent().unwrap()),
        "there is no server 'mine' in the lab",
    );
    assert!(!folder.path().join("out").exists());
}

#[test]
fn whoever_says_anything_else_is_not_let_in() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path());
    let say = |words: &[u8]| {
        let mut stream = TcpStream::connect(&agent.url).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(words).unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    };
    assert!(say(b"GET / HTTP/1.1\r\n\r\n").contains("not understood"));
    assert!(say(b"{\"request\":\"start\"}\n").contains("refused"));
    let stranger = say(b"{\"request\":\"hello\",\"version\":9}\n");
    assert!(
        stranger.contains("run the same moonwire on both hosts"),
        "{stranger}"
    );
    assert!(say(&[b'x'; 5000]).contains("longer than 4096 bytes"));
    assert!(agent.terminate().success());
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
