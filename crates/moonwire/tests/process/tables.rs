//! More connections than one table of descriptors holds.

use std::process::Command;

use crate::harness::{Server, moonwire, run};

/// `moonwire serve` under a limit that is not this process's: so many files leave each worker 200
/// connections beside what it holds in reserve.
fn limited(arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 700 && exec \"$0\" \"$@\""]);
    shell.arg(env!("CARGO_BIN_EXE_moonwire"));
    shell.args(["serve", "--listen", "127.0.0.1:0"]);
    shell.args(arguments);
    shell
}

/// All of them at once, each with a few messages.
fn load(server: &Server, connections: &str) {
    let mut load = moonwire();
    load.args(["load", &format!("{}/echo", server.url), "-c", connections]);
    load.args(["--batch", "1", "--batches", "3", "--wait", "100ms"]);
    let outcome = run(load.args(["--json", "-"]));
    // 98 is said of latencies where the machine is busy; what counts here is in the counts.
    assert!(matches!(outcome.code, Some(0 | 98)), "{outcome:?}");
    let run: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let connections: u64 = connections.parse().unwrap();
    assert_eq!(run["connects"]["ok"], connections, "{}", run["connects"]);
    let messages = &run["messages"];
    let counts = ["received", "lost", "corrupt"].map(|name| messages[name].as_u64());
    assert_eq!(counts, [Some(3 * connections), Some(0), Some(0)]);
}

#[test]
fn each_worker_has_a_table_where_one_is_too_small() {
    for driver in ["epoll", "auto"] {
        let server = Server::start(&mut limited(&["--connections", "1000", "--driver", driver]));
        // More than one table holds, all of them open before the first message.
        load(&server, "900");
    }
}

#[test]
fn connections_go_from_one_table_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("moonwire.toml");
    let service = "[services.echo]\ntarget = '/echo'\ninstances = 1\n";
    std::fs::write(&file, service).unwrap();
    for driver in ["epoll", "auto"] {
        let file = file.to_str().unwrap();
        let arguments = ["--config", file, "--connections", "500", "--driver", driver];
        let server = Server::start(&mut limited(&arguments));
        load(&server, "300");
        // Two of three were accepted by a worker that has no instance.
        assert!(server.gauge("moonwire_handed_over_total") > 50);
    }
}

#[test]
fn workers_that_cannot_hold_the_connections_are_refused() {
    let outcome = run(&mut limited(&["--connections", "1000", "--workers", "4"]));
    assert_eq!(outcome.code, Some(104), "{outcome:?}");
    let sentence = "1000 connections take 5 workers";
    assert!(outcome.stderr.contains(sentence), "{outcome:?}");
}
