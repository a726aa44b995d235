//! The LAppS protocol over a connection.

use crate::client::{BINARY, Client, TEXT};
use crate::fixture::{Fixture, Folder};

fn server() -> Fixture {
    Folder::new(
        "[server]\nworkers = 1\n[services.adder]\ntarget = '/adder'\nprotocol = 'lapps'\n\
         instances = 1\n",
    )
    .app("adder", ADDER)
    .start()
}

/// {lapps: 1, method: "add", params: [1, 2]}
const REQUEST: &[u8] = b"\xa3\x65lapps\x01\x66method\x63add\x66params\x82\x01\x02";
/// {cid: 0, result: [3.0], status: 1.0}, as everything that Lua wrote is a float.
const RESPONSE: &[u8] = b"\xa3\x63cid\xfb\0\0\0\0\0\0\0\0\x66result\x81\xfb\x40\x08\0\0\0\0\0\0\
    \x66status\xfb\x3f\xf0\0\0\0\0\0\0";

fn ask(client: &mut Client) {
    client.send(BINARY, REQUEST);
    let reply = client.receive();
    assert_eq!((reply.opcode, &*reply.payload), (BINARY, RESPONSE));
}

#[test]
fn a_request_is_answered_in_cbor() {
    let server = server();
    ask(&mut server.connect("/adder"));
}

/// Each ends the connection that it came from, with its code, and nobody else's.
#[test]
fn what_is_no_message_ends_one_connection() {
    let server = server();
    let mut neighbour = server.connect("/adder");
    for (opcode, message, code) in [
        (TEXT, &b"{\"lapps\":1,\"method\":\"add\"}"[..], 1003),
        (BINARY, b"\xff", 1007),
        (BINARY, b"", 1007),
        (BINARY, b"\x01\x01", 1007),
        (BINARY, b"\xa0", 1002),
        (BINARY, b"\xa1\x65lapps\x01", 1002),
        (BINARY, b"\xa2\x65lapps\x01\x66method\x62_a", 1002),
    ] {
        let mut client = server.connect("/adder");
        client.send(opcode, message);
        assert_eq!(client.receive().code(), code, "{message:x?}");
        ask(&mut neighbour);
    }
    assert_eq!(server.metric("moonwire_failures_total", "\"message\""), 7);
    assert_eq!(server.metric("moonwire_failures_total", "lua_error"), 0);
}

#[test]
fn a_protocol_that_does_not_exist_is_named() {
    let folder = Folder::new("[services.adder]\ntarget = '/adder'\nprotocol = 'LAppS'\n")
        .app("adder", ADDER);
    let error = folder.load().unwrap_err().to_string();
    assert!(
        error.contains("the protocol `LAppS` must be \"raw\" or \"lapps\""),
        "{error}"
    );
    assert!(error.contains(":3:"), "{error}");
}

const ADDER: &str = "
local adder = {}
function adder.onStart() end
function adder.onShutdown() end
function adder.onDisconnect(handler) end
function adder.onMessage(handler, kind, message)
  local response = nljson.decode('{}')
  response.cid = 0
  response.status = 1
  response.result = {message.params[1] + message.params[2]}
  return ws:send(handler, response)
end
return adder
";
