//! The sockets of one driver, by ids that no later socket has.

use std::io;

use slab::Slab;

use crate::driver::SocketId;

/// A dense table: the place of a socket that has gone is used again, under another generation.
#[derive(Debug)]
pub(crate) struct SocketTable<S> {
    entries: Slab<Entry<S>>,
    /// That of the last socket added.
    generation: u32,
}

#[derive(Debug)]
struct Entry<S> {
    generation: u32,
    socket: S,
}

impl<S> SocketTable<S> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Slab::new(),
            generation: 0,
        }
    }

    /// Adds what is made for the id, if it can be made.
    pub(crate) fn add(
        &mut self,
        make: impl FnOnce(SocketId) -> io::Result<S>,
    ) -> io::Result<SocketId> {
        self.generation = self.generation % GENERATION_MAX + 1;
        let entry = self.entries.vacant_entry();
        let index = u32::try_from(entry.key())
            .ok()
            .filter(|index| *index <= PLACE_MAX)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let id = SocketId {
            index,
            generation: self.generation,
        };
        entry.insert(Entry {
            generation: id.generation,
            socket: make(id)?,
        });
        Ok(id)
    }

    pub(crate) fn get(&self, id: SocketId) -> Option<&S> {
        let entry = self.entries.get(id.index as usize)?;
        (entry.generation == id.generation).then_some(&entry.socket)
    }

    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut S> {
        let entry = self.entries.get_mut(id.index as usize)?;
        (entry.generation == id.generation).then_some(&mut entry.socket)
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<S> {
        self.get(id)?;
        Some(self.entries.remove(id.index as usize).socket)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Generations go from 1 to this one, so that drivers can mark other things with 0 and with the
/// number behind it.
const GENERATION_MAX: u32 = u32::MAX - 1;

/// Places have 28 bits, which leaves some of 64 to what a driver tells apart by other means.
pub(crate) const PLACE_MAX: u32 = (1 << 28) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_under_another_id() {
        let mut table = SocketTable::new();
        let first = table.add(|_| Ok('a')).unwrap();
        assert_eq!(table.remove(first), Some('a'));
        let second = table.add(|_| Ok('b')).unwrap();
        assert_eq!(first.index(), second.index());
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(first), None);
        assert_eq!((table.remove(first), table.get(second)), (None, Some(&'b')));
    }

    #[test]
    fn what_cannot_be_made_takes_no_place() {
        let mut table: SocketTable<char> = SocketTable::new();
        assert!(table.add(|_| Err(io::ErrorKind::Other.into())).is_err());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn generations_leave_out_the_two_that_mark_other_things() {
        let mut table = SocketTable::new();
        table.generation = GENERATION_MAX - 1;
        let generations = [(); 2].map(|()| table.add(|_| Ok(())).unwrap().generation);
        assert_eq!(generations, [u32::MAX - 1, 1]);
    }
}
