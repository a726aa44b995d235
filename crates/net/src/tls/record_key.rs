//! A traffic key and what it has sealed or opened (RFC 8446, 5.2 to 5.5).

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    Tag, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;

use super::record_layer::HEADER_BYTES;

/// The key of one direction.
pub(super) struct RecordKey {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// Records that were sealed or opened with it.
    sequence: u64,
    /// How many it may seal (RFC 8446, 5.5).
    sealed_max: u64,
}

impl RecordKey {
    /// `sequence` is the number of the next record. None for a suite that we have not.
    pub(super) fn new(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<Self> {
        let (algorithm, key, iv, sealed_max): (&'static Algorithm, _, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                (&AES_128_GCM, key, iv, AES_GCM_SEALED_MAX)
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                (&AES_256_GCM, key, iv, AES_GCM_SEALED_MAX)
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&CHACHA20_POLY1305, key, iv, u64::MAX)
            }
            _ => return None,
        };
        let made = Self::of(algorithm, key.as_ref(), iv.as_ref())?;
        Some(Self {
            sequence,
            sealed_max,
            ..made
        })
    }

    fn of(algorithm: &'static Algorithm, key: &[u8], iv: &[u8]) -> Option<Self> {
        Some(Self {
            key: LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?),
            iv: iv.try_into().ok()?,
            sequence: 0,
            sealed_max: u64::MAX,
        })
    }

    /// One of many that both ends can count, for fuzzing.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn counted(number: u8) -> Option<Self> {
        Self::of(&AES_128_GCM, &[number; 16], &[number; NONCE_LEN])
    }

    /// Encrypts in place; the tag that follows. None if the key may not be used any more.
    pub(super) fn seal(&mut self, header: [u8; HEADER_BYTES], plaintext: &mut [u8]) -> Option<Tag> {
        let nonce = self.nonce()?;
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), plaintext)
            .ok()?;
        self.sequence += 1;
        Some(sealed)
    }

    /// Decrypts what begins at `start`, with its tag, to the beginning of `bytes`; the plaintext.
    /// None if it is not what the peer has sealed.
    pub(super) fn open<'b>(
        &mut self,
        header: [u8; HEADER_BYTES],
        bytes: &'b mut [u8],
        start: usize,
    ) -> Option<&'b mut [u8]> {
        let nonce = self.nonce()?;
        let opened = self
            .key
            .open_within(nonce, Aad::from(header), bytes, start..)
            .ok()?;
        self.sequence += 1;
        Some(opened)
    }

    /// Whether the next record has to be sealed with another key. The last one that this key may
    /// seal is for saying so.
    pub(super) fn is_used_up(&self) -> bool {
        self.sequence.saturating_add(1) >= self.sealed_max
    }

    #[cfg(test)]
    pub(super) fn set_sealed_max(&mut self, sealed_max: u64) {
        self.sealed_max = sealed_max;
    }

    /// RFC 8446, 5.3: the sequence number, padded on the left, over the IV.
    fn nonce(&self) -> Option<Nonce> {
        if self.sequence == u64::MAX {
            return None;
        }
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        Some(Nonce::assume_unique_for_key(nonce))
    }
}

/// RFC 8446, 5.5: 2^24.5 records of AES-GCM of full size.
const AES_GCM_SEALED_MAX: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8448, 3: what the client sends with its application traffic key.
    #[test]
    fn the_record_of_the_example_trace_is_sealed_and_opened() {
        const KEY: &str = "17422dda596ed5d9acd890e3c63f5051";
        const IV: &str = "5b78923dee08579033e523d9";
        const RECORD: &str = "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b\
                              9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aee\
                              bb21694915e4";
        let record = bytes(RECORD);
        let (header, sealed) = record.split_first_chunk().unwrap();
        let content: Vec<u8> = (0..50).chain([23]).collect();

        let mut key = RecordKey::of(&AES_128_GCM, &bytes(KEY), &bytes(IV)).unwrap();
        let mut plaintext = content.clone();
        let tag = key.seal(*header, &mut plaintext).unwrap();
        assert_eq!([&plaintext, tag.as_ref()].concat(), sealed);

        let mut key = RecordKey::of(&AES_128_GCM, &bytes(KEY), &bytes(IV)).unwrap();
        let mut room = record.clone();
        assert_eq!(key.open(*header, &mut room, 5).unwrap(), content);
        // It was the first record, and is not the second one.
        assert!(key.open(*header, &mut record.clone(), 5).is_none());
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        hex.as_bytes()
            .chunks(2)
            .map(|pair| digits(pair).unwrap())
            .collect()
    }
}
