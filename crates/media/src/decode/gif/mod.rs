//! GIF: decodes the first picture or the frames of an animation row by row, so that missing data costs no more than the
//! rows that it held.

pub(super) mod header;

use std::{io::Read, ops::Range};

use gif::{ColorOutput, DecodeOptions, Decoder};
use image::RgbaImage;

use self::header::{after_blocks, colour_table_length, screen};
use super::{
    DecodeError,
    canvas::{Area, Canvas, Disposal, Placement},
    header::Header,
    luma,
    parts_reader::{Parts, PartsReader},
    read_int::le16,
    spliced_reader::SplicedReader,
};

const EXTENSION: u8 = 0x21;
const FRAME: u8 = 0x2c;
const END: &[u8] = &[0x3b];
/// Beginning of a frame's control extension, which has four bytes in one block.
const CONTROL: &[u8] = &[EXTENSION, 0xf9, 4];

/// Decodes the first picture. Missing rows are black, like everything that nothing was drawn on.
pub(super) fn luma(bytes: &[u8], header: &Header) -> Result<Vec<u8>, DecodeError> {
    let screen = screen(header);
    let mut first = FirstFrame::open(PartsReader::new(Blocks::new(bytes, &screen)))?;
    let [left, top, width, height] = first.area;
    let (across, down) = (header.width as usize, header.height as usize);
    if left + width > across || top + height > down {
        return Err(DecodeError::BROKEN);
    }
    let mut samples = vec![0; across * down];
    let has_rows = first.for_each_row(|shown_at, row| {
        let row = luma::of_pixels(row, |[r, g, b, _]| luma::of_rgb(r, g, b));
        for at in shown_at {
            samples[(top + at) * across + left..][..width].copy_from_slice(&row);
        }
    });
    if has_rows { Ok(samples) } else { Err(DecodeError::BROKEN) }
}

/// Shows the canvas after each frame, for as long as more are wanted.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    show: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    let screen = screen(header);
    let mut blocks = Blocks::new(bytes, &screen);
    let [signature, screen, colours] = [blocks.next(), blocks.next(), blocks.next()];
    let mut canvas = Canvas::new(header.width, header.height);
    let (mut control, mut index): (&[u8], _) = (&[], 0);
    loop {
        match blocks.next() {
            part @ [EXTENSION, ..] => control = part,
            part @ [FRAME, ..] => {
                let Some(placement) = placement(part, control, header) else { return Ok(()) };
                let file = SplicedReader::new([signature, screen, colours, control, part, blocks.end]);
                if !canvas.play_frame(index, placement, picture(file, placement.area), show)? {
                    return Ok(());
                }
                (control, index) = (&[], index + 1);
            }
            _ => return Ok(()),
        }
    }
}

/// Returns a frame's placement, cut to the canvas.
fn placement(frame: &[u8], control: &[u8], header: &Header) -> Option<Placement> {
    let [x, y, width, height] = [le16(frame, 1)?, le16(frame, 3)?, le16(frame, 5)?, le16(frame, 7)?];
    let (x, y) = (x.min(header.width), y.min(header.height));
    let area = Area { x, y, width: width.min(header.width - x), height: height.min(header.height - y) };
    let disposal = match control.get(3).map_or(0, |flags| flags >> 2 & 7) {
        2 => Disposal::Clear,
        3 => Disposal::Restore,
        _ => Disposal::Keep,
    };
    Some(Placement { area, is_blended: true, disposal })
}

/// Decodes a frame, if it has at least one row. Missing and transparent pixels have no colour.
fn picture(file: impl Read, Area { width, height, .. }: Area) -> Option<RgbaImage> {
    let (stride, down) = (4 * width as usize, height as usize);
    let mut samples = vec![0; stride * down];
    let has_rows = FirstFrame::open(file).ok()?.for_each_row(|shown_at, row| {
        let pixels = row.as_chunks_mut::<4>().0.iter_mut();
        pixels.filter(|pixel| pixel[3] == 0).for_each(|pixel| *pixel = [0; 4]);
        for at in shown_at.filter(|at| *at < down) {
            samples[at * stride..][..stride].copy_from_slice(&row[..stride]);
        }
    });
    RgbaImage::from_raw(width, height, samples).filter(|_| has_rows)
}

/// Reads the first frame of a file.
struct FirstFrame<R: Read> {
    decoder: Decoder<R>,
    /// Left, top, width and height.
    area: [usize; 4],
    is_interlaced: bool,
}

impl<R: Read> FirstFrame<R> {
    fn open(file: R) -> Result<Self, DecodeError> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::RGBA);
        let mut decoder = options.read_info(file).map_err(|_| DecodeError::BROKEN)?;
        let frame = decoder.next_frame_info().ok().flatten().ok_or(DecodeError::BROKEN)?;
        let area = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
        let is_interlaced = frame.interlaced;
        Ok(Self { decoder, area, is_interlaced })
    }

    /// Hands out rows with the range of rows where each is shown. Returns true if there was any.
    fn for_each_row(&mut self, mut each: impl FnMut(Range<usize>, &mut [u8])) -> bool {
        let [_, _, width, height] = self.area;
        let (mut row, mut has_rows) = (vec![0; 4 * width], false);
        for (at, repeated) in row_order(height, self.is_interlaced) {
            row.fill(0);
            if !self.decoder.fill_buffer(&mut row).unwrap_or(false) {
                break;
            }
            each(at..height.min(at + repeated), &mut row);
            has_rows = true;
        }
        has_rows
    }
}

/// Returns each row's position, and the number of rows that it fills until later passes replace them, as in browsers.
fn row_order(height: usize, is_interlaced: bool) -> impl Iterator<Item = (usize, usize)> {
    let passes: &[_] =
        if is_interlaced { &[(0, 8, 8), (4, 8, 4), (2, 4, 2), (1, 2, 1)] } else { &[(0, 1, 1)] };
    passes.iter().flat_map(move |(first, step, repeated)| {
        (*first..height).step_by(*step).map(move |at| (at, *repeated))
    })
}

/// The blocks of a file up to its end, or to what is no part of a GIF. The screen gets another size, and extensions are
/// left out except the control of frames: any of them can ask for memory, or break a rule that no viewer minds.
struct Blocks<'a> {
    bytes: &'a [u8],
    screen: &'a [u8],
    /// Offset of the next part.
    at: usize,
    end: &'static [u8],
}

impl<'a> Blocks<'a> {
    fn new(bytes: &'a [u8], screen: &'a [u8; 4]) -> Self {
        Self { bytes, screen, at: 0, end: END }
    }
}

impl<'a> Parts<'a> for Blocks<'a> {
    fn next(&mut self) -> &'a [u8] {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let (is_needed, end) = match (self.at, rest) {
                (0, _) => (true, 6),
                (6, _) => {
                    self.at = 10;
                    return self.screen;
                }
                (10, [flags, ..]) => (true, 13 + colour_table_length(*flags)),
                (_, [EXTENSION, ..]) => (
                    rest.starts_with(CONTROL) && rest.get(7) == Some(&0),
                    after_blocks(self.bytes, self.at + 2),
                ),
                (_, [FRAME, ..]) => {
                    let flags = rest.get(9).copied().unwrap_or_default();
                    (true, after_blocks(self.bytes, self.at + 11 + colour_table_length(flags)))
                }
                (_, [0, ..]) => (false, self.at + 1),
                _ => {
                    self.at = self.bytes.len();
                    return std::mem::take(&mut self.end);
                }
            };
            let part = self.bytes.get(self.at..end).unwrap_or(rest);
            // A part that is cut off is followed by no end marker.
            self.end = if end > self.bytes.len() { &[] } else { self.end };
            self.at = end;
            if is_needed && !part.is_empty() {
                return part;
            }
        }
    }
}
