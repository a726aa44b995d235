//! Services, driven without a server: an event in, effects out.
//!
//! One binary for all, because every binary links LuaJIT anew.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

/// The services that ship with moonwire.
mod apps;
/// What would end the process or keep its worker.
mod bounds;
/// Callbacks, their failures, and what a service finds in its machine.
mod contract;
/// Calls within calls, down to the end of the native stack.
mod depth;
/// onHandshake.
mod handshake;
/// Writing services for tests.
mod harness;
/// moonwire.json.
mod json;
/// Messages of the LAppS protocol.
mod lapps;
/// Files that are no service, each with its sentence.
mod loading;
/// nljson.
mod nljson;
/// The examples of docs/modules.
mod pages;
/// Modules of LAppS that a service asks for.
mod preload;
/// Ways out of the sandbox of a restricted service.
mod sandbox;
/// Services that run by themselves, broadcasts and queues.
mod standalone;
