//! One attack on one connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Connects from an address of its own, so that the attackers do not run out of ports.
pub(crate) fn connect(server: SocketAddr, source: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect_timeout(&server.into(), PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// Sends all of it, however early the server answers, and reads to the end.
pub(crate) fn strike(stream: &TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    thread::scope(|scope| {
        let mut sender = stream;
        // Fails where the server ends it early.
        scope.spawn(move || sender.write_all(bytes).ok());
        let mut reader = stream;
        reader.read_to_end(&mut answer).ok();
        stream.shutdown(Shutdown::Both).ok();
    });
    answer
}

/// A connection on which nothing is read, and which is left open.
pub(crate) struct Besieger {
    stream: TcpStream,
    sent: usize,
}

impl Besieger {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, sent: 0 })
    }

    /// Sends as much of `bytes` as kernel and server take now, but at most `bytes_max`; whether
    /// that was anything.
    pub(crate) fn go_on(&mut self, bytes: &[u8], bytes_max: usize) -> bool {
        let before = self.sent;
        let end = bytes.len().min(before.saturating_add(bytes_max));
        while let Some(rest) = bytes.get(self.sent..end).filter(|rest| !rest.is_empty())
            && let Ok(taken) = self.stream.write(rest)
        {
            self.sent += taken;
        }
        self.sent > before
    }
}

/// Longer than any server takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
