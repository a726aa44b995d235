//! Stopping callbacks that take too long.
//!
//! A thread looks at the callbacks that run, each on a thread of its own, and sends a signal to the
//! one whose time is over. The handler of the signal sets a hook in the machine of that thread,
//! which LuaJIT allows for its own thread only, and the hook raises an error at every instruction
//! until the callback has returned: a `pcall` in the script cannot catch it for good. What runs in
//! C, such as a sort of a large table, is stopped when it returns to Lua.

#![allow(
    unsafe_code,
    reason = "signals, thread-local state that a signal handler reads, and hooks of LuaJIT"
)]

mod clock;
mod hook;
mod signal;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mlua::{Lua, lua_State};

use crate::modules::run_prelude;

pub(crate) use hook::is_able;

/// What is known of the callbacks of one thread. One callback at a time runs there.
pub(crate) struct Watch {
    /// When its time is over, as [`clock::now`] counts; 0 while none runs that has a limit.
    deadline_ns: AtomicU64,
    /// The machine in which it runs.
    machine: AtomicPtr<lua_State>,
    /// Whether the hook has been set for it.
    is_stopped: AtomicBool,
    thread: libc::pthread_t,
}

/// What is looked at: the watches of all threads that have made a machine and have not ended.
struct Watchdog {
    watches: Mutex<Vec<Arc<Watch>>>,
    /// There is another watch, or a shorter limit.
    changed: Condvar,
    /// The shortest limit there has been: no callback's time is over earlier than so much after it
    /// began. [`u64::MAX`] while there is none.
    shortest_ns: AtomicU64,
}

/// The time limit of the callbacks of one machine, on the thread that made it.
pub(crate) struct TimeLimit {
    watch: Arc<Watch>,
    machine: *mut lua_State,
}

/// How a callback ended that had a limit.
pub(crate) struct Ending<R> {
    pub(crate) result: R,
    /// How long after its limit it ended, if it was stopped, or would have been at its next
    /// instruction.
    pub(crate) late: Option<Duration>,
}

impl TimeLimit {
    /// The limits of `lua`, whose callbacks run on this thread.
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        let mut machine = ptr::null_mut();
        // SAFETY: the closure only takes the pointer, and leaves the stack as it is.
        unsafe { lua.exec_raw::<()>((), |state| machine = state) }?;
        let watch = OWN.with(|own| Arc::clone(&own.0));
        guard_handlers(lua, &watch)?;
        Ok(Self { watch, machine })
    }

    /// Runs a callback of the machine for at most `limit`; without an end if there is none.
    pub(crate) fn run<R>(
        &self,
        limit: Option<Duration>,
        callback: impl FnOnce() -> R,
    ) -> Ending<R> {
        let Some(limit) = limit else {
            let (result, late) = (callback(), None);
            return Ending { result, late };
        };
        let watch = &*self.watch;
        watch.machine.store(self.machine, Ordering::Relaxed);
        watch.set_deadline(limit);
        let end = End { watch };
        let result = callback();
        let late = end.now();
        Ending { result, late }
    }
}

/// LuaJIT calls no hook while it handles an error that a hook has raised, so a handler that does
/// not end could not be stopped: a callback that is stopped has none.
fn guard_handlers(lua: &Lua, watch: &Arc<Watch>) -> mlua::Result<()> {
    let watch = Arc::clone(watch);
    let is_stopped = move |_: &Lua, ()| Ok(watch.is_stopped.load(Ordering::Relaxed));
    let is_stopped = lua.create_function(is_stopped)?;
    run_prelude(lua, include_str!("prelude/xpcall.lua"), is_stopped)
}

/// Takes the limit away, also if the callback panics.
struct End<'a> {
    watch: &'a Watch,
}

impl End<'_> {
    /// How late the callback was, if it was stopped.
    fn now(self) -> Option<Duration> {
        let watch = self.watch;
        watch.is_stopped.load(Ordering::Relaxed).then(|| {
            let deadline_ns = watch.deadline_ns.load(Ordering::Relaxed);
            Duration::from_nanos(clock::now().saturating_sub(deadline_ns))
        })
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let watch = self.watch;
        watch.deadline_ns.store(0, Ordering::Relaxed);
        // From here on the handler, which runs on this thread, does nothing.
        compiler_fence(Ordering::SeqCst);
        if watch.is_stopped.swap(false, Ordering::Relaxed) {
            hook::clear(watch.machine.load(Ordering::Relaxed));
        }
        watch.machine.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Runs what blocks on purpose, such as a wait for another service: its time does not count.
pub(crate) fn outside<R>(block: impl FnOnce() -> R) -> R {
    OWN.with(|own| {
        let watch = &own.0;
        let deadline_ns = watch.deadline_ns.swap(0, Ordering::Relaxed);
        if deadline_ns == 0 {
            return block();
        }
        let began_ns = clock::now();
        let result = block();
        let blocked_ns = clock::now().saturating_sub(began_ns);
        let deadline_ns = deadline_ns.saturating_add(blocked_ns);
        watch.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        result
    })
}

/// Whether the time of the callback that runs on this thread is over. What is written in Rust and
/// can take long asks now and then.
pub(crate) fn is_over() -> bool {
    OWN.with(|own| own.0.is_stopped.load(Ordering::Relaxed))
}

impl Watch {
    fn of_this_thread() -> Arc<Self> {
        Arc::new(Self {
            deadline_ns: AtomicU64::new(0),
            machine: AtomicPtr::new(ptr::null_mut()),
            is_stopped: AtomicBool::new(false),
            thread: signal::this_thread(),
        })
    }

    fn set_deadline(&self, limit: Duration) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let watchdog = Watchdog::get();
        if limit_ns < watchdog.shortest_ns.load(Ordering::Relaxed) {
            watchdog.shorten(limit_ns);
        }
        // Not the coarse clock, though it is three times as fast: where the host takes the
        // processor it is behind by more than its tick, and who has time left would be stopped.
        let deadline_ns = clock::now().saturating_add(limit_ns);
        compiler_fence(Ordering::SeqCst);
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }

    fn is_overdue(&self, now_ns: u64) -> bool {
        let deadline_ns = self.deadline_ns.load(Ordering::Relaxed);
        deadline_ns != 0 && deadline_ns <= now_ns
    }
}

/// What the handler of the signal does, on the thread whose watch it is.
fn stop_overdue(watch: &Watch) {
    let machine = watch.machine.load(Ordering::Relaxed);
    if !machine.is_null() && watch.is_overdue(clock::now()) {
        watch.is_stopped.store(true, Ordering::Relaxed);
        hook::set(machine);
    }
}

impl Watchdog {
    /// The one of this process, which is started when it is first needed.
    fn get() -> &'static Self {
        static WATCHDOG: OnceLock<&Watchdog> = OnceLock::new();
        WATCHDOG.get_or_init(|| {
            signal::install();
            let watchdog: &'static Self = Box::leak(Box::new(Self {
                watches: Mutex::default(),
                changed: Condvar::new(),
                shortest_ns: AtomicU64::new(u64::MAX),
            }));
            let thread = std::thread::Builder::new().name("watchdog".into());
            thread
                .spawn(|| watchdog.look_after_all())
                .expect("a process that starts workers can start one more thread");
            watchdog
        })
    }

    fn look_after_all(&self) {
        let mut watches = self.lock();
        loop {
            let pause = self.look_at(&watches);
            let waited = self.changed.wait_timeout(watches, pause);
            watches = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Signals those whose time is over; how long nobody else's will be.
    fn look_at(&self, watches: &[Arc<Watch>]) -> Duration {
        let now_ns = clock::now();
        let mut next_ns = self.shortest_ns.load(Ordering::Relaxed).min(PAUSE_NS_MAX);
        for watch in watches {
            let deadline_ns = watch.deadline_ns.load(Ordering::Relaxed);
            if deadline_ns == 0 {
                continue;
            }
            let left_ns = deadline_ns.saturating_sub(now_ns);
            if left_ns == 0 {
                signal::send(watch.thread);
            }
            next_ns = next_ns.min(if left_ns == 0 { AGAIN_NS } else { left_ns });
        }
        Duration::from_nanos(next_ns)
    }

    fn shorten(&self, limit_ns: u64) {
        let watches = self.lock();
        self.shortest_ns.fetch_min(limit_ns, Ordering::Relaxed);
        drop(watches);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Watch>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watch of a thread, which ends with it: no signal is sent to a thread that is not there.
struct Own(Arc<Watch>);

impl Own {
    fn new() -> Self {
        let watch = Watch::of_this_thread();
        signal::listen(&watch);
        Watchdog::get().lock().push(Arc::clone(&watch));
        Self(watch)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        Watchdog::get()
            .lock()
            .retain(|watch| !Arc::ptr_eq(watch, &self.0));
        signal::ignore();
    }
}

thread_local! {
    static OWN: Own = Own::new();
}

/// How soon a callback that goes on is signalled again.
const AGAIN_NS: u64 = 5_000_000;

/// The longest pause between two looks, when every limit is longer.
const PAUSE_NS_MAX: u64 = 60_000_000_000;

#[cfg(test)]
mod tests;
