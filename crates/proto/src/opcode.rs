//! Opcodes: what an application sees, and what a frame carries.

/// The kind of a message (RFC 6455, 5.6).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Opcode {
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Binary,
}

impl Opcode {
    /// The opcode on the wire: 1 for text, 2 for binary.
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::Text => 1,
            Self::Binary => 2,
        }
    }

    /// The data opcode with this number on the wire.
    pub const fn from_u8(opcode: u8) -> Option<Self> {
        match opcode {
            1 => Some(Self::Text),
            2 => Some(Self::Binary),
            _ => None,
        }
    }
}
