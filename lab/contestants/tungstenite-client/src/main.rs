//! A load generator on tokio-tungstenite: each connection sends at its share of the rate, and a
//! latency is the time from the sending to the last reply.
//!
//! tungstenite-client URL CONNECTIONS RATE DURATION_S MESSAGE_BYTES echo|amplify REPLIES [CA]

mod figures;
mod target;

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use figures::Figures;
use target::Target;

pub type Failure = Box<dyn Error + Send + Sync>;

/// What each connection does.
#[derive(Clone, Copy)]
struct Errand {
    messages: u64,
    period: Duration,
    bytes: usize,
    is_amplified: bool,
    replies: u64,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (needed, authority) = match arguments[..] {
        ["--version"] => {
            println!("tokio-tungstenite {}", version());
            return Ok(());
        }
        [ref needed @ .., authority] if needed.len() == 7 => (needed, Some(authority)),
        ref needed if needed.len() == 7 => (needed, None),
        _ => {
            return Err(
                "usage: tungstenite-client URL CONNECTIONS RATE DURATION_S MESSAGE_BYTES \
                        echo|amplify REPLIES [CA]"
                    .into(),
            );
        }
    };
    let target = Target::new(needed[0], authority)?;
    let connections: u32 = needed[1].parse()?;
    let rate: f64 = needed[2].parse()?;
    let duration_s: f64 = needed[3].parse()?;
    let is_amplified = needed[5] == "amplify";
    let period = Duration::from_secs_f64(f64::from(connections) / rate);
    let errand = Errand {
        messages: ((duration_s / period.as_secs_f64()).round() as u64).max(1),
        period,
        bytes: needed[4].parse()?,
        is_amplified,
        replies: if is_amplified { needed[6].parse()? } else { 1 },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let figures = runtime.block_on(LocalSet::new().run_until(all(target, connections, errand)))?;
    println!("{}", figures.to_json());
    Ok(())
}

/// Opens all connections, lets them send, and gives what they measured.
async fn all(target: Target, connections: u32, errand: Errand) -> Result<Figures, Failure> {
    let mut sockets = Vec::new();
    for _ in 0..connections {
        sockets.push(target.connect().await?);
    }
    let start = Instant::now() + LEAD;
    let mut tasks = Vec::new();
    for (number, socket) in (0..connections).zip(sockets) {
        // The first messages of all connections are spread over a period.
        let first = start + errand.period * number / connections;
        tasks.push(tokio::task::spawn_local(send(
            socket, number, first, errand,
        )));
    }
    let mut figures = Figures::default();
    for task in tasks {
        figures.add(task.await?);
    }
    Ok(figures)
}

/// One connection. Replies come in the order of the messages.
async fn send(
    mut socket: WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>,
    number: u32,
    first: Instant,
    errand: Errand,
) -> Figures {
    let mut figures = Figures::default();
    let mut awaited: VecDeque<(Instant, u64)> = VecDeque::new();
    let end = first + errand.period * errand.messages as u32 + DRAIN;
    loop {
        if figures.sent == errand.messages && awaited.is_empty() {
            break;
        }
        let due = first + errand.period * figures.sent as u32;
        tokio::select! {
            () = sleep_until(due), if figures.sent < errand.messages => {
                awaited.push_back((Instant::now(), errand.replies));
                if socket.send(message(number, figures.sent, &errand)).await.is_err() {
                    break;
                }
                figures.sent += 1;
            }
            reply = timeout_at(end, socket.next()) => {
                let Ok(Some(Ok(reply))) = reply else { break };
                if !reply.is_text() && !reply.is_binary() {
                    continue;
                }
                let Some((sent, left)) = awaited.front_mut() else { break };
                *left -= 1;
                if *left == 0 {
                    figures.note(sent.elapsed());
                    awaited.pop_front();
                }
            }
        }
    }
    // Whoever does not answer the close frame is left behind.
    let _ = timeout_at(Instant::now() + DRAIN, socket.close(None)).await;
    figures
}

fn message(connection: u32, number: u64, errand: &Errand) -> Message {
    if !errand.is_amplified {
        let width = errand.bytes;
        return Message::text(format!("{number:x<width$}"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = now.map_or(0, |since| since.as_micros());
    let frame = |filler: &str| {
        let ids = format!(r#""client_id":{connection},"msg_id":{number}"#);
        format!(r#"{{{ids},"msg":"{filler}","created_at":{now_us}}}"#)
    };
    let filler = "x".repeat(errand.bytes.saturating_sub(frame("").len()));
    Message::binary(frame(&filler).into_bytes())
}

/// As the lock has it.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let rest = lock
        .split("name = \"tokio-tungstenite\"\nversion = \"")
        .nth(1);
    rest.and_then(|rest| rest.split('"').next()).unwrap_or("")
}

/// All tasks are there when the first message is due.
const LEAD: Duration = Duration::from_millis(100);
/// How long the last replies are awaited.
const DRAIN: Duration = Duration::from_secs(2);
