//! Compressors belong to the thread, as buffers do: a loop is a thread.

use std::cell::RefCell;

use moonwire_proto::Codec;

/// Lends the compressors of this thread; nothing that is called with them may ask for them again.
pub(super) fn with_codec<T>(lend: impl FnOnce(&mut Codec) -> T) -> T {
    CODEC.with_borrow_mut(lend)
}

thread_local! {
    static CODEC: RefCell<Codec> = RefCell::new(Codec::new());
}
