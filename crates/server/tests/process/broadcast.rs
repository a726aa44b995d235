//! Standalone services, broadcasts and queues, as clients see them.

use crate::client::{BINARY, Client};
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
