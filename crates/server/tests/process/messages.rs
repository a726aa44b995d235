//! Messages, services and what keeps them apart.

use crate::client::{BINARY, CLOSE, Client, PING, PONG, TEXT, frame};
use crate::fixture::{EXECUTIONS, Fixture, Folder};

#[test]
fn text_and_binary_come_back_as_they_were() {
    let server = Fixture::shipped();
    let mut client = server.connect("/echo?who=me");
    assert_eq!(client.ask("grüße").text(), "grüße");
    for size in [0, 125, 126, 65_535, 65_536, 1 << 20] {
        let payload: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        client.send(BINARY, &payload);
        let reply = client.receive();
        assert_eq!((reply.opcode, reply.payload.len()), (BINARY, size));
        assert_eq!(reply.payload, payload);
    }
    client.send(PING, b"there?");
    let pong = client.receive();
    assert_eq!((pong.opcode, &*pong.payload), (PONG, &b"there?"[..]));
    client.close();
}

/// As LAppS fragments, if it is told to: no frame is shorter than the others.
#[test]
fn long_messages_go_in_fragments_where_it_is_configured() {
    let server =
        Folder::new("[limits]\nfragment_bytes = 1392\n[services.echo]\ntarget = '/echo'\n").start();
    let mut client = server.connect("/echo");
    for (size, fragments) in [
        (0, &[0][..]),
        (2783, &[2783]),
        (2784, &[1392, 1392]),
        (5000, &[1392, 1392, 2216]),
    ] {
        let sent: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        client.send(BINARY, &sent);
        let mut payload = Vec::new();
        for (number, bytes) in fragments.iter().enumerate() {
            let (fin, frame) = client.receive_fragment();
            assert_eq!(fin, number + 1 == fragments.len());
            assert_eq!(frame.opcode, if number == 0 { BINARY } else { 0 });
            assert_eq!(frame.payload.len(), *bytes);
            payload.extend(frame.payload);
        }
        assert!(payload == sent, "{size} bytes");
    }
}

/// The one beyond the bound is refused, in the way that is configured, and harms nobody.
#[test]
fn the_connection_beyond_the_bound_is_refused() {
    for (key, status) in [("", 503), ("busy_status = 403\n", 403)] {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[limits]\nconnections_per_worker_max = 2\n{key}\
             [services.echo]\ntarget = '/echo'\n"
        ))
        .start();
        let mut clients = [server.connect("/echo"), server.connect("/echo")];
        let refused = Client::upgrade(server.address, "/echo", "");
        assert_eq!(refused.map(|(_, head)| head).unwrap_err().status, status);
        for client in &mut clients {
            assert_eq!(client.ask("still here").text(), "still here");
        }
    }
}

#[test]
fn messages_behind_the_request_are_not_lost() {
    let server = Fixture::shipped();
    let mut client = Client::open(server.address);
    let mut bytes = format!(
        "GET /echo HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        server.address
    )
    .into_bytes();
    bytes.extend(frame(TEXT, b"early"));
    client.write(&bytes);
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(client.byte());
    }
    assert_eq!(client.receive().text(), "early");
}

/// One instance on two workers: some connections leave with all that came behind their request.
#[test]
fn a_whole_read_behind_the_request_is_not_too_much() {
    let server =
        Folder::new("[server]\nworkers = 2\n[services.echo]\ntarget = '/echo'\ninstances = 1\n")
            .start();
    let message = vec![7; 10_000];
    for round in 0..10 {
        let mut client = Client::open(server.address);
        let mut bytes = b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
              Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
              Sec-WebSocket-Version: 13\r\n\r\n"
            .to_vec();
        bytes.extend(frame(BINARY, &message).repeat(20));
        client.write(&bytes);
        assert!(
            client.status_line().ends_with(" 101 Switching Protocols"),
            "round {round}"
        );
        for _ in 0..20 {
            assert_eq!(client.receive().payload, message, "round {round}");
        }
    }
    assert!(server.metric("moonwire_handed_over_total", "worker") > 0);
}

#[test]
fn amplify_answers_as_often_as_it_is_told() {
    let server = Folder::new(
        "[services.amplify]\ntarget = '/amplify'\n[services.amplify.config]\nreplies = 3\n",
    )
    .start();
    let mut client = server.connect("/amplify");
    for opcode in [TEXT, BINARY] {
        let sent_us = wall_us() - 5_000_000;
        let message =
            format!(r#"{{"client_id":7,"msg_id":12,"msg":"filler","created_at":{sent_us}}}"#);
        let before_us = wall_us();
        client.send(opcode, message.as_bytes());
        for _ in 0..3 {
            let frame = client.receive();
            assert_eq!(frame.opcode, opcode);
            let reply: serde_json::Value = serde_json::from_slice(&frame.payload).unwrap();
            let created_us = reply["created_at"].as_u64().unwrap();
            assert!((before_us..=wall_us()).contains(&created_us), "{reply}");
            let expected = serde_json::json!({
                "client_id": 7, "msg_id": 12, "msg": "filler", "client_ts": sent_us,
                "created_at": created_us, "server_latency": created_us - sent_us,
            });
            assert_eq!(reply, expected);
        }
    }
    client.send(TEXT, b"not json");
    assert_eq!(client.receive().code(), 1007);
}

/// Microseconds since 1970.
fn wall_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap().as_micros()).unwrap()
}

#[test]
fn a_lua_error_ends_its_connection_and_nothing_else() {
    EXECUTIONS.into_iter().for_each(lua_error);
}

fn lua_error(execution: &str) {
    let moody = "[server]\nworkers = 1\n[services.moody]\ntarget = '/moody'\n";
    let server = Folder::new(&format!("{moody}{execution}"))
        .app("moody", MOODY)
        .start();
    let (mut victim, mut neighbour) = (server.connect("/moody"), server.connect("/moody"));
    assert_eq!(neighbour.ask("one").text(), "one");
    victim.send(TEXT, b"before");
    assert_eq!(victim.receive().text(), "before");
    // Both in one read: the second is not delivered any more.
    victim.write(&[frame(TEXT, b"error"), frame(TEXT, b"after")].concat());
    assert_eq!(victim.receive().code(), 1011);
    victim.send(CLOSE, &1011u16.to_be_bytes());
    assert!(victim.is_ended());
    assert_eq!(neighbour.ask("two").text(), "two");
    neighbour.send(TEXT, b"false");
    assert_eq!(neighbour.receive().code(), 1000);
    assert_eq!(server.connect("/moody").ask("three").text(), "three");
    assert_eq!(
        server.metric("moonwire_failures_total", "kind=\"lua_error\""),
        1
    );
    assert_eq!(server.metric("moonwire_messages_in_total", "moody"), 6);
}

#[test]
fn a_broken_frame_ends_its_connection_and_nothing_else() {
    let server = Fixture::shipped();
    let mut good = server.connect("/echo");
    let mut unmasked = server.connect("/echo");
    unmasked.write(&[0x81, 1, b'x']);
    assert_eq!(unmasked.receive().code(), 1002);
    let mut latin1 = server.connect("/echo");
    latin1.send(TEXT, b"gr\xfc\xdfe");
    assert_eq!(latin1.receive().code(), 1007);
    assert_eq!(good.ask("still here").text(), "still here");
    assert_eq!(
        server.metric("moonwire_failures_total", "kind=\"protocol_1002\""),
        1
    );
    assert_eq!(
        server.metric("moonwire_failures_total", "kind=\"protocol_1007\""),
        1
    );
}

#[test]
fn a_service_has_a_limit_of_its_own() {
    let server = Folder::new(
        "[services.echo]\ntarget = '/echo'\n[services.small]\ntarget = '/small'\n\
         folder = 'apps/small'\nmessage_bytes_max = 100\n",
    )
    .app("small", MOODY)
    .start();
    let mut small = server.connect("/small");
    small.send(BINARY, &[0; 100]);
    assert_eq!(small.receive().payload.len(), 100);
    small.send(BINARY, &[0; 101]);
    assert_eq!(small.receive().code(), 1009);
    let mut large = server.connect("/echo");
    large.send(BINARY, &[0; 101]);
    assert_eq!(large.receive().payload.len(), 101);
}

/// One instance on two workers: whichever worker accepts a connection, the one instance counts it.
#[test]
fn a_connection_goes_to_the_worker_that_owns_the_instance() {
    EXECUTIONS.into_iter().for_each(one_owner);
}

fn one_owner(execution: &str) {
    let server = Folder::new(&format!(
        "[server]\nworkers = 2\n[services.counter]\ntarget = '/counter'\ninstances = 1\n{execution}"
    ))
    .app("counter", COUNTER)
    .start();
    // The kernel spreads connections over two listeners by a hash: that none of 40 takes the
    // other worker happens once in 2^40 runs.
    let mut clients: Vec<_> = (0..40).map(|_| server.connect("/counter")).collect();
    let mut handlers = Vec::new();
    for (before, client) in clients.iter_mut().enumerate() {
        let reply = client.ask("count");
        let (count, handler) = reply.text().split_once(' ').unwrap();
        assert_eq!(count.parse(), Ok(before + 1));
        handlers.push(handler.parse::<f64>().unwrap());
    }
    assert!(handlers.iter().all(|handler| *handler < 1e14));
    handlers.sort_by(f64::total_cmp);
    handlers.dedup();
    assert_eq!(handlers.len(), 40, "handlers are unique");
    let handed_over = server.metric("moonwire_handed_over_total", "worker");
    assert!((1..40).contains(&handed_over), "{handed_over}");
    assert_eq!(server.metric("moonwire_connected", "worker=\"0\""), 40);
    assert_eq!(server.metric("moonwire_connected", "worker=\"1\""), 0);
    clients.into_iter().for_each(Client::close);
    server.await_metric("moonwire_connected", "counter", 0);
}

#[test]
fn a_subprotocol_is_chosen_only_if_it_is_offered() {
    let server = Folder::new(
        "[services.echo]\ntarget = '/echo'\nsubprotocol = 'chat.v2'\n\
         [services.echo.extra_headers]\nX-Served-By = 'moonwire'\n",
    )
    .start();
    let (_, head) = Client::upgrade(
        server.address,
        "/echo",
        "Sec-WebSocket-Protocol: chat.v1, chat.v2\r\n",
    )
    .map_err(|response| response.head)
    .unwrap();
    assert!(
        head.contains("chat.v2") && !head.contains("chat.v1"),
        "{head}"
    );
    assert!(head.contains("X-Served-By: moonwire\r\n"), "{head}");
    let (_, head) = Client::upgrade(server.address, "/echo", "")
        .map_err(|r| r.head)
        .unwrap();
    assert!(!head.contains("chat.v2"), "{head}");
}

/// LAppS compares with nothing that the client offers.
#[test]
fn a_forced_subprotocol_is_sent_to_everybody() {
    let server = Folder::new(
        "[services.echo]\ntarget = '/echo'\nsubprotocol = 'chat.v2'\nsubprotocol_forced = true\n",
    )
    .start();
    for offer in [
        "",
        "Sec-WebSocket-Protocol: chat.v1\r\n",
        "Sec-WebSocket-Protocol: chat.v2\r\n",
    ] {
        let upgraded = Client::upgrade(server.address, "/echo", offer);
        let (_, head) = upgraded.map_err(|response| response.head).unwrap();
        let sent = head.matches("Sec-WebSocket-Protocol: chat.v2\r\n").count();
        assert_eq!(sent, 1, "{offer}: {head}");
        assert!(!head.contains("chat.v1"), "{head}");
    }
}

#[test]
fn instances_share_no_clients() {
    EXECUTIONS.into_iter().for_each(no_shared_clients);
}

fn no_shared_clients(execution: &str) {
    let server = Folder::new(&format!(
        "[server]\nworkers = 1\n[services.relay]\ntarget = '/relay'\ninstances = 2\n{execution}"
    ))
    .app("relay", RELAY)
    .start();
    let mut clients = [
        server.connect("/relay"),
        server.connect("/relay"),
        server.connect("/relay"),
    ];
    let names = clients
        .each_mut()
        .map(|client| client.ask("who").text().to_owned());
    // Rotation: the first and the third share an instance, the second has the other.
    let [first, second, third] = &mut clients;
    first.send(TEXT, names[2].as_bytes());
    assert_eq!(third.receive().text(), "hello");
    first.send(TEXT, names[1].as_bytes());
    assert_eq!(first.ask("who").text(), names[0]);
    assert_eq!(
        second.ask("who").text(),
        names[1],
        "nothing came from the other instance"
    );
}

/// Only a message to one who is gone is a message to a dead handler; not what a service still sends
/// after it has closed a connection itself.
#[test]
fn a_handler_is_dead_when_its_connection_is_gone() {
    EXECUTIONS.into_iter().for_each(dead_handler);
}

fn dead_handler(execution: &str) {
    let late = "[server]\nworkers = 1\n[services.late]\ntarget = '/late'\n";
    let server = Folder::new(&format!("{late}{execution}"))
        .app("late", LATE)
        .start();
    let mut first = server.connect("/late");
    first.send(TEXT, b"close, then send");
    assert_eq!(first.receive().code(), 3000);
    first.send(CLOSE, &3000u16.to_be_bytes());
    assert!(first.is_ended());
    server.await_metric("moonwire_connected", "late", 0);
    assert_eq!(server.metric("moonwire_failures_total", "dead_handler"), 0);
    let mut second = server.connect("/late");
    assert_eq!(second.ask("send to the first").text(), "done");
    assert_eq!(server.metric("moonwire_failures_total", "dead_handler"), 1);
}

/// An instance that has used up its memory is replaced; its connections end, and those of others do
/// not.
#[test]
fn an_instance_without_memory_is_replaced() {
    for execution in EXECUTIONS {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[services.hoard]\ntarget = '/hoard'\ninstances = 2\n\
             memory_bytes_max = 8388608\n{execution}"
        ))
        .app("hoard", HOARD)
        .start();
        for round in 1..4 {
            // In turn: the first and the third belong to one instance.
            let mut clients = [(); 4].map(|()| server.connect("/hoard"));
            for client in &mut clients {
                assert_eq!(client.ask("hello").text(), "hello");
            }
            let [greedy, other, companion, fourth] = &mut clients;
            greedy.send(TEXT, b"hoard");
            assert_eq!(greedy.receive().code(), 1011);
            assert_eq!(companion.receive().code(), 1011);
            assert_eq!(other.ask("still here").text(), "still here");
            assert_eq!(fourth.ask("still here").text(), "still here");
            server.await_metric("moonwire_failures_total", "kind=\"lua_error\"", round);
            drop(clients);
            server.await_metric("moonwire_connected", "hoard", 0);
        }
    }
}

/// A client cannot take the others' instance away with one large message.
#[test]
fn a_message_beyond_the_memory_of_an_instance_ends_its_connection_only() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.hoard]\ntarget = '/hoard'\n\
         memory_bytes_max = 4194304\n",
    )
    .app("hoard", HOARD)
    .start();
    let mut other = server.connect("/hoard");
    assert_eq!(other.ask("hello").text(), "hello");
    let mut large = server.connect("/hoard");
    large.send(BINARY, &vec![7; 8 << 20]);
    assert_eq!(large.receive().code(), 1009);
    assert_eq!(other.ask("still here").text(), "still here");
}

/// All echoes of a pipeline are owed in one turn; a queue that is full only because nothing was
/// written yet is no fault of the client.
#[test]
fn a_pipeline_beyond_the_write_queue_is_answered_whole() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nmessage_bytes_max = 1024\n\
         write_queue_bytes_max = 2048\n[services.echo]\ntarget = '/echo'\n",
    )
    .start();
    let mut client = server.connect("/echo");
    let message = frame(BINARY, &[7; 1000]);
    client.write(&message.repeat(40));
    for _ in 0..40 {
        let reply = client.receive();
        assert_eq!((reply.opcode, reply.payload.len()), (BINARY, 1000));
    }
    client.close();
}

/// By default a callback may answer a largest message with four of its size.
#[test]
fn four_largest_replies_fit_the_write_queue() {
    const SIZE: usize = 8 << 20;
    let server = Folder::new(&format!(
        "[server]\nworkers = 1\n[limits]\nmessage_bytes_max = {SIZE}\n\
         [services.fourfold]\ntarget = '/fourfold'\n"
    ))
    .app("fourfold", FOURFOLD)
    .start();
    let mut client = server.connect("/fourfold");
    client.send(BINARY, &vec![7; SIZE]);
    for _ in 0..4 {
        let reply = client.receive();
        assert_eq!((reply.opcode, reply.payload.len()), (BINARY, SIZE));
    }
    client.close();
}

const FOURFOLD: &str = "
local fourfold = {}
function fourfold.onStart() end
function fourfold.onShutdown() end
function fourfold.onDisconnect(handler) end
function fourfold.onMessage(handler, opcode, message)
  for _ = 1, 4 do
    if not ws:send(handler, opcode, message) then return false end
  end
  return true
end
return fourfold
";

/// Without a limit it ends by itself, after 64 MB.
const HOARD: &str = "
local hoard = {}
function hoard.onStart() end
function hoard.onShutdown() end
function hoard.onDisconnect(handler) end
function hoard.onMessage(handler, opcode, message)
  if message == 'hoard' then
    local all = {}
    for i = 1, 64000 do all[i] = ('x'):rep(1000) .. i end
  end
  return ws:send(handler, opcode, message)
end
return hoard
";

const LATE: &str = "
local late = {}
local first
function late.onStart() end
function late.onShutdown() end
function late.onDisconnect(handler) end
function late.onMessage(handler, opcode, message)
  if first then
    ws:send(first, opcode, 'are you there?')
    return ws:send(handler, opcode, 'done')
  end
  first = handler
  ws:close(handler, 3000, '')
  ws:send(handler, opcode, 'one thing more')
  return true
end
return late
";

const MOODY: &str = "
local moody = {}
function moody.onStart() end
function moody.onShutdown() end
function moody.onDisconnect(handler) end
function moody.onMessage(handler, opcode, message)
  if message == 'error' then error('as you wish') end
  if message == 'false' then return false end
  return ws:send(handler, opcode, message)
end
return moody
";

const COUNTER: &str = "
local counter = {}
local count = 0
function counter.onStart() end
function counter.onShutdown() end
function counter.onDisconnect(handler) end
function counter.onMessage(handler, opcode, message)
  count = count + 1
  return ws:send(handler, opcode, count .. ' ' .. tostring(handler))
end
return counter
";

const RELAY: &str = "
local relay = {}
function relay.onStart() end
function relay.onShutdown() end
function relay.onDisconnect(handler) end
function relay.onMessage(handler, opcode, message)
  if message == 'who' then return ws:send(handler, opcode, tostring(handler)) end
  ws:send(tonumber(message), opcode, 'hello')
  return true
end
return relay
";

/// A service may send what it may be sent, however large that is.
#[test]
fn a_message_above_64_mib_can_be_sent() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.large]\ntarget = '/large'\n\
         message_bytes_max = 134217728\n",
    )
    .app("large", LARGE)
    .start();
    let mut client = server.connect("/large");
    let reply = client.ask("go");
    assert_eq!((reply.opcode, reply.payload.len()), (BINARY, 67_108_865));
}

const LARGE: &str = "
local large = {}
function large.onStart() end
function large.onShutdown() end
function large.onDisconnect(handler) end
function large.onMessage(handler, opcode, message)
  return ws:send(handler, 2, string.rep('x', 67108865))
end
return large
";
