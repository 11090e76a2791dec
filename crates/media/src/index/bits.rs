//! Hash as big-endian words: distance and pieces.

/// A hash of `W` words of 64 bits, padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Bits<const W: usize>([u64; W]);

impl<const W: usize> Bits<W> {
    #[allow(clippy::cast_possible_truncation, reason = "W is at most 4")]
    pub(crate) const COUNT: u32 = 64 * W as u32;

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut words = [0; W];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut word_bytes = [0; 8];
            word_bytes[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_be_bytes(word_bytes);
        }
        Self(words)
    }

    pub(crate) fn bytes(self) -> [u8; 32] {
        let mut hash_bytes = [0; 32];
        for (bytes, word) in hash_bytes.chunks_exact_mut(8).zip(self.0) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        hash_bytes
    }

    /// Returns the number of differing bits if it is at most `radius`.
    #[inline(always)]
    pub(crate) fn distance_within(&self, other: &Self, radius: u32) -> Option<u32> {
        let half = W.div_ceil(2);
        let first_half = self.count_differing_bits(other, 0, half);
        // Most hashes already exceed the radius here, which saves the second half of the work.
        if first_half > radius {
            return None;
        }
        let distance = first_half + self.count_differing_bits(other, half, W);
        if distance <= radius { Some(distance) } else { None }
    }

    #[inline(always)]
    fn count_differing_bits(&self, other: &Self, from: usize, to: usize) -> u32 {
        let mut count = 0;
        for word in from..to {
            count += (self.0[word] ^ other.0[word]).count_ones();
        }
        count
    }

    /// Returns `width` bits, at most 32, starting at bit `start`, counted from the top. The piece must end within the hash.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "a piece has at most 32 bits")]
    pub(crate) fn piece(&self, start: u32, width: u32) -> u32 {
        let (word, offset) = ((start / 64) as usize, start % 64);
        let mut bits = self.0[word] << offset;
        if offset + width > 64 {
            bits |= self.0[word + 1] >> (64 - offset);
        }
        (bits >> (64 - width)) as u32
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation)]

    use super::*;

    #[test]
    fn pieces_join_to_the_hash_across_words() {
        let bytes: Vec<u8> = (0..32).map(|nth: u8| nth.wrapping_mul(73).wrapping_add(5)).collect();
        let bits = Bits::<4>::of(&bytes);
        assert_eq!(bits.bytes().as_slice(), bytes);
        for width in [16, 20, 23] {
            for start in (0..256 - width).step_by(width) {
                let expected = (start..start + width)
                    .fold(0, |piece, bit| piece << 1 | u32::from(bytes[bit / 8] >> (7 - bit % 8) & 1));
                assert_eq!(bits.piece(start as u32, width as u32), expected, "{width} bits from {start}");
            }
        }
    }

    #[test]
    fn distance_is_returned_up_to_the_radius_only() {
        let (zero, mut far) = (Bits::<4>::of(&[0; 32]), [0; 32]);
        (far[0], far[31]) = (0x0f, 0x0f);
        let far = Bits::of(&far);
        assert_eq!(
            (zero.distance_within(&far, 8), zero.distance_within(&far, 7), zero.distance_within(&zero, 0)),
            (Some(8), None, Some(0))
        );
    }
}
