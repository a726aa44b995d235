//! A driver that counts what is sent, TLS and handshakes included: what a session alone cannot
//! say, because it forgets.

use std::io;

use moonwire_net::{
    Completion, ConnectTarget, Driver, ListenerId, ReceiveBuffer, SocketId, Submission, Time,
    Transport, Waker,
};

/// A driver and the bytes that were handed to it.
pub(crate) struct Metered<D> {
    driver: D,
    bytes_sent: u64,
}

impl<D: Driver> Metered<D> {
    pub(crate) fn new(driver: D) -> Self {
        Self {
            driver,
            bytes_sent: 0,
        }
    }

    /// Bytes sent since the last call.
    pub(crate) fn take_bytes_sent(&mut self) -> u64 {
        std::mem::take(&mut self.bytes_sent)
    }
}

impl<D: Driver> Driver for Metered<D> {
    fn now(&self) -> Time {
        self.driver.now()
    }

    fn listen(&mut self, listener: Transport) -> io::Result<ListenerId> {
        self.driver.listen(listener)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.driver.pause_accept(listener);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.driver.resume_accept(listener);
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.driver.stop_listening(listener);
    }

    fn connect(&mut self, target: &ConnectTarget) -> io::Result<SocketId> {
        self.driver.connect(target)
    }

    fn attach(&mut self, transport: Transport) -> io::Result<SocketId> {
        self.driver.attach(transport)
    }

    fn detach(&mut self, socket: SocketId) {
        self.driver.detach(socket);
    }

    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        self.bytes_sent += buffer.len() as u64;
        self.driver.send(socket, buffer)
    }

    fn post(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        self.bytes_sent += buffer.len() as u64;
        self.driver.post(socket, buffer)
    }

    fn send_at_once(&mut self, socket: SocketId, parts: [&[u8]; 2]) -> usize {
        let taken = self.driver.send_at_once(socket, parts);
        self.bytes_sent += taken as u64;
        taken
    }

    fn untaken_bytes(&self, socket: SocketId) -> usize {
        self.driver.untaken_bytes(socket)
    }

    fn pause_receive(&mut self, socket: SocketId) {
        self.driver.pause_receive(socket);
    }

    fn resume_receive(&mut self, socket: SocketId) {
        self.driver.resume_receive(socket);
    }

    fn shutdown(&mut self, socket: SocketId) {
        self.driver.shutdown(socket);
    }

    fn close(&mut self, socket: SocketId) {
        self.driver.close(socket);
    }

    fn abort(&mut self, socket: SocketId) {
        self.driver.abort(socket);
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        self.driver.wait(until)
    }

    fn next(&mut self) -> Option<Completion> {
        self.driver.next()
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        self.driver.recycle(buffer);
    }

    fn waker(&self) -> Waker {
        self.driver.waker()
    }
}
