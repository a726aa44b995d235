//! Masking of payloads (RFC 6455, 5.3): the same operation masks and unmasks.

/// Applies `mask` to `payload` in place, beginning with the mask's first byte.
#[inline]
pub(crate) fn apply(mask: [u8; 4], payload: &mut [u8]) {
    // The mask twice, in the order of memory.
    let wide = u64::from(u32::from_ne_bytes(mask)) * 0x1_0000_0001;
    // Blocks of a known size become vector instructions without a look at the length.
    let (blocks, rest) = payload.as_chunks_mut::<BLOCK_BYTES>();
    for block in blocks {
        apply_words(wide, block);
    }
    for (byte, key) in apply_words(wide, rest).iter_mut().zip(wide.to_ne_bytes()) {
        *byte ^= key;
    }
}

/// Applies the mask to whole words; returns the bytes after them.
#[inline(always)]
fn apply_words(wide: u64, bytes: &mut [u8]) -> &mut [u8] {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    rest
}

/// The mask for the bytes that follow the first `bytes` of a payload.
pub(crate) fn after(mask: [u8; 4], bytes: usize) -> [u8; 4] {
    let mut rotated = mask;
    rotated.rotate_left(bytes % mask.len());
    rotated
}

const BLOCK_BYTES: usize = 32;

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
