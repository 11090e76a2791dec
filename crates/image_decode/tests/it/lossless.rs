//! Memory of ordinary lossless WebPs: that of their pixels plus a small amount for their codes.

#![allow(clippy::unwrap_used)]

use image::{DynamicImage, ImageFormat};
use tidegate_image_decode::{DecodeLimits, ImageInfo, LumaImage, MemoryBudget, decode};

use crate::support::pictures::{self, encoded};

/// Returns the luma of a picture that is decoded within a budget.
fn luma(bytes: &[u8], decode_bytes: u64) -> Option<LumaImage> {
    let limits = DecodeLimits {
        bytes: 100 << 20,
        pixels: 50_000_000,
        min_side: 5,
        side: 32_768,
        animation_pixels: 250_000_000,
        frames: 0,
        decode_bytes,
    };
    let mut picture = None;
    let result = decode(
        bytes,
        &limits,
        &MemoryBudget::new(decode_bytes),
        &mut ImageInfo::default(),
        &mut |_, gray| {
            picture = Some(gray);
        },
    );
    result.ok().and(picture)
}

#[test]
fn pictures_of_any_size_need_little_beside_their_pixels() {
    let sizes = [(17, 17), (18, 300), (64, 64), (65, 63), (301, 19), (513, 511), (900, 700)];
    for (seed, (width, height)) in (0..).zip(sizes) {
        for family in 0..4 {
            let image = DynamicImage::from(pictures::sized(family, seed, width, height).image());
            let decode_bytes = (1 << 20) + 12 * u64::from(width * height) + (128 << 10);
            let png = luma(&encoded(&image, ImageFormat::Png), 512 << 20).unwrap();
            let webp = luma(&encoded(&image, ImageFormat::WebP), decode_bytes);
            assert_eq!(webp, Some(png), "{width} x {height}");
        }
    }
}
