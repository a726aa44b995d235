//! What the documents of one instance hold in memory.

use std::cell::Cell;
use std::rc::Rc;

use super::Problem;

/// A count that all documents of an instance share; all on one thread.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Rc<Counts>);

#[derive(Debug)]
struct Counts {
    bytes: Cell<usize>,
    bytes_max: usize,
}

impl Ledger {
    /// With this bound, or without one.
    pub(crate) fn new(bytes_max: Option<usize>) -> Self {
        Self(Rc::new(Counts {
            bytes: Cell::new(0),
            bytes_max: bytes_max.unwrap_or(usize::MAX),
        }))
    }

    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        Self::new(None)
    }

    /// Bytes that documents hold now, as far as they are counted: what lies on the heap, without
    /// what the heap itself needs.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes.get()
    }

    /// Bytes that documents may still take.
    pub(crate) fn left(&self) -> usize {
        self.0.bytes_max - self.bytes()
    }

    /// Takes memory, if there is so much left.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Problem> {
        let sum = self.bytes().checked_add(bytes).ok_or(Problem::Full)?;
        if sum > self.0.bytes_max {
            return Err(Problem::Full);
        }
        self.0.bytes.set(sum);
        Ok(())
    }

    /// Gives memory back.
    pub(super) fn give_back(&self, bytes: usize) {
        self.0.bytes.set(self.bytes() - bytes);
    }
}
