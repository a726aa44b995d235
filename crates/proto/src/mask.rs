//! Masking of payloads (RFC 6455, 5.3): the same operation masks and unmasks.

/// Applies `mask` to `payload` in place, beginning with the mask's first byte.
pub(crate) fn apply(mask: [u8; 4], payload: &mut [u8]) {
    let [a, b, c, d] = mask;
    let twice = [a, b, c, d, a, b, c, d];
    let wide = u64::from_ne_bytes(twice);
    // Whole words: the compiler makes vector instructions of this loop.
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(twice) {
        *byte ^= key;
    }
}

/// The mask for the bytes that follow the first `bytes` of a payload.
pub(crate) fn after(mask: [u8; 4], bytes: usize) -> [u8; 4] {
    let mut rotated = mask;
    rotated.rotate_left(bytes % mask.len());
    rotated
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    /// RFC 6455, 5.3, to the letter.
    fn octet_by_octet(payload: &[u8]) -> Vec<u8> {
        payload
            .iter()
            .enumerate()
            .map(|(i, octet)| octet ^ MASK[i % 4])
            .collect()
    }

    #[test]
    fn words_and_rest_agree_with_the_rfc_at_every_length() {
        let plain: Vec<u8> = (0..100).collect();
        for length in 0..plain.len() {
            let mut masked = plain[..length].to_vec();
            apply(MASK, &mut masked);
            assert_eq!(masked, octet_by_octet(&plain[..length]), "{length} bytes");
        }
    }

    #[test]
    fn a_payload_in_two_parts_keeps_its_phase() {
        let plain: Vec<u8> = (0..50).collect();
        for split in 0..plain.len() {
            let mut masked = plain.clone();
            let (head, tail) = masked.split_at_mut(split);
            apply(MASK, head);
            apply(after(MASK, split), tail);
            assert_eq!(masked, octet_by_octet(&plain), "split at {split}");
        }
    }
}
