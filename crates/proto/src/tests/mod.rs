//! Both ends of a connection in memory: scenarios, and properties that hold however the bytes are
//! split into reads.

mod closing;
mod differential;
mod foreign;
mod pair;
mod scenarios;
mod splits;
