//! The bounds of everything that a peer can make us keep or do.

/// Bounds on what one peer may send; each is checked before the bytes it bounds are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest payload of a message, all its fragments together. Beyond it: close code 1009.
    pub message_bytes_max: usize,
    /// Most frames of one message. They cost no memory, only time: beyond it, close code 1008.
    pub frames_per_message_max: u32,
    /// Largest head of an upgrade request or response. Beyond it: status 431.
    pub header_bytes_max: usize,
    /// Most header fields of a request or response. Beyond it: status 431.
    pub headers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 16 * 1024 * 1024,
            frames_per_message_max: 131_072,
            header_bytes_max: 16 * 1024,
            headers_max: 64,
        }
    }
}
