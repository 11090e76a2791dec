//! MD5, SHA-1 and SHA-256 of a file's bytes, all three in one pass while they arrive.
//!
//! They say that two files are the same, not that two pictures look the same.

use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::Sha256;

use super::hex;

/// How much is digested at once: it stays in the first cache while all three algorithms read it.
const BLOCK: usize = 8 * 1024;

/// The digests of bytes that are still arriving.
#[derive(Clone, Debug, Default)]
pub struct Digesting {
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
}

impl Digesting {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK) {
            self.md5.update(block);
            self.sha1.update(block);
            self.sha256.update(block);
        }
    }

    pub fn finish(self) -> Digests {
        Digests {
            md5: self.md5.finalize().into(),
            sha1: self.sha1.finalize().into(),
            sha256: self.sha256.finalize().into(),
        }
    }
}

/// The digests of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Digests {
    #[serde(with = "hex")]
    pub md5: [u8; 16],
    #[serde(with = "hex")]
    pub sha1: [u8; 20],
    #[serde(with = "hex")]
    pub sha256: [u8; 32],
}

impl Digests {
    pub fn of(bytes: &[u8]) -> Self {
        let mut digesting = Digesting::new();
        digesting.update(bytes);
        digesting.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashes::hex::Hex;

    #[test]
    fn the_digests_are_those_of_the_standards_however_the_bytes_arrive() {
        let whole = Digests::of(b"abc");
        assert_eq!(Hex(&whole.md5).to_string(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(Hex(&whole.sha1).to_string(), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            Hex(&whole.sha256).to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let bytes: Vec<u8> = (0..50_000u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        let mut digesting = Digesting::new();
        for part in bytes.chunks(777) {
            digesting.update(part);
        }
        assert_eq!(digesting.finish(), Digests::of(&bytes));
    }
}
