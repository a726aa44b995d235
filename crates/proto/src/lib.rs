//! RFC 6455 and RFC 7692 for both roles as pure state machines: bytes in, events and bytes out.
//!
//! No I/O, no clock, no randomness of its own and no unsafe code: what a connection does depends
//! only on the bytes it is given and on the generator of masks it was made with. A caller
//!
//! 1. reads a head with [`RequestReader`] (server) or [`ResponseReader`] (client),
//! 2. makes a [`Connection`] and gives it every further byte of the peer,
//! 3. sends the bytes that the connection appends to the caller's buffer.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod close;
mod connection;
mod deflate;
mod error;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod handshake;
mod limits;
mod mask;
mod message;
mod opcode;
mod payload;
#[cfg(test)]
mod tests;
mod url;

// The public interface is:
pub use close::CloseCode;
pub use connection::{
    Connection, Event, MaskSource, PONG_OUT_BYTES_MAX, Role, Step, WORK_PER_CALL,
};
pub use deflate::{
    Codec, DeflateAgreement, DeflateDirection, DeflateOffer, DeflatePolicy, WindowBits,
};
pub use error::{ProtocolError, SendError};
pub use handshake::{
    Acceptance, BuildError, ClientKey, Headers, Request, RequestError, RequestReader, Response,
    ResponseError, ResponseReader, UpgradeRequest, WebSocketVersion, accept_key, accept_response,
    is_token, refusal,
};
pub use limits::Limits;
pub use opcode::Opcode;
pub use url::{UrlError, WebSocketUrl};
