//! An echo server with known faults, for `cargo xtask acceptance`: what it does wrong, the
//! generator must find and count exactly. It is tokio-tungstenite, so that no line of ours is
//! between the fault and the one who looks for it.
//!
//! usage: faulty_server [--port PORT] [FAULT]
//! faults: stall, drop N, double N, alter N, swap N, pace N, leak N, work N
//!
//! It prints `listening on URL`, runs until its standard input ends, and then prints how many
//! messages came in and how many of them it spoilt. With a port it runs until it is ended.
#![allow(clippy::print_stdout, reason = "what it prints is its interface")]

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

/// What is wrong with this server.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// For one second in every ten the whole process does nothing.
    Stall,
    /// One reply in so many is not sent.
    Drop(u64),
    /// One reply in so many is sent twice.
    Double(u64),
    /// One reply in so many has another last byte.
    Alter(u64),
    /// One reply in so many comes behind the next one of its connection.
    Swap(u64),
    /// Answers so many messages a second, evenly, and no more.
    Pace(u64),
    /// Keeps so many bytes of each message for ever.
    Leak(u64),
    /// Multiplies so often for each message.
    Work(u64),
}

static RECEIVED: AtomicU64 = AtomicU64::new(0);
static SPOILT: AtomicU64 = AtomicU64::new(0);
/// A processor's work that nothing can leave out.
fn work(times: u64) {
    let mut value = std::hint::black_box(1_u64);
    for _ in 0..times {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
    std::hint::black_box(value);
}

/// When the next message may be answered, of a server that paces.
static NEXT: Mutex<Option<Instant>> = Mutex::new(None);

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut port = 0;
    if arguments.first().is_some_and(|first| first == "--port") {
        port = arguments.get(1).context("which port?")?.parse()?;
        arguments.drain(..2);
    } else {
        end_with_input();
    }
    let fault = fault(&arguments)?;
    // One thread, so that a stall stops everything.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(fault, port))
}

/// Ends the process when whoever started it closes its standard input, or ends.
fn end_with_input() {
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        println!("received {}", RECEIVED.load(Ordering::SeqCst));
        println!("spoilt {}", SPOILT.load(Ordering::SeqCst));
        std::process::exit(0);
    });
}

fn fault(arguments: &[String]) -> Result<Fault> {
    let every = || -> Result<u64> {
        let every: u64 = arguments.get(1).context("one in how many?")?.parse()?;
        if every == 0 {
            bail!("one in 0 is none")
        } else {
            Ok(every)
        }
    };
    Ok(match arguments.first().map(String::as_str) {
        None => Fault::None,
        Some("stall") => Fault::Stall,
        Some("drop") => Fault::Drop(every()?),
        Some("double") => Fault::Double(every()?),
        Some("alter") => Fault::Alter(every()?),
        Some("swap") => Fault::Swap(every()?),
        Some("pace") => Fault::Pace(every()?),
        Some("leak") => Fault::Leak(every()?),
        Some("work") => Fault::Work(every()?),
        Some(other) => bail!("unknown fault `{other}`"),
    })
}

async fn serve(fault: Fault, port: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on ws://{}", listener.local_addr()?);
    if matches!(fault, Fault::Stall) {
        tokio::spawn(stall());
    }
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails is the other side's to report.
        tokio::spawn(async move { echo(stream, fault).await.ok() });
    }
}

/// Half-way between two whole tens of seconds, so that neither the handshakes nor the end of a
/// run of ten seconds meets it.
async fn stall() {
    let mut next = Instant::now() + PERIOD / 2;
    loop {
        tokio::time::sleep_until(next).await;
        std::thread::sleep(STALL);
        next += PERIOD;
    }
}

async fn echo(stream: TcpStream, fault: Fault) -> Result<()> {
    let mut socket = accept_async(stream).await?;
    let mut held: Option<Message> = None;
    while let Some(message) = socket.next().await {
        let message = message?;
        if !message.is_text() && !message.is_binary() {
            continue;
        }
        let number = RECEIVED.fetch_add(1, Ordering::SeqCst) + 1;
        let hit = |every: u64| {
            let hit = number.is_multiple_of(every);
            SPOILT.fetch_add(u64::from(hit), Ordering::SeqCst);
            hit
        };
        match fault {
            Fault::Drop(every) if hit(every) => {}
            Fault::Double(every) if hit(every) => {
                socket.feed(message.clone()).await?;
                socket.send(message).await?;
            }
            Fault::Alter(every) if hit(every) => socket.send(altered(&message)).await?,
            Fault::Swap(every) if hit(every) && held.is_none() => held = Some(message),
            Fault::Pace(per_s) => {
                tokio::time::sleep_until(slot(per_s)).await;
                socket.send(message).await?;
            }
            Fault::Leak(bytes) => {
                std::mem::forget(vec![b'#'; usize::try_from(bytes)?]);
                socket.send(message).await?;
            }
            Fault::Work(times) => {
                work(times);
                socket.send(message).await?;
            }
            Fault::None
            | Fault::Stall
            | Fault::Drop(_)
            | Fault::Double(_)
            | Fault::Alter(_)
            | Fault::Swap(_) => {
                socket.send(message).await?;
                if let Some(late) = held.take() {
                    socket.send(late).await?;
                }
            }
        }
    }
    Ok(())
}

/// When the next message may be answered, which is taken by this one.
fn slot(per_s: u64) -> Instant {
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let slot = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
    *next = Some(slot + Duration::from_secs(1) / u32::try_from(per_s).unwrap_or(u32::MAX));
    slot
}

/// The same message with another last byte, still valid text if it was.
fn altered(message: &Message) -> Message {
    let mut bytes = message.clone().into_data().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last = if *last == b'#' { b'%' } else { b'#' };
    }
    if message.is_text() {
        Message::text(String::from_utf8_lossy(&bytes).into_owned())
    } else {
        Message::binary(bytes)
    }
}

const PERIOD: Duration = Duration::from_secs(10);
const STALL: Duration = Duration::from_secs(1);
