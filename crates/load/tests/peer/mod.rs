//! Servers that nobody here wrote, with known faults.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a helper of tests is a test: it may panic, and its output is shown on failure"
)]

pub(crate) mod broadcast;
mod seen;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use moonwire_load::{Control, Outcome, Pacing, Scenario, Settings, Stop, Target, run};
use seen::Seen;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// What is wrong with a server. "One in `n`" counts all messages of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    None,
    /// One reply in so many is not sent.
    Drop(u64),
    /// One reply in so many is sent twice.
    Double(u64),
    /// One reply in so many has another last byte.
    AlterLast(u64),
    /// One reply in so many has another first byte.
    AlterFirst(u64),
    /// Nothing is answered.
    Silent,
    /// The whole server does nothing for the second duration at the end of every first.
    Stall(Duration, Duration),
    /// Every connection is closed with 1011 after so many messages of the server.
    CloseAfter(u64),
    /// Every connection is dropped as soon as it is made.
    CutAtOnce,
    /// Texts are answered in binary messages.
    Binary,
    /// The process dies after so many messages: every socket is gone at once.
    DieAfter(u64),
    /// The first connection only is cut off after so many messages.
    CutFirstAfter(u64),
    /// Connections after so many are refused.
    RefuseAfter(u64),
    /// So many connections are refused before the others are accepted.
    RefuseFirst(u64),
    /// The first connection is never read.
    DeafToFirst,
    /// uwebsocket-benchmark: each message is answered so often, in milliseconds if true.
    Amplify(u16, bool),
    /// The same in microseconds: each message waits for the first time before its clock is read,
    /// and for the second one before it is answered.
    AmplifyLate(u16, Duration, Duration),
    /// Handshakes are answered when so many are under way, and all of these at once.
    Gate(usize),
    /// The last of so many connections is answered when the others have sent something, or after
    /// that time.
    LastIsLate(u64, Duration),
    /// Each message is kept.
    Keep,
}

/// A server on a thread of its own; it lives as long as the process.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Replies that were spoilt.
    pub(crate) spoilt: Arc<AtomicU64>,
    /// Most connections that were open at once.
    open_max: Arc<AtomicU64>,
    seen: Arc<Seen>,
}

struct State {
    fault: Fault,
    seen: Arc<Seen>,
    received: AtomicU64,
    connections: AtomicU64,
    accepted: AtomicU64,
    spoilt: Arc<AtomicU64>,
    open: AtomicU64,
    open_max: Arc<AtomicU64>,
    dead: AtomicBool,
    gate: Barrier,
}

impl Peer {
    pub(crate) fn start(fault: Fault) -> Self {
        let (sender, address) = channel();
        let spoilt = Arc::new(AtomicU64::new(0));
        let open_max = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(Seen::default());
        let state = Arc::new(State {
            fault,
            seen: Arc::clone(&seen),
            received: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            spoilt: Arc::clone(&spoilt),
            open: AtomicU64::new(0),
            open_max: Arc::clone(&open_max),
            dead: AtomicBool::new(false),
            gate: Barrier::new(match fault {
                Fault::Gate(count) => count,
                _ => 1,
            }),
        });
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve(listener, Arc::clone(&state)) => {}
                    () = death(&state) => {}
                }
            });
        });
        Self {
            address: address.recv().unwrap(),
            spoilt,
            open_max,
            seen,
        }
    }

    /// How often each code and reason came in a closing frame.
    pub(crate) fn farewells(&self) -> BTreeMap<(u16, String), u64> {
        self.seen.farewells.lock().unwrap().clone()
    }

    pub(crate) fn spoilt(&self) -> u64 {
        self.spoilt.load(Ordering::SeqCst)
    }

    /// Most connections that were open at once, after their upgrade.
    pub(crate) fn open_max(&self) -> u64 {
        self.open_max.load(Ordering::SeqCst)
    }

    /// When each connection was accepted.
    pub(crate) fn arrivals(&self) -> Vec<Instant> {
        self.seen.arrivals.lock().unwrap().clone()
    }

    /// How often each message came, where they are kept, and whether as text.
    pub(crate) fn messages(&self) -> BTreeMap<(bool, Vec<u8>), u64> {
        self.seen.messages.lock().unwrap().clone()
    }

    /// Messages that had come when the late connection was answered.
    pub(crate) fn early(&self) -> u64 {
        self.seen.early.load(Ordering::SeqCst)
    }

    /// Most handshakes that were under way at once.
    pub(crate) fn under_way_max(&self) -> u64 {
        self.seen.under_way_max.load(Ordering::SeqCst)
    }

    pub(crate) fn settings(&self) -> Settings {
        let target = Target::parse(&format!("ws://{}/", self.address)).unwrap();
        Settings {
            targets: vec![target],
            drain: Duration::from_millis(300),
            stop: Stop::Messages(1000),
            ..Settings::default()
        }
    }

    /// Runs with changed settings.
    pub(crate) fn load(&self, change: impl FnOnce(&mut Settings)) -> Outcome {
        let mut settings = self.settings();
        change(&mut settings);
        let scenario = Scenario::new(settings).unwrap();
        let begun = Instant::now();
        let outcome = run(&scenario, &mut Control::default()).unwrap();
        eprintln!(
            "{:?}: {:?} after {:?}: {:?} {:?}",
            outcome.verdict(),
            outcome.ending,
            begun.elapsed(),
            outcome.cell.messages,
            outcome.cell.assessment.reasons()
        );
        outcome
    }
}

pub(crate) fn closed(in_flight: u32) -> Pacing {
    Pacing::Closed { in_flight }
}

pub(crate) fn open(rate: f64, in_flight: Option<u32>) -> Pacing {
    Pacing::Open {
        rate,
        arrival: moonwire_load::Arrival::Constant,
        in_flight,
    }
}

async fn death(state: &State) {
    while !state.dead.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    if let Fault::Stall(every, length) = state.fault {
        tokio::spawn(async move {
            let mut next = tokio::time::Instant::now() + every / 2;
            loop {
                tokio::time::sleep_until(next).await;
                // The only thread sleeps, and with it every connection.
                thread::sleep(length);
                next += every;
            }
        });
    }
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        stream.set_nodelay(true).unwrap();
        let number = state.accepted.fetch_add(1, Ordering::SeqCst);
        if matches!(state.fault, Fault::RefuseAfter(count) if number >= count) {
            continue;
        }
        if matches!(state.fault, Fault::RefuseFirst(count) if number < count) {
            continue;
        }
        state.seen.arrive();
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            delay(number, &state).await;
            state.seen.answer();
            let open = state.open.fetch_add(1, Ordering::SeqCst) + 1;
            state.open_max.fetch_max(open, Ordering::SeqCst);
            drop(talk(stream, Arc::clone(&state)).await);
            state.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Keeps a handshake waiting whose time has not come.
async fn delay(number: u64, state: &State) {
    match state.fault {
        Fault::Gate(_) => seen::pass(&state.gate).await,
        Fault::LastIsLate(count, patience) if number + 1 == count => {
            let begun = Instant::now();
            let heard = || state.received.load(Ordering::SeqCst);
            while heard() == 0 && begun.elapsed() < patience {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            state.seen.early.store(heard(), Ordering::SeqCst);
        }
        _ => {}
    }
}

/// What a server says that goes wrong.
fn farewell() -> CloseFrame {
    CloseFrame {
        code: CloseCode::Error,
        reason: "".into(),
    }
}

type Failure = tokio_tungstenite::tungstenite::Error;

async fn talk(stream: TcpStream, state: Arc<State>) -> Result<(), Failure> {
    let mut socket = accept_async(stream).await?;
    let first = state.connections.fetch_add(1, Ordering::SeqCst) == 0;
    if let Fault::CutAtOnce = state.fault {
        return Ok(());
    }
    if let (Fault::DeafToFirst, true) = (state.fault, first) {
        std::future::pending::<()>().await;
    }
    while let Some(message) = socket.next().await {
        let message = message?;
        state.seen.note(&message);
        if !message.is_text() && !message.is_binary() {
            continue;
        }
        let number = state.received.fetch_add(1, Ordering::SeqCst) + 1;
        let hit = |every: u64| {
            let hit = number.is_multiple_of(every);
            state.spoilt.fetch_add(u64::from(hit), Ordering::SeqCst);
            hit
        };
        match state.fault {
            Fault::Silent => {}
            Fault::Drop(every) if hit(every) => {}
            Fault::Binary => socket.send(Message::binary(message.into_data())).await?,
            Fault::Double(every) if hit(every) => {
                socket.feed(message.clone()).await?;
                socket.send(message).await?;
            }
            Fault::AlterLast(every) if hit(every) => {
                socket.send(altered(&message, false)).await?;
            }
            Fault::AlterFirst(every) if hit(every) => {
                socket.send(altered(&message, true)).await?;
            }
            Fault::CloseAfter(count) if number >= count => socket.close(Some(farewell())).await?,
            Fault::DieAfter(count) if number >= count => state.dead.store(true, Ordering::SeqCst),
            Fault::CutFirstAfter(count) if first && number >= count => return Ok(()),
            Fault::Keep => {
                state.seen.keep(&message);
                socket.send(message).await?;
            }
            Fault::AmplifyLate(replies, before, after) => {
                tokio::time::sleep(before).await;
                let reply = amplified(&message.into_data(), false);
                tokio::time::sleep(after).await;
                for _ in 0..replies {
                    socket.send(Message::binary(reply.clone())).await?;
                }
            }
            Fault::Amplify(replies, milliseconds) => {
                let reply = amplified(&message.into_data(), milliseconds);
                for _ in 1..replies {
                    socket.feed(Message::binary(reply.clone())).await?;
                }
                socket.send(Message::binary(reply)).await?;
            }
            _ => socket.send(message).await?,
        }
    }
    Ok(())
}

fn altered(message: &Message, first: bool) -> Message {
    let mut bytes = message.clone().into_data().to_vec();
    let byte = if first {
        bytes.first_mut()
    } else {
        bytes.last_mut()
    };
    if let Some(byte) = byte {
        *byte = if *byte == b'#' { b'%' } else { b'#' };
    }
    Message::text(String::from_utf8(bytes).unwrap())
}

fn amplified(message: &[u8], milliseconds: bool) -> Vec<u8> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = if milliseconds {
        now.as_millis()
    } else {
        now.as_micros()
    } as i64;
    let message: serde_json::Value = serde_json::from_slice(message).unwrap();
    let sent = message["created_at"].as_i64().unwrap();
    let reply = serde_json::json!({
        "client_id": message["client_id"],
        "msg_id": message["msg_id"],
        "msg": message["msg"],
        "created_at": now,
        "client_ts": sent,
        "server_latency": now - sent,
    });
    reply.to_string().into_bytes()
}
