//! Converts colours to luma like JPEG: 0.299 R + 0.587 G + 0.114 B. Alpha is dropped, so transparent pixels are hashed with
//! their colours.

use image::{DynamicImage, RgbaImage};

/// Weights of the colours in units of 2^-16. Their sum is 1.
const RED: u32 = 19_595;
const GREEN: u32 = 38_470;
const BLUE: u32 = 7_471;
const HALF: u32 = 1 << 15;

pub(super) const fn of_rgb(red: u8, green: u8, blue: u8) -> u8 {
    let sum = RED * red as u32 + GREEN * green as u32 + BLUE * blue as u32 + HALF;
    sum.to_be_bytes()[1]
}

/// Converts YCbCr to RGB as libjpeg does.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub(super) fn ycbcr_to_rgb(luma: u8, blue: u8, red: u8) -> [u8; 3] {
    let (luma, blue, red) = (i32::from(luma) << 16, i32::from(blue) - 128, i32::from(red) - 128);
    let sums = [luma + 91_881 * red, luma - 22_554 * blue - 46_802 * red, luma + 116_130 * blue];
    sums.map(|sum| ((sum + (1 << 15)) >> 16).clamp(0, 255) as u8)
}

/// Luma of inks, 255 for full ink.
pub(super) const fn of_cmyk(cyan: u8, magenta: u8, yellow: u8, black: u8) -> u8 {
    of_rgb(light(cyan, black), light(magenta, black), light(yellow, black))
}

/// Light passing through two inks.
#[expect(clippy::cast_possible_truncation, reason = "a product of two bytes divided by 255")]
const fn light(first_ink: u8, second_ink: u8) -> u8 {
    (((255 - first_ink as u32) * (255 - second_ink as u32) + 127) / 255) as u8
}

pub(super) const fn of_rgb16(red: u16, green: u16, blue: u16) -> u8 {
    let sum = RED * red as u32 + GREEN * green as u32 + BLUE * blue as u32 + HALF;
    of_16((sum >> 16) as u16)
}

#[expect(clippy::cast_possible_truncation, reason = "65,535 is 255 times 257")]
pub(super) const fn of_16(luma: u16) -> u8 {
    ((luma as u32 + 128) / 257) as u8
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within 0 and 255 after the clamp"
)]
fn of_rgb_float(red: f32, green: f32, blue: f32) -> u8 {
    (255.0 * (0.299 * red + 0.587 * green + 0.114 * blue)).clamp(0.0, 255.0).round() as u8
}

pub(super) fn of_frame(frame: &RgbaImage) -> Vec<u8> {
    of_pixels(frame.as_raw(), |pixel: [u8; 4]| of_rgb(pixel[0], pixel[1], pixel[2]))
}

/// Luma of a decoded picture. `None` for pixel types that the decoders never return.
pub(super) fn of_image(image: DynamicImage) -> Option<Vec<u8>> {
    Some(match image {
        DynamicImage::ImageLuma8(gray) => gray.into_raw(),
        DynamicImage::ImageLumaA8(gray) => of_pixels(gray.as_raw(), |[luma, _]| luma),
        DynamicImage::ImageRgb8(rgb) => of_pixels(rgb.as_raw(), |[r, g, b]| of_rgb(r, g, b)),
        DynamicImage::ImageRgba8(rgba) => of_frame(&rgba),
        DynamicImage::ImageLuma16(gray) => of_pixels(gray.as_raw(), |[luma]| of_16(luma)),
        DynamicImage::ImageLumaA16(gray) => of_pixels(gray.as_raw(), |[luma, _]| of_16(luma)),
        DynamicImage::ImageRgb16(rgb) => of_pixels(rgb.as_raw(), |[r, g, b]| of_rgb16(r, g, b)),
        DynamicImage::ImageRgba16(rgba) => of_pixels(rgba.as_raw(), |[r, g, b, _]| of_rgb16(r, g, b)),
        DynamicImage::ImageRgb32F(rgb) => of_pixels(rgb.as_raw(), |[r, g, b]| of_rgb_float(r, g, b)),
        DynamicImage::ImageRgba32F(rgba) => of_pixels(rgba.as_raw(), |[r, g, b, _]| of_rgb_float(r, g, b)),
        _ => return None,
    })
}

/// Luma of pixels of `N` samples each.
pub(super) fn of_pixels<S: Copy, const N: usize>(samples: &[S], luma: impl Fn([S; N]) -> u8) -> Vec<u8> {
    samples.as_chunks().0.iter().map(|pixel| luma(*pixel)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gray_keeps_its_luma_in_every_depth() {
        for luma in 0..=255u8 {
            let deep = u16::from(luma) * 257;
            assert_eq!(of_rgb(luma, luma, luma), luma);
            assert_eq!(of_rgb16(deep, deep, deep), luma);
            assert_eq!(of_16(deep), luma);
            let real = f32::from(luma) / 255.0;
            assert_eq!(of_rgb_float(real, real, real), luma);
            assert_eq!(of_cmyk(0, 0, 0, 255 - luma), luma);
            assert_eq!(of_cmyk(255 - luma, 255 - luma, 255 - luma, 0), luma);
        }
    }

    #[test]
    fn ycbcr_to_rgb_keeps_the_luma() {
        for luma in 0..=255 {
            assert_eq!(ycbcr_to_rgb(luma, 128, 128), [luma; 3]);
        }
        for [blue, red] in [[100, 140], [128, 90], [150, 128]] {
            let [r, g, b] = ycbcr_to_rgb(120, blue, red);
            assert!(of_rgb(r, g, b).abs_diff(120) <= 1);
        }
        assert_eq!(ycbcr_to_rgb(76, 85, 255), [254, 0, 0]);
    }

    #[test]
    fn colours_have_the_weights_of_bt601() {
        assert_eq!([of_rgb(255, 0, 0), of_rgb(0, 255, 0), of_rgb(0, 0, 255)], [76, 150, 29]);
        assert_eq!(of_rgb16(65_535, 0, 0), 76);
        assert_eq!([of_rgb_float(1.0, 0.0, 0.0), of_rgb_float(f32::NAN, 0.0, 2.0)], [76, 0]);
        assert_eq!(of_cmyk(0, 255, 255, 0), 76);
    }
}
