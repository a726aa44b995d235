//! What clients of echo_lapps expect, step by step.

use serde_json::{Value, json};

use super::client::Client;
use crate::harness::Server;

/// Holds all of it, on connections of its own.
pub(crate) fn hold(server: &Server) {
    let mut client = Client::connect(server, TARGET);
    let key = log_in(&mut client, "admin");
    log_in(&mut Client::connect(server, TARGET), "guest");
    echo(&mut client, &key);
    hear_the_time(&mut client, &key);
    refusals(server, &key);
    // Broadcasts may come before the close.
    client.tell(&json!({"lapps": 1, "cid": 3, "method": "logout", "params": [{"authkey": key}]}));
    assert_eq!(end(&mut client), 1000);
}

pub(crate) fn log_in(client: &mut Client, user: &str) -> Value {
    let params = json!([{"user": user, "password": user}]);
    client.tell(&json!({"lapps": 1, "method": "login", "params": params}));
    let answer = client.listen().unwrap();
    let key = answer["result"][0]["authkey"].clone();
    // It comes as a float, and is a number that fits 32 bits.
    assert!(key.is_f64(), "{answer}");
    assert!(
        key.as_f64()
            .is_some_and(|n| n.fract() == 0.0 && (0.0..=4_294_967_296.0).contains(&n))
    );
    assert_eq!(
        answer,
        json!({"status": 1, "cid": 0, "result": [{"authkey": key}]})
    );
    key
}

fn echo(client: &mut Client, key: &Value) {
    for params in [
        json!([{"authkey": key}]),
        json!([{"authkey": key, "more": [1, -2, 0.5]}, null, true, "Grüße 🌙", [], {}, [[[{}]]]]),
        json!([{"authkey": key}, u64::MAX, i64::MIN, 1e300, "x".repeat(20_000)]),
    ] {
        client.tell(&json!({"lapps": 1, "method": "echo", "params": params}));
        let answer = client.listen().unwrap();
        assert_eq!(answer, json!({"status": 1, "cid": 0, "result": params}));
    }
}

/// Subscribes, and asks between the broadcasts, whose number grows by about one each second.
fn hear_the_time(client: &mut Client, key: &Value) {
    client
        .tell(&json!({"lapps": 1, "cid": 5, "method": "subscribe", "params": [{"authkey": key}]}));
    for _ in 0..TIMES {
        let message = client.listen().unwrap();
        let text = message["message"][0].as_str().unwrap_or_default();
        assert!(text.starts_with("Server time: "), "{message}");
        assert_eq!(message, json!({"cid": 5, "message": [text]}));
        let params = json!([{"authkey": key}, text]);
        client.tell(&json!({"lapps": 1, "method": "echo", "params": params}));
        let answer = loop {
            match client.listen().unwrap() {
                time if time["cid"] == 5 => {}
                answer => break answer,
            }
        };
        assert_eq!(answer["result"], params);
    }
}

/// Each ends its own connection, answered or not. `key` is that of another one.
fn refusals(server: &Server, key: &Value) {
    let request = |method: &str, first: Value| {
        let params = [first, json!(5)];
        json!({"lapps": 1, "method": method, "params": params})
    };
    let notification = |method: &str, params: Value| {
        let cid = 5;
        json!({"lapps": 1, "cid": cid, "method": method, "params": params})
    };
    let user = |name: &str, password: &str| json!({"user": name, "password": password});
    let shown = json!({"authkey": key});
    for (message, error, code) in [
        (request("login", user("admin", "guest")), Some(10), 1000),
        (request("login", user("nobody", "")), Some(10), 1000),
        (request("login", json!({"user": 1})), Some(-32602), 1003),
        (request("login", json!({})), Some(-32602), 1003),
        (request("login", json!(["admin"])), Some(-32602), 1003),
        (request("echo", shown.clone()), Some(-32000), 1000),
        (request("echo", json!({})), Some(-32000), 1000),
        (notification("subscribe", Value::Null), Some(-32600), 1003),
        (notification("logout", json!([])), Some(-32600), 1003),
        (notification("subscribe", json!([shown])), None, 1000),
        (notification("logout", json!([shown])), None, 1000),
    ] {
        let mut client = Client::connect(server, TARGET);
        client.tell(&message);
        if let Some(error) = error {
            let answer = client.listen().unwrap();
            assert_eq!(
                answer["error"]["code"].as_f64(),
                Some(f64::from(error)),
                "{message}"
            );
            assert!(answer["error"]["message"].is_string(), "{answer}");
            assert_eq!((&answer["status"], &answer["cid"]), (&json!(0), &json!(0)));
        }
        assert_eq!(client.listen(), Err(code), "{message}");
    }
}

/// The code with which the server closes, whatever it broadcasts before.
fn end(client: &mut Client) -> u16 {
    loop {
        if let Err(code) = client.listen() {
            return code;
        }
    }
}

const TARGET: &str = "/echo_lapps";
const TIMES: usize = 3;
