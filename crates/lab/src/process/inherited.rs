//! Files that this process got from the one that started it.
#![allow(
    unsafe_code,
    reason = "neither std nor rustix marks descriptors that they do not own"
)]

use std::ffi::c_uint;
use std::io;

/// Keeps all files but the standard streams from the programs that this process starts.
pub fn keep_inherited_files() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as c_uint;
    // SAFETY: it marks descriptors and closes none; no memory is involved.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST_FREE, c_uint::MAX, flags) };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The first descriptor that is no standard stream.
const FIRST_FREE: c_uint = 3;
