//! The round trip of an empty exchange over the link, measured before a run is believed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;

use super::forwarder::now_ns;

/// What an exchange of eight bytes takes when nothing else is on the link.
#[derive(Debug, Clone, Serialize)]
pub struct IdleExchange {
    /// How many exchanges were measured, one after the other.
    pub exchanges: usize,
    /// Client to client.
    pub round_trip: Spread,
    /// Client to server, from the one monotonic clock both ends share.
    pub up: Spread,
    /// Server to client.
    pub down: Spread,
}

/// Minimum, quantiles and maximum of a few exact samples, in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The smallest sample.
    pub min_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile (the largest of fewer than 100 samples).
    pub p99_ns: u64,
    /// The largest sample.
    pub max_ns: u64,
}

impl Spread {
    /// `samples` must not be empty.
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let at = |quantile: f64| {
            let rank = (samples.len() as f64 * quantile).ceil() as usize;
            samples[rank.clamp(1, samples.len()) - 1]
        };
        Self {
            min_ns: samples[0],
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: at(1.0),
        }
    }
}

/// The server's half: answers each number with the time it arrived at, until the client hangs up.
pub(crate) fn listen(address: Ipv4Addr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((address, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves one client of `measure`.
pub(crate) fn answer(listener: &TcpListener, patience: Duration) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    let mut number = [0_u8; 8];
    while stream.read_exact(&mut number).is_ok() {
        stream.write_all(&now_ns().to_ne_bytes())?;
    }
    Ok(())
}

/// The client's half. The first exchange pays for the connection and is not counted.
pub(crate) fn measure(
    server: SocketAddr,
    exchanges: usize,
    patience: Duration,
    stop: &AtomicBool,
) -> io::Result<IdleExchange> {
    let mut stream = TcpStream::connect_timeout(&server, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    let (mut round_trip, mut up, mut down) = (Vec::new(), Vec::new(), Vec::new());
    for exchange in 0..=exchanges {
        if stop.load(Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        let sent_ns = now_ns();
        stream.write_all(&sent_ns.to_ne_bytes())?;
        let mut answer = [0_u8; 8];
        stream.read_exact(&mut answer).map_err(spoken)?;
        let received_ns = now_ns();
        let arrived_ns = u64::from_ne_bytes(answer);
        if exchange > 0 {
            round_trip.push(received_ns - sent_ns);
            up.push(arrived_ns.saturating_sub(sent_ns));
            down.push(received_ns.saturating_sub(arrived_ns));
        }
    }
    Ok(IdleExchange {
        exchanges,
        round_trip: Spread::of(round_trip),
        up: Spread::of(up),
        down: Spread::of(down),
    })
}

/// As many of the `wanted` exchanges as take a bounded time over a long link, but a few.
pub(crate) fn exchanges(wanted: usize, delay: Duration) -> usize {
    let round_trip = 2.0 * delay.as_secs_f64();
    let affordable = if round_trip > 0.0 {
        (MEASUREMENT_S / round_trip) as usize
    } else {
        wanted
    };
    wanted.clamp(1, affordable.max(EXCHANGES_MIN))
}

/// How long an answer is awaited over a link of this delay.
pub(crate) fn patience(delay: Duration) -> Duration {
    PATIENCE + 4 * delay
}

/// The kernel's word for a read that timed out says little to a reader.
fn spoken(error: io::Error) -> io::Error {
    let kind = error.kind();
    if kind == ErrorKind::WouldBlock {
        io::Error::new(ErrorKind::TimedOut, "no answer in time")
    } else if kind == ErrorKind::UnexpectedEof {
        io::Error::new(ErrorKind::TimedOut, "the connection broke")
    } else {
        error
    }
}

/// A link that answers this much later than it should is not usable for a benchmark anyway.
const PATIENCE: Duration = Duration::from_secs(10);
/// What one measurement may take on a link without faults, in seconds.
const MEASUREMENT_S: f64 = 10.0;
const EXCHANGES_MIN: usize = 3;
