//! Standalone services, broadcasts and queues, as clients see them.

use crate::client::{BINARY, CLOSE, Client, Frame};
use crate::fixture::{Fixture, Folder};

/// A clock that broadcasts on channel 1 and a service whose clients subscribe to it, on so many
/// workers.
fn server(workers: usize) -> Fixture {
    Folder::new(&format!(
        "[server]\nworkers = {workers}\n\
         [services.ticker]\nstandalone = true\npreload = ['mqr', 'nap']\n\
         [services.desk]\ntarget = '/desk'\nprotocol = 'lapps'\npreload = ['mqr']\n"
    ))
    .app("ticker", TICKER)
    .app("desk", DESK)
    .start()
}

/// {lapps: 1, method: METHOD, cid: 1}
fn notify(client: &mut Client, method: &str) {
    let mut message = b"\xa3\x65lapps\x01\x63cid\x01\x66method".to_vec();
    message.push(0x60 + method.len() as u8);
    message.extend_from_slice(method.as_bytes());
    client.send(BINARY, &message);
}

/// What comes next on channel 1: its text.
fn heard(client: &mut Client) -> String {
    let message = client.receive();
    assert_eq!(message.opcode, BINARY);
    let head = b"\xa2\x63cid\x01\x67message\x81";
    let text = message.payload.strip_prefix(&head[..]).unwrap();
    String::from_utf8(text[1..].to_vec()).unwrap()
}

#[test]
fn a_broadcast_reaches_the_subscribers_of_all_workers_and_nobody_else() {
    let server = server(3);
    let mut subscribers: Vec<_> = (0..9).map(|_| server.connect("/desk")).collect();
    let mut others: Vec<_> = (0..3).map(|_| server.connect("/desk")).collect();
    for client in &mut subscribers {
        notify(client, "subscribe");
        assert_eq!(heard(client), "yours");
    }
    notify(&mut others[0], "tick");
    for client in &mut subscribers {
        assert_eq!(heard(client), "tick");
    }
    // One that subscribes twice gets two copies, one that does not any more none.
    notify(&mut subscribers[0], "subscribe");
    assert_eq!(heard(&mut subscribers[0]), "yours");
    notify(&mut subscribers[1], "leave");
    assert_eq!(heard(&mut subscribers[1]), "yours");
    notify(&mut others[0], "tick");
    assert_eq!(heard(&mut subscribers[0]), "tick");
    assert_eq!(heard(&mut subscribers[0]), "tick");
    assert_eq!(heard(&mut subscribers[2]), "tick");
    for client in others.iter_mut().chain([&mut subscribers[1]]) {
        notify(client, "me");
        assert_eq!(heard(client), "yours", "it heard nothing else");
    }
}

/// Several in order, to one that comes and one that goes meanwhile.
#[test]
fn broadcasts_come_in_order() {
    let server = server(2);
    let mut client = server.connect("/desk");
    notify(&mut client, "subscribe");
    assert_eq!(heard(&mut client), "yours");
    let mut sender = server.connect("/desk");
    let mut goner = server.connect("/desk");
    notify(&mut goner, "subscribe");
    for number in 0..100 {
        if number == 50 {
            goner.reset();
            goner = server.connect("/desk");
        }
        notify(&mut sender, &format!("tick {number}"));
    }
    for number in 0..100 {
        assert_eq!(heard(&mut client), format!("tick {number}"));
    }
    assert_eq!(
        server.metric("moonwire_failures_total", "broadcast_dropped"),
        0
    );
}

/// Point 57 of the compatibility with LAppS. One subscriber reads nothing; each of the others hears
/// each broadcast before the next one is sent, until the slow one is at its bound, and beyond.
#[test]
fn a_slow_subscriber_delays_nobody() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nmessage_bytes_max = 70000\n\
         write_queue_bytes_max = 1000000\nsend_buffer_bytes = 65536\n\
         [services.radio]\ntarget = '/radio'\nprotocol = 'lapps'\n",
    )
    .app("radio", RADIO)
    .start();
    let mut subscribers: Vec<_> = (0..4).map(|_| server.connect("/radio")).collect();
    for client in &mut subscribers {
        notify(client, "subscribe");
        assert_eq!(heard(client), "yours");
    }
    let mut slow = subscribers.remove(1);
    let mut sender = server.connect("/radio");
    let mut sent = 0;
    let mut send = |subscribers: &mut [Client]| {
        notify(&mut sender, "send");
        for client in subscribers {
            assert_eq!(number(&client.receive()), sent);
        }
        sent += 1;
        sent
    };
    let full = || server.metric("moonwire_failures_total", "kind=\"queue_full\"");
    while full() == 0 {
        assert!(
            send(&mut subscribers) < 1000,
            "nothing waits for who does not read"
        );
    }
    for _ in 0..10 {
        send(&mut subscribers);
    }
    assert_eq!(full(), 1, "it was closed, and is sent nothing more");
    let mut next = 0;
    let last = loop {
        let frame = slow.receive();
        if frame.opcode == CLOSE {
            break frame;
        }
        assert_eq!(number(&frame), next);
        next += 1;
    };
    assert_eq!(last.code(), 1013);
    assert!(next > 0 && next + 10 < sent, "{next} of {sent}");
}

/// The number in front of a broadcast of 64 KiB.
fn number(message: &Frame) -> u32 {
    let head = b"\xa2\x63cid\x01\x67message\x81\x7a\0\x01\0\x05";
    let text = message.payload.strip_prefix(&head[..]).unwrap();
    std::str::from_utf8(&text[..5]).unwrap().parse().unwrap()
}

/// The ticker waits at its queue when the order to stop comes.
#[test]
fn a_standalone_service_that_waits_is_told_to_stop() {
    let server = server(1);
    drop(server.connect("/desk"));
    server.stop();
}

#[test]
fn a_standalone_service_that_cannot_be_loaded_is_named() {
    let folder = Folder::new("[services.ticker]\nstandalone = true\n")
        .app("ticker", "return {init = function() end}");
    let error = match moonwire_server::Server::start(folder.load().unwrap()) {
        Ok(_) => panic!("it has no run"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("ticker") && error.contains("run"), "{error}");
}

#[test]
fn a_standalone_service_has_no_target() {
    let folder = Folder::new("[services.ticker]\nstandalone = true\ntarget = '/ticker'\n")
        .app("ticker", TICKER);
    let error = folder.load().unwrap_err().to_string();
    assert!(error.contains("so it has no `target`"), "{error}");
}

/// One that fails while it runs takes nobody along.
#[test]
fn a_standalone_service_that_fails_ends_alone() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.echo]\ntarget = '/echo'\n\
         [services.broken]\nstandalone = true\ninstances = 3\n",
    )
    .app(
        "broken",
        "return {init = function() error('no') end, run = function() end}",
    )
    .start();
    assert_eq!(server.connect("/echo").ask("there?").text(), "there?");
    server.stop();
}

/// Broadcasts what comes through the queue.
const TICKER: &str = "
local ticker = {}
local queue = mqr.create('ticks')
function ticker.init() bcast:create(1) end
function ticker.run()
  while not must_stop() do
    local tick = queue:recv()
    if tick then
      bcast:send(1, tick)
    end
  end
end
return ticker
";

/// `subscribe` and `leave` are answered; what begins with `tick` goes through the queue.
const DESK: &str = "
local desk = {}
local queue = mqr.create('ticks')
function desk.onStart() end
function desk.onShutdown() end
function desk.onDisconnect(handler) end
local function notification(text)
  local message = nljson.decode('{\"cid\":1,\"message\":[]}')
  message.message[1] = text
  return message
end
function desk.onMessage(handler, kind, message)
  local method = message.method
  if method:find('^tick') then
    return queue:post(notification(method))
  elseif method == 'subscribe' then
    assert(bcast:subscribe(1, handler))
  elseif method == 'leave' then
    assert(bcast:unsubscribe(1, handler))
  end
  -- As it would come by a broadcast, without a status.
  return ws:send(handler, 2, nljson.to_cbor(notification('yours')))
end
return desk
";

/// `subscribe` is answered, `send` broadcasts 64 KiB that begin with a number of five digits.
const RADIO: &str = "
local radio = {}
local sent = 0
local filler = string.rep('x', 65536)
function radio.onStart() bcast:create(1) end
function radio.onShutdown() end
function radio.onDisconnect(handler) end
local function notification(text)
  local message = nljson.decode('{\"cid\":1,\"message\":[]}')
  message.message[1] = text
  return message
end
function radio.onMessage(handler, kind, message)
  if message.method == 'subscribe' then
    assert(bcast:subscribe(1, handler))
    return ws:send(handler, 2, nljson.to_cbor(notification('yours')))
  end
  local text = ('%05d'):format(sent) .. filler
  sent = sent + 1
  return bcast:send(1, notification(text))
end
return radio
";

/// Nobody can connect; the service runs until it is told to stop.
#[test]
fn without_workers_standalone_services_run() {
    let server = Folder::new(
        "[server]\nworkers = 0\n[services.ticker]\nstandalone = true\npreload = ['mqr']\n",
    )
    .app("ticker", TICKER);
    let server = moonwire_server::Server::start(server.load().unwrap()).unwrap();
    assert!(server.addresses().is_empty());
    let stopper = server.stopper();
    assert_eq!(stopper.running(), ["service ticker"]);
    stopper.stop();
    server.wait().unwrap();
}

/// What a callback broadcasts and then sends or closes comes in that order, behind what others had
/// broadcast before.
#[test]
fn a_broadcast_comes_before_what_the_same_callback_does_next() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.both]\ntarget = '/both'\nprotocol = 'lapps'\n",
    )
    .app("both", BOTH)
    .start();
    // So many that a broadcast takes more than one turn.
    let mut others: Vec<_> = (0..300).map(|_| server.connect("/both")).collect();
    let mut client = server.connect("/both");
    for client in others.iter_mut().chain([&mut client]) {
        notify(client, "subscribe");
        assert_eq!(heard(client), "yours");
    }
    for _ in 0..20 {
        notify(&mut client, "send");
    }
    notify(&mut client, "close");
    for _ in 0..20 {
        assert_eq!(heard(&mut client), "all");
        assert_eq!(heard(&mut client), "yours");
    }
    assert_eq!(heard(&mut client), "all");
    assert_eq!(client.receive().code(), 1000);
    for other in &mut others {
        for _ in 0..21 {
            assert_eq!(heard(other), "all");
        }
        notify(other, "me");
        assert_eq!(heard(other), "yours", "nothing came twice");
    }
}

const BOTH: &str = r#"
local both = {}
local function say(text)
  local message = nljson.decode('{"cid": 1, "message": []}')
  message.message[1] = text
  return message
end
function both.onStart() bcast:create(1) end
function both.onShutdown() end
function both.onDisconnect(handler) end
function both.onMessage(handler, kind, message)
  local method = message.method
  if method == 'subscribe' then
    bcast:subscribe(1, handler)
  elseif method ~= 'me' then
    bcast:send(1, say('all'))
  end
  if method == 'close' then
    ws:close(handler, 1000)
    return true
  end
  return ws:send(handler, 2, nljson.to_cbor(say('yours')))
end
return both
"#;
