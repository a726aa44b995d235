//! A service with connections that asks another server before it answers.

use crate::fixture::{Fixture, Folder};

fn relay(target: &Fixture) -> Fixture {
    let url = format!("ws://{}/echo", target.address);
    let toml = format!(
        "[server]\nworkers = 2\n[services.relay]\ntarget = '/relay'\npreload = ['cws', 'time']\n\
         instances = 2\nconfig = {{ url = '{url}' }}\n"
    );
    Folder::new(&toml).app("relay", RELAY).start()
}

#[test]
fn a_service_with_connections_asks_another_server() {
    let target = Fixture::shipped();
    let server = relay(&target);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect("/relay")).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let text = format!("{round} of {number}");
            assert_eq!(client.ask(&text).text(), text);
        }
    }
    // Its connections end with it, and say so.
    target.await_metric("moonwire_connected", "echo", 2);
    server.stop();
    target.await_metric("moonwire_connected", "echo", 0);
    assert_eq!(target.metric("moonwire_failures_total", "echo"), 0);
}

const RELAY: &str = "
local relay = {}
local url = require('moonwire.config').url
local upstream, asker, answer

local function loop(done)
  local deadline = time.now() + 10000
  while not done() do
    assert(time.now() < deadline, 'it takes too long')
    cws:eventLoop()
  end
end

function relay.onStart()
  upstream = assert(cws:new(url, {
    onopen = function(handler) asker = handler end,
    onmessage = function(handler, data) answer = data end,
  }))
  loop(function() return asker end)
end

function relay.onMessage(handler, opcode, message)
  answer = nil
  assert(cws:send(asker, message, opcode))
  loop(function() return answer end)
  return ws:send(handler, opcode, answer)
end

function relay.onDisconnect(handler) end
function relay.onShutdown() end

return relay
";
