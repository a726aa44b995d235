//! The services that ship with moonwire, as they are in apps/.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::handler;
use moonwire_lua::{Effect, Effects, Instance, Opcode, Outcome, ScriptError, ServiceSource};
use serde_json::{Value, json};

fn load(name: &str, config: Value) -> Result<Instance, ScriptError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../apps")
        .join(name);
    let mut source = ServiceSource::new(name, folder);
    source.config = config;
    Instance::load(&source)
}

/// Sends one message of connection 5; returns what comes back to it.
fn exchange(instance: &mut Instance, opcode: Opcode, message: &[u8]) -> Vec<(Opcode, Vec<u8>)> {
    let mut effects = Effects::new();
    let outcome = instance
        .message(handler(5), opcode, message, &mut effects)
        .unwrap();
    assert_eq!(outcome, Outcome::Continue);
    let sent = |effect| match effect {
        Effect::Send {
            handler: to,
            opcode,
            payload,
        } => {
            assert_eq!(to, handler(5));
            (opcode, payload.to_vec())
        }
        Effect::Close { .. }
        | Effect::Subscribe { .. }
        | Effect::Unsubscribe { .. }
        | Effect::Broadcast { .. } => panic!("not sent: {effect:?}"),
    };
    effects.iter().map(sent).collect()
}

/// Sends one message that must close the connection; returns code and reason.
fn refusal(instance: &mut Instance, message: &[u8]) -> (u16, String) {
    let mut effects = Effects::new();
    let outcome = instance
        .message(handler(6), Opcode::Text, message, &mut effects)
        .unwrap();
    assert_eq!(outcome, Outcome::Continue);
    let all: Vec<_> = effects.iter().collect();
    match all[..] {
        [
            Effect::Close {
                handler: whom,
                code,
                reason,
            },
        ] if whom == handler(6) => (code, reason.to_owned()),
        _ => panic!("{all:?}"),
    }
}

fn now_us() -> i64 {
    i64::try_from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_micros(),
    )
    .unwrap()
}

#[test]
fn echo_sends_back_what_it_gets() {
    let mut echo = load("echo", Value::Null).unwrap();
    let mut effects = Effects::new();
    echo.start(&mut effects).unwrap();
    for (opcode, message) in [
        (Opcode::Text, "grüße".as_bytes()),
        (Opcode::Binary, b"\0\xff"),
        (Opcode::Text, b""),
    ] {
        assert_eq!(
            exchange(&mut echo, opcode, message),
            [(opcode, message.to_vec())]
        );
    }
    echo.disconnect(handler(5), &mut effects).unwrap();
    echo.shutdown(&mut effects).unwrap();
    assert!(effects.is_empty());
}

#[test]
fn amplify_answers_four_times_with_the_one_way_latency() {
    let mut amplify = load("amplify", Value::Null).unwrap();
    let before = now_us();
    let sent_at = before - 1_500;
    let message = json!({
        "client_id": 3, "msg_id": 9, "msg": "x\"y\u{1F600}", "created_at": sent_at,
    });
    let replies = exchange(&mut amplify, Opcode::Binary, message.to_string().as_bytes());
    let after = now_us();

    assert_eq!(replies.len(), 4);
    assert!(replies.iter().all(|reply| *reply == replies[0]));
    assert_eq!(replies[0].0, Opcode::Binary);
    let reply: Value = serde_json::from_slice(&replies[0].1).unwrap();
    assert_eq!(reply["client_id"], 3);
    assert_eq!(reply["msg_id"], 9);
    assert_eq!(reply["msg"], "x\"y\u{1F600}");
    // as_i64 is None for 1.7e15: integers must be written as integers.
    assert_eq!(reply["client_ts"].as_i64(), Some(sent_at));
    let created_at = reply["created_at"].as_i64().unwrap();
    assert!(
        (before..=after).contains(&created_at),
        "{before} {created_at} {after}"
    );
    assert_eq!(reply["server_latency"].as_i64(), Some(created_at - sent_at));
    assert_eq!(reply.as_object().unwrap().len(), 6);
}

#[test]
fn amplify_takes_replies_and_unit_from_the_config() {
    let mut amplify = load("amplify", json!({ "replies": 2, "time_unit": "ms" })).unwrap();
    let message = json!({ "client_id": 1, "msg_id": 1, "msg": "", "created_at": now_us() / 1000 });
    let replies = exchange(&mut amplify, Opcode::Text, message.to_string().as_bytes());
    assert_eq!(replies.len(), 2);
    let reply: Value = serde_json::from_slice(&replies[0].1).unwrap();
    let created_at = reply["created_at"].as_i64().unwrap();
    assert!(
        (now_us() / 1000 - created_at).abs() < 60_000,
        "{created_at} is not milliseconds"
    );
}

#[test]
fn amplify_keeps_nothing_of_an_earlier_message() {
    let mut amplify = load("amplify", Value::Null).unwrap();
    let full = br#"{"client_id":1,"msg_id":2,"msg":"secret","created_at":5}"#;
    exchange(&mut amplify, Opcode::Text, full);
    let replies = exchange(&mut amplify, Opcode::Text, br#"{"created_at":5}"#);
    let reply: Value = serde_json::from_slice(&replies[0].1).unwrap();
    assert_eq!(reply.get("msg"), None);
    assert_eq!(reply.get("client_id"), None);
}

#[test]
fn amplify_closes_on_nonsense_and_goes_on() {
    let mut amplify = load("amplify", Value::Null).unwrap();
    for malformed in [&b"{"[..], b"", b"[1,]", b"\xff\xfe", b"{\"a\":1} x"] {
        let (code, reason) = refusal(&mut amplify, malformed);
        assert_eq!(code, 1007);
        assert!(
            reason.starts_with("expected a JSON object: json.decode: "),
            "{reason}"
        );
        assert!(reason.contains("line 1 column"), "{reason}");
    }
    for unusable in [&b"1"[..], b"null", b"[]", b"{}", br#"{"created_at":"now"}"#] {
        let (code, reason) = refusal(&mut amplify, unusable);
        assert_eq!(code, 1003);
        assert!(reason.contains("created_at"), "{reason}");
    }
    assert_eq!(
        exchange(&mut amplify, Opcode::Text, br#"{"created_at":5}"#).len(),
        4
    );
}

#[test]
fn amplify_refuses_a_wrong_config() {
    for (config, wanted) in [
        (json!({ "time_unit": "s" }), "time_unit must be"),
        (json!({ "replies": 0 }), "replies must be"),
        (json!({ "replies": 1.5 }), "replies must be"),
        (json!({ "replies": "four" }), "replies must be"),
        (json!({ "replise": 4 }), "there is no \"replise\""),
    ] {
        let error = load("amplify", config).err().unwrap().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

/// A few bytes each make a table each: the worker of everybody must not make millions of them.
#[test]
fn amplify_refuses_a_message_of_very_many_tables() {
    let mut instance = load("amplify", json!({})).unwrap();
    let many = |values: usize| format!("{{\"created_at\":1,\"msg\":[0{}]}}", ",[]".repeat(values));
    let (code, reason) = refusal(&mut instance, many(1_000_000).as_bytes());
    assert_eq!(code, 1007);
    assert!(
        reason.contains("more than 131072 arrays and objects"),
        "{reason}"
    );
    exchange(&mut instance, Opcode::Text, many(90_000).as_bytes());
}
