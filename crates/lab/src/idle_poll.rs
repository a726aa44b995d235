//! Keeps processors from halting while something is measured, and sees when the host takes them.
//!
//! A virtual processor that halts has to be scheduled by the host before it runs again, and that
//! takes from 50 microseconds to several milliseconds on a busy host: it would be in every
//! latency. A thread of idle priority on each processor keeps them running; everything else
//! displaces it at once. The same threads look at the clock all the time: where it jumps although
//! nothing else ran, the host ran somebody else.
//!
//! The kernel shares a processor out among sessions or control groups first, and knows who is idle
//! within each only: beside a busy session a poll would take its own session's share away from what
//! is measured. It backs off where it has to wait; a processor with that much to do does not halt.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

use crate::scheduling;

/// The threads; dropping it lets the processors halt again.
#[derive(Debug)]
pub(crate) struct IdlePoll {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads had seen at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleMark {
    polled_ns: u64,
    taken_ns: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Time in which nothing else ran.
    polled_ns: AtomicU64,
    /// The part of it in which the clock jumped.
    taken_ns: AtomicU64,
}

impl IdlePoll {
    /// Starts a thread on each of the processors; an error if one of them cannot run.
    pub(crate) fn start(processors: &[usize]) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let mut poll = Self {
            shared: Arc::clone(&shared),
            threads: Vec::with_capacity(processors.len()),
        };
        let (running, runs) = mpsc::channel();
        for &processor in processors.iter().filter(|&&at| at < CpuSet::MAX_CPU) {
            let (shared, running) = (Arc::clone(&shared), running.clone());
            let thread = std::thread::Builder::new().name(format!("idle-{processor}"));
            poll.threads.push(thread.spawn(move || {
                // With any other priority it would be in the way of what is measured.
                let ready =
                    scheduling::stay_on(&[processor]).and_then(|()| scheduling::prefer_idle());
                let runs = ready.is_ok();
                let _ = running.send(ready);
                drop(running);
                if runs {
                    shared.poll();
                }
            })?);
        }
        drop(running);
        runs.iter().collect::<io::Result<()>>()?;
        Ok(poll)
    }

    /// The moment to compare with later.
    pub(crate) fn mark(&self) -> IdleMark {
        IdleMark {
            polled_ns: self.shared.polled_ns.load(Relaxed),
            taken_ns: self.shared.taken_ns.load(Relaxed),
        }
    }

    /// Share of the idle time since `mark` in which the host ran something else, 0 to 1; `None`
    /// when there was too little of it to tell.
    pub(crate) fn taken_since(&self, mark: &IdleMark) -> Option<f64> {
        let now = self.mark();
        let polled_ns = now.polled_ns - mark.polled_ns;
        let taken_ns = now.taken_ns - mark.taken_ns;
        (polled_ns >= POLLED_NS_MIN).then(|| taken_ns as f64 / polled_ns as f64)
    }
}

impl Drop for IdlePoll {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn poll(&self) {
        let mut before = Instant::now();
        let mut switches = scheduling::context_switches();
        let mut looks: u32 = 0;
        while !self.stop.load(Relaxed) {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_COUNT) {
                switches = scheduling::context_switches();
            }
            for _ in 0..PAUSES_PER_LOOK {
                std::hint::spin_loop();
            }
            let passed = before.elapsed();
            before += passed;
            let passed_ns = passed.as_nanos() as u64;
            let was_displaced = || {
                let switches_now = scheduling::context_switches();
                std::mem::replace(&mut switches, switches_now) != switches_now
            };
            match Look::of(passed, was_displaced) {
                Look::Idle => self.note(passed_ns, 0),
                Look::Taken => self.note(passed_ns, passed_ns),
                Look::Busy => {}
                Look::Crowded => {
                    std::thread::sleep(BACK_OFF);
                    before = Instant::now();
                    switches = scheduling::context_switches();
                }
            }
        }
    }

    fn note(&self, polled_ns: u64, taken_ns: u64) {
        self.polled_ns.fetch_add(polled_ns, Relaxed);
        self.taken_ns.fetch_add(taken_ns, Relaxed);
    }
}

/// What the time between two looks at the clock was.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// Nothing else ran.
    Idle,
    /// The host ran somebody else.
    Taken,
    /// Something else ran here, shortly.
    Busy,
    /// Something else ran here for long.
    Crowded,
}

impl Look {
    /// `was_displaced` tells whether anything else ran here; it is asked only after a jump.
    fn of(passed: Duration, was_displaced: impl FnOnce() -> bool) -> Self {
        if passed < JUMP_MIN {
            Self::Idle
        } else if !was_displaced() {
            Self::Taken
        } else if passed < CROWDED_MIN {
            Self::Busy
        } else {
            Self::Crowded
        }
    }
}

/// A microsecond or two, in which the other thread of a core has nearly all of it.
const PAUSES_PER_LOOK: usize = 32;
/// What ran here long before a jump did not make it: the switches are counted anew every 50
/// microseconds or so, which costs a hundredth of the time.
const LOOKS_PER_COUNT: u32 = 32;
/// Interrupts and what follows them take less than this.
const JUMP_MIN: Duration = Duration::from_micros(300);
/// What is measured works in shorter pieces than this.
const CROWDED_MIN: Duration = Duration::from_millis(1);
/// Of a processor that is never idle, a poll takes a few percent at most.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Below a tenth of a second of idle time, one jump would be a large share.
const POLLED_NS_MIN: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_seen_and_ends_with_the_poll() {
        let poll = IdlePoll::start(&[0]).unwrap();
        let mark = poll.mark();
        let patience = Instant::now() + Duration::from_secs(30);
        while poll.mark().polled_ns - mark.polled_ns < POLLED_NS_MIN && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let polled_ns = poll.mark().polled_ns - mark.polled_ns;
        // Even of a machine that is never idle, idle priority gets a little.
        assert!(polled_ns > 0);
        let taken = poll.taken_since(&mark);
        assert!(
            taken.is_none_or(|taken| (0.0..=1.0).contains(&taken)),
            "{taken:?}"
        );
        assert!(taken.is_some() || polled_ns < POLLED_NS_MIN);
    }

    #[test]
    fn a_jump_of_the_clock_is_the_hosts_unless_something_else_ran() {
        let look = |us, was_displaced| Look::of(Duration::from_micros(us), || was_displaced);
        assert_eq!(look(299, false), Look::Idle);
        assert_eq!(look(299, true), Look::Idle);
        assert_eq!(look(300, false), Look::Taken);
        assert_eq!(look(50_000, false), Look::Taken);
        assert_eq!(look(300, true), Look::Busy);
        assert_eq!(look(999, true), Look::Busy);
        assert_eq!(look(1000, true), Look::Crowded);
    }

    #[test]
    fn the_share_taken_is_of_the_idle_time() {
        let poll = IdlePoll::start(&[]).unwrap();
        let mark = poll.mark();
        poll.shared.note(POLLED_NS_MIN - 1, 0);
        assert_eq!(poll.taken_since(&mark), None);
        poll.shared.note(POLLED_NS_MIN + 1, POLLED_NS_MIN / 2);
        assert_eq!(poll.taken_since(&mark), Some(0.25));
    }

    #[test]
    fn too_little_idle_time_says_nothing() {
        let poll = IdlePoll::start(&[]).unwrap();
        assert_eq!(poll.taken_since(&poll.mark()), None);
    }
}
