//! Callbacks that take long: what is stopped, and what others feel of those that may go on.

use std::time::{Duration, Instant};

use crate::client::{CLOSE, Client, TEXT};
use crate::fixture::{EXECUTIONS, Folder};

/// Each of them never returns by itself.
const ENDLESS: [&str; 5] = ["loop", "pcall", "coroutine", "garbage", "handler"];

#[test]
fn a_callback_that_does_not_return_ends_its_connection_and_nothing_else() {
    for execution in EXECUTIONS {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[services.busy]\ntarget = '/busy'\n\
             callback_timeout_ms = 50\n{execution}"
        ))
        .app("busy", BUSY)
        .start();
        let mut neighbour = server.connect("/busy");
        assert_eq!(neighbour.ask("0").text(), "0");
        for (stopped, how) in (1..).zip(ENDLESS) {
            let mut endless = server.connect("/busy");
            endless.send(TEXT, how.as_bytes());
            assert_eq!(endless.receive().code(), 1011, "{how}");
            assert_eq!(neighbour.ask(how).text(), how, "the instance goes on");
            let failures = server.metric("moonwire_failures_total", "kind=\"lua_error\"");
            assert_eq!(failures, stopped, "{how}");
        }
        // One that is stopped as it says good-bye.
        let mut last = server.connect("/busy");
        last.send(TEXT, b"stay busy");
        assert_eq!(last.receive().text(), "so be it");
        last.close();
        assert_eq!(neighbour.ask("1").text(), "1");
        server.await_metric("moonwire_failures_total", "kind=\"lua_error\"", 6);
    }
}

#[test]
fn services_that_do_not_start_in_time_are_broken() {
    let server = Folder::new(
        "[server]\nworkers = 1\non_broken_service = 'skip'\n[services.echo]\ntarget = '/echo'\n\
         [services.file]\ntarget = '/file'\ncallback_timeout_ms = 50\n\
         [services.start]\ntarget = '/start'\ncallback_timeout_ms = 50\n\
         [services.init]\nstandalone = true\ncallback_timeout_ms = 50\n",
    )
    .app("file", "while true do end")
    .app(
        "start",
        "return {onStart = function() while true do end end, onMessage = print,
         onDisconnect = print, onShutdown = print}",
    )
    .app(
        "init",
        "return {init = function() while true do end end, run = print}",
    )
    .start();
    for name in ["/file", "/start"] {
        let refused = Client::upgrade(server.address, name, "");
        assert_eq!(
            refused.map(|(_, head)| head).unwrap_err().status,
            503,
            "{name}"
        );
    }
    assert_eq!(server.connect("/echo").ask("hello").text(), "hello");
}

/// It sleeps for three times as long as a callback may take, and waits for nothing else. Those who
/// share its worker are served meanwhile.
#[test]
fn a_threaded_service_that_sleeps_delays_nobody_else() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.echo]\ntarget = '/echo'\n\
         [services.sleeper]\ntarget = '/sleeper'\npreload = ['nap']\nexecution = 'threaded'\n",
    )
    .app("sleeper", SLEEPER)
    .start();
    let mut sleeper = server.connect("/sleeper");
    let mut echo = server.connect("/echo");
    assert_eq!(echo.ask("before").text(), "before");
    sleeper.send(TEXT, b"3000");
    for number in 0..200 {
        let text = number.to_string();
        assert_eq!(echo.ask(&text).text(), text);
    }
    assert_eq!(
        server.metric("moonwire_messages_out_total", "sleeper"),
        0,
        "it sleeps"
    );
    assert_eq!(sleeper.receive().text(), "slept 3000");
    assert_eq!(sleeper.ask("0").text(), "slept 0");
}

/// What waits for one instance is bounded: the others wait in their sockets, and nothing is lost.
#[test]
fn beyond_the_bound_of_a_mailbox_clients_wait() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[services.sleeper]\ntarget = '/sleeper'\npreload = ['nap']\n\
         execution = 'threaded'\n[services.echo]\ntarget = '/echo'\n",
    )
    .app("sleeper", SLEEPER)
    .start();
    let mut first = server.connect("/sleeper");
    first.send(TEXT, b"1000");
    // 24 MiB for one that holds 16 MiB.
    let large = vec![b' '; 1 << 20];
    let mut clients: Vec<_> = (0..24).map(|_| server.connect("/sleeper")).collect();
    for client in &mut clients {
        client.send(TEXT, &large);
        client.send(TEXT, b"0");
    }
    assert_eq!(server.connect("/echo").ask("hello").text(), "hello");
    let delivered = server.metric("moonwire_messages_in_total", "sleeper");
    assert!(delivered <= 18, "{delivered} messages found a place");
    for client in &mut clients {
        assert_eq!(client.receive().text(), "slept nil");
        assert_eq!(client.receive().text(), "slept 0");
    }
    assert_eq!(first.receive().text(), "slept 1000");
}

/// The answer to what came before the close frame comes before the answer to that.
#[test]
fn a_close_keeps_its_place_behind_a_message_that_takes_long() {
    for execution in EXECUTIONS {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[services.sleeper]\ntarget = '/sleeper'\n\
             preload = ['nap']\n{execution}"
        ))
        .app("sleeper", SLEEPER)
        .start();
        let mut client = server.connect("/sleeper");
        client.send(TEXT, b"50");
        client.send(crate::client::PING, b"between");
        client.send(TEXT, b"1");
        client.send(CLOSE, &1000u16.to_be_bytes());
        assert_eq!(client.receive().text(), "slept 50");
        assert_eq!(client.receive().opcode, crate::client::PONG);
        assert_eq!(client.receive().text(), "slept 1");
        assert_eq!(client.receive().code(), 1000);
        assert!(client.is_ended());
    }
}

/// Who says that it sends no more still gets its answer.
#[test]
fn the_end_of_what_a_client_sends_is_not_the_end_of_its_answers() {
    for execution in EXECUTIONS {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[services.sleeper]\ntarget = '/sleeper'\n\
             preload = ['nap']\n{execution}"
        ))
        .app("sleeper", SLEEPER)
        .start();
        let mut client = server.connect("/sleeper");
        client.send(TEXT, b"50");
        client.end_sending();
        assert_eq!(client.receive().text(), "slept 50");
        assert!(client.is_ended());
    }
}

/// What waited for an instance that was replaced is not for its successor, which knows none of
/// those connections, and they end in order.
#[test]
fn a_new_instance_gets_nothing_of_those_whose_connections_were_given_up() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nclose_timeout_ms = 60000\n[services.hoarder]\n\
         target = '/hoarder'\nmemory_bytes_max = 8388608\ninstances = 1\npreload = ['nap']\n\
         execution = 'threaded'\n",
    )
    .app("hoarder", HOARDER)
    .start();
    let mut clients: Vec<_> = (0..4).map(|_| server.connect("/hoarder")).collect();
    clients[0].send(TEXT, b"hoard");
    for client in &mut clients[1..] {
        client.send(TEXT, b"wait");
    }
    for client in &mut clients {
        assert_eq!(client.receive().code(), 1011);
        client.send(CLOSE, &1011u16.to_be_bytes());
        assert!(client.is_ended());
    }
    let mut next = server.connect("/hoarder");
    assert_eq!(next.ask("count").text(), "1 messages, 0 ends");
}

/// A start that fails once, as a connection to a database may, is not the end of the service.
#[test]
fn an_instance_that_could_not_be_replaced_is_tried_again() {
    for execution in EXECUTIONS {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[services.fickle]\ntarget = '/fickle'\n\
             memory_bytes_max = 8388608\ninstances = 1\n{execution}"
        ))
        .app("fickle", FICKLE)
        .start();
        let mut first = server.connect("/fickle");
        first.send(TEXT, b"hoard");
        assert_eq!(first.receive().code(), 1011);
        let begin = Instant::now();
        loop {
            let mut next = server.connect("/fickle");
            let answer = next.ask("start");
            if answer.opcode == TEXT {
                assert_eq!(answer.text(), "3");
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "it stays broken");
        }
    }
}

/// A service that sleeps for an hour does not keep the server.
#[test]
fn the_order_to_stop_ends_a_sleep() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\ndrain_timeout_ms = 100\n\
         [services.sleeper]\ntarget = '/sleeper'\npreload = ['nap']\nexecution = 'threaded'\n",
    )
    .app("sleeper", SLEEPER)
    .start();
    let mut sleeper = server.connect("/sleeper");
    sleeper.send(TEXT, b"3600000");
    server.await_metric("moonwire_messages_in_total", "sleeper", 1);
    let table = server.stop();
    assert!(table.contains("sleeper"), "{table}");
}

const BUSY: &str = "
local busy, stays = {}, {}
local ways = {}
function ways.loop() while true do end end
function ways.pcall() while true do pcall(ways.loop) end end
function ways.coroutine() while true do coroutine.wrap(ways.pcall)() end end
function ways.garbage() while true do local t = {} for i = 1, 1000 do t[i] = {i} end end end
function ways.handler() xpcall(ways.loop, ways.loop) end
local asked = {}
function busy.onStart() end
function busy.onShutdown() end
function busy.onDisconnect(handler)
  if stays[handler] then ways.loop() end
end
function busy.onMessage(handler, opcode, message)
  if message == 'stay busy' then
    stays[handler] = true
    return ws:send(handler, opcode, 'so be it')
  end
  if ways[message] and not asked[message] then
    asked[message] = true
    ways[message]()
  end
  return ws:send(handler, opcode, message)
end
return busy
";

/// Its second start fails.
const FICKLE: &str = "
local fickle, starts = {}, 0
function fickle.onStart()
  local place = debug.getinfo(1).source:sub(2) .. '.starts'
  for _ in io.lines(place) do starts = starts + 1 end
  starts = starts + 1
  local file = io.open(place, 'a')
  file:write('start\\n')
  file:close()
  if starts == 2 then error('not yet') end
end
function fickle.onShutdown() end
function fickle.onDisconnect(handler) end
function fickle.onMessage(handler, opcode, message)
  if message == 'hoard' then
    local t = {}
    for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end
  end
  return ws:send(handler, opcode, tostring(starts))
end
io.open(debug.getinfo(1).source:sub(2) .. '.starts', 'a'):close()
return fickle
";

/// The sleep lets the others come in behind it.
const HOARDER: &str = "
local hoarder, messages, ends = {}, 0, 0
function hoarder.onStart() end
function hoarder.onShutdown() end
function hoarder.onDisconnect(handler) ends = ends + 1 end
function hoarder.onMessage(handler, opcode, message)
  messages = messages + 1
  if message == 'hoard' then
    nap:new():usleep(300000)
    local t = {}
    for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end
  end
  return ws:send(handler, opcode, messages .. ' messages, ' .. ends .. ' ends')
end
return hoarder
";

const SLEEPER: &str = "
local sleeper = {}
function sleeper.onStart() end
function sleeper.onShutdown() end
function sleeper.onDisconnect(handler) end
function sleeper.onMessage(handler, opcode, message)
  local milliseconds = tonumber(message)
  if milliseconds then nap:new():usleep(milliseconds * 1000) end
  return ws:send(handler, opcode, 'slept ' .. tostring(milliseconds))
end
return sleeper
";
