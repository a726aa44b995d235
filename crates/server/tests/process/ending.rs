//! How connections and servers end.

use std::time::{Duration, Instant};

use crate::client::{CLOSE, Client, TEXT};
use crate::fixture::{EXECUTIONS, Fixture, Folder};

#[test]
fn on_disconnect_comes_once_however_a_connection_ends() {
    EXECUTIONS.into_iter().for_each(one_good_bye);
}

fn one_good_bye(execution: &str) {
    let diary = "[server]\nworkers = 1\n[services.diary]\ntarget = '/diary'\n";
    let server = Folder::new(&format!("{diary}{execution}"))
        .app("diary", DIARY)
        .start();
    let [mut in_order, mut reset, mut ended, mut broken] =
        [(); 4].map(|()| server.connect("/diary"));
    for client in [&mut in_order, &mut reset, &mut ended, &mut broken] {
        assert_eq!(client.ask("hello").text(), "hello");
    }
    // One that never says anything is told good-bye as well.
    server.connect("/diary").reset();
    in_order.close();
    reset.reset();
    ended.end();
    broken.write(&[0xff; 2]);
    assert_eq!(broken.receive().code(), 1002);
    server.await_metric("moonwire_connected", "diary", 0);
    assert_eq!(server.metric("moonwire_failures_total", "kind=\"lost\""), 3);
    assert_eq!(server.connect("/diary").ask("goodbyes").text(), "5 once");
}

#[test]
fn a_slow_reader_meets_the_bound_and_is_closed() {
    let server = slow_reader("");
    let mut slow = server.connect("/flood");
    slow.send(TEXT, b"go");
    server.await_metric("moonwire_failures_total", "kind=\"queue_full\"", 1);
    let mut last = slow.receive();
    let mut received = 0;
    while last.opcode != CLOSE {
        received += 1;
        last = slow.receive();
    }
    assert_eq!(last.code(), 1013);
    assert!((1..1000).contains(&received), "{received}");
    slow.send(CLOSE, &1013u16.to_be_bytes());
    assert!(slow.is_ended());
    server.await_metric("moonwire_write_queue_bytes", "flood", 0);
}

#[test]
fn a_slow_reader_loses_messages_and_stays_if_the_policy_is_drop() {
    let server = slow_reader("write_queue_policy = 'drop'\n");
    let mut slow = server.connect("/flood");
    slow.send(TEXT, b"go");
    // Slow for certain: it reads nothing before something was dropped.
    let dropped = || server.metric("moonwire_failures_total", "kind=\"queue_full\"");
    let deadline = Instant::now() + Duration::from_secs(20);
    while dropped() == 0 {
        assert!(Instant::now() < deadline, "nothing was dropped");
        std::thread::yield_now();
    }
    slow.send(TEXT, b"end");
    let mut received = 0;
    loop {
        let frame = slow.receive();
        if frame.payload == b"end" {
            break;
        }
        assert_eq!(frame.opcode, TEXT);
        received += 1;
    }
    assert_eq!(received + dropped(), 1000);
}

#[test]
fn a_stopping_server_says_1001_and_waits() {
    let server = Fixture::shipped();
    let mut clients: Vec<_> = (0..20).map(|_| server.connect("/echo")).collect();
    for client in &mut clients {
        assert_eq!(client.ask("hello").text(), "hello");
    }
    server.stopper.stop();
    for client in &mut clients {
        assert_eq!(client.receive().code(), 1001);
    }
    assert!(
        std::net::TcpStream::connect(server.address).is_err(),
        "nobody is accepted"
    );
    for client in &mut clients {
        client.send(CLOSE, &1001u16.to_be_bytes());
        assert!(client.is_ended());
    }
    drop(clients);
    let table = server.stop();
    assert!(!table.contains("failures:"), "{table}");
}

#[test]
fn a_stopping_server_cuts_who_does_not_go() {
    EXECUTIONS.into_iter().for_each(cut);
}

fn cut(execution: &str) {
    let diary = "[limits]\ndrain_timeout_ms = 50\n[services.diary]\ntarget = '/diary'\n";
    let server = Folder::new(&format!("{diary}{execution}"))
        .app("diary", DIARY)
        .start();
    let note = server.folder.path().join("note");
    let mut client = server.connect("/diary");
    client.send(TEXT, format!("note {}", note.display()).as_bytes());
    assert_eq!(client.receive().text(), "noted");
    let folder = server.folder.path().to_owned();
    server.stopper.stop();
    assert_eq!(client.receive().code(), 1001);
    // Read before the fixture, and with it the folder, goes.
    let mut server = server;
    let table = server.wait();
    assert!(table.contains("timeout 1"), "{table}");
    let note = std::fs::read_to_string(folder.join("note")).unwrap();
    assert_eq!(note, "disconnected\nshut down\n");
    assert!(!client.is_alive());
}

#[test]
fn a_server_that_does_not_wait_says_1001_all_the_same() {
    let server =
        Folder::new("[limits]\ndrain_timeout_ms = 0\n[services.echo]\ntarget = '/echo'\n").start();
    let mut clients: Vec<_> = (0..20).map(|_| server.connect("/echo")).collect();
    for client in &mut clients {
        assert_eq!(client.ask("hello").text(), "hello");
    }
    server.stop();
    for client in &mut clients {
        assert_eq!(client.receive().code(), 1001);
        assert!(client.is_ended(), "not reset");
    }
}

#[test]
fn a_silent_peer_is_pinged_and_given_up() {
    let server = Folder::new(
        "[limits]\nidle_timeout_ms = 50\npong_timeout_ms = 50\n[services.echo]\ntarget = '/echo'\n",
    )
    .start();
    let mut client = server.connect("/echo");
    assert_eq!(client.receive().opcode, crate::client::PING);
    assert!(!client.is_alive());
    server.await_metric("moonwire_failures_total", "kind=\"timeout\"", 1);
}

/// Sends a thousand messages of 64 KiB for each one.
/// What one queue may hold times the clients would be more than the worker may hold.
#[test]
fn slow_readers_together_meet_the_bound_of_their_worker() {
    const BOUND: u64 = 2_000_000;
    let server = slow_reader(&format!(
        "write_queue_policy = 'drop'\nmemory_bytes_per_worker_max = {BOUND}\n"
    ));
    let mut good = server.connect("/flood");
    let mut slow: Vec<_> = (0..4).map(|_| server.connect("/flood")).collect();
    for (number, slow) in (1..).zip(&mut slow) {
        slow.send(TEXT, b"go");
        server.await_metric("moonwire_messages_in_total", "flood", 2 * number - 1);
        assert_eq!(good.ask("still here").text(), "still here");
        let waiting = server.metric("moonwire_write_queue_bytes", "flood");
        assert!(waiting <= BOUND, "{waiting} B wait after client {number}");
    }
    // Some full queues fit; the others were cut, and their service knows.
    let left = server.metric("moonwire_connected", "flood");
    assert!((2..5).contains(&left), "{left}");
    let cut = server.metric("moonwire_failures_total", "kind=\"memory\"");
    assert_eq!(left + cut, 5);
    drop(slow);
    server.await_metric("moonwire_connected", "flood", 1);
    server.await_metric("moonwire_write_queue_bytes", "flood", 0);
    assert_eq!(good.ask("and here").text(), "and here");
}

fn slow_reader(policy: &str) -> Fixture {
    Folder::new(&format!(
        "[server]\nworkers = 1\n[limits]\nmessage_bytes_max = 70000\n\
         write_queue_bytes_max = 1000000\n{policy}[services.flood]\ntarget = '/flood'\n"
    ))
    .app("flood", FLOOD)
    .start()
}

#[test]
fn ends_come_in_order_for_clients_too() {
    let server = Fixture::shipped();
    let clients: Vec<Client> = (0..50).map(|_| server.connect("/echo")).collect();
    clients.into_iter().for_each(Client::close);
    server.await_metric("moonwire_sockets", "worker", 1);
}

const DIARY: &str = "
local diary = {}
local goodbyes, total, note = {}, 0, nil
local function write(line)
  if note then
    local file = io.open(note, 'a')
    file:write(line, '\\n')
    file:close()
  end
end
function diary.onStart() end
function diary.onShutdown() write('shut down') end
function diary.onDisconnect(handler)
  goodbyes[handler] = (goodbyes[handler] or 0) + 1
  total = total + 1
  write('disconnected')
end
function diary.onMessage(handler, opcode, message)
  if message == 'goodbyes' then
    local most = 0
    for _, times in pairs(goodbyes) do most = math.max(most, times) end
    return ws:send(handler, opcode, total .. (most == 1 and ' once' or ' several times'))
  end
  local name = message:match('^note (.+)')
  if name then
    note = name
    return ws:send(handler, opcode, 'noted')
  end
  return ws:send(handler, opcode, message)
end
return diary
";

const FLOOD: &str = "
local flood = {}
local large = string.rep('x', 65536)
function flood.onStart() end
function flood.onShutdown() end
function flood.onDisconnect(handler) end
function flood.onMessage(handler, opcode, message)
  if message == 'go' then
    for _ = 1, 1000 do ws:send(handler, opcode, large) end
    return true
  end
  return ws:send(handler, opcode, message)
end
return flood
";
