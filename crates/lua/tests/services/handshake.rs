//! `onHandshake`: what it is given, and what it may return.

use std::net::SocketAddr;
use std::time::Duration;

use moonwire_lua::{Effects, HandshakeAnswer, HandshakeRefusal, LoadOptions, ScriptError};
use moonwire_proto::{Limits, Request, RequestReader};

use crate::harness::{Service, service};

const HEADERS: &str = "Cookie: user=ann; theme=\"dark\"\r\ncookie: user=eve; last=1\r\n\
    X-Two: a\r\nx-two: b\r\nSec-WebSocket-Protocol: chat, v2\r\n";

fn request(headers: &str) -> Request {
    let head = format!(
        "GET /chat?room=1&b HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Version: 13\r\n{headers}\r\n"
    );
    let mut reader = RequestReader::new(&Limits::default());
    reader.receive(head.as_bytes()).unwrap().unwrap().0
}

fn peer() -> SocketAddr {
    "[::ffff:192.0.2.7]:4321".parse().unwrap()
}

fn shake(loaded: &mut Service) -> Result<HandshakeAnswer, ScriptError> {
    let Service {
        instance, effects, ..
    } = loaded;
    assert!(instance.has_handshake());
    instance.handshake(&request(HEADERS), peer(), effects)
}

/// What a hook with this body returns.
fn answer(body: &str) -> Result<HandshakeAnswer, ScriptError> {
    shake(&mut Service::load(&format!(
        "function s.onHandshake(request) {body} end"
    )))
}

fn accepted(subprotocol: Option<&str>, headers: &[(&str, &str)]) -> HandshakeAnswer {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    HandshakeAnswer::Accept {
        subprotocol: subprotocol.map(str::to_owned),
        headers: headers.iter().map(own).collect(),
    }
}

#[test]
fn it_sees_the_request() {
    for (expression, expected) in [
        ("r.target", "/chat?room=1&b"),
        ("r.path", "/chat"),
        ("r.query", "room=1&b"),
        ("r.headers.host", "example.com"),
        ("r.headers['x-two']", "a, b"),
        ("r.headers.Host or 'lower case'", "lower case"),
        (
            "r.headers.cookie",
            "user=ann; theme=\"dark\"; user=eve; last=1",
        ),
        ("r.cookies.user", "ann"),
        ("r.cookies.theme .. r.cookies.last", "dark1"),
        ("table.concat(r.subprotocols, '+')", "chat+v2"),
        ("r.remote_address", "192.0.2.7"),
        ("tostring(r.remote_port)", "4321"),
    ] {
        let seen = answer(&format!(
            "local r = request return {{ headers = {{ ['x-seen'] = {expression} }} }}"
        ));
        assert_eq!(seen.unwrap(), accepted(None, &[("x-seen", expected)]));
    }
}

#[test]
fn it_accepts_with_what_it_adds() {
    for body in ["", "return", "return true", "return nil", "return {}"] {
        assert_eq!(answer(body).unwrap(), accepted(None, &[]), "{body}");
    }
    let chosen = answer("return { subprotocol = request.subprotocols[2] }");
    assert_eq!(chosen.unwrap(), accepted(Some("v2"), &[]));
    let headers = answer(
        "return { headers = { ['set-cookie'] = { 'a=1; HttpOnly', 'b=2' }, ['X-Count'] = 7 } }",
    );
    let expected = [
        ("X-Count", "7"),
        ("set-cookie", "a=1; HttpOnly"),
        ("set-cookie", "b=2"),
    ];
    assert_eq!(headers.unwrap(), accepted(None, &expected));
}

#[test]
fn it_refuses_with_a_status_of_its_own() {
    let refused = answer(
        "return { status = 401, reason = 'Who Are You', body = 'log in\\0', \
         headers = { ['WWW-Authenticate'] = 'Basic' } }",
    );
    let expected = HandshakeRefusal {
        status: 401,
        reason: Some("Who Are You".to_owned()),
        headers: vec![("WWW-Authenticate".to_owned(), "Basic".to_owned())],
        body: b"log in\0".to_vec(),
    };
    assert_eq!(refused.unwrap(), HandshakeAnswer::Refuse(expected));
    for status in [300, 404, 599] {
        let refused = answer(&format!("return {{ status = {status} }}")).unwrap();
        assert!(matches!(refused, HandshakeAnswer::Refuse(refusal) if refusal.status == status));
    }
}

#[test]
fn what_makes_no_sense_lets_nobody_in() {
    nobody_comes_in(&[
        ("return false", "not false: { status = 403 } refuses"),
        ("return 'no'", "nothing, true or a table, not a string"),
        ("return nil, 'unknown user'", "it must return one value"),
        ("return { sattus = 401 }", "a table with `sattus`"),
        ("return { [1] = 401 }", "there are status, reason"),
        ("return { status = 200 }", "from 300 to 599"),
        ("return { status = 101 }", "from 300 to 599"),
        ("return { status = 600 }", "from 300 to 599"),
        ("return { status = 401.5 }", "from 300 to 599"),
        ("return { status = '401' }", "from 300 to 599"),
        ("return { status = 0/0 }", "from 300 to 599"),
        (
            "return { status = 401, subprotocol = 'v2' }",
            "there is no subprotocol",
        ),
        ("return { reason = 'No' }", "need a status"),
        ("return { body = 'No' }", "need a status"),
        ("return { status = 401, reason = 'a\\r\\nb' }", "printable"),
        (
            "return { status = 401, reason = ('r'):rep(101) }",
            "at most 100",
        ),
        ("return { status = 401, body = 5 }", "body must be a string"),
        (
            "return { status = 401, body = ('b'):rep(65537) }",
            "at most 65536",
        ),
        (
            "return { subprotocol = 'v3' }",
            "does not offer the subprotocol `v3`",
        ),
        ("return { subprotocol = 'chat, v2' }", "does not offer"),
        (
            "return { subprotocol = {} }",
            "must be a string, not a table",
        ),
    ]);
}

#[test]
fn headers_that_are_none_let_nobody_in() {
    nobody_comes_in(&[
        ("return { headers = 'a: b' }", "headers must be a table"),
        (
            "return { headers = { 'a: b' } }",
            "the name of a header must be a string",
        ),
        (
            "return { headers = { a = 'b\\r\\nc: d' } }",
            "`a` has a control character",
        ),
        (
            "return { headers = { a = 'b\\nc: d' } }",
            "`a` has a control character",
        ),
        (
            "return { headers = { a = { 'ok', 'b\\0' } } }",
            "`a` has a control character",
        ),
        (
            "return { headers = { ['a\\r\\nb'] = 'c' } }",
            "`a\\r\\nb` is not one word",
        ),
        ("return { headers = { [''] = 'c' } }", "is not one word"),
        ("return { headers = { a = '\\255' } }", "must be UTF-8"),
        (
            "return { headers = { a = {{}} } }",
            "`a` must be a string, not a table",
        ),
        (
            "return { headers = { a = true } }",
            "`a` must be a string, not a boolean",
        ),
        (
            "return { headers = { Connection = 'close' } }",
            "belongs to the handshake",
        ),
        (
            "return { headers = { UPGRADE = 'h2c' } }",
            "belongs to the handshake",
        ),
        (
            "return { headers = { ['content-length'] = 5 } }",
            "belongs to the handshake",
        ),
        (
            "return { headers = { ['Sec-WebSocket-Foo'] = 'a' } }",
            "belongs to the handshake",
        ),
        (
            "return { headers = { a = ('b'):rep(16384) } }",
            "at most 64 fields of 16384 bytes",
        ),
        (
            "return { status = 304, body = 'HTTP/1.1 200 OK' }",
            "304 has no body",
        ),
        ("error('on purpose')", "s.lua:6: on purpose"),
    ]);
}

#[test]
fn what_is_too_much_lets_nobody_in() {
    nobody_comes_in(&[
        (
            "local many = {} for i = 1, 1e6 do many[i] = 'b' end \
             return { headers = { a = many } }",
            "at most 64 fields",
        ),
        (
            "local many = {} for i = 1, 65 do many['a' .. i] = {} end \
             return { headers = many }",
            "at most 64 fields",
        ),
        (
            "return { headers = { [('b'):rep(16385)] = 'c' } }",
            "at most 16384 bytes",
        ),
        (
            "return { subprotocol = ('b'):rep(16385) }",
            "at most 16384 bytes",
        ),
    ]);
}

fn nobody_comes_in(cases: &[(&str, &str)]) {
    for (body, why) in cases {
        let error = answer(body).unwrap_err();
        let ScriptError::Raised { .. } = &error else {
            panic!("{body}: {error:?}");
        };
        let error = error.to_string();
        assert!(error.starts_with("service \"s\": onHandshake: "), "{error}");
        assert!(error.contains(why), "{body}: {error}");
    }
}

#[test]
fn a_sentence_shows_the_beginning_of_a_long_name() {
    for body in [
        "return { [('\\1'):rep(1e6)] = 1 }",
        "return { subprotocol = ('\\1'):rep(16384) }",
        "return { headers = { [('\\1'):rep(16384)] = 'c' } }",
        "return { headers = { [('b'):rep(16000)] = true } }",
    ] {
        let sentence = answer(body).unwrap_err().to_string();
        assert!(sentence.len() < 1000, "{body}: {} bytes", sentence.len());
    }
}

#[test]
fn offers_that_cannot_be_chosen_are_not_shown() {
    let mut loaded = Service::load(
        "function s.onHandshake(request) return { subprotocol = request.subprotocols[1] } end",
    );
    let request = request("Sec-WebSocket-Protocol: a b, \"c\", d\r\n");
    let Service {
        instance, effects, ..
    } = &mut loaded;
    let answered = instance.handshake(&request, peer(), effects).unwrap();
    assert_eq!(answered, accepted(Some("d"), &[]));
}

#[test]
fn one_that_on_start_makes_is_there_after_it() {
    let loaded = Service::load(
        "function s.onStart() s.onHandshake = function() return { status = 403 } end end",
    );
    let mut instance = loaded.instance;
    assert!(!instance.has_handshake());
    instance.start(&mut Effects::new()).unwrap();
    assert!(instance.has_handshake());
}

#[test]
fn it_may_be_left_out_inherited_or_changed() {
    let has = |code: &str| Service::load(code).instance.has_handshake();
    assert!(!has(""));
    // A table that is strict about what it does not have.
    assert!(!has(
        "setmetatable(s, { __index = function(_, k) error('no ' .. k) end })"
    ));
    assert!(has(
        "setmetatable(s, { __index = { onHandshake = print } })"
    ));
    for code in [
        "s.onHandshake = 5",
        "setmetatable(s, { __index = { onHandshake = 5 } })",
    ] {
        let error = Service::try_load(&[("s.lua", &service(code))], &LoadOptions::default());
        let error = error.err().unwrap();
        assert!(
            matches!(
                error,
                ScriptError::NoCallback {
                    found: "number",
                    ..
                }
            ),
            "{error}"
        );
    }
    let mut loaded = Service::load(
        "function s.onHandshake() s.onHandshake = function() return { status = 410 } end end",
    );
    assert_eq!(shake(&mut loaded).unwrap(), accepted(None, &[]));
    let HandshakeAnswer::Refuse(refusal) = shake(&mut loaded).unwrap() else {
        panic!("the new one refuses");
    };
    assert_eq!(refusal.status, 410);
    loaded.say("x").unwrap();
}

#[test]
fn one_that_does_not_return_is_stopped_and_what_it_sends_stays() {
    let options = LoadOptions {
        callback_timeout: Some(Duration::from_millis(50)),
        ..LoadOptions::default()
    };
    let code = service("function s.onHandshake() ws:send(1, 1, 'who?') while true do end end");
    let mut loaded = Service::try_load(&[("s.lua", &code)], &options).unwrap();
    loaded.say("hello").unwrap();
    let error = shake(&mut loaded).unwrap_err();
    assert!(
        matches!(
            error,
            ScriptError::Overran {
                callback: "onHandshake",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(loaded.sent(), ["who?"]);
    loaded.say("the instance goes on").unwrap();
    // The connection has no name yet.
    let mut unnamed = Service::load("function s.onHandshake() return true end");
    let mut effects = Effects::new();
    let answered = unnamed
        .instance
        .handshake(&request(""), peer(), &mut effects);
    assert_eq!(
        (answered.unwrap(), effects.iter().count()),
        (accepted(None, &[]), 0)
    );
}

#[test]
fn a_request_that_does_not_fit_is_the_fault_of_nobody() {
    let options = LoadOptions {
        memory_bytes_max: Some(1 << 20),
        ..LoadOptions::default()
    };
    let code = service(
        "local hoard = {}\n\
         function s.onMessage() for i = 1, 1e6 do\n\
           local ok, more = pcall(string.rep, i .. 'x', 200)\n\
           if not ok then return true end hoard[i] = more\n\
         end end\n\
         function s.onHandshake() end",
    );
    let mut loaded = Service::try_load(&[("s.lua", &code)], &options).unwrap();
    assert_eq!(shake(&mut loaded).unwrap(), accepted(None, &[]));
    loaded.say("fill it").unwrap();
    let large: String = (0..60)
        .map(|i| format!("X-{i}: {}\r\n", "v".repeat(200)))
        .collect();
    let Service {
        instance, effects, ..
    } = &mut loaded;
    let request = {
        let limits = Limits {
            headers_max: 100,
            ..Limits::default()
        };
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{large}\r\n");
        RequestReader::new(&limits)
            .receive(head.as_bytes())
            .unwrap()
            .unwrap()
            .0
    };
    let answered = instance.handshake(&request, peer(), effects);
    assert_eq!(answered.unwrap(), HandshakeAnswer::DoesNotFit);
}

#[test]
fn the_example_of_the_page_does_what_it_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/handshake.md");
    let page = std::fs::read_to_string(page).unwrap();
    let code = page.split("```lua\n").nth(1).unwrap();
    let code = code.split("```").next().unwrap();
    let mut loaded = Service::try_load(&[("s.lua", code)], &LoadOptions::default()).unwrap();
    let HandshakeAnswer::Refuse(refusal) = shake(&mut loaded).unwrap() else {
        panic!("ann is not logged in");
    };
    assert_eq!(
        (refusal.status, &*refusal.body),
        (401, &b"log in first\n"[..])
    );
    let known = request("Cookie: session=letmein\r\n");
    let answer = loaded
        .instance
        .handshake(&known, peer(), &mut loaded.effects);
    let cookie = [("Set-Cookie", "seen=1; HttpOnly")];
    assert_eq!(answer.unwrap(), accepted(None, &cookie));
}
