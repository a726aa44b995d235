//! Requests that do not become connections.

use crate::client::Client;
use crate::fixture::{Fixture, Folder};

#[test]
fn an_unknown_path_is_404_and_the_server_goes_on() {
    let server = Fixture::shipped();
    let mut before = server.connect("/echo");
    for target in ["/nothing", "/echo/", "/ECHO", "/"] {
        let refused = Client::upgrade(server.address, target, "").map(|(_, head)| head);
        assert_eq!(refused.unwrap_err().status, 404, "{target}");
        assert_eq!(Client::get(server.address, target).status, 404, "{target}");
    }
    assert_eq!(before.ask("still here").text(), "still here");
    assert_eq!(
        server.metric("moonwire_handshake_failures_total", "reason=\"not_found\""),
        8
    );
}

#[test]
fn a_plain_get_of_a_service_is_426() {
    let server = Fixture::shipped();
    let response = Client::get(server.address, "/echo");
    assert_eq!(response.status, 426);
    assert!(
        response
            .head
            .to_lowercase()
            .contains("\r\nupgrade: websocket\r\n"),
        "{response:?}"
    );
    assert!(
        response.head.contains("Sec-WebSocket-Version: 13\r\n"),
        "{response:?}"
    );
}

#[test]
fn an_offer_of_compression_is_taken_only_by_who_has_it_turned_on() {
    let server = Folder::new(
        "[services.echo]\ntarget = '/echo'\n[services.echo.deflate]\n\
         [services.amplify]\ntarget = '/amplify'\n",
    )
    .start();
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    for (target, fields, is_taken) in [
        ("/echo", offer, true),
        ("/echo", "", false),
        ("/amplify", offer, false),
    ] {
        let (_, head) = Client::upgrade(server.address, target, fields).unwrap();
        let has_field = head.contains("Sec-WebSocket-Extensions: permessage-deflate");
        assert_eq!(has_field, is_taken, "{target}: {head}");
    }
}

#[test]
fn health_is_200() {
    let server = Fixture::shipped();
    let response = Client::get(server.address, "/health");
    assert_eq!((response.status, response.body.trim()), (200, "ok"));
}

#[test]
fn nonsense_is_400_and_too_much_is_431() {
    let server = Fixture::shipped();
    let mut client = Client::open(server.address);
    client.write(b"GET /echo HTTP/1.1\r\nwhat is a host\r\n\r\n");
    assert!(client.status_line().starts_with("HTTP/1.1 400"), "nonsense");
    let huge = format!("X-Filler: {}\r\n", "x".repeat(20_000));
    let refused = Client::upgrade(server.address, "/echo", &huge).map(|(_, head)| head);
    assert_eq!(refused.unwrap_err().status, 431);
    let failures = server.metric(
        "moonwire_handshake_failures_total",
        "reason=\"bad_request\"",
    );
    assert_eq!(failures, 2);
}

#[test]
fn metrics_count_what_happened() {
    let server = Fixture::shipped();
    let mut client = server.connect("/echo");
    for _ in 0..10 {
        client.ask("five!");
    }
    for (name, value) in [
        ("moonwire_connected", 1),
        ("moonwire_connections_total", 1),
        ("moonwire_messages_in_total", 10),
        ("moonwire_messages_out_total", 10),
        ("moonwire_bytes_in_total", 50),
        ("moonwire_bytes_out_total", 50),
        ("moonwire_write_queue_bytes", 0),
    ] {
        assert_eq!(server.metric(name, "service=\"echo\""), value, "{name}");
        assert_eq!(server.metric(name, "service=\"amplify\""), 0, "{name}");
    }
    client.close();
    server.await_metric("moonwire_connected", "service=\"echo\"", 0);
    assert_eq!(
        server.metric("moonwire_connections_total", "service=\"echo\""),
        1
    );
    let table = server.stop();
    let all: Vec<_> = table
        .lines()
        .find(|line| line.starts_with("all"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(
        all,
        ["all", "0", "1", "10", "10", "50", "50", "0"],
        "{table}"
    );
}

#[test]
fn a_full_worker_says_503() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nconnections_per_worker_max = 2\n\
         [services.echo]\ntarget = '/echo'\n",
    )
    .start();
    let (mut first, second) = (server.connect("/echo"), server.connect("/echo"));
    let refused = Client::upgrade(server.address, "/echo", "")
        .map(|(_, head)| head)
        .unwrap_err();
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("Retry-After: 1\r\n"), "{refused:?}");
    assert_eq!(first.ask("undisturbed").text(), "undisturbed");
    second.close();
    server.await_metric("moonwire_connected", "echo", 1);
    assert_eq!(
        server.connect("/echo").ask("a place is free").text(),
        "a place is free"
    );
}

#[test]
fn a_handshake_that_takes_too_long_is_ended() {
    let server =
        Folder::new("[limits]\nhandshake_timeout_ms = 50\n[services.echo]\ntarget = '/echo'\n")
            .start();
    let mut client = Client::open(server.address);
    client.write(b"GET /echo HTTP/1.1\r\n");
    assert_eq!(client.status_line(), "HTTP/1.1 408 Request Timeout");
    // One that has said nothing is told nothing.
    let mut silent = Client::open(server.address);
    assert!(!silent.is_alive());
    server.await_metric("moonwire_handshake_failures_total", "reason=\"timeout\"", 2);
}

/// RFC 9110, 9.3.2: the same head as for GET, and nothing behind it.
#[test]
fn head_is_get_without_the_body() {
    let server = Fixture::shipped();
    for (target, status, length) in [
        ("/health", 200, "3"),
        ("/nothing", 404, "16"),
        ("/echo", 426, "28"),
    ] {
        let response = Client::request(server.address, "HEAD", target);
        assert_eq!(response.status, status, "{target}");
        let length = format!("\r\nContent-Length: {length}\r\n");
        assert!(response.head.contains(&length), "{}", response.head);
        assert_eq!(response.body, "", "{target}");
    }
}

/// The global list before the one of the service; both are answered before the upgrade.
#[test]
fn an_address_that_may_not_connect_is_answered_403() {
    for (tables, target, is_admitted) in [
        ("", "/echo", true),
        ("[server.acl]\npolicy = 'deny'\n", "/echo", false),
        (
            "[server.acl]\npolicy = 'deny'\nexclude = ['127.0.0.1']\n",
            "/echo",
            true,
        ),
        (
            "[server.acl]\nexclude = ['127.0.0.0/8', '::1']\n",
            "/echo",
            false,
        ),
        ("", "/private", false),
        ("", "/ours", true),
    ] {
        let server = Folder::new(&format!(
            "{tables}[services.echo]\ntarget = '/echo'\n\
             [services.private]\ntarget = '/private'\nfolder = 'apps/private'\n\
             acl = {{ policy = 'deny' }}\n\
             [services.ours]\ntarget = '/ours'\nfolder = 'apps/ours'\n\
             acl = {{ policy = 'deny', exclude = ['127.0.0.0/8'] }}\n"
        ))
        .app("private", SILENT)
        .app("ours", SILENT)
        .start();
        let mut client = Client::open(server.address);
        client.write(
            format!(
                "GET {target} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Version: 13\r\n\r\n"
            )
            .as_bytes(),
        );
        let status = if is_admitted { " 101 " } else { " 403 " };
        let line = client.status_line();
        assert!(line.contains(status), "{tables}{target}: {line}");
    }
}

const SILENT: &str = "return {
    onStart = function() end, onShutdown = function() end,
    onMessage = function() return true end, onDisconnect = function() end,
}";
