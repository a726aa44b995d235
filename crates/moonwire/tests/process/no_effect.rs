//! Options that change nothing beside others: a line says so.

use std::fs;

use crate::harness::{Server, moonwire, run};

#[test]
fn authorities_without_a_url_of_tls_are_not_used() {
    let sentence = "--cacert is not used: no URL is a wss:// one\n";
    let server = Server::moonwire(&[]);
    let url = format!("{}/echo", server.url);
    for (quiet, is_said) in [(&[][..], true), (&["--quiet"], false)] {
        let mut load = moonwire();
        load.args(["load", &url, "-c", "1", "-n", "1", "--cacert", "/nowhere"]);
        let outcome = run(load.args(quiet));
        assert!(matches!(outcome.code, Some(0 | 98)), "{outcome:?}");
        assert_eq!(outcome.stderr.contains(sentence), is_said, "{outcome:?}");
    }
}

#[test]
fn an_address_without_workers_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let tick = "return { init = function() end, run = function() end }";
    fs::write(folder.path().join("tick.lua"), tick).unwrap();
    let file = folder.path().join("moonwire.toml");
    fs::write(&file, "[services.tick]\nfolder = '.'\nstandalone = true\n").unwrap();
    for (workers, said) in [
        (
            "0",
            "--listen is not used: with workers = 0 nobody can connect\n",
        ),
        ("1", ""),
    ] {
        let mut serve = moonwire();
        serve.args(["serve", "--check", "--listen", "127.0.0.1:0", "--workers"]);
        let outcome = run(serve.arg(workers).arg("--config").arg(&file));
        assert_eq!(
            (outcome.code, &*outcome.stderr),
            (Some(0), said),
            "{outcome:?}"
        );
    }
}
