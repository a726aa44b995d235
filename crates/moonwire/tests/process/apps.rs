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
