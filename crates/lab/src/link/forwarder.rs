//! The thread between the two TUN devices: reads packets, holds them in the delay lines, writes
//! them to the other device when their time has come.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use moonwire_load::{RealTime, prefer_real_time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use super::LinkSpec;
use super::delay_line::{DelayLine, Fate};
use super::stats::Counters;
use crate::scheduling;

/// A running forwarder; dropping it ends the thread and with it the link.
#[derive(Debug)]
pub(crate) struct Forwarder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts forwarding between the two devices; `client` is the client's end.
    pub(crate) fn start(client: File, server: File, spec: &LinkSpec) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            up: Counters::new(),
            down: Counters::new(),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            thread: AtomicI32::new(0),
            real_time: AtomicBool::new(false),
            is_placed: AtomicBool::new(false),
        });
        let (client, server) = (Arc::new(client), Arc::new(server));
        let up = DelayLine::new(spec, spec.seed);
        let down = DelayLine::new(spec, spec.seed ^ u64::MAX);
        let mut pump = Pump {
            up: Lane::new(up, &client, &server),
            down: Lane::new(down, &server, &client),
            shared: Arc::clone(&shared),
            has_bottleneck: spec.rate_bytes_per_s.is_some(),
            work: Work {
                looked_ns: now_ns(),
                cpu_ns: 0,
                is_much: false,
            },
        };
        let cpus = spec.forwarder_cpus.clone();
        let (ready, started) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("link".into())
            .spawn(move || {
                pump.prepare_thread(&cpus);
                let _ = ready.send(());
                pump.run();
            })?;
        // The thread id must be known before anybody asks for the CPU time.
        let _ = started.recv();
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn up(&self) -> &Counters {
        &self.shared.up
    }

    pub(crate) fn down(&self) -> &Counters {
        &self.shared.down
    }

    /// CPU time that the forwarder has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        scheduling::thread_cpu(self.shared.thread.load(Relaxed))
    }

    /// Whether the thread got a real-time priority.
    pub(crate) fn is_real_time(&self) -> bool {
        self.shared.real_time.load(Relaxed)
    }

    /// Whether the thread stays on the processors that it was given.
    pub(crate) fn is_placed(&self) -> bool {
        self.shared.is_placed.load(Relaxed)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[derive(Debug)]
struct Shared {
    up: Counters,
    down: Counters,
    stop: AtomicBool,
    /// Ends a `poll` early when `stop` was set.
    wake: OwnedFd,
    /// Kernel id of the thread, for its CPU clock.
    thread: AtomicI32,
    real_time: AtomicBool,
    is_placed: AtomicBool,
}

/// What carries packets one way.
struct Lane {
    line: DelayLine,
    from: Arc<File>,
    to: Arc<File>,
    /// When `from` was last seen empty: a packet read now cannot have waited longer than since
    /// then.
    empty_ns: u64,
    /// Whether `from` was empty when it was last looked at.
    drained: bool,
    /// Whether the thread has a priority above all others.
    is_uninterrupted: bool,
}

struct Pump {
    up: Lane,
    down: Lane,
    shared: Arc<Shared>,
    /// Whether the link has a rate.
    has_bottleneck: bool,
    work: Work,
}

/// How much of the processor this thread took of late.
struct Work {
    looked_ns: u64,
    cpu_ns: u64,
    is_much: bool,
}

impl Work {
    fn look(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        if passed_ns < LOOK_NS {
            return;
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        self.is_much = cpu_ns.saturating_sub(self.cpu_ns) > passed_ns / 2;
        self.looked_ns = now_ns;
        self.cpu_ns = cpu_ns;
    }
}

impl Pump {
    fn prepare_thread(&mut self, cpus: &[usize]) {
        if !cpus.is_empty() {
            let is_placed = scheduling::stay_on(cpus).is_ok();
            self.shared.is_placed.store(is_placed, Relaxed);
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.shared.thread.store(thread, Relaxed);
        // Without this the kernel may batch the wake-up with others up to 50 microseconds late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let real_time = prefer_real_time(RealTime::Link);
        self.shared.real_time.store(real_time, Relaxed);
        self.up.is_uninterrupted = real_time;
        self.down.is_uninterrupted = real_time;
    }

    fn run(&mut self) {
        while !self.shared.stop.load(Relaxed) {
            let Ok((up, down)) = self.wait() else {
                return;
            };
            self.up.release(&self.shared.up);
            self.down.release(&self.shared.down);
            if up {
                self.up.receive(&self.shared.up);
            }
            if down {
                self.down.receive(&self.shared.down);
            }
            self.gather();
        }
    }

    /// Lets a few packets gather at a bottleneck: a wake-up for each costs several times what it
    /// takes to forward it, and comes out of the server's processor. It is a small part of what
    /// packets queue anyway, and counted as lateness. Where the wake-ups themselves keep this
    /// thread busy, nothing would come to queue, and so they gather there too.
    fn gather(&mut self) {
        let now_ns = now_ns();
        let backlog_ns = self.up.line.backlog_ns(now_ns);
        let backlog_ns = backlog_ns.max(self.down.line.backlog_ns(now_ns));
        self.work.look(now_ns);
        let pause_ns = if self.has_bottleneck && self.work.is_much {
            GATHER_NS_MAX
        } else {
            (backlog_ns / GATHER_PART).min(GATHER_NS_MAX)
        };
        if pause_ns >= GATHER_NS_MIN {
            std::thread::sleep(Duration::from_nanos(pause_ns));
        }
    }

    /// Sleeps until a device has a packet or one is due; says which directions have something.
    fn wait(&mut self) -> io::Result<(bool, bool)> {
        let before_ns = now_ns();
        let next_ns = match (
            self.up.line.next_release_ns(),
            self.down.line.next_release_ns(),
        ) {
            (Some(up), Some(down)) => Some(up.min(down)),
            (up, down) => up.or(down),
        };
        let timeout = next_ns.map(|next_ns| {
            let left_ns = next_ns.saturating_sub(before_ns);
            Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            }
        });
        let mut watched = [
            PollFd::from_borrowed_fd(self.up.from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.down.from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let readable = [0, 1].map(|at: usize| watched[at].revents().contains(PollFlags::IN));
        let after_ns = now_ns();
        let slept = after_ns - before_ns > SLEEP_NS_MIN;
        self.up.looked(readable[0], slept, after_ns);
        self.down.looked(readable[1], slept, after_ns);
        Ok((readable[0], readable[1]))
    }
}

impl Lane {
    fn new(line: DelayLine, from: &Arc<File>, to: &Arc<File>) -> Self {
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        Self {
            line,
            from,
            to,
            empty_ns: now_ns(),
            drained: true,
            is_uninterrupted: false,
        }
    }

    /// Notes what `poll` said of the device at `now_ns`.
    fn looked(&mut self, readable: bool, slept: bool, now_ns: u64) {
        // A sleep ends with the first packet, so that the device was empty until then.
        if !readable || (self.drained && slept) {
            self.empty_ns = now_ns;
        }
        self.drained = !readable;
    }

    /// Writes what is due, at most one batch so that reading is not starved.
    fn release(&mut self, counters: &Counters) {
        let mut before_ns = None;
        for _ in 0..BATCH_PACKETS_MAX {
            let now_ns = now_ns();
            self.worked(before_ns.replace(now_ns), now_ns, counters);
            let Some((packet, release_ns)) = self.line.due(now_ns) else {
                return;
            };
            let length = packet.len();
            match self.to.as_ref().write(packet) {
                Ok(_) => counters.released(length - HEADER_BYTES, now_ns - release_ns),
                Err(_) => {
                    counters.dropped_write.fetch_add(1, Relaxed);
                }
            }
            self.line.pop();
        }
    }

    /// Notes what the packet before took, which says something only where nothing interrupts.
    fn worked(&self, before_ns: Option<u64>, now_ns: u64, counters: &Counters) {
        if let Some(before_ns) = before_ns.filter(|_| self.is_uninterrupted) {
            counters.worked(now_ns - before_ns);
        }
    }

    /// Reads what has arrived, at most one batch so that releasing is not late.
    fn receive(&mut self, counters: &Counters) {
        let mut before_ns = None;
        for _ in 0..BATCH_PACKETS_MAX {
            let length = match self.from.as_ref().read(self.line.slot()) {
                Ok(length) if length >= HEADER_BYTES => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => {
                    self.empty_ns = now_ns();
                    self.drained = true;
                    return;
                }
            };
            // The clock is read after the packet, so that no packet is released early.
            let now_ns = now_ns();
            self.worked(before_ns.replace(now_ns), now_ns, counters);
            counters.read(now_ns - self.empty_ns);
            match self.line.commit(length, now_ns) {
                Fate::Held => counters.held(self.line.held_bytes()),
                Fate::Lost => counters.dropped_loss.fetch_add(1, Relaxed),
                Fate::QueueFull => counters.dropped_queue.fetch_add(1, Relaxed),
            };
        }
    }
}

/// Packets per direction between two looks at the other tasks: at 5 microseconds each, 64 keep
/// the other direction waiting 0.3 ms at most.
const BATCH_PACKETS_MAX: usize = 64;

/// Packets gather for this part of the time that a newcomer would queue for the bottleneck,
const GATHER_PART: u64 = 64;
/// at most for so long,
const GATHER_NS_MAX: u64 = 100_000;
/// and not at all where a sleep would cost more than it saves.
const GATHER_NS_MIN: u64 = 20_000;

/// Between two looks at what this thread took of the processor.
const LOOK_NS: u64 = 10_000_000;

/// A `poll` that took longer than this has slept.
const SLEEP_NS_MIN: u64 = 10_000;

/// The virtio header before each packet.
const HEADER_BYTES: usize = 10;
