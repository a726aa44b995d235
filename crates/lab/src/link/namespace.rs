//! Network namespaces: made on a thread of their own, kept by a descriptor, entered by threads.
//!
//! A namespace belongs to a thread, not to the process, so nothing here changes the network of
//! the threads that were there before; threads and children started inside inherit it.
#![allow(
    unsafe_code,
    reason = "unshare(2) is unsafe in rustix because of the flags it could take"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, gettid, move_into_link_name_space};

/// A network namespace that lives as long as this value or a process in it.
#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    /// `/proc/self/task/TID/ns/net` of the thread that made it.
    handle: Arc<File>,
    /// `/proc/self/task/TID/net/dev`, opened inside: the counters of its devices.
    devices: Arc<File>,
}

impl Namespace {
    /// Makes a namespace, lets `prepare` set it up from inside, and keeps both.
    pub(crate) fn create<T: Send>(
        prepare: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<(Self, T)> {
        on_thread(|| {
            // SAFETY: NEWNET takes the calling thread's network only; descriptor tables, which
            // are what makes other flags unsafe, stay shared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            let task = format!("/proc/self/task/{}", gettid().as_raw_nonzero());
            let handle = Arc::new(File::open(format!("{task}/ns/net"))?);
            let devices = Arc::new(File::open(format!("{task}/net/dev"))?);
            let prepared = prepare()?;
            Ok((Self { handle, devices }, prepared))
        })
    }

    /// Runs `work` on a new thread inside the namespace and waits for its result.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| {
            self.enter()?;
            Ok(work())
        })
    }

    /// Moves the calling thread into the namespace for good.
    pub(crate) fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// A path by which other programs can name the namespace while this process lives.
    pub(crate) fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.handle.as_raw_fd()
        )
    }

    /// Packets that the device's own transmit queue has dropped.
    pub(crate) fn transmit_drops(&self, device: &str) -> u64 {
        let mut text = vec![0_u8; DEVICE_TABLE_BYTES_MAX];
        let length = self.devices.read_at(&mut text, 0).unwrap_or(0);
        parse_transmit_drops(&String::from_utf8_lossy(&text[..length]), device).unwrap_or(0)
    }
}

/// Writes a sysctl of the calling thread's namespace; `name` in the form `net/core/somaxconn`.
pub(crate) fn write_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{name}"), value)
}

fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// `/proc/net/dev` of a namespace with two devices takes under 1 KiB.
const DEVICE_TABLE_BYTES_MAX: usize = 8 * 1024;

fn parse_transmit_drops(table: &str, device: &str) -> Option<u64> {
    table.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        // Eight counters of receiving, then bytes, packets, errs and drop of transmitting.
        (name.trim() == device).then(|| counters.split_whitespace().nth(11)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_drops_are_the_fourth_counter_of_transmitting() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes ...\n    lo: 1 2 3 4 5 6 7 8 \
                     9 10 11 12 13 14 15 16\n  mw0:10 20 30 40 50 60 70 80 90 \
                     100 110 120 130 0 0 0\n";
        assert_eq!(parse_transmit_drops(table, "mw0"), Some(120));
        assert_eq!(parse_transmit_drops(table, "lo"), Some(12));
        assert_eq!(parse_transmit_drops(table, "eth0"), None);
    }
}
