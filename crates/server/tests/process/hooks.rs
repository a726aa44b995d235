//! `onHandshake`: who comes in, and what the others are told.

use moonwire_server::Server;

use crate::client::{Client, Response, TEXT};
use crate::fixture::{Fixture, Folder};

fn start(table: &str) -> Fixture {
    Folder::new(&format!(
        "[server]\nworkers = 1\n[services.door]\ntarget = '/door'\ncallback_timeout_ms = 50\n\
         extra_headers = {{ X-Served-By = 'moonwire' }}\n{table}"
    ))
    .app("door", DOOR)
    .start()
}

fn ask(server: &Fixture, how: &str, headers: &str) -> Result<(Client, String), Response> {
    Client::upgrade(server.address, &format!("/door?{how}"), headers)
}

fn refused(server: &Fixture, how: &str, headers: &str) -> Response {
    ask(server, how, headers).map(|(_, head)| head).unwrap_err()
}

/// What the service knows: how often its functions were called.
fn counts(client: &mut Client) -> String {
    client.ask("counts").text().to_owned()
}

#[test]
fn cookies_decide_and_are_set() {
    for table in ["", "sandbox = 'restricted'\n"] {
        let server = start(table);
        let stranger = refused(&server, "cookie", "");
        assert_eq!(stranger.status, 401);
        assert_eq!(stranger.body, "log in first");
        for part in [
            "HTTP/1.1 401 Who Are You\r\n",
            "\r\nWWW-Authenticate: Cookie\r\n",
            "\r\nContent-Length: 12\r\n",
            "\r\nConnection: close\r\n",
        ] {
            assert!(stranger.head.contains(part), "{}", stranger.head);
        }
        assert!(!stranger.head.contains("X-Served-By"), "{}", stranger.head);
        let known = "Cookie: theme=dark; session=\"letmein\"\r\n";
        let (mut client, head) = ask(&server, "cookie", known).unwrap();
        for part in [
            "\r\nset-cookie: seen=1; HttpOnly\r\nset-cookie: from=127.0.0.1\r\n",
            "\r\nX-Served-By: moonwire\r\n",
        ] {
            assert!(head.contains(part), "{head}");
        }
        assert_eq!(counts(&mut client), "handshakes 2, gone 0");
        assert_eq!(
            server.metric("moonwire_handshake_failures_total", "reason=\"refused\""),
            1
        );
        assert_eq!(server.metric("moonwire_connections_total", "door"), 1);
        client.close();
        let (mut last, _) = ask(&server, "", "").unwrap();
        assert_eq!(counts(&mut last), "handshakes 3, gone 1");
    }
}

#[test]
fn a_subprotocol_is_chosen_of_those_that_are_offered() {
    let server = start("subprotocol = 'v1'\n");
    let offer = "Sec-WebSocket-Protocol: v1, v2\r\n";
    for (how, headers, expected) in [
        ("second", offer, Some("v2")),
        ("", offer, Some("v1")),
        ("second", "Sec-WebSocket-Protocol: v1\r\n", Some("v1")),
        ("", "", None),
    ] {
        let (_, head) = ask(&server, how, headers).unwrap();
        let chosen = head
            .lines()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
        assert_eq!(chosen, expected, "{how} {headers}");
    }
    assert_eq!(refused(&server, "foreign", offer).status, 500);
}

/// An error, a loop, and answers that would be something else than they seem.
#[test]
fn a_hook_that_fails_lets_nobody_in_and_harms_nobody() {
    let server = start("");
    let (mut neighbour, _) = ask(&server, "", "").unwrap();
    for (failed, (how, status)) in (1..).zip([
        ("error", 500),
        ("loop", 503),
        ("false", 500),
        ("accepted", 500),
        ("inject", 500),
        ("inject-name", 500),
        ("inject-reason", 500),
        ("upgrade", 500),
    ]) {
        let response = refused(&server, how, "");
        assert_eq!((response.status, &*response.body), (status, ""), "{how}");
        assert!(!response.head.to_lowercase().contains("injected"), "{how}");
        assert_eq!(neighbour.ask(how).text(), how);
        let count = server.metric("moonwire_handshake_failures_total", "\"hook_failed\"");
        assert_eq!(count, failed, "{how}");
    }
    assert_eq!(counts(&mut neighbour), "handshakes 9, gone 0");
    // Nothing is left of those that were refused.
    assert_eq!(server.metric("moonwire_connected", "door"), 1);
    assert_eq!(server.metric("moonwire_failures_total", "door"), 0);
    neighbour.close();
}

#[test]
fn an_instance_that_runs_out_of_memory_is_replaced_and_asks_again() {
    let server = start("memory_bytes_max = 8_000_000\n");
    let (mut neighbour, _) = ask(&server, "", "").unwrap();
    assert_eq!(refused(&server, "hoard", "").status, 500);
    assert_eq!(neighbour.receive().code(), 1011);
    let (mut client, _) = ask(&server, "", "").unwrap();
    assert_eq!(counts(&mut client), "handshakes 1, gone 0");
    assert_eq!(refused(&server, "cookie", "").status, 401);
}

#[test]
fn only_upgrades_that_are_let_through_come_to_it() {
    let server = start("");
    for method in ["GET", "HEAD"] {
        let response = Client::request(server.address, method, "/door?cookie");
        assert_eq!(response.status, 426, "{method}");
    }
    let cross_site = refused(
        &server,
        "",
        "Cookie: a=b\r\nOrigin: https://evil.example\r\n",
    );
    assert_eq!(cross_site.status, 403);
    let (mut client, _) = ask(&server, "", "").unwrap();
    assert_eq!(counts(&mut client), "handshakes 1, gone 0");
    let server = start("acl = { policy = 'deny' }\n");
    assert_eq!(refused(&server, "cookie", "").status, 403);
}

/// It may tell those who are there; the one that knocks has no handler yet.
#[test]
fn it_may_send_to_others() {
    let server = start("");
    let (mut host, _) = ask(&server, "", "").unwrap();
    assert_eq!(host.ask("host").text(), "host");
    assert_eq!(refused(&server, "knock", "").status, 404);
    assert_eq!(host.receive().text(), "somebody knocks");
}

#[test]
fn connections_from_other_workers_are_asked_where_the_instance_is() {
    let server =
        Folder::new("[server]\nworkers = 2\n[services.door]\ntarget = '/door'\ninstances = 1\n")
            .app("door", DOOR)
            .start();
    for round in 0..20 {
        assert_eq!(refused(&server, "cookie", "").status, 401, "{round}");
        assert!(ask(&server, "cookie", "Cookie: session=letmein\r\n").is_ok());
    }
    assert!(server.metric("moonwire_handed_over_total", "worker") > 0);
    let (mut last, _) = ask(&server, "", "").unwrap();
    assert!(counts(&mut last).starts_with("handshakes 41, "));
}

#[test]
fn services_of_the_lapps_protocol_have_it() {
    let server = start("protocol = 'lapps'\n");
    assert_eq!(refused(&server, "cookie", "").status, 401);
    assert!(ask(&server, "cookie", "Cookie: session=letmein\r\n").is_ok());
}

#[test]
fn a_threaded_service_with_it_does_not_start() {
    let folder = Folder::new(
        "[server]\nworkers = 1\n[services.door]\ntarget = '/door'\nexecution = 'threaded'\n",
    )
    .app("door", DOOR);
    let sentence = "service \"door\": it has onHandshake, for which its execution must be \
                    \"inline\"";
    for error in [
        Server::check(&folder.load().unwrap()).err().unwrap(),
        Server::start(folder.load().unwrap()).err().unwrap(),
    ] {
        assert!(error.to_string().contains(sentence), "{error}");
    }
}

/// Nobody comes in because the service was another one when it was first loaded.
#[test]
fn a_replaced_instance_is_asked_if_its_file_has_it_now() {
    let before = DOOR.replace("function door.onHandshake", "local function unused");
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.door]\ntarget = '/door'\nmemory_bytes_max = 8_000_000\n",
    )
    .app("door", &before)
    .start();
    let (mut client, _) = ask(&server, "cookie", "").unwrap();
    let file = server.folder.path().join("apps/door/door.lua");
    std::fs::write(file, DOOR).unwrap();
    client.send(TEXT, b"hoard");
    assert_eq!(client.receive().code(), 1011);
    assert_eq!(refused(&server, "cookie", "").status, 401);
}

#[test]
fn on_start_may_make_it() {
    let later = DOOR
        .replace("function door.onHandshake", "local function later")
        .replace("onStart() end", "onStart() door.onHandshake = later end");
    let server = Folder::new("[server]\nworkers = 1\n[services.door]\ntarget = '/door'\n")
        .app("door", &later)
        .start();
    assert_eq!(refused(&server, "cookie", "").status, 401);
}

/// A service may have such a function for itself, as those of LAppS may.
#[test]
fn one_that_is_not_to_be_asked_is_not_called() {
    for execution in ["inline", "threaded"] {
        let server = start(&format!(
            "handshake_hook = false\ninstances = 1\nexecution = '{execution}'\n"
        ));
        let (mut stranger, _) = ask(&server, "cookie", "").unwrap();
        assert_eq!(counts(&mut stranger), "handshakes 0, gone 0");
    }
}

const DOOR: &str = r#"
local door = {}
local handshakes, gone, host = 0, 0, nil

local ways = {
  cookie = function(request)
    if request.cookies.session ~= 'letmein' then
      return {
        status = 401, reason = 'Who Are You', body = 'log in first',
        headers = { ['WWW-Authenticate'] = 'Cookie' },
      }
    end
    local from = 'from=' .. request.remote_address
    return { headers = { ['set-cookie'] = { 'seen=1; HttpOnly', from } } }
  end,
  second = function(request) return { subprotocol = request.subprotocols[2] } end,
  foreign = function() return { subprotocol = 'v3' } end,
  error = function() error('on purpose') end,
  loop = function() while true do end end,
  ['false'] = function() return false end,
  accepted = function() return { status = 101 } end,
  inject = function() return { status = 401, headers = { a = 'b\r\ninjected: c' } } end,
  ['inject-name'] = function() return { headers = { ['a: b\r\ninjected'] = 'c' } } end,
  ['inject-reason'] = function() return { status = 401, reason = 'a\r\ninjected: c' } end,
  upgrade = function() return { headers = { Upgrade = 'injected' } } end,
  hoard = function()
    local all = {}
    for i = 1, 1e9 do all[i] = ('x'):rep(1000000) .. i end
  end,
  knock = function()
    ws:send(host, 1, 'somebody knocks')
    return { status = 404 }
  end,
}

function door.onHandshake(request)
  handshakes = handshakes + 1
  local way = ways[request.query]
  return way and way(request)
end

function door.onStart() end
function door.onShutdown() end
function door.onDisconnect() gone = gone + 1 end

function door.onMessage(handler, opcode, message)
  if message == 'counts' then
    message = ('handshakes %d, gone %d'):format(handshakes, gone)
  elseif message == 'hoard' then
    ways.hoard()
  elseif message == 'host' then
    host = handler
  end
  return ws:send(handler, opcode, message)
end

return door
"#;
