//! What an echo message holds, so that its reply can be verified.
//!
//! ```text
//! connection (5) sequence (9) check (6) filler (rest)
//! ```
//! All of it is ASCII, so that it is valid UTF-8 in a text frame. The check covers connection,
//! sequence, size and seed; the filler is a slice of a pool that was made once, at a place that
//! connection and sequence decide, so that writing and verifying are one copy and one comparison.
//! A payload too small for the header is filler alone and verified by order and content.

use crate::schedule::mix;

/// Writes and verifies the payloads of one run.
#[derive(Clone, Debug)]
pub(crate) struct EchoPayload {
    filler: Filler,
    size: usize,
    /// Messages of the user's own, in place of all others. They have no header.
    pool: Vec<Vec<u8>>,
    /// Every other message is empty.
    alternates: bool,
    seed: u64,
}

/// What a received payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Message `seq` of this connection.
    Message {
        /// Its sequence number.
        seq: u64,
        /// False when the rest of the content is not what was sent.
        intact: bool,
    },
    /// A message of this run that belongs to another connection.
    Foreign,
    /// Not a header.
    Unreadable,
}

impl EchoPayload {
    /// Payloads of `size` bytes.
    pub(crate) fn new(size: usize, seed: u64) -> Self {
        Self {
            filler: Filler::new(size, seed),
            size,
            pool: Vec::new(),
            alternates: false,
            seed,
        }
    }

    /// Payloads of `size` bytes and empty ones in turn, the first of `size`.
    pub(crate) fn alternating(size: usize, seed: u64) -> Self {
        Self {
            alternates: true,
            ..Self::new(size, seed)
        }
    }

    /// Payloads from a pool, in turn; each connection begins at another place.
    pub(crate) fn of_pool(pool: Vec<Vec<u8>>) -> Self {
        Self {
            pool,
            ..Self::new(0, 0)
        }
    }

    /// Bytes of a message of the pool, on average; `None` without one.
    pub(crate) fn pool_mean_bytes(&self) -> Option<usize> {
        let bytes: usize = self.pool.iter().map(Vec::len).sum();
        bytes.checked_div(self.pool.len())
    }

    fn pooled(&self, connection: u32, seq: u64) -> Option<&[u8]> {
        let place = u64::from(connection).wrapping_add(seq);
        let place = place.checked_rem(self.pool.len() as u64)?;
        self.pool.get(place as usize).map(Vec::as_slice)
    }

    fn is_empty(&self, seq: u64) -> bool {
        self.alternates && !seq.is_multiple_of(2)
    }

    /// False when the size leaves no room for a header: [`EchoPayload::read`] cannot be used.
    pub(crate) fn has_header(&self) -> bool {
        self.pool.is_empty() && self.size >= HEADER_BYTES
    }

    /// Appends message `seq` of `connection`.
    pub(crate) fn write(&self, connection: u32, seq: u64, out: &mut Vec<u8>) {
        if self.is_empty(seq) {
            return;
        }
        if let Some(message) = self.pooled(connection, seq) {
            out.extend_from_slice(message);
            return;
        }
        if !self.has_header() {
            out.extend_from_slice(self.filler.slice(connection, seq, self.size));
            return;
        }
        out.extend_from_slice(&self.header(connection, seq));
        out.extend_from_slice(self.filler.slice(connection, seq, self.size - HEADER_BYTES));
    }

    /// Reads the header of a payload that `connection` received and verifies the rest.
    pub(crate) fn read(&self, connection: u32, payload: &[u8]) -> Reading {
        match self.read_of_anybody(payload) {
            None => Reading::Unreadable,
            Some((sender, ..)) if sender != connection => Reading::Foreign,
            Some((_, seq, intact)) => Reading::Message { seq, intact },
        }
    }

    /// Whose message a payload is, its sequence number, and whether the rest is what was sent;
    /// `None` without a header.
    pub(crate) fn read_of_anybody(&self, payload: &[u8]) -> Option<(u32, u64, bool)> {
        let (header, filler) = payload.split_at_checked(HEADER_BYTES)?;
        let (sender, seq) = header.split_at_checked(CONNECTION_DIGITS)?;
        let sender = u32::try_from(decode(sender)?).ok()?;
        let seq = decode(seq.get(..SEQUENCE_DIGITS)?)?;
        if header != self.header(sender, seq) {
            return None;
        }
        let intact = payload.len() == self.size
            && filler == self.filler.slice(sender, seq, self.size - HEADER_BYTES);
        Some((sender, seq, intact))
    }

    /// Whether `payload` is message `seq` of `connection`, header or not.
    pub(crate) fn matches(&self, connection: u32, seq: u64, payload: &[u8]) -> bool {
        if self.is_empty(seq) {
            return payload.is_empty();
        }
        if let Some(message) = self.pooled(connection, seq) {
            return payload == message;
        }
        if self.has_header() {
            return self.read(connection, payload) == Reading::Message { seq, intact: true };
        }
        payload == self.filler.slice(connection, seq, self.size)
    }

    fn header(&self, connection: u32, seq: u64) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let (numbers, check) = header.split_at_mut(CONNECTION_DIGITS + SEQUENCE_DIGITS);
        encode(u64::from(connection), &mut numbers[..CONNECTION_DIGITS]);
        encode(seq, &mut numbers[CONNECTION_DIGITS..]);
        let key = mix(self.seed ^ self.size as u64, u64::from(connection));
        encode(mix(key, seq), check);
        header
    }
}

/// Letters and digits from a seed; a slice costs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Filler {
    /// `longest + FILLER_PLACES` bytes.
    pool: Vec<u8>,
}

impl Filler {
    /// A pool from which slices of up to `longest` bytes can be had.
    pub(crate) fn new(longest: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let pool = (0..longest + FILLER_PLACES)
            .map(|_| ALPHABET[random.usize(..LETTERS_AND_DIGITS)])
            .collect();
        Self { pool }
    }

    /// The filler of message `seq` of `connection`.
    pub(crate) fn slice(&self, connection: u32, seq: u64, length: usize) -> &[u8] {
        let place = mix(u64::from(connection), seq) as usize % FILLER_PLACES;
        &self.pool[place..place + length]
    }
}

fn encode(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(number & 63) as usize];
        number >>= 6;
    }
}

fn decode(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, &digit| {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        Some(number << 6 | u64::from(value))
    })
}

/// The alphabet of base64url, whose first 62 are the filler's.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LETTERS_AND_DIGITS: usize = 62;
/// 30 bits.
const CONNECTION_DIGITS: usize = 5;
/// 54 bits: at a million messages per second on one connection, 570 years.
const SEQUENCE_DIGITS: usize = 9;
/// 36 bits: an altered header passes once in 69 thousand million.
const CHECK_DIGITS: usize = 6;
pub(crate) const HEADER_BYTES: usize = CONNECTION_DIGITS + SEQUENCE_DIGITS + CHECK_DIGITS;
/// Different fillers. A prime, so that no pattern of sequence numbers keeps to a few of them.
const FILLER_PLACES: usize = 4093;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(payload: &EchoPayload, connection: u32, seq: u64) -> Vec<u8> {
        let mut out = Vec::new();
        payload.write(connection, seq, &mut out);
        out
    }

    #[test]
    fn what_is_written_is_read_back() {
        let payload = EchoPayload::new(64, 7);
        for (connection, seq) in [(0, 0), (9_999_999, 1 << 40), (5, 63)] {
            let bytes = written(&payload, connection, seq);
            assert_eq!(bytes.len(), 64);
            assert!(bytes.is_ascii());
            let intact = Reading::Message { seq, intact: true };
            assert_eq!(payload.read(connection, &bytes), intact);
            assert!(payload.matches(connection, seq, &bytes));
            assert!(!payload.matches(connection, seq + 1, &bytes));
        }
    }

    #[test]
    fn any_altered_byte_is_found() {
        let payload = EchoPayload::new(64, 7);
        let good = written(&payload, 3, 8);
        for at in 0..64 {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            let expected = if at < HEADER_BYTES {
                Reading::Unreadable
            } else {
                Reading::Message {
                    seq: 8,
                    intact: false,
                }
            };
            assert_eq!(payload.read(3, &bytes), expected, "byte {at}");
        }
        let shorter = Reading::Message {
            seq: 8,
            intact: false,
        };
        assert_eq!(payload.read(3, &good[..63]), shorter);
        assert_eq!(payload.read(3, &good[..5]), Reading::Unreadable);
    }

    #[test]
    fn messages_of_other_connections_sizes_and_seeds_are_told_apart() {
        let payload = EchoPayload::new(64, 7);
        assert_eq!(payload.read(3, &written(&payload, 4, 8)), Reading::Foreign);
        let other_seed = EchoPayload::new(64, 8);
        assert_eq!(
            payload.read(3, &written(&other_seed, 3, 8)),
            Reading::Unreadable
        );
        let other_size = EchoPayload::new(65, 7);
        assert_eq!(
            payload.read(3, &written(&other_size, 3, 8)),
            Reading::Unreadable
        );
    }

    #[test]
    fn every_other_message_may_be_empty() {
        let payload = EchoPayload::alternating(64, 7);
        assert_eq!(written(&payload, 3, 0).len(), 64);
        assert_eq!(written(&payload, 3, 1), b"");
        assert!(payload.matches(3, 1, b"") && !payload.matches(3, 2, b""));
        assert!(!payload.matches(3, 1, &written(&payload, 3, 2)));
        assert!(payload.matches(3, 2, &written(&payload, 3, 2)));
    }

    #[test]
    fn messages_of_a_pool_are_sent_in_turn_and_known_by_content() {
        let payload = EchoPayload::of_pool(vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]);
        assert!(!payload.has_header());
        assert_eq!(payload.pool_mean_bytes(), Some(2));
        let sent: Vec<Vec<u8>> = (0..4).map(|seq| written(&payload, 2, seq)).collect();
        assert_eq!(sent, [&b"three"[..], b"one", b"", b"three"]);
        assert!(payload.matches(2, 1, b"one") && !payload.matches(2, 1, b"three"));
        assert_eq!(EchoPayload::new(3, 1).pool_mean_bytes(), None);
    }

    #[test]
    fn small_payloads_work_down_to_nothing() {
        for size in 0..HEADER_BYTES {
            let payload = EchoPayload::new(size, 7);
            assert!(!payload.has_header());
            assert_eq!(written(&payload, 1, 2).len(), size);
            assert!(payload.matches(1, 2, &written(&payload, 1, 2)));
            assert!(!payload.matches(1, 2, b"a payload that is too long"));
        }
        assert!(EchoPayload::new(HEADER_BYTES, 7).has_header());
    }
}
