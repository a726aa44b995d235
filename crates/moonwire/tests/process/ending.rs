//! How a server ends that cannot end by itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::harness::{PATIENCE, Server};

/// A callback that never returns holds its worker, and must not hold the process.
#[test]
fn a_worker_that_does_not_end_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stuck.lua"), STUCK).unwrap();
    let file = folder.path().join("moonwire.toml");
    let toml = "[server]\nworkers = 1\n[limits]\ndrain_timeout_ms = 0\n\
                [services.stuck]\ntarget = '/stuck'\nfolder = '.'\ncallback_timeout_ms = 0\n";
    std::fs::write(&file, toml).unwrap();
    let server = Server::moonwire(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.terminate().code(), Some(1));
}

/// A log line that cannot be written is lost, and nothing else is.
#[test]
fn a_server_that_cannot_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = bad(folder.path(), "/dev/full");
    for _ in 0..2 {
        provoke(&server);
    }
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn a_log_in_a_file_has_no_colours() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = bad(folder.path(), log.to_str().unwrap());
    provoke(&server);
    assert_eq!(server.terminate().code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("boom") && !log.contains('\x1b'), "{log:?}");
}

/// A server whose callback fails, and whose stderr goes to a file.
fn bad(folder: &Path, stderr: &str) -> Server {
    std::fs::write(folder.join("bad.lua"), BAD).unwrap();
    let script = format!(
        "exec '{}' serve --workers 1 --listen 127.0.0.1:0 --app bad='{}' 2>'{stderr}'",
        env!("CARGO_BIN_EXE_moonwire"),
        folder.display()
    );
    Server::start(Command::new("sh").args(["-c", &script]))
}

/// Has the callback fail, which the server logs before it says 1011.
fn provoke(server: &Server) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /bad HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\
                   Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Version: 13\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    // An empty text, masked.
    stream.write_all(&[0x81, 0x80, 0, 0, 0, 0]).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(&[0x88, 2, 0x03, 0xf3]) {
        let mut byte = [0];
        let read = stream.read_exact(&mut byte);
        assert!(read.is_ok(), "{read:?} after {answer:?}");
        answer.extend(byte);
    }
}

const BAD: &str = "
local bad = {}
function bad.onStart() end
function bad.onShutdown() end
function bad.onDisconnect(handler) end
function bad.onMessage(handler, opcode, message) error('boom') end
return bad
";

/// A closed terminal is an order to stop, as SIGTERM is.
#[test]
fn a_hangup_ends_a_server_in_order() {
    let mut server = Server::moonwire(&[]);
    assert!(server.is_running());
    assert_eq!(server.end_by(rustix::process::Signal::HUP).code(), Some(0));
}

const STUCK: &str = "
local stuck = {}
function stuck.onStart() end
function stuck.onShutdown() while true do end end
function stuck.onDisconnect(handler) end
function stuck.onMessage(handler, opcode, message) return true end
return stuck
";
