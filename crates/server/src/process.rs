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
