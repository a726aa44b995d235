//! How connections come about, and what goes over them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use moonwire_net::SessionLimits;
use socket2::{Domain, Socket, Type};

use super::super::session_limits;
use super::peer::{Manner, RawPeer};
use super::{Outgoing, Peer, logged, run, run_with};
use crate::config::OutgoingTls;

/// Order of arguments, bytes, handlers.
fn echo(url: &str) -> String {
    format!(
        "local sent = {{
          {{ 'Gr\u{fc}\u{df}e', 1 }}, {{ 'a\\0b\\255', 2 }}, {{ '', 1 }}, {{ '', 2 }}, {{ 7, 1 }},
          {{ ('x'):rep(1048576), 2 }},
        }}
        local got, opened = 0, nil
        local function say() return cws:send(opened, sent[got + 1][1], sent[got + 1][2]) end
        local socket, problem = cws:new('{url}', {{
          onopen = function(handler, ...)
            assert(type(handler) == 'number' and tonumber(tostring(handler)) == handler)
            assert(select('#', ...) == 0)
            opened = handler
            assert(say() == true)
          end,
          onmessage = function(handler, data, opcode)
            assert(handler == opened)
            got = got + 1
            assert(data == tostring(sent[got][1]) and opcode == sent[got][2], got)
            if sent[got + 1] then assert(say() == true) end
          end,
          onerror = function(handler, text) error(text) end,
        }})
        assert(type(socket) == 'userdata', problem)
        loop(function() return got == #sent end)
        assert(select('#', cws:eventLoop()) == 0)
        assert(select('#', socket:close()) == 0)
        socket:close()
        local ok, text = cws:send(opened, 'x', 1)
        assert(ok == false and text:find('no live connection', 1, true), text)"
    )
}

#[test]
fn messages_go_and_come_over_ws() {
    let peer = Peer::start("return true");
    let log = logged(|| run(&echo(&peer.url("echo"))));
    assert_eq!(log, "");
}

#[test]
fn messages_go_and_come_over_wss() {
    let peer = Peer::start_with("[tls]\ndev = true", "127.0.0.1:0", "return true");
    let outgoing = Outgoing::new(&peer.trusted()).unwrap();
    // The name, too, which may stand for another address first.
    let url = peer.url("echo").replace("127.0.0.1", "localhost");
    let log = logged(|| run_with(outgoing, &echo(&url)));
    assert_eq!(log, "");
}

#[test]
fn an_address_of_ipv6_is_written_in_brackets() {
    let peer = Peer::start_with("", "[::1]:0", "return true");
    assert!(peer.url("echo").starts_with("ws://[::1]:"));
    run(&echo(&peer.url("echo")));
}

#[test]
fn what_cannot_be_connected_is_nil_and_a_text() {
    // Bound, so that nobody else takes it, and nobody listens.
    let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    closed
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let closed_addr = closed.local_addr().unwrap().as_socket().unwrap();
    run(&format!(
        "local function refused(text, ...)
          local socket, problem = cws:new(...)
          assert(socket == nil and problem:find(text, 1, true), problem)
        end
        refused('cannot connect to {closed_addr}: Connection refused', 'ws://{closed_addr}/', {{}})
        refused('`http://h/` does not start with ws:// or wss://', 'http://h/', {{}})
        refused('`ws://h/#f` has a fragment', 'ws://h/#f', {{}})
        refused('`ws://h/\u{fc}` holds a character', 'ws://h/\u{fc}', {{}})
        refused('uri must be a string, not a nil', nil, {{}})
        refused('callbacks must be a table, not a nil', 'ws://h/')
        refused('onopen must be a function, not a string', 'ws://h/', {{ onopen = 'f' }})
        for _, call in ipairs({{ 'new', 'send', 'eventLoop' }}) do
          local ok, problem = pcall(cws[call], 'ws://h/', {{}})
          assert(not ok and problem:find('with a colon', 1, true), problem)
        end
        cws:eventLoop()"
    ));
}

#[test]
fn what_cannot_be_sent_is_false_and_a_text() {
    let peer = Peer::start("return true");
    run(&format!(
        "local function refused(text, ...)
          local ok, problem = cws:send(...)
          assert(ok == false and problem:find(text, 1, true), problem)
        end
        refused('no live connection', 1, 'x', 1)
        local opened
        local socket = cws:new('{}', {{
          onopen = function(handler) opened = handler end,
          onmessage = function(handler) opened = nil end,
        }})
        loop(function() return opened end)
        local handler = opened
        refused('handler must be a number, not a nil', nil, 'x', 1)
        refused('no live connection', 0/0, 'x', 1)
        refused('no live connection', handler + 1, 'x', 1)
        refused('data must be a string or a number, not a table', handler, {{}}, 1)
        refused('opcode must be 1 (text) or 2 (binary)', handler, 'x', 8)
        refused('opcode must be 1 (text) or 2 (binary)', handler, 'x')
        refused('must be UTF-8', handler, '\\255', 1)
        local ok, problem = pcall(socket.close, 7)
        assert(not ok and problem:find('with a colon', 1, true), problem)
        -- LAppS takes numbers as strings, too.
        assert(cws:send(tostring(handler), 'x', '2') == true)
        loop(function() return not opened end)",
        peer.url("echo")
    ));
}

#[test]
fn nothing_is_sent_before_the_connection_is_open() {
    let peer = RawPeer::start(Manner::Listen(b"\x81\x02hi"));
    let url = peer.url.clone();
    run(&format!(
        "local early, text, opened
        local first = cws:new('{url}', {{
          onopen = function(handler) opened = handler end,
          onmessage = function(handler, data) text = data end,
        }})
        -- Handlers count up, so that of the only connection is known before it is told.
        early, text = cws:send(2^46, 'x', 1)
        assert(early == false and text:find('not open before onopen', 1, true), text)
        loop(function() return text == 'hi' end)
        assert(opened == 2^46)
        first:close()"
    ));
    let (head, _) = peer.finish();
    let authority = url
        .strip_prefix("ws://")
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    for line in [
        "GET /raw?token=1 HTTP/1.1".to_owned(),
        format!("Host: {authority}"),
        format!("Origin: http://{authority}"),
        concat!("User-Agent: moonwire/", env!("CARGO_PKG_VERSION")).to_owned(),
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
}

#[test]
fn an_upgrade_that_is_refused_is_an_error() {
    let peer = Peer::start("return true");
    run(&format!(
        "local problem
        local socket = cws:new('{}', {{
          onopen = function() problem = 'open' end,
          onerror = function(handler, text) problem = text end,
          onclose = function() problem = 'closed' end,
        }})
        loop(function() return problem end)
        assert(problem == 'the server answered 404 instead of an upgrade', problem)
        cws:eventLoop()
        assert(problem:find('404', 1, true), problem)",
        peer.url("nowhere")
    ));
}

#[test]
fn a_handshake_takes_only_so_long() {
    let peer = RawPeer::start(Manner::Silent);
    let outgoing = Outgoing {
        limits: Arc::new(SessionLimits {
            handshake_timeout: Duration::from_millis(20),
            ..session_limits()
        }),
        ..Outgoing::default()
    };
    run_with(
        outgoing,
        &format!(
            "local problem
            local socket = cws:new('{}', {{ onerror = function(h, text) problem = text end }})
            loop(function() return problem end)
            assert(problem == 'the handshake took too long', problem)",
            peer.url
        ),
    );
    peer.finish();
}

#[test]
fn an_instance_has_only_so_many_connections() {
    let peer = Peer::start("return true");
    let outgoing = Outgoing {
        connections_max: 2,
        ..Outgoing::default()
    };
    run_with(
        outgoing,
        &format!(
            "local url = '{}'
            local sockets = {{ cws:new(url, {{}}), cws:new(url, {{}}) }}
            assert(#sockets == 2)
            local none, problem = cws:new(url, {{}})
            assert(none == nil and problem:find('there are 2 connections', 1, true), problem)
            sockets[1]:close()
            assert(cws:new(url, {{}}))",
            peer.url("echo")
        ),
    );
}

fn wss_ends_with(peer: &Peer, tls: &OutgoingTls, problem: &str) -> String {
    let outgoing = Outgoing::new(tls).unwrap();
    let url = peer.url("echo");
    let code = format!(
        "for _ = 1, 2 do
          local problem
          local socket = assert(cws:new('{url}', {{
            onopen = function() problem = 'open' end,
            onerror = function(h, text) problem = text end,
          }}))
          loop(function() return problem end)
          assert(problem:find('{problem}', 1, true), problem)
        end"
    );
    logged(|| run_with(outgoing, &code))
}

#[test]
fn a_server_is_held_to_its_name_and_to_an_authority() {
    let peer = Peer::start_with("[tls]\ndev = true", "127.0.0.2:0", "return true");
    let trusted = peer.trusted();
    let log = wss_ends_with(&peer, &trusted, "it is not for 127.0.0.2 but for localhost");
    assert_eq!(log, "");
    let stranger = Peer::start_with("[tls]\ndev = true", "127.0.0.1:0", "return true");
    let lenient = |trusted: OutgoingTls| OutgoingTls {
        verify_loopback_name: false,
        ..trusted
    };
    for tls in [stranger.trusted(), lenient(stranger.trusted())] {
        wss_ends_with(&peer, &tls, "certificate was not accepted");
    }
    // Of two connections, one warns.
    let log = wss_ends_with(&peer, &lenient(trusted), "open");
    let warning = "does not check the name in the certificate of 127.0.0.2";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn an_authority_that_cannot_be_read_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("empty.pem");
    std::fs::write(&ca, "").unwrap();
    let tls = OutgoingTls {
        ca: Some(ca),
        ..OutgoingTls::default()
    };
    let error = Outgoing::new(&tls).unwrap_err().to_string();
    assert!(
        error.contains("empty.pem: there is no certificate in it"),
        "{error}"
    );
}
