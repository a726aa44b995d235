//! What the fuzzer calls: a whole connection in the simulated world, whose peer does as the input
//! says, and records of TLS.
//!
//! Each is the target of its name in `fuzz/`, and an ordinary test over the inputs that are kept
//! there.

mod records;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use moonwire_proto::{
    Acceptance, DeflateOffer, DeflatePolicy, Limits, PONG_OUT_BYTES_MAX, RequestReader,
    accept_response, refusal,
};

use crate::driver::{Completion, ConnectTarget, Driver, SocketId, Submission};
use crate::sim::{SimConditions, SimDriver, SimNetwork};
use crate::tests::harness::{Answer, Happened, Loop};
use crate::{HandshakeTimings, SessionLimits, Time};

pub use records::records;

/// A session and its peer: choices of what the session is and what the peer does, conditions of
/// the network, sizes of the peer's writes and the pauses after them, and what it writes.
///
/// The session is told the same as in a network that carries everything at once, as long as its
/// peer reads; whatever the peer does, the session ends in time and what it queues stays bounded.
pub fn session(input: &[u8]) {
    let Some((&[choice, answer, delay, window, writes], rest)) = input.split_first_chunk() else {
        return;
    };
    let (writes, bytes) = rest.split_at(usize::from(writes).min(rest.len()));
    let plan = Plan { choice, answer };
    let calm = SimConditions {
        delay_max: Duration::ZERO,
        window_bytes: usize::MAX,
        short_per_mille: 0,
        resets_per_10_000: 0,
    };
    let rough = SimConditions {
        delay_max: Duration::from_micros(u64::from(delay) * 50),
        window_bytes: 16 + 64 * usize::from(window),
        short_per_mille: 500,
        resets_per_10_000: 0,
    };
    let whole = story(plan, calm, &[], bytes);
    let split = story(plan, rough, writes, bytes);
    if plan.peer_reads() {
        assert_eq!(whole, split, "the network matters");
    }
}

/// What the choices mean.
#[derive(Clone, Copy)]
struct Plan {
    choice: u8,
    answer: u8,
}

impl Plan {
    fn has(self, bit: u8) -> bool {
        self.choice & bit != 0
    }

    /// One that does not read can be told of only when the network is full.
    fn peer_reads(self) -> bool {
        !self.has(PEER_IS_DEAF)
    }

    fn answer(self) -> Answer {
        match self.answer & 3 {
            0 => Answer::Refuse,
            1 => Answer::Later,
            _ => Answer::Accept,
        }
    }
}

/// What the session is told, until it is over.
fn story(plan: Plan, conditions: SimConditions, writes: &[u8], bytes: &[u8]) -> Vec<Happened> {
    let network = SimNetwork::new(u64::from(plan.choice), conditions);
    let mut world = Loop::new(network.driver());
    world.limits = limits();
    world.answer = plan.answer();
    world.echo = plan.has(ECHOES);
    world.deflate = plan.has(DEFLATE).then_some(DeflateOffer::default());
    let addr: SocketAddr = ([10, 0, 0, 1], 5083).into();
    let mut peer = Peer::new(&network, addr, plan, writes, bytes);
    if plan.has(CLIENT) {
        world.connect(addr, None);
    } else {
        world.listen(network.listener(addr));
        peer.connect(addr);
    }
    let mut is_quiet = false;
    for _ in 0..TURNS_MAX {
        world.turn(None);
        for session in world.sessions.values() {
            let queued = session.write_queue_bytes();
            assert!(
                queued <= QUEUE_BYTES_MAX,
                "{queued} bytes wait to be written"
            );
            let held = session.memory_bytes();
            assert!(held.total() <= MEMORY_BYTES_MAX, "{held:?}");
        }
        answer_late(&mut world);
        peer.turn();
        let is_over = world
            .happened
            .last()
            .is_some_and(|(_, last)| *last == Happened::Finished);
        if is_over {
            return told(&world.happened);
        }
        if network.advance() {
            is_quiet = false;
            continue;
        }
        // Deadlines that were set in this turn are waited for in the next one.
        if is_quiet {
            assert!(world.sessions.is_empty(), "a session waits for ever");
            return told(&world.happened);
        }
        is_quiet = true;
    }
    panic!("no end after {TURNS_MAX} turns at {:?}", network.now());
}

/// Answers the request that was left without an answer in the turn before.
fn answer_late(world: &mut Loop<SimDriver>) {
    let mut waiting = world.sessions.iter();
    let waiting = waiting.find_map(|(socket, session)| Some((*socket, session.request()?)));
    let Some((socket, request)) = waiting else {
        return;
    };
    if request.is_upgrade() {
        world.accept(socket);
    } else {
        let response = refusal(426, &[], b"").expect("it is valid");
        world.session(socket).refuse(&response);
    }
}

/// Without what depends on the clock and on the key.
fn told(happened: &[(SocketId, Happened)]) -> Vec<Happened> {
    let told = happened.iter().map(|(_, happened)| {
        if let Happened::Upgraded(_) = happened {
            return Happened::Upgraded(HandshakeTimings::default());
        }
        happened.clone()
    });
    told.collect()
}

/// Bounds that a small input reaches.
fn limits() -> Arc<SessionLimits> {
    Arc::new(SessionLimits {
        protocol: Limits {
            message_bytes_max: MESSAGE_BYTES_MAX,
            frames_per_message_max: 8,
            header_bytes_max: 1000,
            headers_max: 16,
        },
        write_queue_bytes_max: 2 * MESSAGE_BYTES_MAX,
        write_queue_pause_bytes: MESSAGE_BYTES_MAX / 2,
        message_timeout: Some(Duration::from_secs(60)),
        ..SessionLimits::default()
    })
}

/// The other end, which knows nothing of sessions.
struct Peer<'a> {
    driver: SimDriver,
    socket: Option<SocketId>,
    plan: Plan,
    writes: std::iter::Cycle<std::slice::Iter<'a, u8>>,
    /// What is still to be written.
    rest: &'a [u8],
    /// A valid head that goes before it.
    head: Vec<u8>,
    /// Whether it may write: a server waits for the request.
    is_ready: bool,
    /// Whether a write is in flight.
    is_sending: bool,
    /// When it writes next.
    next_write: Time,
    reader: RequestReader,
    is_done: bool,
}

impl<'a> Peer<'a> {
    fn new(
        network: &SimNetwork,
        addr: SocketAddr,
        plan: Plan,
        writes: &'a [u8],
        bytes: &'a [u8],
    ) -> Self {
        let mut driver = network.driver();
        if plan.has(CLIENT) {
            driver
                .listen(network.listener(addr))
                .expect("it is simulated");
        }
        let head = match plan.has(VALID_HEAD) && !plan.has(CLIENT) {
            true => REQUEST.to_vec(),
            false => Vec::new(),
        };
        Self {
            driver,
            socket: None,
            plan,
            writes: writes.iter().cycle(),
            rest: bytes,
            head,
            is_ready: false,
            is_sending: false,
            next_write: Time::default(),
            reader: RequestReader::new(&Limits::default()),
            is_done: false,
        }
    }

    fn connect(&mut self, addr: SocketAddr) {
        let target = ConnectTarget::from(addr);
        self.driver.connect(&target).expect("it is simulated");
    }

    fn turn(&mut self) {
        let wake = self.wants_to_write().then_some(self.next_write);
        self.driver.wait(wake).expect("it is simulated");
        while let Some(completion) = self.driver.next() {
            self.complete(completion);
        }
        self.write();
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Connected {
                socket,
                result: Ok(()),
            } => {
                self.begin(socket);
                self.is_ready = true;
            }
            Completion::Accepted { socket, .. } => {
                self.begin(socket);
                self.is_ready = !self.plan.has(VALID_HEAD);
            }
            Completion::Received { buffer, .. } => self.read(&buffer),
            Completion::Sent { .. } => self.is_sending = false,
            Completion::EndOfStream { socket } => self.driver.close(socket),
            Completion::Failed { socket, .. } => {
                self.driver.close(socket);
                self.is_done = true;
            }
            Completion::Connected { .. }
            | Completion::AcceptFailed { .. }
            | Completion::Blocked { .. }
            | Completion::Detached { .. }
            | Completion::Woken => {}
        }
    }

    fn begin(&mut self, socket: SocketId) {
        self.socket = Some(socket);
        let reads_request = self.plan.has(CLIENT) && self.plan.has(VALID_HEAD);
        if self.plan.has(PEER_IS_DEAF) && !reads_request {
            self.driver.pause_receive(socket);
        }
    }

    /// A server with a valid head answers the request that it reads.
    fn read(&mut self, received: &[u8]) {
        if self.is_ready {
            return;
        }
        if let Ok(Some((request, _))) = self.reader.receive(received) {
            let policy = DeflatePolicy::default();
            let acceptance = Acceptance {
                deflate: self.plan.has(DEFLATE).then_some(&policy),
                ..Acceptance::default()
            };
            self.head = match self.plan.answer() {
                Answer::Refuse => refusal(404, &[], b"no"),
                Answer::Accept | Answer::Later => {
                    accept_response(&request, &acceptance).map(|(response, _)| response)
                }
            }
            .expect("our own request is valid");
            self.is_ready = true;
            if let Some(socket) = self.socket
                && self.plan.has(PEER_IS_DEAF)
            {
                self.driver.pause_receive(socket);
            }
        }
    }

    fn wants_to_write(&self) -> bool {
        self.is_ready && !self.is_sending && !self.is_done
    }

    /// One write of the next size, and the end after the last one.
    fn write(&mut self) {
        let Some(socket) = self.socket else {
            return;
        };
        while self.wants_to_write() && self.next_write <= self.driver.now() {
            let size = self
                .writes
                .next()
                .map_or(usize::MAX, |size| usize::from(*size) + 1);
            let mut bytes = std::mem::take(&mut self.head);
            let (now, later) = self.rest.split_at(size.min(self.rest.len()));
            bytes.extend_from_slice(now);
            self.rest = later;
            if bytes.is_empty() {
                self.finish(socket);
                return;
            }
            self.is_sending = matches!(self.driver.send(socket, bytes), Submission::InFlight);
            if size < PAUSES_BELOW {
                self.next_write = self.driver.now() + Duration::from_millis(size as u64);
            }
        }
    }

    fn finish(&mut self, socket: SocketId) {
        self.is_done = true;
        if !self.plan.has(PEER_IS_SILENT) {
            self.driver.shutdown(socket);
        }
    }
}

/// Choices: the session is a client.
const CLIENT: u8 = 1;
/// The session sends messages back.
const ECHOES: u8 = 2;
/// Compression is offered and granted.
const DEFLATE: u8 = 4;
/// The peer begins with a valid request or response.
const VALID_HEAD: u8 = 8;
/// The peer does not read.
const PEER_IS_DEAF: u8 = 16;
/// The peer neither closes nor ends its stream after its last byte.
const PEER_IS_SILENT: u8 = 32;

/// After writes of fewer bytes the peer pauses, for as many milliseconds.
const PAUSES_BELOW: usize = 8;

/// What a client sends that this server accepts.
const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";

const MESSAGE_BYTES_MAX: usize = 2000;

/// Pongs are put off beyond 64 KiB, so that is what a deaf peer can make a session queue.
const QUEUE_BYTES_MAX: usize = 4 * MESSAGE_BYTES_MAX + PONG_OUT_BYTES_MAX;

/// That, a message, an inflater of 48 KiB, a window of 32 KiB for each direction, and, while a
/// request is not answered, all that the input holds of frames.
const MEMORY_BYTES_MAX: usize = QUEUE_BYTES_MAX + 2 * MESSAGE_BYTES_MAX + (48 + 64 + 64) * 1024;

const TURNS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn corpus_of_session() {
        corpus("session", super::session);
    }

    #[test]
    fn corpus_of_records() {
        corpus("records", super::records);
    }

    fn corpus(name: &str, target: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(name);
        let mut inputs = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            if let Err(panic) = std::panic::catch_unwind(|| target(&input)) {
                println!("{} fails", path.display());
                std::panic::resume_unwind(panic);
            }
            inputs += 1;
        }
        assert!(inputs > 0, "there is no corpus");
    }
}
