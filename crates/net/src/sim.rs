//! The simulated world: the same driver, no sockets, virtual time, and a seed that decides
//! everything.
//!
//! Bytes arrive late and in pieces, writes are taken in part, connections are reset. All of it
//! comes from one seeded generator, so a failure is rerun by its seed. A test runs the turns of
//! its loops one after the other and then moves time with [`SimNetwork::advance`].

mod driver;
mod world;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::driver::{Transport, TransportKind};
use crate::time::Time;
use world::World;

pub use driver::SimDriver;

/// How unkind the world is.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConditions {
    /// Each segment travels for a random time up to this long.
    pub delay_max: Duration,
    /// How many bytes may be on their way in one direction: what makes writes short.
    pub window_bytes: usize,
    /// Of 1000 reads and writes, how many take only a few bytes.
    pub short_per_mille: u32,
    /// Of 10,000 writes, how many end in a reset of the connection.
    pub resets_per_10_000: u32,
}

impl Default for SimConditions {
    fn default() -> Self {
        Self {
            delay_max: Duration::from_millis(5),
            window_bytes: 16 * 1024,
            short_per_mille: 300,
            resets_per_10_000: 0,
        }
    }
}

/// A network of simulated sockets and its clock. Clones are the same network.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    world: Rc<RefCell<World>>,
}

impl SimNetwork {
    /// An empty network, in which everything follows from `seed`.
    pub fn new(seed: u64, conditions: SimConditions) -> Self {
        Self {
            world: Rc::new(RefCell::new(World::new(seed, conditions))),
        }
    }

    /// A driver in this network. Its `wait` returns at once and notes until when it would sleep.
    pub fn driver(&self) -> SimDriver {
        SimDriver::new(&self.world)
    }

    /// A listening socket at `addr`, for `Driver::listen`.
    pub fn listener(&self, addr: SocketAddr) -> Transport {
        Transport {
            kind: TransportKind::Simulated(Handle::Listener(addr)),
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.world.borrow().now
    }

    /// Moves time to the next moment at which anything happens or a driver wanted to wake; stays
    /// where it is while something can happen now. False: nothing will ever happen again.
    pub fn advance(&self) -> bool {
        self.world.borrow_mut().advance()
    }
}

/// A socket of the simulated world.
#[derive(Debug)]
pub(crate) enum Handle {
    /// One end of a connection.
    End(usize),
    /// A listening socket.
    Listener(SocketAddr),
}

#[cfg(test)]
mod tests;
