//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

/// How a listening socket is set up, and with it every socket that it accepts: on Linux those
/// inherit its options, which saves a call for each option of each of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListenOptions {
    /// Whether each thread can have its own listener at the same address; the kernel then spreads
    /// connections over them (SO_REUSEPORT).
    pub reuse_port: bool,
    /// Whether a listener at an IPv6 address takes no connections of IPv4 even if it is `[::]`:
    /// another socket may listen for those at the same port.
    pub only_v6: bool,
    /// Connections that the kernel keeps until they are accepted, and one more. The kernel cuts it
    /// to net.core.somaxconn.
    pub backlog: u32,
    /// The kernel's receive buffer of each connection; None: the kernel chooses and adapts it. The
    /// kernel doubles the value for its own bookkeeping and cuts it to net.core.rmem_max.
    pub receive_buffer_bytes: Option<usize>,
    /// The kernel's send buffer of each connection, likewise, up to net.core.wmem_max.
    pub send_buffer_bytes: Option<usize>,
    /// Whether small segments are sent at once (TCP_NODELAY) instead of waiting for the peer's
    /// acknowledgement of the ones before (the algorithm of Nagle, RFC 896).
    pub nodelay: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_port: false,
            only_v6: false,
            backlog: 4096,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            nodelay: true,
        }
    }
}

impl ListenOptions {
    /// Makes such a listening socket, not blocking.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.bound(addr)?;
        socket.listen(i32::try_from(self.backlog).unwrap_or(i32::MAX))?;
        Ok(socket.into())
    }

    /// Takes the address without listening there, with the port that the kernel chose for 0. Others
    /// of the same user can still listen there if they share ports, too.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
        let socket = self.bound(addr)?;
        let real = socket.local_addr()?.as_socket();
        Ok((socket.into(), real.unwrap_or(addr)))
    }

    fn bound(&self, addr: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for connections of the last run in TIME_WAIT.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(self.reuse_port)?;
        if addr.is_ipv6() {
            socket.set_only_v6(self.only_v6)?;
        }
        socket.set_tcp_nodelay(self.nodelay)?;
        // Before it listens: the window scale of a connection follows from the buffer (tcp(7)).
        if let Some(bytes) = self.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(&addr.into())?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// Makes a listening socket with the default of every other option.
pub fn listen_socket(addr: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<TcpListener> {
    let options = ListenOptions {
        reuse_port,
        backlog,
        ..ListenOptions::default()
    };
    options.listen(addr)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use socket2::SockRef;

    use super::*;

    fn any() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn two_threads_can_listen_at_one_address_only_if_they_say_so() {
        let first = listen_socket(any(), true, 16).unwrap();
        let addr = first.local_addr().unwrap();
        listen_socket(addr, true, 16).unwrap();

        let alone = listen_socket(any(), false, 16).unwrap();
        let error = listen_socket(alone.local_addr().unwrap(), false, 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    /// The kernel keeps one more than it is told to. It answers nothing to the next one, which
    /// tries again by itself, and again.
    #[test]
    fn the_backlog_holds_what_it_says_and_one_more() {
        for backlog in [1, 4] {
            let listener = listen_socket(any(), false, backlog).unwrap();
            let addr = listener.local_addr().unwrap();
            let waiting: Vec<_> = (0..=backlog)
                .map(|number| {
                    TcpStream::connect_timeout(&addr, Duration::from_secs(10))
                        .unwrap_or_else(|error| panic!("{number} of {backlog}: {error}"))
                })
                .collect();
            let error = TcpStream::connect_timeout(&addr, Duration::from_millis(200)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{backlog}");
            drop(waiting);
        }
    }

    #[test]
    fn accepted_sockets_have_the_options_of_their_listener() {
        for (bytes, nodelay) in [(32 * 1024, true), (64 * 1024, false)] {
            let options = ListenOptions {
                receive_buffer_bytes: Some(bytes),
                send_buffer_bytes: Some(2 * bytes),
                nodelay,
                ..ListenOptions::default()
            };
            let listener = options.listen(any()).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            listener.set_nonblocking(false).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let accepted = SockRef::from(&accepted);
            // socket(7): the kernel doubles the value.
            assert_eq!(accepted.recv_buffer_size().unwrap(), 2 * bytes);
            assert_eq!(accepted.send_buffer_size().unwrap(), 4 * bytes);
            assert_eq!(accepted.tcp_nodelay().unwrap(), nodelay);
            drop(client);
        }
    }
}
