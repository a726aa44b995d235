//! Connections on their way to a worker that is busy: so many, for so long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::client::TEXT;
use crate::fixture::{Fixture, Folder};

/// Two workers, of which the first has the only instance; with it busy for this long.
fn busy_for(ms: u32, limits: &str) -> (Fixture, u64) {
    let note = tempfile::NamedTempFile::new().unwrap();
    let toml = format!(
        "[server]\nworkers = 2\n[limits]\n{limits}\
         [services.sleepy]\ntarget = '/sleepy'\ninstances = 1\nconfig = {{ note = '{}' }}\n",
        note.path().display()
    );
    let server = Folder::new(&toml).app("sleepy", SLEEPY).start();
    let mut client = server.connect("/sleepy");
    assert_eq!(client.ask("0").text(), "awake");
    let taken_over = server.metric("moonwire_taken_over_total", "worker");
    client.send(TEXT, ms.to_string().as_bytes());
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::read(note.path()).unwrap() != b"busy" {
        assert!(Instant::now() < deadline, "the callback does not begin");
    }
    (server, taken_over)
}

/// Asks for the service often enough that each worker has accepted several, and returns the
/// answers, which may have to wait for the busy one.
fn statuses(server: &Fixture) -> Vec<u16> {
    let request = "GET /sleepy HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\n\r\n";
    let asked: Vec<_> = (0..60)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            let patience = Duration::from_secs(20);
            stream.set_read_timeout(Some(patience)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let status = |mut stream: TcpStream| {
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
    };
    asked.into_iter().map(status).collect()
}

#[test]
fn a_busy_worker_is_handed_so_many_connections() {
    let (server, before) = busy_for(1000, "handovers_per_worker_max = 3\n");
    let statuses = statuses(&server);
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!(count(101) + count(503), statuses.len(), "{statuses:?}");
    assert!(count(503) > 0, "the other worker had more than three");
    let taken_over = server.metric("moonwire_taken_over_total", "worker");
    assert_eq!(taken_over - before, 3);
}

/// From accept to the 101 there is one time, also on the way to another worker.
#[test]
fn a_handshake_that_waits_for_another_worker_has_no_more_time() {
    let (server, before) = busy_for(1000, "handshake_timeout_ms = 300\n");
    let statuses = statuses(&server);
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    let taken_over = server.metric("moonwire_taken_over_total", "worker") - before;
    assert!(taken_over > 0);
    // Those that the busy worker accepted itself began when it had time for them.
    assert_eq!(count(503) as u64, taken_over, "{statuses:?}");
    assert_eq!(count(101), statuses.len() - count(503), "{statuses:?}");
}

const SLEEPY: &str = "
local config = require('moonwire.config')
local sleepy = {}
-- os.clock counts the time of all threads.
local function now_s()
  local file = io.open('/proc/uptime')
  local now_s = file:read('*n')
  file:close()
  return now_s
end
function sleepy.onStart() end
function sleepy.onShutdown() end
function sleepy.onDisconnect(handler) end
function sleepy.onMessage(handler, opcode, message)
  if message ~= '0' then
    local note = io.open(config.note, 'w')
    note:write('busy')
    note:close()
  end
  local until_s = now_s() + tonumber(message) / 1000
  while now_s() < until_s do end
  ws:send(handler, opcode, 'awake')
  return true
end
return sleepy
";
