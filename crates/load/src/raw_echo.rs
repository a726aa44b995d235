//! The floor of any server: after the handshake it gives back what came, without a look at it. A
//! generator whose frames have no mask takes them for those of a server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonwire_net::{
    Completion, Driver, DriverChoice, ListenOptions, SocketId, Submission, SystemDriver,
};
use moonwire_proto::{Acceptance, Limits, RequestReader, accept_response};

use crate::run::LoadError;

/// Echoes bytes, on one thread, until `stop` is set. `on_listening` is told the address.
pub fn raw_echo(
    listen: SocketAddr,
    driver: DriverChoice,
    stop: &AtomicBool,
    on_listening: &mut dyn FnMut(SocketAddr),
) -> Result<(), LoadError> {
    let refused =
        |error: io::Error| LoadError::System(format!("cannot listen on {listen}: {error}"));
    let listener = ListenOptions::default().listen(listen).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let mut echo = RawEcho {
        driver: SystemDriver::new(driver).map_err(refused)?,
        peers: Vec::new(),
        spares: Vec::new(),
    };
    echo.driver.listen(listener.into()).map_err(refused)?;
    on_listening(address);
    while !stop.load(Ordering::Relaxed) {
        let until = echo.driver.now() + STOP_POLL;
        echo.driver.wait(Some(until)).map_err(refused)?;
        while let Some(completion) = echo.driver.next() {
            echo.complete(completion);
        }
    }
    Ok(())
}

struct RawEcho {
    driver: SystemDriver,
    /// By the place of their socket.
    peers: Vec<Option<Peer>>,
    /// Empty buffers.
    spares: Vec<Vec<u8>>,
}

struct Peer {
    socket: SocketId,
    /// Until its request is there.
    request: Option<RequestReader>,
    /// What came while a send was in flight.
    waiting: Vec<u8>,
    is_sending: bool,
}

impl RawEcho {
    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { socket, .. } => self.add(socket),
            Completion::Received { socket, buffer } => {
                self.received(socket, &buffer);
                self.driver.recycle(buffer);
            }
            Completion::Blocked { socket, .. } => {
                if let Some(peer) = self.peer(socket) {
                    peer.is_sending = true;
                }
            }
            Completion::Sent { socket, buffer, .. } => {
                self.spares.push(buffer);
                if let Some(peer) = self.peer(socket) {
                    peer.is_sending = false;
                    let waiting = std::mem::take(&mut peer.waiting);
                    self.send(socket, waiting);
                }
            }
            Completion::EndOfStream { socket } | Completion::Failed { socket, .. } => {
                self.close(socket);
            }
            Completion::Connected { .. }
            | Completion::AcceptFailed { .. }
            | Completion::Detached { .. }
            | Completion::Woken => {}
        }
    }

    fn add(&mut self, socket: SocketId) {
        let place = socket.index();
        if self.peers.len() <= place {
            self.peers.resize_with(place + 1, || None);
        }
        self.peers[place] = Some(Peer {
            socket,
            request: Some(RequestReader::new(&Limits::default())),
            waiting: Vec::new(),
            is_sending: false,
        });
    }

    fn peer(&mut self, socket: SocketId) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(socket.index())?.as_mut()?;
        (peer.socket == socket).then_some(peer)
    }

    fn received(&mut self, socket: SocketId, bytes: &[u8]) {
        let Some(peer) = self.peer(socket) else {
            return;
        };
        let Some(reader) = &mut peer.request else {
            return self.echo(socket, bytes);
        };
        match reader.receive(bytes) {
            Ok(None) => {}
            Ok(Some((request, taken))) => {
                peer.request = None;
                match accept_response(&request, &Acceptance::default()) {
                    Ok((response, _)) => {
                        self.send(socket, response);
                        self.echo(socket, bytes.get(taken..).unwrap_or_default());
                    }
                    Err(_) => self.close(socket),
                }
            }
            Err(_) => self.close(socket),
        }
    }

    fn echo(&mut self, socket: SocketId, bytes: &[u8]) {
        let Some(peer) = self.peer(socket) else {
            return;
        };
        if peer.is_sending {
            peer.waiting.extend_from_slice(bytes);
            return;
        }
        let mut buffer = self.spares.pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        self.send(socket, buffer);
    }

    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) {
        if buffer.is_empty() {
            return;
        }
        match self.driver.post(socket, buffer) {
            Submission::Done(buffer) => self.spares.push(buffer),
            Submission::InFlight => {
                if let Some(peer) = self.peer(socket) {
                    peer.is_sending = true;
                }
            }
        }
    }

    fn close(&mut self, socket: SocketId) {
        if self.peer(socket).is_some() {
            self.peers[socket.index()] = None;
            self.driver.close(socket);
        }
    }
}

/// How soon an interrupt is noticed.
const STOP_POLL: Duration = Duration::from_millis(100);
