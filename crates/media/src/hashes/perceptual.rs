//! image_hasher's hashes of luma: Gradient, 8 x 8, and Median over a DCT, 16 x 16.
//!
//! They compare only within one pipeline: the luma is that of BT.601, the resizing that of `fast_image_resize`. PDQ is
//! what is exchanged with others.

use image::DynamicImage;
use image_hasher::{HashAlg, Hasher, HasherConfig};

/// How the hashes were made, to stand beside them.
pub const GRADIENT8: &str = "ih3:gradient8:y601";
pub const DCT16: &str = "ih3:median-dct16:y601";

pub(crate) struct Perceptual {
    gradient8: Hasher<[u8; 8]>,
    dct16: Hasher<[u8; 32]>,
}

impl Perceptual {
    pub(crate) fn new() -> Self {
        let gradient8 = HasherConfig::with_bytes_type().hash_alg(HashAlg::Gradient).hash_size(8, 8);
        let dct16 = HasherConfig::with_bytes_type().hash_alg(HashAlg::Median).preproc_dct().hash_size(16, 16);
        Self { gradient8: gradient8.to_hasher(), dct16: dct16.to_hasher() }
    }

    pub(crate) fn gradient8(&self, gray: &DynamicImage) -> [u8; 8] {
        bytes(self.gradient8.hash_image(gray).as_bytes())
    }

    pub(crate) fn dct16(&self, gray: &DynamicImage) -> [u8; 32] {
        bytes(self.dct16.hash_image(gray).as_bytes())
    }
}

fn bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("the hasher was made for arrays of this length")
}
