//! Many subscribers of one broadcast, some of whom do not read: `cargo xtask acceptance broadcast`.
//!
//! usage: subscribers ADDRESS TARGET READERS TARGET SILENT ROUNDS
//!
//! All of them subscribe, then one more client asks for the broadcasts. Each reader must get each
//! number once and in order. Prints `subscribed` when the broadcasts are about to begin, and what
//! came of it as a line of JSON; then they stay until the standard input ends. The frames are
//! hand-made, so that what is measured is the server.
#![allow(clippy::print_stdout, reason = "what it prints is its interface")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use socket2::{Domain, Socket, Type};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [address, target, readers, silent_target, silent, rounds] = *words.as_slice() else {
        bail!("usage: subscribers ADDRESS TARGET READERS TARGET SILENT ROUNDS");
    };
    let door = Door {
        address: address.parse().context("ADDRESS")?,
        target,
        silent_target,
    };
    let (readers, silent): (usize, usize) = (readers.parse()?, silent.parse()?);
    let rounds: u16 = rounds.parse().context("ROUNDS")?;
    raise_descriptor_limit()?;
    let (mut readers, silent) = door.subscribe(readers, silent)?;
    println!("subscribed {}", readers.len() + silent.len());
    let _starter = door.start(rounds)?;
    let mut delays_us = Vec::with_capacity(readers.len() * usize::from(rounds));
    listen(&mut readers, u32::from(rounds), &mut delays_us)?;
    report(&readers, u32::from(rounds), delays_us);
    // All stay connected until the server has been looked at.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(silent);
    Ok(())
}

fn raise_descriptor_limit() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).context("the limit of open files")
}

/// Where the services are.
struct Door<'a> {
    address: SocketAddr,
    target: &'a str,
    /// That of those who do not read, whom the server counts apart.
    silent_target: &'a str,
}

impl Door<'_> {
    /// Readers, and as many silent ones spread evenly among them.
    fn subscribe(&self, readers: usize, silent: usize) -> Result<(Vec<Reader>, Vec<TcpStream>)> {
        let (mut reading, mut quiet) = (Vec::with_capacity(readers), Vec::with_capacity(silent));
        while reading.len() < readers || quiet.len() < silent {
            let is_quiet_late = quiet.len() * readers < reading.len() * silent;
            if quiet.len() < silent && (is_quiet_late || reading.len() == readers) {
                quiet.push(self.subscriber(self.silent_target, Some(SILENT_BUFFER_BYTES))?);
            } else {
                reading.push(Reader::new(self.subscriber(self.target, None)?)?);
            }
        }
        Ok((reading, quiet))
    }

    /// A client whose subscription the service has confirmed; one that will not read has a small
    /// buffer, so that the server notices soon.
    fn subscriber(&self, target: &str, buffer_bytes: Option<usize>) -> Result<TcpStream> {
        let mut stream = self.connect(target, buffer_bytes)?;
        send(
            &mut stream,
            b"\xa3\x65lapps\x01\x63cid\x07\x66method\x69subscribe",
        )?;
        send(&mut stream, b"\xa2\x65lapps\x01\x66method\x65ready")?;
        let mut answer = [0; READY.len()];
        stream.read_exact(&mut answer).context("no answer")?;
        ensure!(answer == *READY, "an answer of another kind: {answer:x?}");
        Ok(stream)
    }

    /// Has the broadcasts begin. The connection is to be kept.
    fn start(&self, rounds: u16) -> Result<TcpStream> {
        let mut stream = self.connect(self.target, None)?;
        let mut message =
            b"\xa4\x65lapps\x01\x63cid\x07\x66method\x65start\x66params\x81\x19".to_vec();
        message.extend_from_slice(&rounds.to_be_bytes());
        send(&mut stream, &message)?;
        Ok(stream)
    }

    fn connect(&self, target: &str, buffer_bytes: Option<usize>) -> Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
        if let Some(bytes) = buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.set_read_timeout(Some(PATIENCE))?;
        // Two small messages follow each other, and the second one is not to wait.
        socket.set_tcp_nodelay(true)?;
        socket.connect(&self.address.into())?;
        let mut stream = TcpStream::from(socket);
        let address = self.address;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Version: 13\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).context("no upgrade")?;
            head.push(byte[0]);
        }
        let is_upgraded = head.starts_with(b"HTTP/1.1 101 ");
        ensure!(
            is_upgraded,
            "no upgrade: {}",
            String::from_utf8_lossy(&head)
        );
        Ok(stream)
    }
}

/// Sends one binary message. Its mask is zero: only what goes to strangers must be unpredictable.
fn send(stream: &mut TcpStream, payload: &[u8]) -> Result<()> {
    let length = u8::try_from(payload.len()).context("a short message")?;
    ensure!(length < 126, "a short message");
    let mut frame = vec![0x82, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    stream.write_all(&frame).context("the server is gone")
}

/// One that reads, and what it has got.
struct Reader {
    stream: TcpStream,
    /// The beginning of a frame whose end has not come yet.
    partial: Vec<u8>,
    /// The number that must come next.
    next: u32,
    end: Option<End>,
}

/// Why a reader does not go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The connection has ended.
    Closed,
    /// A number came too early, late or twice.
    OutOfOrder,
    /// What came is no broadcast.
    Foreign,
}

impl Reader {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            partial: Vec::new(),
            next: 1,
            end: None,
        })
    }

    /// Reads what is there, and notes how long each broadcast was on its way.
    fn read(&mut self, buffer: &mut [u8], delays_us: &mut Vec<u32>) {
        let count = match self.stream.read(buffer) {
            Ok(0) => return self.end = Some(End::Closed),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return self.end = Some(End::Closed),
        };
        let now_us = wall_us();
        let mut input = &buffer[..count];
        while !input.is_empty() && self.end.is_none() {
            // Nearly always a frame comes whole, and alone.
            if self.partial.is_empty() && input.len() >= FRAME_BYTES {
                let (frame, rest) = input.split_at(FRAME_BYTES);
                self.take(frame, now_us, delays_us);
                input = rest;
                continue;
            }
            let missing = FRAME_BYTES - self.partial.len();
            let (part, rest) = input.split_at(missing.min(input.len()));
            self.partial.extend_from_slice(part);
            input = rest;
            if self.partial.len() == FRAME_BYTES {
                let frame = std::mem::take(&mut self.partial);
                self.take(&frame, now_us, delays_us);
            }
        }
    }

    fn take(&mut self, frame: &[u8], now_us: f64, delays_us: &mut Vec<u32>) {
        let Some((number, sent_us)) = broadcast(frame) else {
            return self.end = Some(End::Foreign);
        };
        if number != f64::from(self.next) {
            return self.end = Some(End::OutOfOrder);
        }
        self.next += 1;
        // Clocks that were set back meanwhile show as no delay, and as no such number.
        delays_us.push((now_us - sent_us) as u32);
    }
}

/// The number and the time of a broadcast, if it is one to its last byte.
fn broadcast(frame: &[u8]) -> Option<(f64, f64)> {
    let rest = frame.strip_prefix(HEAD)?;
    let (number, rest) = rest.split_first_chunk()?;
    let (sent_us, rest) = rest.strip_prefix(b"\xfb")?.split_first_chunk()?;
    let filler = rest.strip_prefix(b"\x79\x03\xdc")?;
    let is_filler = filler.len() == FILLER_BYTES && filler.iter().all(|byte| *byte == b'x');
    is_filler.then(|| (f64::from_be_bytes(*number), f64::from_be_bytes(*sent_us)))
}

/// Until each reader has the last round, or has ended, or the time for that is over.
fn listen(readers: &mut [Reader], rounds: u32, delays_us: &mut Vec<u32>) -> Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, reader) in readers.iter().enumerate() {
        let data = EventData::new_u64(index as u64);
        epoll::add(&epoll, &reader.stream, data, EventFlags::IN)?;
    }
    let deadline = Instant::now() + Duration::from_secs(rounds.into()) + PATIENCE;
    let timeout = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut waiting = readers.len();
    while waiting > 0 && Instant::now() < deadline {
        epoll::wait(&epoll, spare_capacity(&mut events), Some(&timeout))?;
        for event in events.drain(..) {
            let reader = usize::try_from(event.data.u64()).map(|index| &mut readers[index])?;
            reader.read(&mut buffer, delays_us);
            if reader.end.is_some() || reader.next > rounds {
                epoll::delete(&epoll, &reader.stream)?;
                waiting -= 1;
            }
        }
    }
    Ok(())
}

fn report(readers: &[Reader], rounds: u32, mut delays_us: Vec<u32>) {
    let ended = |end| {
        readers
            .iter()
            .filter(|reader| reader.end == Some(end))
            .count()
    };
    let complete = |reader: &&Reader| reader.end.is_none() && reader.next == rounds + 1;
    delays_us.sort_unstable();
    let at = |share: f64| {
        let index = (delays_us.len() as f64 * share) as usize;
        let delay = delays_us.get(index).or_else(|| delays_us.last());
        delay.copied().unwrap_or_default()
    };
    let results = json!({
        "readers": readers.len(),
        "complete": readers.iter().filter(complete).count(),
        "received": delays_us.len(),
        "expected": readers.len() as u64 * u64::from(rounds),
        "closed": ended(End::Closed),
        "out_of_order": ended(End::OutOfOrder),
        "foreign": ended(End::Foreign),
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "max_us": at(1.0),
    });
    println!("{results}");
}

/// Microseconds since the epoch, as `moonwire.time` gives them to the service.
fn wall_us() -> f64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.unwrap_or_default().as_micros() as f64
}

/// {status: 1, result: [], cid: 0} in a frame.
const READY: &[u8; 24] = b"\x82\x16\xa3\x63cid\0\x66result\x80\x66status\x01";
/// What a broadcast begins with: a frame of 1024 bytes, {cid: 7, message: [NUMBER, TIME, FILLER]}.
const HEAD: &[u8; 20] = b"\x82\x7e\x04\0\xa2\x63cid\x07\x67message\x83\xfb";
const FILLER_BYTES: usize = 988;
const FRAME_BYTES: usize = 4 + 1024;
/// The kernel doubles it, and counts what surrounds a message, too.
const SILENT_BUFFER_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 1024;
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
