//! The default picture of a PNG file, row by row: what is missing at a file's end costs no more than the rows that it
//! held; and the frames of an animated one.
//!
//! What is left of a frame is the canvas' matter.

use std::cell::Cell;

use image::RgbaImage;
use png::{
    BitDepth, BlendOp, ColorType, Decoder, DecodingError, DisposeOp, InterlaceInfo, Limits, Reader,
    Transformations,
};

use super::{
    Refusal,
    canvas::{After, Area, Canvas, Placed},
    header::Header,
    luma,
    needed::Needed,
    png_chunks::{Chunks, Shown},
};
use crate::fingerprint::reason;

/// Rows that did not come are black, as everything is that nothing was drawn on.
pub(super) fn luma(bytes: &[u8], header: &Header, memory: u64) -> Result<Vec<u8>, Refusal> {
    let is_over = Cell::new(false);
    let file = Needed::new(Chunks::new(bytes, Shown::Still)).until(&is_over);
    let mut reader = reader(file, memory, Transformations::EXPAND)?;
    let (width, height) = (header.width as usize, header.height as usize);
    if reader.info().size() != (header.width, header.height) {
        return Err(Refusal::BROKEN);
    }
    let kind = reader.output_color_type();
    let line = reader.output_line_size(header.width).ok_or(Refusal::TooLarge(reason::MEMORY))?;
    let (mut row, mut samples) = (vec![0; line], vec![0; width * height]);
    let mut rows = 0;
    loop {
        let interlace = match reader.read_row(&mut row) {
            Ok(Some(interlace)) => interlace,
            // Of what is faulty, only a file's end gives out the rows that were held back.
            Err(_) if !is_over.replace(true) => continue,
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

/// Shows the canvas after each frame for as long as more are wanted.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    memory: u64,
    see: &mut dyn FnMut(&RgbaImage) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let shapes = Transformations::EXPAND | Transformations::STRIP_16 | Transformations::ALPHA;
    let mut reader = reader(Needed::new(Chunks::new(bytes, Shown::Animation)), memory, shapes)?;
    if reader.info().size() != (header.width, header.height) {
        return Err(Refusal::BROKEN);
    }
    if header.is_default_apart {
        reader.next_frame_info().map_err(|error| refusal(&error))?;
    }
    let mut canvas = Canvas::new(header.width, header.height);
    let mut buffer = vec![0; reader.output_buffer_size().ok_or(Refusal::TooLarge(reason::MEMORY))?];
    for nth in 0..header.frames {
        let about = reader.next_frame(&mut buffer).map_err(|error| refusal(&error))?;
        let frame = reader.info().frame_control().ok_or(Refusal::BROKEN)?;
        let area = Area { x: frame.x_offset, y: frame.y_offset, width: frame.width, height: frame.height };
        let after = match frame.dispose_op {
            DisposeOp::None => After::Stays,
            // Before the first there is nothing.
            DisposeOp::Previous if nth > 0 => After::Undone,
            DisposeOp::Background | DisposeOp::Previous => After::Cleared,
        };
        let placed = Placed { area, is_blended: frame.blend_op == BlendOp::Over, after };
        let samples = &buffer[..about.buffer_size()];
        let samples = match (about.color_type, about.bit_depth) {
            (ColorType::Rgba, BitDepth::Eight) => samples.to_vec(),
            (ColorType::GrayscaleAlpha, BitDepth::Eight) => {
                samples.as_chunks().0.iter().flat_map(|[luma, alpha]| [*luma, *luma, *luma, *alpha]).collect()
            }
            _ => return Err(Refusal::Undecodable(reason::UNSUPPORTED)),
        };
        let picture = RgbaImage::from_raw(area.width, area.height, samples).ok_or(Refusal::BROKEN)?;
        if !area.is_within(header.width, header.height) {
            return Err(Refusal::BROKEN);
        }
        canvas.draw(placed, &picture);
        drop(picture);
        if !see(canvas.picture())? {
            break;
        }
        canvas.end(placed);
    }
    Ok(())
}

type File<'a> = Needed<'a, Chunks<'a>>;

fn reader(file: File<'_>, memory: u64, shapes: Transformations) -> Result<Reader<File<'_>>, Refusal> {
    let limits = Limits { bytes: usize::try_from(memory).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(file, limits);
    decoder.set_transformations(shapes);
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
