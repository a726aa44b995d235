//! Writing without waiting.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// Writes what the kernel takes now: until "would block", which alone promises to be told when
/// there is room again. How many bytes that were.
pub(crate) fn write_now(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(fd, rest, flags) {
            Ok(bytes) => sent += bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

/// Writes what the kernel takes at once of two parts, one after the other.
pub(crate) fn write_parts_now(fd: &OwnedFd, parts: [&[u8]; 2]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let slices = parts.map(IoSlice::new);
    let mut nothing = SendAncillaryBuffer::default();
    Ok(sendmsg(fd, &slices, &mut nothing, flags)?)
}
