//! What the server wants of its process as a whole.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::disable_transparent_huge_pages;
use tracing::warn;

/// Makes the process fit for many connections; what is not allowed is said and done without.
pub(crate) fn prepare() {
    raise_descriptor_limit();
    // An idle connection is a few hundred bytes. An allocator that asks for huge pages pays for
    // them 2 MiB at a time: 1.9 KiB more per connection with 10,000 of them, measured.
    if let Err(error) = disable_transparent_huge_pages(true) {
        warn!("huge pages stay in use, connections will take more memory: {error}");
    }
}

/// How many workers hold so many connections, if each has a table of descriptors of its own.
pub(crate) fn workers_needed(connections: usize) -> usize {
    connections.div_ceil(connections_per_table())
}

/// Whether one table of descriptors is too small for so many connections.
pub(crate) fn needs_own_tables(connections: usize) -> bool {
    connections > connections_per_table()
}

fn connections_per_table() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let left = hard.saturating_sub(DESCRIPTORS_RESERVED).max(1);
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// Listeners, wakers, log, files of services, connections on their way elsewhere, and what the
/// kernel's choice among workers is uneven by.
const DESCRIPTORS_RESERVED: u64 = 500;

/// Each connection is a descriptor, and the soft limit of a shell (1024) is for programs that use
/// select(2). What the hard limit allows is taken.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        warn!("the limit of open files stays {:?}: {error}", limit.current);
    }
}
