//! What comes back with a completion.

use crate::driver::{ListenerId, SocketId};
use crate::table::PLACE_MAX;

/// Which operation has completed, and whose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Token {
    /// The receive of a socket, which goes on by itself.
    Receive(SocketId),
    /// The send in this place of the ring's table.
    Send(usize),
    /// A connect that was started is over.
    Connect(SocketId),
    /// A socket that is not received from has failed.
    Watch(SocketId),
    /// Connections wait to be accepted.
    Accept(ListenerId),
    /// The waker was used.
    Wake,
    /// An operation was to be cancelled; what matters is what becomes of that.
    Cancel,
}

impl Token {
    /// Four bits of kind, 28 of place, 32 of generation.
    pub(super) fn to_bits(self) -> u64 {
        match self {
            Self::Receive(id) => socket(0, id),
            Self::Send(place) => bits(1, place as u32, 0),
            Self::Connect(id) => socket(2, id),
            Self::Watch(id) => socket(3, id),
            Self::Accept(id) => bits(4, id.0, 0),
            Self::Wake => bits(5, 0, 0),
            Self::Cancel => bits(6, 0, 0),
        }
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let place = (bits >> 32) as u32 & PLACE_MAX;
        let id = SocketId {
            index: place,
            generation: bits as u32,
        };
        match bits >> 60 {
            0 => Self::Receive(id),
            1 => Self::Send(place as usize),
            2 => Self::Connect(id),
            3 => Self::Watch(id),
            4 => Self::Accept(ListenerId(place)),
            5 => Self::Wake,
            _ => Self::Cancel,
        }
    }
}

fn socket(kind: u64, id: SocketId) -> u64 {
    bits(kind, id.index, id.generation)
}

fn bits(kind: u64, place: u32, generation: u32) -> u64 {
    kind << 60 | u64::from(place & PLACE_MAX) << 32 | u64::from(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_comes_back_as_it_went() {
        for (index, generation) in [(0, 1), (7, u32::MAX), (PLACE_MAX, 0x8000_0000)] {
            let id = SocketId { index, generation };
            for token in [
                Token::Receive(id),
                Token::Send(index as usize),
                Token::Connect(id),
                Token::Watch(id),
                Token::Accept(ListenerId(index)),
                Token::Wake,
                Token::Cancel,
            ] {
                assert_eq!(Token::from_bits(token.to_bits()), token);
            }
        }
    }
}
