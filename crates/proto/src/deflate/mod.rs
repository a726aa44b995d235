//! permessage-deflate (RFC 7692): negotiation, and messages compressed and inflated.
//!
//! Both ends of the LZ77 window are kept as plain bytes (`History`), not as the state of a
//! compressor: between two messages a connection holds at most the window itself, and the
//! compressors, which are ten times as large, belong to the thread ([`Codec`]).

mod codec;
mod extension;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod history;
mod inflation;
mod negotiation;
mod parameters;
#[cfg(test)]
mod tests;

pub use codec::Codec;
pub(crate) use codec::Setting;
pub(crate) use history::History;
pub(crate) use inflation::{INFLATER_BYTES, Inflation};
pub use negotiation::{DeflateOffer, DeflatePolicy};
pub use parameters::{DeflateAgreement, DeflateDirection, WindowBits};

/// Whether a value of `Sec-WebSocket-Extensions` is what RFC 6455, 9.1 says it is.
pub(crate) fn is_extension_list(value: &str) -> bool {
    extension::parse(value).is_some()
}
