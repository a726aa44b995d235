//! The simulated world.

/// A socket of the simulated world.
#[derive(Debug)]
pub(crate) struct Handle;
