//! A server as its clients see it: real sockets, hand-made frames.
//!
//! - `messages`: echo, amplify, isolation of errors, hand-over, limits
//! - `requests`: what is not a WebSocket connection
//! - `ending`: onDisconnect, slow readers, the order to stop
//! - `limits`: what a peer may take, at the bound and past it
//! - `handover`: connections on their way to a worker that is busy
//! - `configuration`: one sentence for each mistake
//! - `broadcast`: standalone services, broadcasts and queues
//! - `builtin`: the echo without Lua
//! - `callbacks`: those that take too long, and those on a thread of their own
//! - `cws`: services that connect to other servers
//! - `hooks`: onHandshake
//! - `lapps`: the LAppS protocol
//! - `round_trips`: pings of the server, and what it tells of them
//! - `starting`: the order of services, and services that cannot start
//! - `tls`: the hand-over of an encrypted connection

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of tests fail as the tests do: with a place"
)]

mod addresses;
mod broadcast;
mod builtin;
mod callbacks;
mod client;
mod configuration;
mod cws;
mod ending;
mod fixture;
mod handover;
mod hooks;
mod lapps;
mod limits;
mod messages;
mod pipeline;
mod requests;
mod round_trips;
mod starting;
mod tls;
