//! Fast hash for tables with keys from rules. It does not resist chosen collisions: items only look up, and authors of
//! colliding rules slow down only themselves.

use std::hash::{BuildHasher, Hasher};

const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuildFastHasher;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastHasher(u64);

impl BuildHasher for BuildFastHasher {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        // A state of zero would stay zero over leading zeros of a key.
        FastHasher(0x51_7cc1_b727_220a)
    }
}

impl Hasher for FastHasher {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is intended")]
    fn write(&mut self, bytes: &[u8]) {
        let mut add = |eight: u64| {
            // Both halves of the product are used, so that the upper bits of the key are not lost.
            let product = u128::from(self.0.rotate_left(23) ^ eight) * FACTOR;
            self.0 = (product >> 64) as u64 ^ product as u64;
        };
        let (eights, rest) = bytes.as_chunks();
        eights.iter().for_each(|eight| add(u64::from_le_bytes(*eight)));
        // The remaining bytes are read in pieces of fixed lengths and padded with zeros, because a copy of variable length
        // is a function call.
        match (rest.first_chunk::<4>(), rest.last_chunk::<4>(), rest) {
            (Some(first), Some(last), _) => {
                let last = u64::from(u32::from_le_bytes(*last)) << (8 * (rest.len() - 4));
                add(u64::from(u32::from_le_bytes(*first)) | last);
            }
            (_, _, [first, .., last]) => {
                let middle = u64::from(rest[rest.len() / 2]) << (8 * (rest.len() / 2));
                add(u64::from(*first) | middle | u64::from(*last) << (8 * (rest.len() - 1)));
            }
            (_, _, [single]) => add((*single).into()),
            (_, _, []) => {}
        }
    }

    fn finish(&self) -> u64 {
        // The upper half of a product is mixed best, and tables use bits of both ends.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_that_are_alike_have_different_hashes() {
        let hashes: HashSet<u64> =
            (0..100_000).map(|n| BuildFastHasher.hash_one(format!("label-{n}"))).collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xff_ffff).collect();
        assert!(hashes.len() == 100_000 && low.len() > 98_000, "{} {}", hashes.len(), low.len());
    }
}
