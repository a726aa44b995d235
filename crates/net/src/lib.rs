//! Sockets, TLS, timers and the session: the room where bytes of the network become frames.
//!
//! A socket and a frame meet only in [`Session`]. The order in which a loop calls things is
//! written at [`Driver`] (one turn) and at [`Session`] (one connection).

mod accept;
mod buffer;
mod connect;
mod descriptors;
mod driver;
mod epoll;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod listener;
mod queued;
mod real_time;
mod session;
pub mod sim;
mod system;
mod table;
#[cfg(any(test, feature = "fuzzing"))]
#[expect(clippy::unwrap_used, reason = "a fault of a test is to be loud")]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the fuzz target needs only the harness")
)]
mod tests;
mod time;
mod timers;
mod tls;
mod uring;
mod write;

// The public interface is:
pub use buffer::{Plaintext, ReceiveBuffer, SpareBuffers, spare_buffer_bytes};
pub use descriptors::{Portal, PortalExit, connections_per_table, leave_descriptor_table};
pub use driver::{
    Completion, ConnectTarget, Driver, ListenerId, SocketId, Submission, Transport, WakeEvent,
    Waker,
};
pub use epoll::EpollDriver;
pub use listener::{ListenOptions, listen_socket};
pub use real_time::{RealTime, prefer_real_time};
pub use session::{
    ConnectError, DetachedSession, Flushed, HandshakeTimings, Input, SendError, Session,
    SessionError, SessionEvent, SessionLimits, SessionMemory, compressor_bytes, random_mask,
    take_compression_work,
};
pub use system::{DriverChoice, SystemDriver, why_not_io_uring};
pub use time::Time;
pub use timers::Timers;
pub use tls::{
    CertificateFiles, CertificateKey, ClientCertificates, ClientTls, NameCheck, ServerTls,
    ServerTlsRules, TlsError, TlsFacts, TlsRecords, TlsVersions, Trust,
};
pub use uring::UringDriver;
