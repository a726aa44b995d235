//! The signal that the watchdog sends to the thread of a callback.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use super::{Watch, stop_overdue};

thread_local! {
    /// The watch of this thread, for the handler. It needs no destructor, so that the handler may
    /// read it at any moment.
    static WATCH: Cell<*const Watch> = const { Cell::new(ptr::null()) };
}

/// The real-time signal that is used, counted from the first: the first ones are those of
/// debuggers and of the C library's timers.
const OFFSET: libc::c_int = 11;

fn number() -> libc::c_int {
    libc::SIGRTMIN() + OFFSET
}

/// Has this process handle the signal.
pub(super) fn install() {
    // SAFETY: the handler does only what is safe in one: it reads atomics and the clock, and sets a
    // hook, which LuaJIT allows there. An empty mask is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(number(), &raw const action, ptr::null_mut());
    }
}

extern "C" fn handle(_: libc::c_int) {
    let watch = WATCH.get();
    // SAFETY: it is null, or that of `OWN` of this thread, which takes it away before it ends.
    if let Some(watch) = unsafe { watch.as_ref() } {
        stop_overdue(watch);
    }
}

/// From now on the handler looks at this watch when it runs on this thread.
pub(super) fn listen(watch: &Arc<Watch>) {
    WATCH.set(Arc::as_ptr(watch));
}

/// From now on it does nothing on this thread.
pub(super) fn ignore() {
    WATCH.set(ptr::null());
}

pub(super) fn this_thread() -> libc::pthread_t {
    // SAFETY: it needs nothing.
    unsafe { libc::pthread_self() }
}

/// Sends the signal. The thread must not have ended: its watch is still in the list, which is
/// locked.
pub(super) fn send(thread: libc::pthread_t) {
    // SAFETY: the thread exists, see above.
    unsafe { libc::pthread_kill(thread, number()) };
}
