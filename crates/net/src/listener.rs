//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Makes a listening socket, not blocking. With `reuse_port` each thread can have its own at the
/// same address, and the kernel spreads connections over them (SO_REUSEPORT). The kernel cuts
/// `backlog` to net.core.somaxconn.
pub fn listen_socket(addr: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<TcpListener> {
    listen(addr, reuse_port, backlog, false)
}

/// The same at an IPv6 address, which takes no connections of IPv4 even if it is `[::]`: another
/// socket may listen for those at the same port.
pub fn listen_socket_only_v6(
    addr: SocketAddr,
    reuse_port: bool,
    backlog: u32,
) -> io::Result<TcpListener> {
    listen(addr, reuse_port, backlog, true)
}

fn listen(
    addr: SocketAddr,
    reuse_port: bool,
    backlog: u32,
    only_v6: bool,
) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the last run in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    if addr.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // Accepted sockets inherit it, which saves a call for each of them.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_can_listen_at_one_address_only_if_they_say_so() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let first = listen_socket(any, true, 16).unwrap();
        let addr = first.local_addr().unwrap();
        listen_socket(addr, true, 16).unwrap();

        let alone = listen_socket(any, false, 16).unwrap();
        let error = listen_socket(alone.local_addr().unwrap(), false, 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
