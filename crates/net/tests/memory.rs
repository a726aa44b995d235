//! What an idle connection costs in user memory, counted at the allocator: the session, its place
//! in the driver and the timers, and whatever TLS keeps.
#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use moonwire_net::{
    ClientTls, Completion, Driver, EpollDriver, Flushed, Plaintext, ServerTls, Session,
    SessionEvent, SessionLimits, SocketId, Timers, Trust, listen_socket, random_mask,
};
use moonwire_proto::{Acceptance, ClientKey, Opcode, UpgradeRequest, WebSocketVersion};

/// Counts what each thread holds; a thread frees here what it allocated itself.
struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
}

// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain number that
// neither allocates nor has a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A loop that counts open sessions, and echoes if it is the server's.
struct World {
    driver: EpollDriver,
    sessions: HashMap<SocketId, Session>,
    timers: Timers<SocketId>,
    scratch: Plaintext,
    limits: Arc<SessionLimits>,
    tls: Option<ServerTls>,
    is_server: bool,
    messages: usize,
}

impl World {
    fn new(is_server: bool) -> Self {
        Self {
            driver: EpollDriver::new().unwrap(),
            sessions: HashMap::with_capacity(2 * CONNECTIONS),
            timers: Timers::new(),
            scratch: Plaintext::new(),
            limits: Arc::default(),
            tls: None,
            is_server,
            messages: 0,
        }
    }

    fn turn(&mut self) {
        let now = self.driver.now();
        self.driver
            .wait(Some(now + Duration::from_millis(1)))
            .unwrap();
        while let Some(completion) = self.driver.next() {
            let socket = match completion {
                Completion::Accepted { socket, peer, .. } => {
                    let tls = self.tls.as_ref();
                    let session = Session::accept_socket(socket, peer, tls, &self.limits, now);
                    self.sessions.insert(socket, session.unwrap());
                    socket
                }
                Completion::Connected { socket, result } => {
                    let session = self.sessions.get_mut(&socket).unwrap();
                    assert!(session.on_connected(result, now).is_none());
                    socket
                }
                Completion::Received { socket, mut buffer } => {
                    self.receive(socket, &mut buffer);
                    self.driver.recycle(buffer);
                    socket
                }
                Completion::Sent {
                    socket,
                    buffer,
                    result,
                } => {
                    let session = self.sessions.get_mut(&socket).unwrap();
                    assert!(session.on_sent(buffer, result, now).is_none());
                    socket
                }
                Completion::EndOfStream { .. }
                | Completion::Failed { .. }
                | Completion::Blocked { .. }
                | Completion::Detached { .. }
                | Completion::AcceptFailed { .. }
                | Completion::Woken => panic!("{completion:?}"),
            };
            self.flush(socket);
        }
    }

    fn receive(&mut self, socket: SocketId, received: &mut [u8]) {
        let now = self.driver.now();
        let session = self.sessions.get_mut(&socket).unwrap();
        let mut input = session.open(received, &mut self.scratch).unwrap();
        while let Some(event) = session.poll(&mut input, now) {
            match event {
                SessionEvent::Request(_) => session.accept(&Acceptance::default()).unwrap(),
                SessionEvent::Message { payload, .. } => {
                    self.messages += 1;
                    if self.is_server {
                        let echo = payload.to_vec();
                        session.send(Opcode::Binary, &echo).unwrap();
                    }
                }
                SessionEvent::Upgraded { .. } => {
                    session.send(Opcode::Binary, &[5; 40_000]).unwrap();
                    session.send(Opcode::Binary, b"small").unwrap();
                }
                SessionEvent::More | SessionEvent::Ping(_) | SessionEvent::Pong { .. } => {}
                SessionEvent::Closed { .. }
                | SessionEvent::Failed(_)
                | SessionEvent::Refused { .. } => panic!("{event:?}"),
            }
        }
    }

    fn flush(&mut self, socket: SocketId) {
        let session = self.sessions.get_mut(&socket).unwrap();
        assert_eq!(session.flush(&mut self.driver), Flushed::Open);
        self.timers.arm(socket, session.deadline());
    }

    fn connect(&mut self, addr: SocketAddr, tls: Option<&ClientTls>) {
        let request = UpgradeRequest {
            host: "localhost".to_owned(),
            target: "/".to_owned(),
            subprotocols: Vec::new(),
            headers: Vec::new(),
            deflate: None,
            version: WebSocketVersion::default(),
            key: ClientKey::generate(random_mask),
        };
        let socket = self.driver.connect(&addr.into()).unwrap();
        let tls = tls.map(|tls| (tls, "localhost"));
        let now = self.driver.now();
        let session = Session::connect(socket, addr, tls, &request, &self.limits, now).unwrap();
        self.sessions.insert(socket, session);
    }
}

/// Connects on request, and keeps everything open until the channel closes.
fn clients(addr: SocketAddr, tls: bool, wanted: &Receiver<usize>, done: &Sender<()>) {
    let tls = tls.then(|| ClientTls::new(&Trust::Anyone).unwrap());
    let mut world = World::new(false);
    let mut expected = 0;
    for connections in wanted {
        for _ in 0..connections {
            world.connect(addr, tls.as_ref());
            expected += 2;
            // Few handshakes at a time: the server must not run into its timeout.
            while world.messages + 40 < expected {
                world.turn();
            }
        }
        while world.messages < expected {
            world.turn();
        }
        done.send(()).unwrap();
    }
}

/// User memory that the server's thread holds per idle connection.
fn bytes_per_connection(tls: bool) -> usize {
    let mut server = World::new(true);
    server.tls = tls.then(|| ServerTls::self_signed().unwrap());
    let listener = listen_socket(([127, 0, 0, 1], 0).into(), false, 1024).unwrap();
    let addr = listener.local_addr().unwrap();
    server.driver.listen(listener.into()).unwrap();
    let (want, wanted) = channel();
    let (say_done, done) = channel();
    let thread = std::thread::spawn(move || clients(addr, tls, &wanted, &say_done));
    let mut held = Vec::new();
    // The first few warm up what belongs to the loop.
    for connections in [8, CONNECTIONS] {
        want.send(connections).unwrap();
        while done.try_recv().is_err() {
            server.turn();
        }
        held.push(LIVE_BYTES.get());
    }
    drop(want);
    thread.join().unwrap();
    assert_eq!(server.sessions.len(), CONNECTIONS + 8);
    usize::try_from(held[1] - held[0]).unwrap() / CONNECTIONS + size_of::<(SocketId, Session)>()
}

#[test]
fn an_idle_plain_connection_is_small() {
    let bytes = bytes_per_connection(false);
    println!(
        "size_of Session: {} B; plain idle connection: {bytes} B",
        size_of::<Session>()
    );
    assert!(bytes < 450, "{bytes} B");
}

#[test]
fn an_idle_tls_connection_is_small() {
    let bytes = bytes_per_connection(true);
    println!("TLS idle connection: {bytes} B");
    assert!(bytes < 3 * 1024, "{bytes} B");
}

/// Enough for the growth of tables, which double, to weigh little.
const CONNECTIONS: usize = 400;
