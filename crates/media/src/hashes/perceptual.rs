//! Gradient (8 x 8) and median-over-DCT (16 x 16) hashes of `image_hasher`, from BT.601 luma.
//!
//! They compare only within one pipeline, because resizing decides many of their bits. PDQ is the hash to exchange with
//! others.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::U8,
};
use image::{DynamicImage, GrayImage};
use image_hasher::{HashAlg, Hasher, HasherConfig};

use crate::decode::Gray;

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

    pub(crate) fn gradient8(&self, gray: &Gray) -> [u8; 8] {
        // One more column than the hash, for the differences of neighbours.
        bytes(self.gradient8.hash_image(&resized(gray, 9, 8)).as_bytes())
    }

    pub(crate) fn dct16(&self, gray: &Gray) -> [u8; 32] {
        // Twice the hash in each direction, of which the lower frequencies are kept.
        bytes(self.dct16.hash_image(&resized(gray, 32, 32)).as_bytes())
    }
}

/// Returns the picture in the size that the hasher would resize it to, so that the hasher only copies it. Its own feature
/// for this resizer compiles the filters of every pixel type, which takes two minutes of a release build.
fn resized(gray: &Gray, width: u32, height: u32) -> DynamicImage {
    let from = TypedImageRef::<U8>::from_buffer(gray.width, gray.height, &gray.samples);
    let mut to = TypedImage::<U8>::new(width, height);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3));
    Resizer::new()
        .resize_typed(&from.expect("luma has width x height samples"), &mut to, &options)
        .expect("the whole picture is within itself");
    let samples = to.pixels().iter().map(|pixel| pixel.0).collect();
    GrayImage::from_raw(width, height, samples).expect("the resizer filled every pixel").into()
}

fn bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("the hasher was made for arrays of this length")
}
