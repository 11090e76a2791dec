//! PNG: decodes the default picture or the frames of an animation row by row, so that a truncated file loses only its
//! missing rows.

mod apng;
mod essential_chunks;
pub(super) mod header;

use std::{borrow::Cow, cell::Cell};

use image::RgbaImage;
use png::{BitDepth, ColorType, Decoder, DecodingError, InterlaceInfo, Limits, Reader, Transformations};

use self::{
    apng::{Frame, Frames},
    essential_chunks::EssentialChunks,
};
use super::{
    DecodeError,
    canvas::{Area, Canvas},
    header::Header,
    luma,
    parts_reader::{Parts, PartsReader},
};

/// Decodes the default picture. Missing rows are black.
pub(super) fn luma(bytes: &[u8], header: &Header, memory: u64) -> Result<Vec<u8>, DecodeError> {
    let is_over = Cell::new(false);
    let file = PartsReader::new(EssentialChunks::new(bytes)).ending_with(&is_over);
    let mut reader = open_reader(file, memory, Transformations::EXPAND, false)?;
    // The limits were checked against the header, so the decoder must have read the same size.
    if reader.info().size() != (header.width, header.height) {
        return Err(DecodeError::BROKEN);
    }
    let width = header.width as usize;
    let mut samples = vec![0; width * header.height as usize];
    for_each_row(&mut reader, &is_over, |nth, row, kind, interlace| {
        let row = convert_row(row, kind).ok_or(DecodeError::UNSUPPORTED)?;
        match interlace {
            InterlaceInfo::Null(_) => samples[nth * width..][..width].copy_from_slice(&row),
            // A pixel of a later pass is filled from the earlier passes until it is read, as in browsers.
            InterlaceInfo::Adam7(pass) => png::splat_interlaced_row(&mut samples, width, &row, &pass, 8),
        }
        Ok(())
    })?;
    Ok(samples)
}

/// Calls `on_row` with each readable row and returns their number. Fails if the first row is unreadable.
fn for_each_row<'a, P: Parts<'a>>(
    reader: &mut Reader<PartsReader<'a, P>>,
    is_over: &Cell<bool>,
    mut on_row: impl FnMut(usize, &[u8], (ColorType, BitDepth), InterlaceInfo) -> Result<(), DecodeError>,
) -> Result<usize, DecodeError> {
    let (kind, (width, _)) = (reader.output_color_type(), reader.info().size());
    let mut row = vec![0; reader.output_line_size(width).ok_or(DecodeError::OUT_OF_MEMORY)?];
    let mut rows = 0;
    loop {
        match reader.read_row(&mut row) {
            Ok(Some(interlace)) => on_row(rows, &row, kind, interlace)?,
            // The decoder holds back rows until the end of the file. The first error ends the file, so that it returns
            // them.
            Err(_) if !is_over.replace(true) => continue,
            Err(error) if rows == 0 => return Err(error.into()),
            Ok(None) | Err(_) => return Ok(rows),
        }
        rows += 1;
    }
}

/// Shows the canvas after each frame until `show` returns false.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    memory: u64,
    show: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    let mut frames = Frames::new(bytes, header);
    let mut canvas = Canvas::new(header.width, header.height);
    let mut has_picture = false;
    for index in 0..header.frames {
        let Some(frame) = frames.next()? else { break };
        // Missing rows leave the canvas unchanged.
        let picture = match decode_frame(&frame, &frames.file_head(&frame), memory) {
            Err(error @ DecodeError::TooLarge(_)) => return Err(error),
            picture => picture.ok(),
        };
        has_picture |= picture.is_some();
        if !canvas.play_frame(index, frame.placement, picture, show)? {
            break;
        }
    }
    if has_picture { Ok(()) } else { Err(DecodeError::BROKEN) }
}

/// Decodes the readable rows of a frame.
fn decode_frame<'a>(frame: &Frame<'a>, head: &'a [u8], memory: u64) -> Result<RgbaImage, DecodeError> {
    let is_over = Cell::new(false);
    let file = PartsReader::new(frame.file(head)).ending_with(&is_over);
    let conversions = Transformations::EXPAND | Transformations::STRIP_16 | Transformations::ALPHA;
    let mut reader = open_reader(file, memory, conversions, true)?;
    let Area { width, height, .. } = frame.placement.area;
    let (stride, row_count) = (4 * width as usize, height as usize);
    let mut samples = vec![0; stride * row_count];
    let mut complete_rows = 0;
    for_each_row(&mut reader, &is_over, |nth, row, kind, interlace| {
        let row = match kind {
            (ColorType::Rgba, BitDepth::Eight) => row.into(),
            (ColorType::GrayscaleAlpha, BitDepth::Eight) => {
                let pixels = row.as_chunks().0.iter();
                pixels.flat_map(|[luma, alpha]| [*luma, *luma, *luma, *alpha]).collect::<Vec<_>>().into()
            }
            _ => return Err(DecodeError::UNSUPPORTED),
        };
        let row: Cow<'_, [u8]> = row;
        match interlace {
            InterlaceInfo::Null(_) => {
                samples[nth * stride..][..stride].copy_from_slice(&row);
                complete_rows = nth + 1;
            }
            // A row of the first pass covers eight rows of the picture.
            InterlaceInfo::Adam7(pass) => {
                png::splat_interlaced_row(&mut samples, stride, &row, &pass, 32);
                complete_rows = row_count.min(complete_rows.max(8 * (nth + 1)));
            }
        }
        Ok(())
    })?;
    samples.truncate(stride * complete_rows);
    RgbaImage::from_raw(width, u32::try_from(complete_rows).unwrap_or(height), samples)
        .ok_or(DecodeError::BROKEN)
}

fn open_reader<'a, P: Parts<'a>>(
    file: PartsReader<'a, P>,
    memory: u64,
    conversions: Transformations,
    ignores_checksums: bool,
) -> Result<Reader<PartsReader<'a, P>>, DecodeError> {
    let limits = Limits { bytes: usize::try_from(memory).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(file, limits);
    decoder.set_transformations(conversions);
    decoder.ignore_checksums(ignores_checksums);
    Ok(decoder.read_info()?)
}

fn convert_row(row: &[u8], kind: (ColorType, BitDepth)) -> Option<Vec<u8>> {
    let sample = |high, low| u16::from_be_bytes([high, low]);
    Some(match kind {
        (ColorType::Grayscale, BitDepth::Eight) => row.to_vec(),
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => luma::of_pixels(row, |[luma, _]| luma),
        (ColorType::Rgb, BitDepth::Eight) => luma::of_pixels(row, |[r, g, b]| luma::of_rgb(r, g, b)),
        (ColorType::Rgba, BitDepth::Eight) => luma::of_pixels(row, |[r, g, b, _]| luma::of_rgb(r, g, b)),
        (ColorType::Grayscale, BitDepth::Sixteen) => {
            luma::of_pixels(row, |[high, low]| luma::of_16(sample(high, low)))
        }
        (ColorType::GrayscaleAlpha, BitDepth::Sixteen) => {
            luma::of_pixels(row, |[high, low, _, _]| luma::of_16(sample(high, low)))
        }
        (ColorType::Rgb, BitDepth::Sixteen) => luma::of_pixels(row, |[r, s, g, h, b, c]| {
            luma::of_rgb16(sample(r, s), sample(g, h), sample(b, c))
        }),
        (ColorType::Rgba, BitDepth::Sixteen) => luma::of_pixels(row, |[r, s, g, h, b, c, _, _]| {
            luma::of_rgb16(sample(r, s), sample(g, h), sample(b, c))
        }),
        _ => return None,
    })
}

impl From<DecodingError> for DecodeError {
    fn from(error: DecodingError) -> Self {
        match error {
            DecodingError::LimitsExceeded => Self::OUT_OF_MEMORY,
            _ => Self::BROKEN,
        }
    }
}
