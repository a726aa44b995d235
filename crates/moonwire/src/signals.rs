//! Ctrl-C: the first ends the work in good order, the second at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that SIGINT and SIGTERM set. A further signal exits with 130, as a shell reports it.
pub(crate) fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registered first, so that it sees the flag as the signal before this one left it.
        flag::register_conditional_shutdown(signal, EXIT_BY_SIGNAL, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot listen for signals")?;
    }
    Ok(stop)
}

/// 128 + SIGINT.
const EXIT_BY_SIGNAL: i32 = 130;
