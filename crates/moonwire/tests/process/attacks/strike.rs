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

/// Longer than any server takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
