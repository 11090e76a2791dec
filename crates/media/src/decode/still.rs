//! One picture of a PNG, GIF, WebP, BMP or TIFF file.
//!
//! Not responsible for animations, of which it can give the first frame.

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageResult, Limits,
    codecs::{bmp::BmpDecoder, tiff::TiffDecoder, webp::WebPDecoder},
};

use super::{
    Gray, Refusal,
    budget::{Budget, Share},
    gif,
    guard::guarded,
    header::{self, Header},
    joined::Joined,
    luma, png,
    tiff::Samples,
};
use crate::fingerprint::{Format, reason};

/// Tables, rows in work, and what else does not grow with the picture.
const FIXED: u64 = 1 << 20;

/// The luma, and the memory that it is held in.
pub(super) fn decode<'a>(
    bytes: &[u8],
    format: Format,
    header: &Header,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    // Beside the pixels: what the decoder keeps of a picture before it has pixels, and luma twice.
    let beside = match format {
        Format::WebP => 8,
        Format::Gif | Format::Tiff => header.pixel_bytes + 2,
        Format::Png | Format::Bmp | Format::Jpeg => 2,
    };
    let pixels = (header.pixel_bytes + beside) * header.pixels();
    let share = budget.share((FIXED + pixels).saturating_add(header.code_bytes))?;
    let gray = guarded(format, || {
        let samples = if format == Format::Png {
            png::luma(bytes, header, share.bytes())?
        } else if format == Format::Gif {
            gif::luma(bytes, header)?
        } else if format == Format::Bmp && !header::has_row_of_bmp(bytes, header) {
            return Err(Refusal::BROKEN);
        } else if format == Format::Tiff
            && let Some(samples) = Samples::of(bytes)?
        {
            samples.luma(share.bytes())?
        } else {
            let image = image(bytes, format, header, share.bytes()).map_err(|error| refusal(&error))?;
            luma::of_image(image).ok_or(Refusal::Undecodable(reason::UNSUPPORTED))?
        };
        Gray::new(header.width, header.height, samples).ok_or(Refusal::BROKEN)
    })?;
    Ok((gray, share))
}

fn image(bytes: &[u8], format: Format, header: &Header, memory: u64) -> ImageResult<DynamicImage> {
    match format {
        Format::WebP => {
            let flags = header::flags_without_alpha(bytes);
            let flags = flags.as_slice();
            pixels(WebPDecoder::new(Joined::patched(bytes, 20, flags))?, header, memory)
        }
        Format::Bmp => {
            // Rows that did not come are black, or of the palette's first colour.
            let (at, mut fields) = (header::pixels_of_bmp(bytes).unwrap_or_default(), [0; 18]);
            let file = Joined::new(header::shown_of_bmp(bytes, at, &mut fields)).endless();
            pixels(BmpDecoder::new(file)?, header, memory)
        }
        _ => pixels(TiffDecoder::new(Cursor::new(bytes))?, header, memory),
    }
}

pub(super) fn pixels(
    mut decoder: impl ImageDecoder,
    header: &Header,
    memory: u64,
) -> ImageResult<DynamicImage> {
    decoder.set_limits(bounds(header, memory))?;
    DynamicImage::from_decoder(decoder)
}

/// What our own reading of the header allows; a decoder that reads another size is held to it.
pub(super) fn bounds(header: &Header, memory: u64) -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(header.width);
    limits.max_image_height = Some(header.height);
    limits.max_alloc = Some(memory);
    limits
}

pub(super) fn refusal(error: &ImageError) -> Refusal {
    match error {
        ImageError::Limits(_) => Refusal::TooLarge(reason::MEMORY),
        ImageError::Unsupported(_) => Refusal::Undecodable(reason::UNSUPPORTED),
        _ => Refusal::BROKEN,
    }
}
