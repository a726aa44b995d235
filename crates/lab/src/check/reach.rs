//! Whether a proxy passes connections on to all servers behind it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use procfs::net::TcpState;
use rustix::net::{AddressFamily, SocketType};

use crate::contestant::{RunningContestant, RunningStack};

/// Opens connections through the proxy, holds them, and looks whom they have reached.
pub(super) fn backends_are_reached(stack: &RunningStack) -> Result<(), String> {
    let held: Result<Vec<TcpStream>, String> = (0..CONNECTIONS)
        .map(|_| open(stack, Ipv4Addr::LOCALHOST))
        .collect();
    let held = held?;
    let reached = counts(stack)?;
    drop(held);
    are_all_reached(&reached)
}

/// Opens two connections from each of several addresses: both must reach the same server, and those
/// of all addresses together each of them.
pub(super) fn addresses_stay(stack: &RunningStack) -> Result<(), String> {
    let mut held = Vec::new();
    let before = settled_counts(stack)?;
    let mut new = Vec::new();
    for host in 1..=CONNECTIONS as u8 {
        let address = Ipv4Addr::new(127, 0, 0, host);
        held.push(open(stack, address)?);
        held.push(open(stack, address)?);
        new = new_counts(stack, &before, held.len())?;
        if new.iter().any(|count| count % 2 != 0) {
            return Err(format!(
                "two connections from {address} reached two servers: it is not sticky"
            ));
        }
    }
    drop(held);
    are_all_reached(&new)
}

/// How many connections each of the servers has, once those that are about to end have ended.
fn settled_counts(stack: &RunningStack) -> Result<Vec<usize>, String> {
    let begin = Instant::now();
    let mut before = counts(stack)?;
    loop {
        thread::sleep(LOOK);
        let after = counts(stack)?;
        if after == before || begin.elapsed() > PATIENCE {
            return Ok(after);
        }
        before = after;
    }
}

/// How many more there are than before on each, once they are `all` together. The table is read bit
/// by bit while the connections of others come and go in it, so that one can be missing.
fn new_counts(stack: &RunningStack, before: &[usize], all: usize) -> Result<Vec<usize>, String> {
    let begin = Instant::now();
    loop {
        let new = counts(stack)?.into_iter().zip(before);
        let new: Vec<usize> = new
            .map(|(after, before)| after.saturating_sub(*before))
            .collect();
        let found: usize = new.iter().sum();
        if found == all {
            return Ok(new);
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("of {all} connections {found} reached the servers"));
        }
        thread::sleep(LOOK);
    }
}

fn are_all_reached(counts: &[usize]) -> Result<(), String> {
    let reached = counts.iter().filter(|count| **count > 0).count();
    if reached < counts.len() {
        return Err(format!(
            "of {} backends {reached} had any of {CONNECTIONS} connections",
            counts.len()
        ));
    }
    Ok(())
}

/// How many connections each of the servers has.
fn counts(stack: &RunningStack) -> Result<Vec<usize>, String> {
    let table = procfs::net::tcp().map_err(|error| format!("/proc/net/tcp: {error}"))?;
    let count = |backend: &RunningContestant| {
        let port = backend.port();
        let of_it = table.iter().filter(|entry| {
            entry.state == TcpState::Established && Some(entry.local_address.port()) == port
        });
        of_it.count()
    };
    Ok(stack.backends().iter().map(count).collect())
}

/// An upgraded connection from this address to the proxy.
fn open(stack: &RunningStack, source: Ipv4Addr) -> Result<TcpStream, String> {
    let url = stack.urls().first().map_or("", String::as_str);
    let rest = url.strip_prefix("ws://").unwrap_or(url);
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let upgrade = || {
        let mut stream = connect(address, source)?;
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
        upgrade().map_err(|error: io::Error| format!("the upgrade failed: {error}"))?;
    match status.ends_with(" 101") {
        true => Ok(stream),
        false => Err(format!("the upgrade was answered {status}")),
    }
}

fn connect(address: &str, source: Ipv4Addr) -> io::Result<TcpStream> {
    let to: SocketAddrV4 = address.parse().map_err(io::Error::other)?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// More than one for each backend, as a proxy may choose at random where to begin.
const CONNECTIONS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
