//! How long the pings of connections take: what `moonwire.connection` asks of the server.

use std::fmt::Debug;

use crate::live::Handler;

/// Knows how long the pings of the connections of services took, on any thread.
pub trait RoundTrips: Debug + Send + Sync {
    /// What was measured of this connection, if anything was yet.
    fn round_trip(&self, handler: Handler) -> Option<RoundTrip>;
}

/// How long pings took to come back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RoundTrip {
    /// The latest one.
    pub last_us: u32,
    /// All of them, the later ones more: the SRTT of RFC 6298, 2.
    pub smoothed_us: u32,
}
