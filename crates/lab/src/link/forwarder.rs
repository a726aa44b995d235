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
        });
        let mut pump = Pump {
            up: DelayLine::new(spec, spec.seed),
            down: DelayLine::new(spec, spec.seed ^ u64::MAX),
            client,
            server,
            shared: Arc::clone(&shared),
        };
        let (ready, started) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("link".into())
            .spawn(move || {
                pump.prepare_thread();
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
}

struct Pump {
    up: DelayLine,
    down: DelayLine,
    client: File,
    server: File,
    shared: Arc<Shared>,
}

impl Pump {
    fn prepare_thread(&self) {
        self.shared
            .thread
            .store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
        // Without this the kernel may batch the wake-up with others up to 50 microseconds late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        self.shared
            .real_time
            .store(scheduling::prefer_real_time(), Relaxed);
    }

    fn run(&mut self) {
        while !self.shared.stop.load(Relaxed) {
            let Ok((client, server)) = self.wait() else {
                return;
            };
            release(&mut self.up, &self.server, &self.shared.up);
            release(&mut self.down, &self.client, &self.shared.down);
            if client {
                receive(&mut self.up, &self.client, &self.shared.up);
            }
            if server {
                receive(&mut self.down, &self.server, &self.shared.down);
            }
        }
    }

    /// Sleeps until a device has a packet or one is due; says which devices have something.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let next_ns = match (self.up.next_release_ns(), self.down.next_release_ns()) {
            (Some(up), Some(down)) => Some(up.min(down)),
            (up, down) => up.or(down),
        };
        let timeout = next_ns.map(|next_ns| {
            let left_ns = next_ns.saturating_sub(now_ns());
            Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            }
        });
        let mut watched = [
            PollFd::from_borrowed_fd(self.client.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.server.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let readable = |at: usize| watched[at].revents().contains(PollFlags::IN);
        Ok((readable(0), readable(1)))
    }
}

/// Writes what is due, at most one batch so that reading is not starved.
fn release(line: &mut DelayLine, mut to: &File, counters: &Counters) {
    for _ in 0..BATCH_PACKETS_MAX {
        let now_ns = now_ns();
        let Some((packet, release_ns)) = line.due(now_ns) else {
            return;
        };
        let length = packet.len();
        match to.write(packet) {
            Ok(_) => counters.released(length - HEADER_BYTES, now_ns - release_ns),
            Err(_) => {
                counters.dropped_write.fetch_add(1, Relaxed);
            }
        }
        line.pop();
    }
}

/// Reads what has arrived, at most one batch so that releasing is not late.
fn receive(line: &mut DelayLine, mut from: &File, counters: &Counters) {
    for _ in 0..BATCH_PACKETS_MAX {
        let length = match from.read(line.slot()) {
            Ok(length) if length >= HEADER_BYTES => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(_) | Err(_) => return,
        };
        // The clock is read after the packet, so that no packet is released early.
        match line.commit(length, now_ns()) {
            Fate::Held => counters.held(line.held_bytes()),
            Fate::Lost => counters.dropped_loss.fetch_add(1, Relaxed),
            Fate::QueueFull => counters.dropped_queue.fetch_add(1, Relaxed),
        };
    }
}

/// Packets per direction between two looks at the other tasks: at 5 microseconds each, 64 keep
/// the other direction waiting 0.3 ms at most.
const BATCH_PACKETS_MAX: usize = 64;

/// The virtio header before each packet.
const HEADER_BYTES: usize = 10;
