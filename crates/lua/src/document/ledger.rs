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
    bytes_max: Cell<usize>,
}

impl Ledger {
    /// With this bound, or without one.
    pub(crate) fn new(bytes_max: Option<usize>) -> Self {
        Self(Rc::new(Counts {
            bytes: Cell::new(0),
            bytes_max: Cell::new(bytes_max.unwrap_or(usize::MAX)),
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

    /// Bytes that documents may take.
    pub(crate) fn bytes_max(&self) -> usize {
        self.0.bytes_max.get()
    }

    /// Bytes that documents may still take.
    pub(crate) fn left(&self) -> usize {
        self.0.bytes_max.get() - self.bytes()
    }

    /// Reads a document from so many bytes, which may not take out of all proportion to them.
    pub(super) fn reading<R>(
        &self,
        bytes: usize,
        read: impl FnOnce() -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let bytes_max = self.0.bytes_max.get();
        let allowed = bytes
            .saturating_mul(BYTES_PER_BYTE)
            .saturating_add(BYTES_SMALL);
        let bound = self.bytes().saturating_add(allowed);
        self.0.bytes_max.set(bytes_max.min(bound));
        let result = read();
        self.0.bytes_max.set(bytes_max);
        match result {
            Err(Problem::Full) if bound < bytes_max => Err(Problem::OutOfProportion),
            result => result,
        }
    }

    /// Takes memory, if there is so much left.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Problem> {
        let sum = self.bytes().checked_add(bytes).ok_or(Problem::Full)?;
        if sum > self.0.bytes_max.get() {
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

/// What each byte of a text may become in memory, and what every document may take besides: an
/// empty array is one byte of CBOR and more than a hundred here.
const BYTES_PER_BYTE: usize = 8;
const BYTES_SMALL: usize = 64 << 20;
