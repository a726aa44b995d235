//! The services of `apps/`, started as their pages say.

use serde_json::json;

use self::client::Client;
use crate::harness::{Server, moonwire, moonwire_aside};

pub(crate) mod cbor;
pub(crate) mod client;
pub(crate) mod dialogue;

/// `moonwire serve --config apps/NAME/moonwire.toml`, on a port that the system chooses.
fn serve(name: &str) -> Server {
    Server::moonwire(&["--config", &configuration(name)])
}

fn configuration(name: &str) -> String {
    format!("apps/{name}/moonwire.toml")
}

#[test]
fn members_of_a_room_hear_each_other_and_nobody_else_does() {
    let server = serve("chat");
    let [mut ann, mut bob, mut eve] = [(); 3].map(|()| Client::connect(&server, "/chat"));
    ann.say(json!({"join": "kitchen", "name": "ann"}));
    assert_eq!(ann.hear(), json!({"room": "kitchen", "members": ["ann"]}));
    eve.say(json!({"join": "garden", "name": "ann"}));
    assert_eq!(eve.hear(), json!({"room": "garden", "members": ["ann"]}));
    bob.say(json!({"join": "kitchen", "name": "bob"}));
    assert_eq!(
        bob.hear(),
        json!({"room": "kitchen", "members": ["ann", "bob"]})
    );
    assert_eq!(ann.hear(), json!({"room": "kitchen", "joined": "bob"}));
    bob.say(json!({"say": "Grüße 🌙"}));
    for member in [&mut ann, &mut bob] {
        let said = json!({"room": "kitchen", "from": "bob", "said": "Grüße 🌙"});
        assert_eq!(member.hear(), said);
    }
    // One that goes elsewhere, and one that is gone without a word.
    bob.say(json!({"join": "garden", "name": "bob"}));
    assert_eq!(ann.hear(), json!({"room": "kitchen", "left": "bob"}));
    assert_eq!(eve.hear(), json!({"room": "garden", "joined": "bob"}));
    drop(bob);
    assert_eq!(eve.hear(), json!({"room": "garden", "left": "bob"}));
    ann.say(json!({"leave": true}));
    ann.say(json!({"say": "is anybody there?"}));
    let alone = json!({"error": "join a room before you say something"});
    assert_eq!(ann.hear(), alone);
}

#[test]
fn what_makes_no_sense_to_the_chat_is_answered() {
    let server = serve("chat");
    let mut ann = Client::connect(&server, "/chat");
    ann.say(json!({"join": "kitchen", "name": "ann"}));
    ann.hear();
    let mut client = Client::connect(&server, "/chat");
    for (message, why) in [
        ("[]", "a JSON object"),
        ("not JSON", "a JSON object"),
        (r#"{"shout": "x"}"#, "expected join, say or leave"),
        (r#"{"join": "kitchen"}"#, "join and name must be text"),
        (r#"{"join": "", "name": "bob"}"#, "join and name must be"),
        (r#"{"join": "kitchen", "name": "ann"}"#, "has this name"),
        (r#"{"say": "hello"}"#, "join a room before"),
    ] {
        client.send_text(message);
        let answer = client.hear();
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{message}: {answer}");
    }
    client.say(json!({"join": "kitchen", "name": "bob"}));
    assert_eq!(client.hear()["members"], json!(["ann", "bob"]));
    client.say(json!({"say": 5}));
    assert!(client.hear()["error"].is_string());
}

#[test]
fn a_terminal_goes_on_where_its_connection_was_lost() {
    let server = serve("terminal");
    let mut client = Client::connect(&server, "/terminal");
    client.say(json!({"command": "help"}));
    assert!(client.hear()["error"].is_string());
    client.say(json!({"open": true}));
    let opened = client.hear();
    let session = opened["session"].as_str().unwrap().to_owned();
    client.say(json!({"id": 1, "command": "set name Grüße"}));
    assert_eq!(client.hear(), json!({"id": 1, "event": 1, "output": []}));
    client.say(json!({"id": "two", "command": "sum 1 2.5"}));
    assert_eq!(
        client.hear(),
        json!({"id": "two", "event": 2, "output": ["3.5"]})
    );
    client.say(json!({"command": "rm -rf"}));
    let failed = client.hear();
    assert!(
        failed["failed"].is_string() && failed["event"] == 3,
        "{failed}"
    );
    drop(client);
    let mut again = Client::connect(&server, "/terminal");
    again.say(json!({"resume": session, "after": 1}));
    assert_eq!(
        again.hear(),
        json!({"id": "two", "event": 2, "output": ["3.5"]})
    );
    assert_eq!(again.hear(), failed);
    assert_eq!(again.hear(), json!({"resumed": session, "event": 3}));
    // The next one takes it over while the old connection still stands.
    let mut third = Client::connect(&server, "/terminal");
    third.say(json!({"resume": session, "after": 3}));
    assert_eq!(third.hear()["resumed"], session.as_str());
    third.say(json!({"command": "get name"}));
    assert_eq!(third.hear(), json!({"event": 4, "output": ["Grüße"]}));
    for (message, why) in [
        (json!({"resume": "nobody's", "after": 0}), "no such session"),
        (json!({"resume": session, "after": 9}), "the last event"),
        (json!({"open": true}), "has a session"),
        (json!({"command": 5}), "must be text"),
        (json!([]), "expected"),
    ] {
        third.say(message.clone());
        let answer = third.hear();
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{message}: {answer}");
    }
}

#[test]
fn the_server_measures_a_client_that_sends_back() {
    let server = serve("reverse_echo");
    let mut client = Client::connect(&server, "/reverse_echo");
    client.say(json!({"bytes": 0, "count": 1}));
    assert!(client.hear()["error"].is_string());
    client.say(json!({"bytes": 1001, "count": 20}));
    for _ in 0..20 {
        let message = client.hear_binary();
        assert_eq!(message.len(), 1001);
        client.send_binary(message);
    }
    let report = client.hear();
    assert_eq!(
        (&report["messages"], &report["bytes_each_way"]),
        (&json!(20), &json!(20_020))
    );
    let [min, mean, max] = ["min", "mean", "max"].map(|it| report["round_trip_us"][it].as_f64());
    assert!(min > Some(0.0) && min <= mean && mean <= max, "{report}");
    client.say(json!({"bytes": 8, "count": 2}));
    client.hear_binary();
    client.send_binary(b"another!".to_vec());
    assert_eq!(client.close_code(), 1008);
}

#[test]
fn who_has_logged_in_is_known_by_a_cookie() {
    let server = serve("login");
    for (target, cookie) in [
        ("/login", "theme=dark"),
        ("/login?token=open-the-door", "session=guessed"),
        ("/login?token=", "session="),
    ] {
        let refused = Client::with_cookie(&server, target, cookie);
        let (status, body) = refused.map(|_| ()).unwrap_err();
        assert_eq!(status, 401, "{target} {cookie}");
        assert!(body.starts_with("connect with ?token="), "{body}");
    }
    let (_, set) = Client::with_cookie(&server, "/login?token=open-sesame", "a=b").unwrap();
    let set = set.expect("a cookie for the next time");
    assert!(set.contains("; HttpOnly; SameSite=Strict"), "{set}");
    let cookie = set.split(';').next().unwrap();
    let (mut client, set) = Client::with_cookie(&server, "/login", cookie).unwrap();
    assert_eq!(set, None);
    client.say(json!("hello"));
    assert_eq!(client.hear(), json!("hello"));
    drop(client);
    assert_eq!(server.terminate().code(), Some(0));
}

/// Point 51 of the compatibility with LAppS.
#[test]
fn the_dialogue_of_echo_lapps() {
    let server = serve("echo_lapps");
    dialogue::hold(&server);
    assert_eq!(server.terminate().code(), Some(0));
}

/// What each receiver has got, until SIGTERM, which comes while they wait.
#[test]
fn receivers_share_a_queue_until_the_server_stops() {
    let config = configuration("mqr");
    let mut command = moonwire_aside();
    command.args(["serve", "--config", &config]);
    let (server, _) = Server::start_until(&mut command, "service mqr_sender runs");
    let receiver = |line: &str| {
        let (_, rest) = line.split_once("receiver ").expect("it was awaited");
        let (name, count) = rest.split_once(": ").expect("a name");
        let count = count.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        assert!(count > Some(0), "{line}");
        name.to_owned()
    };
    let first = receiver(&server.await_line(" ms"));
    while receiver(&server.await_line(" ms")) == first {}
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn a_client_of_another_server_talks_until_that_is_gone() {
    let peer = Server::moonwire(&[]);
    let mut command = moonwire();
    command.args(["serve", "--config", &configuration("outgoing")]);
    command.env("OUTGOING_URL", format!("{}/echo", peer.url));
    let (server, _) = Server::start_until(&mut command, "service outgoing runs");
    server.await_line("received hello 2");
    assert_eq!(peer.terminate().code(), Some(0));
    server.await_line("the server has closed");
    assert_eq!(server.terminate().code(), Some(0));
}
