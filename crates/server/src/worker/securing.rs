//! Handshakes of TLS, of which each turn does a few: to agree on keys takes far longer than any
//! message, and a storm of new clients must not hold up those that are there.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What was received for handshakes that are put off, in the order in which they go on.
///
/// Who is put off sends no more than its part of the handshake, and the number of handshakes has
/// its bound (`handshakes_per_worker_max`); of what somebody sends beyond `BYTES_MAX` all the same,
/// the rest is dropped, which ends the handshake.
#[derive(Debug)]
pub(super) struct Securing<S> {
    order: VecDeque<S>,
    received: HashMap<S, Vec<u8>>,
    /// How many went on in this turn.
    admitted: usize,
}

impl<S> Default for Securing<S> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            received: HashMap::new(),
            admitted: 0,
        }
    }
}

impl<S: Copy + Eq + Hash> Securing<S> {
    /// Others have had their turn.
    pub(super) fn begin_turn(&mut self) {
        self.admitted = 0;
    }

    /// Whether there are some that wait for the next turn.
    pub(super) fn is_waiting(&self) -> bool {
        !self.order.is_empty()
    }

    /// Whether a handshake may go on with these bytes; otherwise they are kept.
    pub(super) fn admit(&mut self, socket: S, received: &[u8]) -> bool {
        let waits = self.received.contains_key(&socket);
        if !waits && self.admitted < PER_TURN_MAX {
            self.admitted += 1;
            return true;
        }
        let kept = self.received.entry(socket).or_default();
        let room = BYTES_MAX.saturating_sub(kept.len()).min(received.len());
        kept.extend_from_slice(received.get(..room).unwrap_or_default());
        if !waits {
            self.order.push_back(socket);
        }
        false
    }

    /// The next one that goes on in this turn.
    pub(super) fn next(&mut self) -> Option<(S, Vec<u8>)> {
        if self.admitted >= PER_TURN_MAX {
            return None;
        }
        let socket = self.order.pop_front()?;
        self.admitted += 1;
        let received = self.received.remove(&socket)?;
        Some((socket, received))
    }
}

/// So few that who waits for them waits for milliseconds, whatever the kind of key.
const PER_TURN_MAX: usize = 8;

/// A ClientHello, or the certificates of a client.
const BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_does_a_few_and_the_others_follow_in_order_with_all_they_sent() {
        let mut securing = Securing::default();
        let sockets: Vec<u32> = (0..20).collect();
        let admitted = sockets
            .iter()
            .filter(|socket| securing.admit(**socket, b"hello"));
        assert_eq!(admitted.count(), PER_TURN_MAX);
        // What follows does not overtake.
        securing.begin_turn();
        assert!(!securing.admit(sockets[8], b" again"));
        let mut turns = Vec::new();
        while securing.is_waiting() {
            securing.begin_turn();
            let mut turn = Vec::new();
            while let Some((socket, received)) = securing.next() {
                let expected: &[u8] = match socket == sockets[8] {
                    true => b"hello again",
                    false => b"hello",
                };
                assert_eq!(received, expected);
                turn.push(socket);
            }
            turns.push(turn);
        }
        assert_eq!(turns.concat(), sockets[8..]);
        assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), [8, 4]);
    }

    #[test]
    fn who_is_put_off_is_kept_so_much_of() {
        let mut securing = Securing {
            admitted: PER_TURN_MAX,
            ..Securing::default()
        };
        let socket = 7;
        for _ in 0..100 {
            assert!(!securing.admit(socket, &[0; 4096]));
        }
        securing.begin_turn();
        assert_eq!(securing.next().unwrap().1.len(), BYTES_MAX);
    }
}
