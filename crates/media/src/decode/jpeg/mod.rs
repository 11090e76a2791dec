//! JPEG: decodes luma as it is stored if that is what the picture shows, and converts colours if it is not.
//!
//! Our decoder is asked first, then zune-jpeg. Both get a header that was read before.

use std::borrow::Cow;

use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use super::{
    DecodeError, Gray,
    budget::{MemoryBudget, Reservation},
    fallback::{catch_panic, with_fallback},
    luma,
};
use crate::fingerprint::Format;

mod bits;
mod decoder;
mod frame;
mod header;
mod huffman;
#[cfg(test)]
#[path = "../../../tests/it/support/pictures.rs"]
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

/// Bytes for tables, rows in work, and whatever else does not grow with the picture.
const FIXED_BYTES: u64 = 1 << 20;

/// Returns the luma and the reservation of the memory that it occupies.
pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a MemoryBudget,
) -> Result<(Gray, Reservation<'a>), DecodeError> {
    if header.is_arithmetic {
        return Err(DecodeError::UNSUPPORTED);
    }
    let by_zune = || decode_by_zune(bytes, header, budget);
    if header.is_plain {
        with_fallback(Format::Jpeg, || decoder::decode(bytes, header, budget), by_zune)
    } else {
        catch_panic(Format::Jpeg, by_zune)
    }
}

fn decode_by_zune<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a MemoryBudget,
) -> Result<(Gray, Reservation<'a>), DecodeError> {
    // zune-jpeg reads Adobe's mark as if it were of four components, and gives wrong luma, without an error, for
    // progressive files that are sampled less often downwards alone. Rare files are not left to it.
    if header.colours == Colours::AdobeRgb || !header.is_common {
        return Err(DecodeError::UNSUPPORTED);
    }
    // Of more scans than it decodes it would show the first ones.
    if header.is_buffered && scans::are_too_many(bytes) {
        return Err(DecodeError::BROKEN);
    }
    let as_stored = matches!(header.colours, Colours::Gray | Colours::YCbCr);
    let (out, out_bytes) = if as_stored { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 4) };
    let pixels = pixels(header);
    // Coefficients of two bytes, for twice the rows if only those are sampled less often.
    let buffered = if header.is_buffered { 4 * header.samples } else { 0 };
    let copied = if header.has_unknown_mark { bytes.len() as u64 } else { 0 };
    let reservation = budget.reserve(FIXED_BYTES + copied + buffered + (out_bytes + 1) * pixels)?;
    // It refuses marks of Adobe's that it does not know, so it gets a copy that states what is meant.
    let bytes: Cow<'_, [u8]> =
        if header.has_unknown_mark { header::with_known_marks(bytes, header).into() } else { bytes.into() };
    let options = DecoderOptions::default()
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(out);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&*bytes), options);
    decoder.decode_headers().map_err(|_| DecodeError::BROKEN)?;
    let as_expected = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => header.colours == Colours::Gray,
        Some(ColorSpace::YCbCr) => header.colours == Colours::YCbCr,
        Some(ColorSpace::RGB) => header.colours == Colours::Rgb,
        Some(ColorSpace::CMYK) => header.colours == Colours::Cmyk,
        Some(ColorSpace::YCCK) => header.colours == Colours::Ycck,
        _ => false,
    };
    if !as_expected || decoder.dimensions() != Some((header.width as usize, header.height as usize)) {
        return Err(DecodeError::BROKEN);
    }
    let samples = decoder.decode().map_err(|_| DecodeError::BROKEN)?;
    let samples = if as_stored {
        samples
    } else {
        luma::of_pixels(&samples, |[red, green, blue]| luma::of_rgb(red, green, blue))
    };
    let gray = Gray::new(header.width, header.height, samples).ok_or(DecodeError::BROKEN)?;
    Ok((gray, reservation))
}

fn pixels(header: &JpegHeader) -> u64 {
    u64::from(header.width) * u64::from(header.height)
}
