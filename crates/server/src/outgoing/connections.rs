//! All connections of one instance, and the turns in which they move.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use moonwire_lua::{Client, ClientEvent, Handler};
use moonwire_net::{
    Completion, Driver, EpollDriver, Flushed, Plaintext, ReceiveBuffer, SendError, Session,
    SessionEvent, SocketId, Timers, random_mask,
};
use moonwire_proto::{
    ClientKey, CloseCode, Opcode, UpgradeRequest, WebSocketUrl, WebSocketVersion,
};
use tracing::error;

use super::dial::dial;
use super::link::{Link, Tell};
use super::{Outgoing, WRITE_QUEUE_BYTES_MAX};

/// The connections of one instance, on its thread.
#[derive(Debug)]
pub(super) struct Connections {
    outgoing: Arc<Outgoing>,
    driver: EpollDriver,
    plaintext: Plaintext,
    timers: Timers<SocketId>,
    /// By the index of their sockets.
    links: Vec<Option<Box<Link>>>,
    /// Those that the service may use.
    sockets: HashMap<Handler, SocketId>,
    /// Those to be flushed at the end of the turn, each once.
    touched: Vec<SocketId>,
    /// Ends that were not told yet: of connections that timed out.
    failed: VecDeque<(Handler, String)>,
    /// The connection that has told something and may have more. It goes before all that the driver
    /// has, so that at most one keeps received bytes.
    reading: Option<SocketId>,
    is_in_turn: bool,
}

impl Connections {
    /// None yet; an error is that of making an epoll set.
    pub(super) fn new(outgoing: Arc<Outgoing>) -> io::Result<Self> {
        Ok(Self {
            outgoing,
            driver: EpollDriver::new()?,
            plaintext: Plaintext::new(),
            timers: Timers::new(),
            links: Vec::new(),
            sockets: HashMap::new(),
            touched: Vec::new(),
            failed: VecDeque::new(),
            reading: None,
            is_in_turn: false,
        })
    }

    fn open(&mut self, url: &WebSocketUrl) -> Result<Link, String> {
        let (stream, remote) = dial(url)?;
        let trusted = &self.outgoing.trusted;
        let tls = url
            .is_secure()
            .then(|| trusted.of(url.host(), remote))
            .transpose()?;
        let handler = self.outgoing.handler();
        let handler = handler.ok_or("all handlers were given")?;
        let socket = self.driver.attach(OwnedFd::from(stream).into());
        let socket = socket.map_err(|error| format!("cannot connect to {remote}: {error}"))?;
        let now = self.driver.now();
        let session = Session::connect(
            socket,
            remote,
            tls.as_ref().map(|tls| (tls, url.host())),
            &request(url),
            &self.outgoing.limits,
            now,
        );
        let mut session = session.map_err(|error| {
            self.driver.close(socket);
            error.to_string()
        })?;
        // It gives an event only for a connect that failed.
        let _ = session.on_connected(Ok(()), now);
        Ok(Link {
            handler,
            session,
            is_known: true,
            is_touched: false,
        })
    }

    fn received(
        &mut self,
        socket: SocketId,
        mut buffer: ReceiveBuffer,
        tell: &mut Tell<'_>,
    ) -> bool {
        let now = self.driver.now();
        let mut is_told = false;
        if let Some(link) = link_of(&mut self.links, socket) {
            is_told = match link.session.open(&mut buffer, &mut self.plaintext) {
                Ok(input) => link.read(input, now, tell),
                Err(error) => link.happen(|_| Some(SessionEvent::Failed(error)), tell),
            };
            self.note(socket, is_told);
        }
        self.driver.recycle(buffer);
        is_told
    }

    /// Goes on with the connection that told something last.
    fn read_on(&mut self, socket: SocketId, tell: &mut Tell<'_>) -> bool {
        let now = self.driver.now();
        let Some(link) = link_of(&mut self.links, socket) else {
            self.reading = None;
            return false;
        };
        let input = link.session.unread();
        let is_told = link.read(input, now, tell);
        self.note(socket, is_told);
        is_told
    }

    fn happened(
        &mut self,
        socket: SocketId,
        happen: impl FnOnce(&mut Session) -> Option<SessionEvent<'_>>,
        tell: &mut Tell<'_>,
    ) -> bool {
        let Some(link) = link_of(&mut self.links, socket) else {
            return false;
        };
        let is_told = link.happen(happen, tell);
        self.note(socket, is_told);
        is_told
    }

    /// Takes note of a connection to which something happened.
    fn note(&mut self, socket: SocketId, is_told: bool) {
        self.reading = is_told.then_some(socket);
        let Some(link) = link_of(&mut self.links, socket) else {
            return;
        };
        if !link.is_known {
            self.sockets.remove(&link.handler);
        }
        self.touch(socket);
    }

    fn complete(&mut self, completion: Completion, tell: &mut Tell<'_>) -> bool {
        let now = self.driver.now();
        match completion {
            Completion::Received { socket, buffer } => self.received(socket, buffer, tell),
            Completion::EndOfStream { socket } => {
                self.happened(socket, |session| session.on_end_of_stream(now), tell)
            }
            Completion::Failed { socket, error } => {
                self.happened(socket, |session| session.on_failed(error), tell)
            }
            Completion::Blocked { socket, bytes } => self.happened(
                socket,
                |session| {
                    session.on_blocked(bytes);
                    None
                },
                tell,
            ),
            Completion::Sent {
                socket,
                buffer,
                result,
            } => self.happened(socket, |session| session.on_sent(buffer, result, now), tell),
            // Sockets come here connected, and stay.
            Completion::Connected { .. }
            | Completion::Accepted { .. }
            | Completion::AcceptFailed { .. }
            | Completion::Detached { .. }
            | Completion::Woken => false,
        }
    }

    /// Acts on the deadlines that have passed. To be called when all that has arrived was looked
    /// at: only then is a silence one.
    fn expire(&mut self) {
        let now = self.driver.now();
        while let Some(socket) = self.timers.expired(now) {
            let untaken_bytes = self.driver.untaken_bytes(socket);
            let Some(link) = link_of(&mut self.links, socket) else {
                continue;
            };
            let failed = &mut self.failed;
            link.happen(
                |session| session.on_deadline(untaken_bytes, now),
                &mut |handler, event| {
                    if let ClientEvent::Failed { reason } = event {
                        failed.push_back((handler, reason));
                    }
                },
            );
            self.note(socket, false);
        }
    }

    fn touch(&mut self, socket: SocketId) {
        if let Some(link) = link_of(&mut self.links, socket)
            && !std::mem::replace(&mut link.is_touched, true)
        {
            self.touched.push(socket);
        }
        if !self.is_in_turn {
            self.flush();
        }
    }

    /// Writes what is queued, and forgets those that are over.
    fn flush(&mut self) {
        while let Some(socket) = self.touched.pop() {
            let Some(link) = link_of(&mut self.links, socket) else {
                continue;
            };
            link.is_touched = false;
            match link.session.flush(&mut self.driver) {
                Flushed::Open => self.timers.arm(socket, link.session.deadline()),
                Flushed::Finished => {
                    self.timers.disarm(socket);
                    self.links[socket.index()] = None;
                }
            }
        }
    }
}

impl Client for Connections {
    fn connect(&mut self, url: &str) -> Result<Handler, String> {
        let parts = WebSocketUrl::parse(url).map_err(|error| format!("`{url}` {error}"))?;
        let max = self.outgoing.connections_max;
        if self.driver.sockets() >= max {
            return Err(format!(
                "there are {max} connections, and an instance can have no more"
            ));
        }
        let link = self.open(&parts)?;
        let (handler, socket) = (link.handler, link.session.socket());
        let index = socket.index();
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        self.links[index] = Some(Box::new(link));
        self.sockets.insert(handler, socket);
        self.touch(socket);
        Ok(handler)
    }

    fn send(&mut self, handler: Handler, opcode: Opcode, payload: &[u8]) -> Result<(), String> {
        let socket = self.sockets.get(&handler).copied();
        let link = socket.and_then(|socket| link_of(&mut self.links, socket));
        let (Some(socket), Some(link)) = (socket, link) else {
            return Err("no live connection has this handler".to_owned());
        };
        let session = &mut link.session;
        let mut sent = session.send(opcode, payload);
        if sent == Err(SendError::QueueFull) {
            // What the kernel takes now need not wait for the end of the turn.
            let _ = session.flush(&mut self.driver);
            sent = session.send(opcode, payload);
        }
        let is_early = !session.is_open() && !session.is_closing();
        self.touch(socket);
        sent.map_err(|error| match error {
            SendError::QueueFull => format!(
                "more than {WRITE_QUEUE_BYTES_MAX} bytes would wait to be written; let \
                 cws:eventLoop() write some"
            ),
            SendError::NotOpen if is_early => "the connection is not open before onopen".to_owned(),
            SendError::NotOpen | SendError::ControlTooLong => error.to_string(),
        })
    }

    fn close(&mut self, handler: Handler) {
        let Some(socket) = self.sockets.remove(&handler) else {
            return;
        };
        if let Some(link) = link_of(&mut self.links, socket) {
            link.is_known = false;
            link.session.close(CloseCode::NORMAL, "");
        }
        self.touch(socket);
    }

    fn begin(&mut self, wait_max: Duration) {
        self.is_in_turn = true;
        let mut until = self.driver.now();
        if self.reading.is_none() && self.failed.is_empty() {
            until = until + wait_max;
            until = self
                .timers
                .next_deadline()
                .map_or(until, |at| at.min(until));
        }
        if let Err(error) = self.driver.wait(Some(until)) {
            error!("connections to other servers cannot be waited for: {error}");
        }
    }

    fn next(&mut self, tell: &mut dyn FnMut(Handler, ClientEvent<'_>)) -> bool {
        loop {
            if let Some((handler, reason)) = self.failed.pop_front() {
                tell(handler, ClientEvent::Failed { reason });
                return true;
            }
            if let Some(socket) = self.reading {
                if self.read_on(socket, tell) {
                    return true;
                }
            } else if let Some(completion) = self.driver.next() {
                if self.complete(completion, tell) {
                    return true;
                }
            } else {
                self.expire();
                if self.failed.is_empty() {
                    return false;
                }
            }
        }
    }

    fn end(&mut self) {
        self.is_in_turn = false;
        self.flush();
    }
}

/// The service ends, or its machine does: its peers are told.
impl Drop for Connections {
    fn drop(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.session.close(CloseCode::GOING_AWAY, "");
            let _ = link.session.flush(&mut self.driver);
        }
    }
}

/// The link on this socket; none if the place has another one by now.
fn link_of(links: &mut [Option<Box<Link>>], socket: SocketId) -> Option<&mut Link> {
    let link = links.get_mut(socket.index())?.as_deref_mut()?;
    (link.session.socket() == socket).then_some(link)
}

fn request(url: &WebSocketUrl) -> UpgradeRequest {
    let scheme = if url.is_secure() { "https" } else { "http" };
    let origin = format!("{scheme}://{}", url.host_header());
    UpgradeRequest {
        host: url.host_header(),
        target: url.resource().to_owned(),
        subprotocols: Vec::new(),
        headers: vec![
            ("Origin".to_owned(), origin),
            ("User-Agent".to_owned(), USER_AGENT.to_owned()),
        ],
        deflate: None,
        version: WebSocketVersion::default(),
        key: ClientKey::generate(random_mask),
    }
}

const USER_AGENT: &str = concat!("moonwire/", env!("CARGO_PKG_VERSION"));
