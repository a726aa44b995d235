//! A loop for tests: the smallest one that does everything a loop has to do, over any driver.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use moonwire_proto::{
    Acceptance, ClientKey, CloseCode, DeflateOffer, DeflatePolicy, Opcode, Request, UpgradeRequest,
    WebSocketVersion, refusal,
};

use crate::driver::{Completion, ConnectTarget, Driver, SocketId, Transport};
use crate::{
    ClientTls, DetachedSession, Flushed, HandshakeTimings, Plaintext, ServerTls, Session,
    SessionEvent, SessionLimits, Time, Timers, random_mask,
};

/// What a server does with requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Accept,
    Later,
    Refuse,
}

impl Answer {
    fn give(self, session: &mut Session, is_compressing: bool) {
        let policy = DeflatePolicy::default();
        let acceptance = Acceptance {
            deflate: is_compressing.then_some(&policy),
            ..Acceptance::default()
        };
        match self {
            // What asks for no upgrade is refused in any case.
            Self::Accept if session.request().is_some_and(Request::is_upgrade) => {
                session.accept(&acceptance).unwrap();
            }
            Self::Later => {}
            Self::Accept | Self::Refuse => {
                session.refuse(&refusal(404, &[], b"no such service").unwrap());
            }
        }
    }
}

/// An event without borrows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Happened {
    Accepted,
    Request(String),
    Upgraded(HandshakeTimings),
    Refused(u16),
    Message(Opcode, Vec<u8>),
    /// Never in a story.
    More,
    Ping,
    Pong(Option<Duration>),
    Closed(Option<u16>, String, bool),
    Failed(String),
    Finished,
    Detached,
}

pub(crate) struct Loop<D: Driver> {
    pub(crate) driver: D,
    pub(crate) sessions: BTreeMap<SocketId, Session>,
    pub(crate) happened: Vec<(SocketId, Happened)>,
    pub(crate) detached: Vec<DetachedSession>,
    pub(crate) limits: Arc<SessionLimits>,
    pub(crate) server_tls: Option<ServerTls>,
    pub(crate) answer: Answer,
    /// What clients offer and, if there is something, servers grant.
    pub(crate) deflate: Option<DeflateOffer>,
    /// Whether servers send each message back.
    pub(crate) echo: bool,
    timers: Timers<SocketId>,
    scratch: Plaintext,
    dirty: Vec<SocketId>,
}

impl<D: Driver> Loop<D> {
    pub(crate) fn new(driver: D) -> Self {
        Self {
            driver,
            sessions: BTreeMap::new(),
            happened: Vec::new(),
            detached: Vec::new(),
            limits: Arc::default(),
            server_tls: None,
            answer: Answer::Accept,
            deflate: None,
            echo: true,
            timers: Timers::new(),
            scratch: Plaintext::new(),
            dirty: Vec::new(),
        }
    }

    pub(crate) fn listen(&mut self, transport: Transport) {
        self.driver.listen(transport).unwrap();
    }

    pub(crate) fn connect(&mut self, addr: SocketAddr, tls: Option<&ClientTls>) -> SocketId {
        let request = UpgradeRequest {
            host: "localhost".to_owned(),
            target: "/echo".to_owned(),
            subprotocols: Vec::new(),
            headers: Vec::new(),
            deflate: self.deflate,
            version: WebSocketVersion::default(),
            key: ClientKey::generate(random_mask),
        };
        let socket = self.driver.connect(&ConnectTarget::from(addr)).unwrap();
        let tls = tls.map(|tls| (tls, "localhost"));
        let now = self.driver.now();
        let session = Session::connect(socket, addr, tls, &request, &self.limits, now).unwrap();
        self.sessions.insert(socket, session);
        self.dirty.push(socket);
        socket
    }

    pub(crate) fn session(&mut self, socket: SocketId) -> &mut Session {
        self.dirty.push(socket);
        self.sessions.get_mut(&socket).unwrap()
    }

    pub(crate) fn attach(&mut self, detached: DetachedSession) -> SocketId {
        let session = Session::attach(detached, &mut self.driver).unwrap();
        let socket = session.socket();
        if session.request().is_some() || self.echo {
            self.happened.push((socket, Happened::Accepted));
        }
        self.sessions.insert(socket, session);
        self.poll_unread(socket);
        socket
    }

    pub(crate) fn accept(&mut self, socket: SocketId) {
        self.session(socket).accept(&Acceptance::default()).unwrap();
        self.poll_unread(socket);
    }

    /// Everything that happened on one connection.
    pub(crate) fn story(&self, socket: SocketId) -> Vec<Happened> {
        let of = self.happened.iter().filter(|(of, _)| *of == socket);
        of.map(|(_, happened)| happened.clone()).collect()
    }

    pub(crate) fn messages(&self, socket: SocketId) -> Vec<Vec<u8>> {
        let story = self.story(socket).into_iter();
        story
            .filter_map(|happened| {
                let Happened::Message(_, payload) = happened else {
                    return None;
                };
                Some(payload)
            })
            .collect()
    }

    /// One turn; sleeps at most until `until`.
    pub(crate) fn turn(&mut self, until: Option<Time>) {
        self.flush();
        let until = until.into_iter().chain(self.timers.next_deadline()).min();
        self.driver.wait(until).unwrap();
        while let Some(completion) = self.driver.next() {
            self.complete(completion);
        }
        let now = self.driver.now();
        while let Some(socket) = self.timers.expired(now) {
            let Some(session) = self.sessions.get_mut(&socket) else {
                continue;
            };
            let untaken_bytes = self.driver.untaken_bytes(socket);
            let happened = session.on_deadline(untaken_bytes, now).map(owned);
            self.note(socket, happened);
        }
        self.flush();
    }

    fn complete(&mut self, completion: Completion) {
        let now = self.driver.now();
        match completion {
            Completion::Accepted { socket, peer, .. } => {
                let tls = self.server_tls.as_ref();
                let session = Session::accept_socket(socket, peer, tls, &self.limits, now);
                self.sessions.insert(socket, session.unwrap());
                self.note(socket, Some(Happened::Accepted));
            }
            Completion::Connected { socket, result } => {
                let session = self.sessions.get_mut(&socket).unwrap();
                let happened = session.on_connected(result, now).map(owned);
                self.note(socket, happened);
            }
            Completion::Received { socket, mut buffer } => {
                self.poll(socket, Some(&mut buffer));
                self.driver.recycle(buffer);
            }
            Completion::EndOfStream { socket } => {
                let session = self.sessions.get_mut(&socket).unwrap();
                let happened = session.on_end_of_stream(now).map(owned);
                self.note(socket, happened);
            }
            Completion::Failed { socket, error } => {
                let session = self.sessions.get_mut(&socket).unwrap();
                let happened = session.on_failed(error).map(owned);
                self.note(socket, happened);
            }
            Completion::Blocked { socket, bytes } => {
                let session = self.sessions.get_mut(&socket).unwrap();
                session.on_blocked(bytes);
                self.note(socket, None);
            }
            Completion::Sent {
                socket,
                buffer,
                result,
            } => {
                let session = self.sessions.get_mut(&socket).unwrap();
                let happened = session.on_sent(buffer, result, now).map(owned);
                self.note(socket, happened);
            }
            Completion::Detached {
                socket,
                transport,
                unsent,
            } => {
                let session = self.sessions.remove(&socket).unwrap();
                self.detached.push(session.detach(transport, unsent));
                self.happened.push((socket, Happened::Detached));
            }
            Completion::AcceptFailed { error, .. } => panic!("accept failed: {error}"),
            Completion::Woken => {}
        }
    }

    fn poll_unread(&mut self, socket: SocketId) {
        self.poll(socket, None);
    }

    fn poll(&mut self, socket: SocketId, received: Option<&mut [u8]>) {
        let now = self.driver.now();
        let mut scratch = std::mem::take(&mut self.scratch);
        let is_echo = self.echo && self.happened.contains(&(socket, Happened::Accepted));
        let session = self.sessions.get_mut(&socket).unwrap();
        let mut happened = Vec::new();
        let input = match received {
            Some(received) => session.open(received, &mut scratch),
            None => Ok(session.unread()),
        };
        match input {
            Err(error) => happened.push(Happened::Failed(error.to_string())),
            Ok(mut input) => {
                while let Some(event) = session.poll(&mut input, now).map(owned) {
                    if let Happened::Request(_) = &event {
                        self.answer.give(session, self.deflate.is_some());
                    }
                    if let Happened::Message(opcode, payload) = &event
                        && is_echo
                    {
                        // An end that is closing cannot echo; its story tells.
                        let _ = session.send(*opcode, payload);
                    }
                    if event != Happened::More {
                        happened.push(event);
                    }
                }
                happened.extend(session.settle(now).map(owned));
            }
        }
        self.scratch = scratch;
        for happened in happened {
            self.note(socket, Some(happened));
        }
        self.note(socket, None);
    }

    fn note(&mut self, socket: SocketId, happened: Option<Happened>) {
        self.happened
            .extend(happened.map(|happened| (socket, happened)));
        self.dirty.push(socket);
    }

    fn flush(&mut self) {
        for socket in std::mem::take(&mut self.dirty) {
            let Some(session) = self.sessions.get_mut(&socket) else {
                continue;
            };
            match session.flush(&mut self.driver) {
                Flushed::Open => self.timers.arm(socket, session.deadline()),
                Flushed::Finished => {
                    self.sessions.remove(&socket);
                    self.timers.disarm(socket);
                    self.happened.push((socket, Happened::Finished));
                }
            }
        }
    }
}

fn owned(event: SessionEvent<'_>) -> Happened {
    match event {
        SessionEvent::Request(request) => Happened::Request(request.target().to_owned()),
        SessionEvent::Upgraded { timings, .. } => Happened::Upgraded(timings),
        SessionEvent::Refused { status, .. } => Happened::Refused(status),
        SessionEvent::Message { opcode, payload } => Happened::Message(opcode, payload.to_vec()),
        SessionEvent::More => Happened::More,
        SessionEvent::Ping(_) => Happened::Ping,
        SessionEvent::Pong { round_trip, .. } => Happened::Pong(round_trip),
        SessionEvent::Closed {
            code,
            reason,
            local,
        } => Happened::Closed(code.map(CloseCode::as_u16), reason.to_owned(), local),
        SessionEvent::Failed(error) => Happened::Failed(error.to_string()),
    }
}

/// Turns of a loop over the real network until `done`, at most for ten seconds.
pub(crate) fn run_until<D: Driver>(
    world: &mut Loop<D>,
    what: &str,
    mut done: impl FnMut(&mut Loop<D>) -> bool,
) {
    let give_up = world.driver.now() + Duration::from_secs(10);
    while !done(world) {
        let now = world.driver.now();
        assert!(
            now < give_up,
            "{what} did not happen; only {:?}",
            world.happened
        );
        world.turn(Some(now + Duration::from_millis(5)));
    }
}
