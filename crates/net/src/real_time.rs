//! Real-time priority of threads that must not wait for others.
#![allow(unsafe_code, reason = "rustix has no call for the policy of a thread")]

/// Who goes first where both are ready on one processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RealTime {
    /// A worker of the generator.
    Generator,
    /// A link, which is part of what is measured.
    Link,
}

/// Gives the calling thread this real-time priority, so that ordinary threads cannot make it late;
/// says whether the kernel allowed it. Children and threads do not inherit it.
pub fn prefer_real_time(rank: RealTime) -> bool {
    let sched_priority = match rank {
        RealTime::Generator => 1,
        RealTime::Link => 2,
    };
    let parameters = libc::sched_param { sched_priority };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a live sched_param, and 0 names the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}
