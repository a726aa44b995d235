//! A server that does nothing but answer. What the generator reaches against it is the generator's
//! own ceiling, or more than this server does, and the processor time of both says which.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonwire_net::{
    Completion, Driver, DriverChoice, Flushed, ListenOptions, Plaintext, ReceiveBuffer, ServerTls,
    Session, SessionEvent, SessionLimits, SocketId, SystemDriver,
};
use moonwire_proto::{Acceptance, Limits, Opcode, refusal};

use crate::amplify::AmplifyReply;
use crate::run::LoadError;
use crate::worker::wall_ns;

/// A null server: one thread, no queues of its own, no deadlines.
#[derive(Clone, Debug)]
pub struct NullServer {
    /// Where it listens; port 0 is one that the kernel chooses.
    pub listen: SocketAddr,
    /// The files of a certificate and its key, in PEM, if it speaks TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Replies to each message on `/amplify`.
    pub replies: u32,
    /// How it asks the kernel for its sockets.
    pub driver: DriverChoice,
}

/// Serves `/echo`, `/amplify` and `/broadcast` until `stop` is set. `on_listening` is told the
/// address.
pub fn null_server(
    server: &NullServer,
    stop: &AtomicBool,
    on_listening: &mut dyn FnMut(SocketAddr),
) -> Result<(), LoadError> {
    let tls = server.tls.as_ref().map(|(certificate, key)| {
        let tls = ServerTls::from_pem(certificate, key);
        tls.map_err(|error| LoadError::Tls(error.to_string()))
    });
    let refused = |error: io::Error| {
        LoadError::System(format!("cannot listen on {}: {error}", server.listen))
    };
    let listener = ListenOptions::default().listen(server.listen);
    let listener = listener.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let mut driver = SystemDriver::new(server.driver).map_err(refused)?;
    driver.listen(listener.into()).map_err(refused)?;
    on_listening(address);
    let mut room = Room {
        tls: tls.transpose()?,
        replies: server.replies,
        limits: Arc::new(limits()),
        clients: Vec::new(),
        dirty: Vec::new(),
        out: Vec::new(),
    };
    let mut plaintext = Plaintext::new();
    while !stop.load(Ordering::Relaxed) {
        let until = driver.now() + STOP_POLL;
        driver.wait(Some(until)).map_err(refused)?;
        while let Some(completion) = driver.next() {
            room.complete(completion, &mut plaintext, &mut driver);
        }
        room.flush(&mut driver);
    }
    Ok(())
}

/// What a client is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Echo,
    Amplify,
    /// Those that have not subscribed hear nothing.
    Broadcast {
        is_subscribed: bool,
    },
}

#[derive(Debug)]
struct Client {
    session: Session,
    service: Service,
    /// Whether it is among those to be flushed at the end of the turn.
    is_dirty: bool,
}

/// All connections.
struct Room {
    tls: Option<ServerTls>,
    replies: u32,
    limits: Arc<SessionLimits>,
    /// By the place of their socket.
    clients: Vec<Option<Client>>,
    dirty: Vec<SocketId>,
    /// The message that is answered, and its answer.
    out: Vec<u8>,
}

impl Room {
    fn complete(
        &mut self,
        completion: Completion,
        plaintext: &mut Plaintext,
        driver: &mut SystemDriver,
    ) {
        let now = driver.now();
        match completion {
            Completion::Accepted { socket, peer, .. } => {
                let tls = self.tls.as_ref();
                match Session::accept_socket(socket, peer, tls, &self.limits, now) {
                    Ok(session) => self.add(socket, session),
                    Err(_) => driver.close(socket),
                }
            }
            Completion::Received { socket, buffer } => {
                self.received(socket, buffer, plaintext, driver);
            }
            Completion::EndOfStream { socket } => self.tell(socket, |session| {
                session.on_end_of_stream(now);
            }),
            Completion::Failed { socket, error } => self.tell(socket, |session| {
                session.on_failed(error);
            }),
            Completion::Blocked { socket, bytes } => self.tell(socket, |session| {
                session.on_blocked(bytes);
            }),
            Completion::Sent {
                socket,
                buffer,
                result,
            } => self.tell(socket, |session| {
                session.on_sent(buffer, result, now);
            }),
            Completion::Connected { .. }
            | Completion::AcceptFailed { .. }
            | Completion::Detached { .. }
            | Completion::Woken => {}
        }
    }

    fn add(&mut self, socket: SocketId, session: Session) {
        let place = socket.index();
        if self.clients.len() <= place {
            self.clients.resize_with(place + 1, || None);
        }
        self.clients[place] = Some(Client {
            session,
            service: Service::Echo,
            is_dirty: false,
        });
    }

    fn client(&mut self, socket: SocketId) -> Option<&mut Client> {
        let client = self.clients.get_mut(socket.index())?.as_mut()?;
        (client.session.socket() == socket).then_some(client)
    }

    fn tell(&mut self, socket: SocketId, tell: impl FnOnce(&mut Session)) {
        if let Some(client) = self.client(socket) {
            tell(&mut client.session);
            self.mark(socket);
        }
    }

    fn mark(&mut self, socket: SocketId) {
        let client = self.client(socket);
        if let Some(client) = client.filter(|client| !client.is_dirty) {
            client.is_dirty = true;
            self.dirty.push(socket);
        }
    }

    fn received(
        &mut self,
        socket: SocketId,
        mut buffer: ReceiveBuffer,
        plaintext: &mut Plaintext,
        driver: &mut SystemDriver,
    ) {
        let now = driver.now();
        let mut out = std::mem::take(&mut self.out);
        if let Some(client) = self.client(socket) {
            // What cannot be read ends the session, which the flush sees.
            if let Ok(mut input) = client.session.open(&mut buffer, plaintext) {
                while let Some(client) = self.client(socket)
                    && let Some(event) = client.session.poll(&mut input, now)
                {
                    match event {
                        SessionEvent::Request(request) => {
                            let service = service_of(request.path());
                            self.accept(socket, service);
                        }
                        SessionEvent::Message { opcode, payload } => {
                            out.clear();
                            out.extend_from_slice(payload);
                            self.answer(socket, opcode, &mut out);
                        }
                        SessionEvent::Ping(_)
                        | SessionEvent::Pong { .. }
                        | SessionEvent::More
                        | SessionEvent::Closed { .. }
                        | SessionEvent::Failed(_)
                        | SessionEvent::Upgraded { .. }
                        | SessionEvent::Refused { .. } => {}
                    }
                }
            }
            self.tell(socket, |session| {
                session.settle(now);
            });
        }
        self.out = out;
        driver.recycle(buffer);
    }

    fn accept(&mut self, socket: SocketId, service: Option<Service>) {
        let Some(client) = self.client(socket) else {
            return;
        };
        let accepted = service.is_some_and(|service| {
            client.service = service;
            client.session.accept(&Acceptance::default()).is_ok()
        });
        if !accepted {
            let response = refusal(404, &[], b"no service here\n");
            client.session.refuse(&response.unwrap_or_default());
        }
    }

    fn answer(&mut self, socket: SocketId, opcode: Opcode, message: &mut Vec<u8>) {
        let replies = self.replies;
        let Some(client) = self.client(socket) else {
            return;
        };
        match &mut client.service {
            Service::Echo => answer_with(&mut client.session, opcode, message),
            Service::Amplify => {
                let reply = AmplifyReply::read(message).map(|request| request.answer(wall_us()));
                for _ in 0..replies {
                    let reply = reply.as_deref().unwrap_or(message);
                    answer_with(&mut client.session, opcode, reply);
                }
            }
            Service::Broadcast { is_subscribed } if message == b"subscribe" => {
                *is_subscribed = true;
                answer_with(&mut client.session, opcode, b"subscribed");
            }
            Service::Broadcast { .. } => self.publish(opcode, message),
        }
    }

    fn publish(&mut self, opcode: Opcode, message: &[u8]) {
        for client in self.clients.iter_mut().flatten() {
            let heard = Service::Broadcast {
                is_subscribed: true,
            };
            if client.service == heard && client.session.send(opcode, message).is_ok() {
                let socket = client.session.socket();
                if !std::mem::replace(&mut client.is_dirty, true) {
                    self.dirty.push(socket);
                }
            }
        }
    }

    fn flush(&mut self, driver: &mut SystemDriver) {
        for socket in std::mem::take(&mut self.dirty) {
            let Some(client) = self.client(socket) else {
                continue;
            };
            client.is_dirty = false;
            if client.session.flush(driver) == Flushed::Finished {
                self.clients[socket.index()] = None;
            }
        }
    }
}

/// A message that finds no room is not sent: the generator counts it as lost, and the figures are
/// nobody's ceiling.
fn answer_with(session: &mut Session, opcode: Opcode, message: &[u8]) {
    let _ = session.send(opcode, message);
}

fn service_of(path: &str) -> Option<Service> {
    match path {
        "/echo" => Some(Service::Echo),
        "/amplify" => Some(Service::Amplify),
        "/broadcast" => Some(Service::Broadcast {
            is_subscribed: false,
        }),
        _ => None,
    }
}

/// It reads whatever comes: a generator that is measured does not wait for it.
fn limits() -> SessionLimits {
    SessionLimits {
        protocol: Limits::default(),
        write_queue_bytes_max: WRITE_QUEUE_BYTES_MAX,
        write_queue_pause_bytes: usize::MAX,
        idle_timeout: None,
        ..SessionLimits::default()
    }
}

fn wall_us() -> u64 {
    wall_ns() / 1000
}

/// A client that does not read its replies gets no more of them.
const WRITE_QUEUE_BYTES_MAX: usize = 64 << 20;
/// How soon an interrupt is noticed.
const STOP_POLL: Duration = Duration::from_millis(100);
