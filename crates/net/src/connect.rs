//! Outgoing connections.
#![allow(unsafe_code, reason = "IP_BIND_ADDRESS_NO_PORT has no safe wrapper")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::driver::ConnectTarget;

/// Starts a connect. The result is there at once for some local addresses, otherwise None.
pub(crate) fn connect(target: &ConnectTarget) -> io::Result<(OwnedFd, Option<io::Result<()>>)> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(
        Domain::for_address(target.remote),
        kind,
        Some(Protocol::TCP),
    )?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = target.source {
        bind_address_no_port(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    let result = match socket.connect(&target.remote.into()) {
        Ok(()) => Some(Ok(())),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => None,
        // No port is left for this pair of addresses: a fault of this end, told at once.
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => return Err(error),
        Err(error) => Some(Err(error)),
    };
    Ok((socket.into(), result))
}

/// Leaves the port to connect(2), which knows the destination: a port chosen by bind(2) could
/// serve one destination only, and 28,000 connections would use up a source address.
fn bind_address_no_port(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the pointer and
    // the length describe `on`, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
