//! What the kernel still holds of what was written.
#![allow(unsafe_code, reason = "SIOCOUTQ has no safe wrapper")]

use std::os::fd::OwnedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// Bytes that were written and that the peer's host has not acknowledged.
pub(crate) fn unacknowledged_bytes(fd: &OwnedFd) -> usize {
    // SAFETY: for a socket this opcode (the same number as TIOCOUTQ, tcp(7)) stores one int.
    let queued = unsafe { ioctl(fd, Getter::<SIOCOUTQ, libc::c_int>::new()) };
    // A socket that is dead already has nothing that anyone waits for.
    queued
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(0)
}

const SIOCOUTQ: Opcode = libc::TIOCOUTQ as Opcode;
