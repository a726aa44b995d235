//! Compressors belong to the thread, as buffers do: a loop is a thread.

use std::cell::RefCell;

use moonwire_proto::Codec;

/// Lends the compressors of this thread; nothing that is called with them may ask for them again.
pub(super) fn with_codec<T>(lend: impl FnOnce(&mut Codec) -> T) -> T {
    CODEC.with_borrow_mut(lend)
}

/// Bytes that the compressors of this thread hold in memory, for all of its sessions together: at
/// most eight of 380 KiB each, four inflaters, and 2 MiB of the message that was compressed last.
pub fn compressor_bytes() -> usize {
    CODEC.with_borrow(Codec::memory_bytes)
}

/// What compressing messages took on this thread since the last call, as
/// [`WORK_PER_CALL`](moonwire_proto::WORK_PER_CALL) counts it.
pub fn take_compression_work() -> usize {
    with_codec(Codec::take_work)
}

thread_local! {
    static CODEC: RefCell<Codec> = RefCell::new(Codec::new());
}
