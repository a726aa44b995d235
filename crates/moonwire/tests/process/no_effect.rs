//! Options that change nothing beside others: a line says so.

use std::fs;

use crate::harness::{Server, moonwire, run};

#[test]
fn trust_without_a_url_of_tls_is_not_used() {
    let server = Server::moonwire(&[]);
    let url = format!("{}/echo", server.url);
    for (trust, flag) in [
        (&["--cacert", "/nowhere"][..], "--cacert"),
        (&["-k"], "--insecure"),
    ] {
        let sentence = format!("{flag} is not used: no URL is a wss:// one\n");
        for (quiet, is_said) in [(&[][..], true), (&["--quiet"], false)] {
            let mut load = moonwire();
            load.args(["load", &url, "-c", "1", "-n", "1"]);
            let outcome = run(load.args(trust).args(quiet));
            assert!(matches!(outcome.code, Some(0 | 98)), "{outcome:?}");
            assert_eq!(outcome.stderr.contains(&sentence), is_said, "{outcome:?}");
        }
    }
}

#[test]
fn nor_is_it_in_a_bench() {
    // Nobody listens there, which is known once the line is said.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    for (scheme, is_said) in [("ws", true), ("wss", false)] {
        let mut bench = moonwire();
        bench.args(["bench", "-k", "--clients", "1", "--batches", "1"]);
        bench.args(["--url", &format!("{scheme}://{address}/")]);
        let outcome = run(bench.arg("--out").arg(folder.path().join(scheme)));
        let sentence = "--insecure is not used: no URL is a wss:// one\n";
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

#[test]
fn an_address_in_a_file_without_workers_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let tick = "return { init = function() end, run = function() end }";
    fs::write(folder.path().join("tick.lua"), tick).unwrap();
    let file = folder.path().join("moonwire.toml");
    let service = "[services.tick]\nfolder = '.'\nstandalone = true\n";
    let listen = "listen = '127.0.0.1:0'\n";
    let sentence = format!(
        "{}:3: `listen` is not used: with workers = 0 nobody can connect\n",
        file.display()
    );
    for (keys, said) in [
        (format!("workers = 0\n{listen}"), &*sentence),
        ("workers = 0\n".to_owned(), ""),
        (format!("workers = 1\n{listen}"), ""),
    ] {
        fs::write(&file, format!("[server]\n{keys}{service}")).unwrap();
        let mut serve = moonwire();
        let outcome = run(serve.args(["serve", "--check", "--config"]).arg(&file));
        assert_eq!(
            (outcome.code, &*outcome.stderr),
            (Some(0), said),
            "{outcome:?}"
        );
    }
}
