//! Whether a proxy passes connections on to all servers behind it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use procfs::net::TcpState;

use crate::contestant::{RunningContestant, RunningStack};

/// Opens connections through the proxy, holds them, and looks whom they have reached.
pub(super) fn backends_are_reached(stack: &RunningStack) -> Result<(), String> {
    let url = stack.urls().first().map_or("", String::as_str);
    let rest = url.strip_prefix("ws://").unwrap_or(url);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let held: Result<Vec<TcpStream>, String> =
        (0..CONNECTIONS).map(|_| open(address, path)).collect();
    let held = held?;
    let table = procfs::net::tcp().map_err(|error| format!("/proc/net/tcp: {error}"))?;
    let is_reached = |backend: &&RunningContestant| {
        let port = backend.port();
        let mut table = table.iter();
        table.any(|entry| {
            entry.state == TcpState::Established && Some(entry.local_address.port()) == port
        })
    };
    let reached = stack.backends().iter().filter(is_reached).count();
    drop(held);
    if reached < stack.backends().len() {
        return Err(format!(
            "of {} backends {reached} had any of {CONNECTIONS} connections",
            stack.backends().len()
        ));
    }
    Ok(())
}

/// An upgraded connection.
fn open(address: &str, path: &str) -> Result<TcpStream, String> {
    let upgrade = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "GET /{path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok((stream, String::from_utf8_lossy(&status).into_owned()))
    };
    let (stream, status) =
        upgrade().map_err(|error: std::io::Error| format!("the upgrade failed: {error}"))?;
    match status.ends_with(" 101") {
        true => Ok(stream),
        false => Err(format!("the upgrade was answered {status}")),
    }
}

/// More than one for each backend, as a proxy may choose at random where to begin.
const CONNECTIONS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);
