//! Sockets, TLS, timers and the session: the room where bytes of the network become frames.
//!
//! A socket and a frame meet only in [`Session`].

mod buffer;
mod driver;
mod epoll;
mod listener;
mod sim;
mod time;
mod timers;

// The public interface is:
pub use buffer::{Plaintext, ReceiveBuffer};
pub use driver::{
    Completion, ConnectTarget, Driver, ListenerId, SocketId, Submission, Transport, Waker,
};
pub use epoll::EpollDriver;
pub use listener::listen_socket;
pub use time::Time;
pub use timers::Timers;
