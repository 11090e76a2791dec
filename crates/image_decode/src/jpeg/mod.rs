//! JPEG: decodes stored luma directly, or converts colours to luma.
//!
//! Tries the decoder of this crate, then zune-jpeg. Both get a header that was already read and checked.

use std::borrow::Cow;

use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use super::{
    DecodeError, LumaImage,
    budget::{MemoryBudget, Reservation},
    fallback::{catch_panic, with_fallback},
    luma,
};
use crate::Format;

mod bits;
mod decoder;
mod frame;
mod header;
mod huffman;
#[cfg(test)]
#[path = "../../tests/it/support/pictures.rs"]
mod pictures;
mod places;
mod planes;
mod progressive;
mod scan;
mod scans;
mod sequential;
mod smooth;
mod standard;
#[cfg(test)]
mod tests;
mod transform;
mod vectors;

use self::header::Colours;
pub(super) use self::header::{JpegHeader, read};

/// Memory that does not depend on the picture's size: tables and row buffers.
const FIXED_BYTES: u64 = 1 << 20;

/// Returns the luma with the reservation of its memory.
pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a MemoryBudget,
) -> Result<(LumaImage, Reservation<'a>), DecodeError> {
    if header.is_arithmetic {
        return Err(DecodeError::UNSUPPORTED);
    }
    let run_zune = || decode_by_zune(bytes, header, budget);
    if header.is_plain {
        with_fallback(Format::Jpeg, || decoder::decode(bytes, header, budget), run_zune)
    } else {
        catch_panic(Format::Jpeg, run_zune)
    }
}

fn decode_by_zune<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a MemoryBudget,
) -> Result<(LumaImage, Reservation<'a>), DecodeError> {
    // zune-jpeg applies the four-component meaning of Adobe's mark to three components, and returns wrong luma without an
    // error for progressive files with only vertical subsampling. Rare files are not passed to it.
    if header.colours == Colours::AdobeRgb || !header.is_common {
        return Err(DecodeError::UNSUPPORTED);
    }
    // zune-jpeg ignores scans above its limit and would return the incomplete picture.
    if header.is_buffered && scans::has_too_many_scans(bytes) {
        return Err(DecodeError::BROKEN);
    }
    let is_luma_stored = matches!(header.colours, Colours::Gray | Colours::YCbCr);
    let (output_colours, output_pixel_bytes) =
        if is_luma_stored { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 4) };
    let pixels = pixels(header);
    // Coefficients of two bytes, for twice the rows in case of vertical subsampling.
    let buffered_bytes = if header.is_buffered { 4 * header.samples } else { 0 };
    let copied_bytes = if header.has_unknown_mark { bytes.len() as u64 } else { 0 };
    let reservation =
        budget.reserve(FIXED_BYTES + copied_bytes + buffered_bytes + (output_pixel_bytes + 1) * pixels)?;
    // zune-jpeg refuses unknown Adobe marks, so it gets a copy with the effective value.
    let bytes: Cow<'_, [u8]> = if header.has_unknown_mark {
        header::replace_unknown_marks(bytes, header).into()
    } else {
        bytes.into()
    };
    let options = DecoderOptions::default()
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(output_colours);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&*bytes), options);
    decoder.decode_headers().map_err(|_| DecodeError::BROKEN)?;
    let has_expected_colours = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => header.colours == Colours::Gray,
        Some(ColorSpace::YCbCr) => header.colours == Colours::YCbCr,
        Some(ColorSpace::RGB) => header.colours == Colours::Rgb,
        Some(ColorSpace::CMYK) => header.colours == Colours::Cmyk,
        Some(ColorSpace::YCCK) => header.colours == Colours::Ycck,
        _ => false,
    };
    if !has_expected_colours || decoder.dimensions() != Some((header.width as usize, header.height as usize))
    {
        return Err(DecodeError::BROKEN);
    }
    let samples = decoder.decode().map_err(|_| DecodeError::BROKEN)?;
    let samples = if is_luma_stored {
        samples
    } else {
        luma::of_pixels(&samples, |[red, green, blue]| luma::of_rgb(red, green, blue))
    };
    let gray = LumaImage::new(header.width, header.height, samples).ok_or(DecodeError::BROKEN)?;
    Ok((gray, reservation))
}

fn pixels(header: &JpegHeader) -> u64 {
    u64::from(header.width) * u64::from(header.height)
}
