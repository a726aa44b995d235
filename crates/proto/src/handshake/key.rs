//! The client's key and the server's proof that it read it (RFC 6455, 4.1 and 4.2.2).

use core::str;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use sha1::{Digest, Sha1};

use crate::connection::MaskSource;

/// The value of a `Sec-WebSocket-Key`: 16 random bytes in base64.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientKey([u8; KEY_CHARS]);

impl ClientKey {
    /// A new key out of four numbers of `source`.
    pub fn generate(source: MaskSource) -> Self {
        let mut nonce = [0; NONCE_BYTES];
        for word in nonce.as_chunks_mut::<4>().0 {
            *word = source().to_ne_bytes();
        }
        Self::from_nonce(nonce)
    }

    /// The key of these 16 bytes.
    pub fn from_nonce(nonce: [u8; NONCE_BYTES]) -> Self {
        let mut key = [0; KEY_CHARS];
        STANDARD
            .encode_slice(nonce, &mut key)
            .expect("16 bytes are 24 characters of base64");
        Self(key)
    }

    /// A key as it came, if it is one.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of_text(key: &str) -> Option<Self> {
        let chars = key.as_bytes().try_into().ok()?;
        is_client_key(key).then_some(Self(chars))
    }

    /// The key as it appears in the request.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("base64 is ASCII")
    }
}

/// The `Sec-WebSocket-Accept` that answers `key`, in ASCII.
pub fn accept_key(key: &str) -> [u8; ACCEPT_CHARS] {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(KEY_SUFFIX);
    let mut accept = [0; ACCEPT_CHARS];
    STANDARD
        .encode_slice(hash.finalize(), &mut accept)
        .expect("20 bytes are 28 characters of base64");
    accept
}

/// Whether `key` is base64 of 16 bytes (RFC 6455, 4.2.1, item 5). The four bits that its last
/// character has too many may be anything, as RFC 4648, 3.5 allows: the example of RFC 6455, 4.1,
/// which clients send, has some that are not zero.
pub(super) fn is_client_key(key: &str) -> bool {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let mut nonce = [0; NONCE_BYTES + 2];
    key.len() == KEY_CHARS && LENIENT.decode_slice(key, &mut nonce) == Ok(NONCE_BYTES)
}

/// What RFC 6455, 1.3 appends to the key before hashing.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const NONCE_BYTES: usize = 16;
const KEY_CHARS: usize = 24;
const ACCEPT_CHARS: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_rfc_6455_section_1_3() {
        let key = ClientKey::from_nonce(*b"the sample nonce");
        assert_eq!(key.as_str(), "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(&accept_key(key.as_str()), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn generated_keys_are_valid_and_take_every_word_from_the_source() {
        let key = ClientKey::generate(|| u32::from_ne_bytes(*b"\x01\x02\x03\x04"));
        assert!(is_client_key(key.as_str()));
        assert_eq!(
            key,
            ClientKey::from_nonce(
                *b"\x01\x02\x03\x04\x01\x02\x03\x04\x01\x02\x03\x04\x01\x02\x03\x04"
            )
        );
    }

    #[test]
    fn the_example_of_rfc_6455_section_4_1_is_a_key() {
        assert!(is_client_key("AQIDBAUGBwgJCgsMDQ4PEC=="));
    }

    #[test]
    fn only_sixteen_bytes_of_base64_are_a_key() {
        for key in [
            "",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZQ=",
            "dGhlIHNhbXBsZSBub25jZWE=",
            "dGhlIHNhbXBsZSBub25jZWFh",
            "dGhlIHNhbXBsZSBub25j!Q==",
            "dGhlIHNhbXBsZSBub25jZQ==dGhlIHNhbXBsZSBub25jZQ==",
        ] {
            assert!(!is_client_key(key), "{key}");
        }
    }
}
