//! Memory of ordinary lossless WebPs: that of their pixels plus a small amount for their codes.

#![allow(clippy::unwrap_used)]

use image::{DynamicImage, ImageFormat};
use tidegate_media::Limits;

use crate::support::{
    fingerprints::decoders,
    pictures::{self, encoded},
};

#[test]
fn pictures_of_any_size_need_little_beside_their_pixels() {
    let sizes = [(17, 17), (18, 300), (64, 64), (65, 63), (301, 19), (513, 511), (900, 700)];
    for (seed, (width, height)) in (0..).zip(sizes) {
        for family in 0..4 {
            let image = DynamicImage::from(pictures::sized(family, seed, width, height).image());
            let decode_bytes = (1 << 20) + 12 * u64::from(width * height) + (128 << 10);
            let webp = decoders(&Limits { decode_bytes, ..Limits::default() });
            let png = decoders(&Limits::default()).luma(&encoded(&image, ImageFormat::Png)).unwrap();
            assert_eq!(webp.luma(&encoded(&image, ImageFormat::WebP)), Some(png), "{width} x {height}");
        }
    }
}
