//! TUN devices and interface addresses by ioctl, so that no `ip` tool is needed.
#![allow(
    unsafe_code,
    reason = "no safe wrapper for these ioctls exists among our dependencies"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Opens a TUN device in the calling thread's namespace and brings it up.
///
/// Packets come with a virtio header, which carries checksum and segmentation offload across:
/// neither side computes checksums, and with `segmentation` a write of the server crosses as one
/// packet of up to 64 KiB instead of 45.
pub(crate) fn open(device: &TunDevice<'_>) -> io::Result<File> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut request = request(device.name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl_request(&tun, libc::TUNSETIFF, &request)?;
    let mut offload = libc::TUN_F_CSUM;
    if device.segmentation {
        offload |= libc::TUN_F_TSO4;
    }
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    check(unsafe {
        libc::ioctl(
            tun.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload),
        )
    })?;
    configure(device)?;
    Ok(tun)
}

/// Brings up the loopback device of the calling thread's namespace.
pub(crate) fn bring_loopback_up() -> io::Result<()> {
    bring_up(&control_socket()?, "lo")
}

/// What a TUN device is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunDevice<'a> {
    /// At most 15 bytes.
    pub(crate) name: &'a str,
    pub(crate) address: Ipv4Addr,
    pub(crate) peer: Ipv4Addr,
    /// Bytes of an IP packet on the wire.
    pub(crate) mtu: u16,
    /// Packets the device holds while the forwarder is not reading.
    pub(crate) queue_packets: u32,
    /// Whether TCP may hand over packets larger than the MTU.
    pub(crate) segmentation: bool,
}

fn configure(device: &TunDevice<'_>) -> io::Result<()> {
    let socket = control_socket()?;
    let mut interface = request(device.name);
    interface.ifr_ifru.ifru_mtu = i32::from(device.mtu);
    ioctl_request(&socket, libc::SIOCSIFMTU, &interface)?;
    // Before the device comes up: its queue discipline takes its size from this.
    interface.ifr_ifru.ifru_mtu = device.queue_packets as i32;
    ioctl_request(&socket, libc::SIOCSIFTXQLEN, &interface)?;
    for (what, address) in [
        (libc::SIOCSIFADDR, device.address),
        (libc::SIOCSIFDSTADDR, device.peer),
    ] {
        interface.ifr_ifru.ifru_addr = socket_address(address);
        ioctl_request(&socket, what, &interface)?;
    }
    bring_up(&socket, device.name)
}

fn bring_up(socket: &UdpSocket, name: &str) -> io::Result<()> {
    let mut interface = request(name);
    interface.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl_request(socket, libc::SIOCSIFFLAGS, &interface)
}

/// Interface ioctls go through any socket of the namespace.
fn control_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
}

fn request(name: &str) -> libc::ifreq {
    assert!(
        name.len() < libc::IFNAMSIZ,
        "interface names are our own constants"
    );
    // SAFETY: ifreq is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let octets = address.octets().map(|octet| octet as libc::c_char);
    let mut data = [0; 14];
    // sockaddr_in: two bytes of port, then the address in network order.
    data[2..6].copy_from_slice(&octets);
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn ioctl_request(
    descriptor: &impl AsRawFd,
    what: libc::Ioctl,
    request: &libc::ifreq,
) -> io::Result<()> {
    let mut copy = *request;
    // SAFETY: each of these ioctls reads, and may write back, one ifreq, which `copy` is.
    check(unsafe { libc::ioctl(descriptor.as_raw_fd(), what, &raw mut copy) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
