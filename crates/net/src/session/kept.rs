//! Received bytes that wait to be looked at.

/// Plaintext in the order in which it came. Most connections never keep any, so it is one word.
#[derive(Debug, Default)]
pub(super) struct Kept(Option<Box<Part>>);

/// Bytes of which some were looked at. These are not taken off the front: what takes a thousand
/// turns to inflate would be moved a thousand times.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    /// How many were looked at. Invariant: taken <= bytes.len().
    pub(super) taken: usize,
}

impl Kept {
    /// What was not looked at.
    pub(super) fn rest(&self) -> &[u8] {
        let rest = self
            .0
            .as_ref()
            .and_then(|part| part.bytes.get(part.taken..));
        rest.unwrap_or_default()
    }

    /// All of it; nothing is kept any more.
    pub(super) fn take(&mut self) -> Part {
        self.0.take().map_or_else(Part::default, |part| *part)
    }

    /// What `take` gave, of which some more was looked at. Nothing is kept before.
    pub(super) fn put_back(&mut self, part: Part) {
        self.0 = Some(Box::new(part));
    }

    /// Keeps some more.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let part = self.0.get_or_insert_default();
        part.bytes.extend_from_slice(bytes);
    }

    /// Bytes that it holds in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let part = self.0.as_ref();
        part.map_or(0, |part| size_of::<Part>() + part.bytes.capacity())
    }
}
