//! The handshake of a connection, as a service may see and answer it: `onHandshake`.

mod answer;
mod cookies;
mod request;

pub(crate) use answer::read;
pub use answer::{HandshakeAnswer, HandshakeRefusal};
pub(crate) use request::table;
