//! Process tests with peers that nobody here wrote; `cargo xtask peers` installs them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::{Server, root, run};

#[path = "../harness/mod.rs"]
#[allow(
    dead_code,
    reason = "shared with the process tests, which use all of it"
)]
mod harness;

mod lab;
mod nginx;
mod tls;

#[test]
fn a_python_client_echoes() {
    python(&Server::moonwire(&[]));
}

#[test]
fn a_python_client_echoes_over_tls() {
    python(&Server::moonwire(&["--dev-tls"]));
}

#[test]
fn a_page_echoes() {
    page(&Server::moonwire(&[]));
}

#[test]
fn a_page_echoes_over_tls() {
    page(&Server::moonwire(&["--dev-tls"]));
}

#[test]
fn the_generator_loses_nothing_against_ws() {
    let server = Server::start(&mut node("server.js"));
    harness::load::assert_no_loss(&server.url);
}

#[test]
fn the_generator_loses_nothing_against_ws_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = harness::certificate::write(folder.path());
    let server = Server::start(node("server.js").arg(certificate).arg(key));
    assert!(server.url.starts_with("wss:"), "{}", server.url);
    harness::load::assert_no_loss(&server.url);
}

#[test]
fn chromium_exchanges_compressed_messages() {
    browser("chromium");
}

#[test]
fn firefox_exchanges_compressed_messages() {
    browser("firefox-esr");
}

#[test]
fn a_python_client_speaks_the_lapps_protocol() {
    let server = echo_lapps();
    let mut client = Command::new(installed("python/bin/python"));
    client.arg(script("lapps_client.py"));
    let counts = counts(client.arg(lapps_url(&server)).arg("3"));
    assert!(counts["requests"].as_u64() > Some(3), "{counts}");
    assert!(counts["heard"].as_u64() >= Some(3), "{counts}");
}

/// Point 52 of the compatibility with LAppS; `cargo xtask acceptance lapps-client` has a minute of
/// it.
#[test]
fn the_page_of_echo_lapps_logs_in_echoes_and_subscribes() {
    let server = echo_lapps();
    let page = root().join("apps/echo_lapps/index.html");
    let mut browser = node("lapps_page.js");
    browser.arg(lapps_url(&server)).arg(page).arg("3");
    let counts = counts(&mut browser);
    assert!(counts["requests"].as_u64() > Some(3), "{counts}");
    assert!(counts["heard"].as_u64() >= Some(3), "{counts}");
}

fn echo_lapps() -> Server {
    Server::moonwire(&["--config", "apps/echo_lapps/moonwire.toml"])
}

fn lapps_url(server: &Server) -> String {
    format!("{}/echo_lapps", server.url)
}

/// What a client counted, which it prints when all was as it must be.
fn counts(client: &mut Command) -> serde_json::Value {
    let outcome = run(client);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// 10,000 messages; the shipped echo compresses with whom it can.
fn browser(name: &str) {
    let server = Server::moonwire(&[]);
    let url = format!("{}/echo", server.url);
    let outcome = run(node("browser.js").args([name, &url, "10000"]));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("10000 of 10000"), "{outcome:?}");
}

fn python(server: &Server) {
    let program = installed("python/bin/python");
    client(Command::new(program).arg(script("client.py")), server);
}

fn page(server: &Server) {
    client(&mut node("page.js"), server);
}

/// Runs a client to its end; it says itself what went wrong.
fn client(command: &mut Command, server: &Server) {
    let outcome = run(command.arg(format!("{}/echo", server.url)));
    assert_eq!(
        outcome.code,
        Some(0),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
}

/// A script of ours, run by node with the installed packages; ends when its standard input does.
fn node(name: &str) -> Command {
    let mut command = Command::new("node");
    command
        .arg(script(name))
        .env("NODE_PATH", installed("node/node_modules"));
    command.stdin(Stdio::piped());
    command
}

fn script(name: &str) -> PathBuf {
    root().join("crates/moonwire/tests/peers").join(name)
}

fn installed(path: &str) -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = target
        .parent()
        .expect("tmp is in the target folder")
        .join("peers")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask peers`",
        path.display()
    );
    path
}
