//! Waiting with the precision of a nanosecond.
#![allow(
    unsafe_code,
    reason = "epoll_pwait2 has no safe wrapper that does not round up to 1 ms"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// Waits for events and puts them into `events`, as many as it has capacity for. None waits
/// without end. An interrupted wait reports no event.
///
/// epoll_wait counts in milliseconds, which is far too coarse for a load generator that sends at
/// computed moments; kernels before 5.11 have nothing better, so there the time is rounded up.
pub(super) fn wait(
    epoll: &OwnedFd,
    events: &mut Vec<libc::epoll_event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    events.clear();
    let result = match precise(epoll, events, timeout) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => coarse(epoll, events, timeout),
        result => result,
    };
    match result {
        Ok(count) => {
            // SAFETY: the kernel has written `count` events, and never more than the capacity.
            unsafe { events.set_len(count) };
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
    }
}

fn precise(
    epoll: &OwnedFd,
    events: &mut Vec<libc::epoll_event>,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    // SAFETY: `events` owns room for as many events as the call may write; the timeout, if there
    // is one, lives until the call returns; the signal mask is absent.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            libc::c_int::try_from(events.capacity()).unwrap_or(libc::c_int::MAX),
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            ptr::null::<libc::sigset_t>(),
            0,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn coarse(
    epoll: &OwnedFd,
    events: &mut Vec<libc::epoll_event>,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let timeout = timeout.map_or(-1, |timeout| {
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: `events` owns room for as many events as the call may write.
    let count = unsafe {
        libc::epoll_wait(
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            libc::c_int::try_from(events.capacity()).unwrap_or(libc::c_int::MAX),
            timeout,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll::{self, EventData, EventFlags};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn both_ways_of_waiting_report_the_same_events() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let ready = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &ready, EventData::new_u64(7), EventFlags::IN).unwrap();
        for way in [precise, coarse] {
            let mut events = Vec::with_capacity(4);
            for timeout in [None, Some(Duration::ZERO), Some(Duration::from_secs(1))] {
                assert_eq!(way(&epoll, &mut events, timeout).unwrap(), 1);
            }
        }
        let mut events = Vec::with_capacity(4);
        wait(&epoll, &mut events, None).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!({ events[0].u64 }, 7);
    }
}
