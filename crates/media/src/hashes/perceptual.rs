//! Gradient (8 x 8) and median-over-DCT (16 x 16) hashes of `image_hasher`, from BT.601 luma.
//!
//! Both are comparable only within one pipeline version, because the resizer decides many of their bits. PDQ is the hash
//! for exchange with other software.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::U8,
};
use image::{DynamicImage, GrayImage};
use image_hasher::{HashAlg, Hasher, HasherConfig};
use tidegate_image_decode::LumaImage;

/// The hashers of both kinds, configured once.
pub(crate) struct PerceptualHasher {
    gradient8: Hasher<[u8; 8]>,
    dct16: Hasher<[u8; 32]>,
}

impl PerceptualHasher {
    pub(crate) fn new() -> Self {
        let gradient8 = HasherConfig::with_bytes_type().hash_alg(HashAlg::Gradient).hash_size(8, 8);
        let dct16 = HasherConfig::with_bytes_type().hash_alg(HashAlg::Median).preproc_dct().hash_size(16, 16);
        Self { gradient8: gradient8.to_hasher(), dct16: dct16.to_hasher() }
    }

    pub(crate) fn gradient8(&self, gray: &LumaImage) -> [u8; 8] {
        // One column more than the hash: each bit compares two neighbours.
        to_array(self.gradient8.hash_image(&resize_luma(gray, 9, 8)).as_bytes())
    }

    pub(crate) fn dct16(&self, gray: &LumaImage) -> [u8; 32] {
        // Twice the size of the hash in each direction: the hasher keeps the lower half of the frequencies.
        to_array(self.dct16.hash_image(&resize_luma(gray, 32, 32)).as_bytes())
    }
}

/// Resizes a picture to the input size of the hasher, so that the hasher only copies it. The hasher's own feature for this
/// resizer compiles the filters of every pixel type and adds two minutes to a release build.
fn resize_luma(gray: &LumaImage, width: u32, height: u32) -> DynamicImage {
    let source = TypedImageRef::<U8>::from_buffer(gray.width, gray.height, &gray.samples);
    let mut target = TypedImage::<U8>::new(width, height);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3));
    Resizer::new()
        .resize_typed(&source.expect("luma has width x height samples"), &mut target, &options)
        .expect("the whole picture is within itself");
    let samples = target.pixels().iter().map(|pixel| pixel.0).collect();
    GrayImage::from_raw(width, height, samples).expect("the resizer filled every pixel").into()
}

fn to_array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("the hasher was made for arrays of this length")
}
