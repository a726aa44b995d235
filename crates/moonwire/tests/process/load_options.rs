//! Options of `moonwire load` that change connections and frames, against `moonwire serve`.

use std::fs;

use serde_json::Value;

use crate::harness::{Outcome, Server, moonwire, run};

const INVALID: i32 = 98;
const BAD_CONFIGURATION: i32 = 104;

/// Loads the echo with these arguments; gives what was printed and the Run file.
fn load(server: &Server, arguments: &[&str]) -> (Outcome, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let mut load = moonwire();
    load.arg("load").arg(format!("{}/echo", server.url));
    load.args(arguments).args(["--insecure", "--json"]);
    let outcome = run(load.arg(&file));
    let json = fs::read_to_string(&file).unwrap_or_default();
    let json = serde_json::from_str(&json).unwrap_or(Value::Null);
    (outcome, json)
}

/// Asserts that each of the messages was answered with what was sent, whatever the verdict on a
/// busy machine.
fn assert_echoed(outcome: &Outcome, json: &Value, messages: u64) {
    assert!(matches!(outcome.code, Some(0 | INVALID)), "{outcome:?}");
    assert_eq!(json["messages"]["sent"], messages, "{outcome:?}");
    assert_eq!(json["messages"]["received"], messages, "{outcome:?}");
    for fault in ["lost", "duplicate", "corrupt", "unexpected", "unsent"] {
        assert_eq!(json["messages"][fault], 0, "{fault}: {json}");
    }
}

#[test]
fn short_lived_connections_make_room_for_each_other() {
    for tls in [&[][..], &["--dev-tls"]] {
        let server = Server::moonwire(tls);
        let (outcome, json) = load(
            &server,
            &[
                "-c",
                "200",
                "--per-connection",
                "2",
                "--open-max",
                "9",
                "--conn-rate",
                "2k",
            ],
        );
        assert_echoed(&outcome, &json, 400);
        assert_eq!(json["connects"]["ok"], 200);
        assert_eq!(json["connects"]["disconnected"], 0);
        assert_eq!(json["closes"]["1000"], 200);
        assert_eq!(json["handshake"]["response"]["count"], 200);
        assert_eq!(
            (&json["messages_per_connection"], &json["open_max"]),
            (&2.into(), &9.into())
        );
        // Each connection sends its request and receives the answer, which counts as well.
        for direction in ["sent", "received"] {
            assert!(
                json["bytes"][direction].as_u64() > Some(200 * 200),
                "{json}"
            );
        }
        assert!(outcome.stdout.contains("handshake response"), "{outcome:?}");
    }
}

#[test]
fn frames_without_masks_are_refused_and_it_is_said_why() {
    let server = Server::moonwire(&[]);
    let (outcome, json) = load(&server, &["-c", "3", "--no-mask", "-d", "30s"]);
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    assert_eq!(json["closes"]["1002"], 3, "{json}");
    assert!(
        outcome.stdout.contains("frames were sent without a mask"),
        "{outcome:?}"
    );
}

#[test]
fn a_version_that_the_server_does_not_speak_is_told_with_those_it_does() {
    let server = Server::moonwire(&[]);
    let (outcome, _) = load(&server, &["-c", "1", "--websocket-version", "8"]);
    assert_eq!(outcome.code, Some(INVALID), "{outcome:?}");
    let expected = "answered 426 instead of an upgrade: it speaks version 13 of WebSocket";
    assert!(outcome.stdout.contains(expected), "{outcome:?}");
}

#[test]
fn messages_in_fragments_come_back_whole() {
    let server = Server::moonwire(&[]);
    for deflate in [&[][..], &["--deflate"]] {
        let fragments = [
            "--fragments",
            "40:1,40:100+rest,20:3",
            "--message-size",
            "275",
        ];
        let arguments = [&["-c", "5", "-n", "500"][..], &fragments, deflate].concat();
        let (outcome, json) = load(&server, &arguments);
        assert_echoed(&outcome, &json, 500);
    }
}

#[test]
fn messages_of_a_program_are_sent_and_verified() {
    let server = Server::moonwire(&[]);
    let program = r"printf '\000\000\000\003one\000\000\000\000\000\000\000\003two'";
    for arguments in [&[][..], &["--binary"]] {
        let options = [
            "-c",
            "3",
            "-n",
            "90",
            "-p",
            "2",
            "--payload-command",
            program,
        ];
        let (outcome, json) = load(&server, &[&options[..], arguments].concat());
        assert_echoed(&outcome, &json, 90);
        assert_eq!(json["message_size"], 2);
    }
}

#[test]
fn options_that_cannot_be_have_one_sentence() {
    let server = Server::moonwire(&[]);
    for (arguments, expected) in [
        (
            &["--payload-command", "echo why >&2; exit 3"][..],
            "exit status: 3): why",
        ),
        (
            &["--payload-command", "printf abc"],
            "ended within message 1",
        ),
        (
            &["--payload-lines", "/nonexistent"],
            "/nonexistent cannot be read",
        ),
        (&["--fragments", "1:0"], "1 to 1000 frames"),
        (&["--reconnect", "exponential:9s..1s"], "from 9s to 1s"),
        (&["--reconnect", "sometimes"], "nor a policy such as"),
        (&["--conn-group", "50"], "such as 50/500ms"),
        (&["--websocket-version", "9"], "neither 8 nor 13"),
        (
            &["--payload-file", "Cargo.toml", "--payload", "amplify"],
            "can only be echoed",
        ),
        (&["--open-max", "5"], "--per-connection"),
    ] {
        let (outcome, _) = load(&server, arguments);
        assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{expected}: {outcome:?}");
    }
}
