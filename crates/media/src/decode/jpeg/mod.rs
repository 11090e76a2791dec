//! JPEG: its luma as it is stored where that is what the picture shows, and converted colours where it is not.
//!
//! Three decoders can be asked, ours first. What the file's header says was read before.

use std::{borrow::Cow, io::Read as _};

use jpeg_decoder::{ColorTransform, PixelFormat};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use super::{
    Gray, Refusal,
    budget::{Budget, Share},
    guard::{either, guarded},
    luma,
};
use crate::fingerprint::{Format, reason};

mod bits;
mod decoder;
mod frame;
mod header;
mod huffman;
#[cfg(test)]
#[path = "../../../tests/pictures/mod.rs"]
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

/// Tables, rows in work, and what else does not grow with the picture.
const FIXED: u64 = 1 << 20;

/// The luma, and the memory that it is held in.
pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    if header.is_arithmetic {
        return Err(Refusal::Undecodable(reason::UNSUPPORTED));
    }
    if header.is_plain {
        return either(
            Format::Jpeg,
            || decoder::decode(bytes, header, budget),
            || by_others(bytes, header, budget),
        );
    }
    by_others(bytes, header, budget)
}

fn by_others<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    // Of too many they show the first ones.
    if scans::are_repeated(bytes, header) || header.is_buffered && scans::are_too_many(bytes) {
        return Err(Refusal::BROKEN);
    }
    // zune-jpeg takes Adobe's mark for one of four components, and gives wrong luma, without saying so, for
    // progressive files that are sampled less often downwards alone. What is rare is not left to it.
    if header.colours == Colours::AdobeRgb || !header.is_common {
        return guarded(Format::Jpeg, || by_jpeg_decoder(bytes, header, budget));
    }
    either(Format::Jpeg, || by_zune_jpeg(bytes, header, budget), || by_jpeg_decoder(bytes, header, budget))
}

fn by_zune_jpeg<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    let as_stored = matches!(header.colours, Colours::Gray | Colours::YCbCr);
    let (out, out_bytes) = if as_stored { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 4) };
    let pixels = pixels(header);
    // Coefficients of two bytes, and of twice the rows if only those are sampled less often.
    let buffered = if header.is_buffered { 4 * header.samples } else { 0 };
    let share = budget.share(FIXED + copied(bytes, header) + buffered + (out_bytes + 1) * pixels)?;
    let bytes = shown(bytes, header);
    let options = DecoderOptions::default()
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX)
        .jpeg_set_out_colorspace(out);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&*bytes), options);
    decoder.decode_headers().map_err(|_| Refusal::BROKEN)?;
    let as_expected = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => header.colours == Colours::Gray,
        Some(ColorSpace::YCbCr) => header.colours == Colours::YCbCr,
        Some(ColorSpace::RGB) => header.colours == Colours::Rgb,
        Some(ColorSpace::CMYK) => header.colours == Colours::Cmyk,
        Some(ColorSpace::YCCK) => header.colours == Colours::Ycck,
        _ => false,
    };
    if !as_expected || decoder.dimensions() != Some((header.width as usize, header.height as usize)) {
        return Err(Refusal::BROKEN);
    }
    let samples = decoder.decode().map_err(|_| Refusal::BROKEN)?;
    let samples = if as_stored {
        samples
    } else {
        luma::of_pixels(&samples, |[red, green, blue]| luma::of_rgb(red, green, blue))
    };
    Ok((gray(header, samples)?, share))
}

fn by_jpeg_decoder<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    let planes = header.samples * if header.is_buffered { 3 } else { 1 };
    let share = budget.share(FIXED + copied(bytes, header) + planes + 6 * pixels(header))?;
    let shown = shown(bytes, header);
    // It goes on after the scan that has everything, once over the whole picture for each of any number of scans.
    let shown = if header.is_buffered { &shown } else { scans::first(&shown) };
    let mut decoder = jpeg_decoder::Decoder::new(shown.chain(&[0xff, decoder::END][..]));
    match header.colours {
        Colours::YCbCr => decoder.set_color_transform(ColorTransform::YCbCr),
        Colours::Rgb | Colours::AdobeRgb => decoder.set_color_transform(ColorTransform::RGB),
        Colours::Cmyk => decoder.set_color_transform(ColorTransform::CMYK),
        Colours::Ycck => decoder.set_color_transform(ColorTransform::YCCK),
        Colours::Gray => {}
    }
    decoder.read_info().map_err(|_| Refusal::BROKEN)?;
    let info = decoder.info().ok_or(Refusal::BROKEN)?;
    if (u32::from(info.width), u32::from(info.height)) != (header.width, header.height) {
        return Err(Refusal::BROKEN);
    }
    let samples = decoder.decode().map_err(|_| Refusal::BROKEN)?;
    let samples = match info.pixel_format {
        PixelFormat::L8 => samples,
        PixelFormat::L16 => luma::of_pixels(&samples, |pair| luma::of_16(u16::from_ne_bytes(pair))),
        PixelFormat::RGB24 => luma::of_pixels(&samples, |[r, g, b]| luma::of_rgb(r, g, b)),
        PixelFormat::CMYK32 => luma::of_pixels(&samples, |[c, m, y, k]| luma::of_cmyk(c, m, y, k)),
    };
    Ok((gray(header, samples)?, share))
}

/// What others are shown of a file: unknown marks of Adobe's make both refuse it.
fn shown<'a>(bytes: &'a [u8], header: &JpegHeader) -> Cow<'a, [u8]> {
    if header.has_unknown_mark { header::with_known_marks(bytes, header).into() } else { bytes.into() }
}

/// Bytes that `shown` takes.
fn copied(bytes: &[u8], header: &JpegHeader) -> u64 {
    if header.has_unknown_mark { bytes.len() as u64 } else { 0 }
}

fn pixels(header: &JpegHeader) -> u64 {
    u64::from(header.width) * u64::from(header.height)
}

fn gray(header: &JpegHeader, samples: Vec<u8>) -> Result<Gray, Refusal> {
    Gray::new(header.width, header.height, samples).ok_or(Refusal::BROKEN)
}
