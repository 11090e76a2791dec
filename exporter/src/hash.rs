//! A quick hash for keys that others choose: multiplication folded in two, under a secret of the process.
//!
//! What has the same hash need not be equal; whoever uses it compares keys whole.

#![allow(clippy::cast_possible_truncation, reason = "both halves of a product are used")]

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers that agree with each other and with nobody else's.
#[derive(Clone, Debug)]
pub(crate) struct Folding {
    secret: [u64; 2],
}

impl Default for Folding {
    fn default() -> Self {
        let random = RandomState::new();
        Self { secret: [random.hash_one(0), random.hash_one(1)] }
    }
}

impl BuildHasher for Folding {
    type Hasher = Folded;

    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded { state: self.secret[0], secret: self.secret[1] }
    }
}

#[derive(Debug)]
pub(crate) struct Folded {
    state: u64,
    secret: u64,
}

impl Folded {
    #[inline]
    fn take(&mut self, low: u64, high: u64) {
        let product = u128::from(low ^ self.secret) * u128::from(high ^ self.state);
        self.state = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            let word = u128::from_le_bytes(*block);
            self.take(word as u64, (word >> 64) as u64);
        }
        if !rest.is_empty() {
            let mut block = [0; 16];
            block[..rest.len()].copy_from_slice(rest);
            let word = u128::from_le_bytes(block);
            self.take(word as u64, (word >> 64) as u64);
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.take(word, 0);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.take(u64::from(word), 0);
    }

    /// Lengths of keys, above all.
    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.take(word as u64, 0);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let product = u128::from(self.state) * u128::from(self.secret | 1);
        product as u64 ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_that_differ_anywhere_are_spread() {
        let folding = Folding::default();
        let mut hashes = HashSet::new();
        let mut low = HashSet::new();
        for length in 0..70 {
            for at in 0..length.max(1) {
                let mut key = vec![b'0'; length];
                if let Some(byte) = key.get_mut(at) {
                    *byte = b'1';
                }
                let hash = folding.hash_one(&*key);
                assert_eq!(hash, folding.hash_one(key.into_boxed_slice()));
                hashes.insert(hash);
                low.insert(hash & 0xfff);
            }
        }
        assert_eq!(hashes.len(), 1 + (1..70).sum::<usize>());
        // Of 4,096 places, 2,416 keys should take some 1,830.
        assert!((1_650..2_000).contains(&low.len()), "{}", low.len());
    }
}
