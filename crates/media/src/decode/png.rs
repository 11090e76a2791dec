//! The default picture of a PNG file and the frames of an animated one, row by row: what is missing costs no more than
//! the rows that it held.
//!
//! What is left of a frame is the canvas' matter.

use std::{borrow::Cow, cell::Cell};

use image::RgbaImage;
use png::{BitDepth, ColorType, Decoder, DecodingError, InterlaceInfo, Limits, Reader, Transformations};

use super::{
    Refusal,
    apng::{Frame, Frames},
    canvas::{Area, Canvas},
    header::Header,
    luma,
    needed::{Needed, Parts},
    png_chunks::Chunks,
};
use crate::fingerprint::reason;

/// Rows that did not come are black, as everything is that nothing was drawn on.
pub(super) fn luma(bytes: &[u8], header: &Header, memory: u64) -> Result<Vec<u8>, Refusal> {
    let is_over = Cell::new(false);
    let file = Needed::new(Chunks::new(bytes)).until(&is_over);
    let mut reader = reader(file, memory, Transformations::EXPAND, false)?;
    if reader.info().size() != (header.width, header.height) {
        return Err(Refusal::BROKEN);
    }
    let width = header.width as usize;
    let mut samples = vec![0; width * header.height as usize];
    each_row(&mut reader, &is_over, |nth, row, kind, interlace| {
        let shown = of_row(row, kind).ok_or(Refusal::Undecodable(reason::UNSUPPORTED))?;
        match interlace {
            InterlaceInfo::Null(_) => samples[nth * width..][..width].copy_from_slice(&shown),
            // Pixels that are still to come look as one before them, as in browsers.
            InterlaceInfo::Adam7(pass) => png::splat_interlaced_row(&mut samples, width, &shown, &pass, 8),
        }
        Ok(())
    })?;
    Ok(samples)
}

/// Hands out what came, and says how many rows that is. Of none, the reason is told.
fn each_row<'a, P: Parts<'a>>(
    reader: &mut Reader<Needed<'a, P>>,
    is_over: &Cell<bool>,
    mut each: impl FnMut(usize, &[u8], (ColorType, BitDepth), InterlaceInfo) -> Result<(), Refusal>,
) -> Result<usize, Refusal> {
    let (kind, (width, _)) = (reader.output_color_type(), reader.info().size());
    let mut row = vec![0; reader.output_line_size(width).ok_or(Refusal::TooLarge(reason::MEMORY))?];
    let mut rows = 0;
    loop {
        match reader.read_row(&mut row) {
            Ok(Some(interlace)) => each(rows, &row, kind, interlace)?,
            // Of what is faulty, only a file's end gives out the rows that were held back.
            Err(_) if !is_over.replace(true) => continue,
            Err(error) if rows == 0 => return Err(refusal(&error)),
            Ok(None) | Err(_) => return Ok(rows),
        }
        rows += 1;
    }
}

/// Shows the canvas after each frame for as long as more are wanted.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    memory: u64,
    see: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let mut frames = Frames::new(bytes, header);
    let mut canvas = Canvas::new(header.width, header.height);
    let mut has_any = false;
    for nth in 0..header.frames {
        let Some(frame) = frames.next()? else { break };
        // Where rows did not come, what was there stays.
        let came = match picture(&frame, &frames.head(&frame), memory) {
            Err(refused @ Refusal::TooLarge(_)) => return Err(refused),
            came => came.ok(),
        };
        has_any |= came.is_some();
        if !canvas.show(nth, frame.placed, came, see)? {
            break;
        }
    }
    if has_any { Ok(()) } else { Err(Refusal::BROKEN) }
}

/// The rows that came of a frame.
fn picture<'a>(frame: &Frame<'a>, head: &'a [u8], memory: u64) -> Result<RgbaImage, Refusal> {
    let is_over = Cell::new(false);
    let file = Needed::new(frame.alone(head)).until(&is_over);
    let shapes = Transformations::EXPAND | Transformations::STRIP_16 | Transformations::ALPHA;
    let mut reader = reader(file, memory, shapes, true)?;
    let Area { width, height, .. } = frame.placed.area;
    let (stride, all) = (4 * width as usize, height as usize);
    let mut samples = vec![0; stride * all];
    let mut came = 0;
    each_row(&mut reader, &is_over, |nth, row, kind, interlace| {
        let row = match kind {
            (ColorType::Rgba, BitDepth::Eight) => row.into(),
            (ColorType::GrayscaleAlpha, BitDepth::Eight) => {
                let pixels = row.as_chunks().0.iter();
                pixels.flat_map(|[luma, alpha]| [*luma, *luma, *luma, *alpha]).collect::<Vec<_>>().into()
            }
            _ => return Err(Refusal::Undecodable(reason::UNSUPPORTED)),
        };
        let row: Cow<'_, [u8]> = row;
        match interlace {
            InterlaceInfo::Null(_) => {
                samples[nth * stride..][..stride].copy_from_slice(&row);
                came = nth + 1;
            }
            // The first pass has one row of eight, and shows all.
            InterlaceInfo::Adam7(pass) => {
                png::splat_interlaced_row(&mut samples, stride, &row, &pass, 32);
                came = all.min(came.max(8 * (nth + 1)));
            }
        }
        Ok(())
    })?;
    samples.truncate(stride * came);
    RgbaImage::from_raw(width, u32::try_from(came).unwrap_or(height), samples).ok_or(Refusal::BROKEN)
}

fn reader<'a, P: Parts<'a>>(
    file: Needed<'a, P>,
    memory: u64,
    shapes: Transformations,
    is_unchecked: bool,
) -> Result<Reader<Needed<'a, P>>, Refusal> {
    let limits = Limits { bytes: usize::try_from(memory).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(file, limits);
    decoder.set_transformations(shapes);
    decoder.ignore_checksums(is_unchecked);
    decoder.read_info().map_err(|error| refusal(&error))
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
        _ => Refusal::BROKEN,
    }
}
