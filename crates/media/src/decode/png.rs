//! The default picture of a PNG file, row by row: what is missing at a file's end costs no more than the rows that it
//! held.
//!
//! Animations are put together elsewhere.

use png::{BitDepth, ColorType, Decoder, DecodingError, InterlaceInfo, Limits, Transformations};

use super::{Refusal, header::Header, joined::Joined, luma};
use crate::fingerprint::reason;

/// A file up to the end of its chunks, and an end where it has none of its own: decoders hold back what came until they
/// see the next chunk.
pub(super) fn ended(bytes: &[u8]) -> Joined<'_, 2> {
    const END: &[u8] = b"\0\0\0\0IEND\xae\x42\x60\x82";
    let mut at = 8;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let length = rest.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
        let is_whole = length.is_some_and(|length| rest.len() >= length.saturating_add(12));
        match (rest.get(4..8), length) {
            (Some(kind), Some(length)) if is_whole && kind != b"IEND" => at += 12 + length,
            // Rows of a chunk that is cut are worth having.
            (Some(b"IDAT"), _) => return Joined::new([bytes, &[]]),
            _ => return Joined::new([&bytes[..at.min(bytes.len())], END]),
        }
    }
}

/// Rows that did not come are black, as everything is that nothing was drawn on.
pub(super) fn luma(bytes: &[u8], header: &Header, memory: u64) -> Result<Vec<u8>, Refusal> {
    let limits = Limits { bytes: usize::try_from(memory).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(ended(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|error| refusal(&error))?;
    let info = reader.info();
    let (width, height) = (header.width as usize, header.height as usize);
    let is_whole = info.frame_control.is_none_or(|frame| (frame.width, frame.height) == info.size());
    if info.size() != (header.width, header.height) || !is_whole {
        return Err(Refusal::Undecodable(reason::BROKEN));
    }
    let kind = reader.output_color_type();
    let line = reader.output_line_size(header.width).ok_or(Refusal::TooLarge(reason::MEMORY))?;
    let (mut row, mut samples) = (vec![0; line], vec![0; width * height]);
    let mut rows = 0;
    loop {
        let interlace = match reader.read_row(&mut row) {
            Ok(Some(interlace)) => interlace,
            Err(error) if rows == 0 => return Err(refusal(&error)),
            Ok(None) | Err(_) => break,
        };
        let shown = of_row(&row, kind).ok_or(Refusal::Undecodable(reason::UNSUPPORTED))?;
        match interlace {
            InterlaceInfo::Null(_) => samples[rows * width..][..width].copy_from_slice(&shown),
            // Pixels that are still to come look as one before them, as in browsers.
            InterlaceInfo::Adam7(pass) => png::splat_interlaced_row(&mut samples, width, &shown, &pass, 8),
        }
        rows += 1;
    }
    Ok(samples)
}

fn of_row(row: &[u8], kind: (ColorType, BitDepth)) -> Option<Vec<u8>> {
    let deep = |high, low| u16::from_be_bytes([high, low]);
    Some(match kind {
        (ColorType::Grayscale, BitDepth::Eight) => row.to_vec(),
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => luma::of_pixels(row, |[luma, _]| luma),
        (ColorType::Rgb, BitDepth::Eight) => luma::of_pixels(row, |[r, g, b]| luma::of_rgb(r, g, b)),
        (ColorType::Rgba, BitDepth::Eight) => luma::of_pixels(row, |[r, g, b, _]| luma::of_rgb(r, g, b)),
        (ColorType::Grayscale, BitDepth::Sixteen) => {
            luma::of_pixels(row, |[high, low]| luma::of_16(deep(high, low)))
        }
        (ColorType::GrayscaleAlpha, BitDepth::Sixteen) => {
            luma::of_pixels(row, |[high, low, _, _]| luma::of_16(deep(high, low)))
        }
        (ColorType::Rgb, BitDepth::Sixteen) => {
            luma::of_pixels(row, |[r, s, g, h, b, c]| luma::of_rgb16(deep(r, s), deep(g, h), deep(b, c)))
        }
        (ColorType::Rgba, BitDepth::Sixteen) => luma::of_pixels(row, |[r, s, g, h, b, c, _, _]| {
            luma::of_rgb16(deep(r, s), deep(g, h), deep(b, c))
        }),
        _ => return None,
    })
}

fn refusal(error: &DecodingError) -> Refusal {
    match error {
        DecodingError::LimitsExceeded => Refusal::TooLarge(reason::MEMORY),
        _ => Refusal::Undecodable(reason::BROKEN),
    }
}
