//! MD5, SHA-1 and SHA-256 of a file, computed in one pass during the download.

use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::Sha256;
use tidegate_schemas::hex;

/// Bytes per step. A block stays in the first-level cache while all three algorithms read it.
const BLOCK_BYTES: usize = 8 * 1024;

/// Incremental hasher of all three digests.
#[derive(Clone, Debug, Default)]
pub struct DigestHasher {
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
}

impl DigestHasher {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK_BYTES) {
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
        let mut hasher = DigestHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_schemas::hex::hex;

    use super::*;

    #[test]
    fn digests_match_the_standards_for_any_chunking() {
        let digests = Digests::of(b"abc");
        assert_eq!(hex(&digests.md5), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(&digests.sha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&digests.sha256), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let bytes: Vec<u8> = (0..50_000u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        let mut hasher = DigestHasher::new();
        for part in bytes.chunks(777) {
            hasher.update(part);
        }
        assert_eq!(hasher.finish(), Digests::of(&bytes));
    }
}
