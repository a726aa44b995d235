//! LuaJIT virtual machines and the service contract: an event goes in, effects come out.
//!
//! A service is a table of four functions in `FOLDER/NAME.lua`. An [`Instance`] is one virtual
//! machine that runs it: the server hands it one event at a time, and what the service wants done
//! (send, close) comes back in [`Effects`]. This crate knows no socket, no connection and no
//! thread; an instance stays on the thread that loaded it. What a service does at once goes through
//! traits that the server implements: [`Broadcasts`], [`Client`] and [`RoundTrips`].
//!
//! Services are trusted unless their [`Sandbox`] says otherwise: they have every library of LuaJIT,
//! `io`, `os`, `debug` and `ffi` included, like services of LAppS. What an instance is protected
//! from is mistakes: an error, a missing callback, a wrong argument or too many effects never reach
//! another instance or another connection, and a callback that does not end is stopped.

mod broker;
mod client;
mod document;
mod effects;
mod error;
mod handshake;
mod instance;
mod json;
mod lapps;
mod line;
mod live;
mod loaded;
mod machine;
mod modules;
mod pattern;
mod patterns;
mod round_trips;
mod sandbox;
mod source;
mod stack;
mod standalone;
mod watchdog;

// The public interface is:
pub use broker::{Broker, QUEUE_MESSAGES, StopFlag};
pub use client::{Client, ClientEvent, Connector};
pub use effects::{Effect, EffectLimits, Effects};
pub use error::{Fault, Place, ScriptError};
pub use handshake::{HandshakeAnswer, HandshakeRefusal};
pub use instance::{Instance, Outcome, Refusal};
pub use live::Handler;
pub use modules::bcast::Broadcasts;
pub use moonwire_proto::Opcode;
pub use round_trips::{RoundTrip, RoundTrips};
pub use source::{LoadOptions, Module, Protocol, Sandbox, ServiceSource};
pub use stack::STACK_BYTES;
pub use standalone::Standalone;
