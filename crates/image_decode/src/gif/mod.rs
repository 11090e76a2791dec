//! GIF: decodes the first picture or the frames of an animation row by row, so that a truncated file loses only its missing
//! rows.

pub(super) mod header;

use std::{io::Read, ops::Range};

use gif::{ColorOutput, DecodeOptions, Decoder};
use image::RgbaImage;

use self::header::{colour_table_length, encode_screen_size, end_of_blocks};
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
/// Start of a frame's control extension, which has one block of four bytes.
const CONTROL: &[u8] = &[EXTENSION, 0xf9, 4];

/// Decodes the first picture. Missing rows and uncovered areas are black.
pub(super) fn luma(bytes: &[u8], header: &Header) -> Result<Vec<u8>, DecodeError> {
    let screen = encode_screen_size(header);
    let mut first_frame = FirstFrame::open(PartsReader::new(Blocks::new(bytes, &screen)))?;
    let [left, top, width, height] = first_frame.area;
    let (canvas_width, canvas_height) = (header.width as usize, header.height as usize);
    // The decoder reads the area separately from the header; rows outside of the buffer would panic.
    if left + width > canvas_width || top + height > canvas_height {
        return Err(DecodeError::BROKEN);
    }
    let mut samples = vec![0; canvas_width * canvas_height];
    let has_rows = first_frame.for_each_row(|shown_rows, row| {
        let row = luma::of_pixels(row, |[r, g, b, _]| luma::of_rgb(r, g, b));
        for at in shown_rows {
            samples[(top + at) * canvas_width + left..][..width].copy_from_slice(&row);
        }
    });
    if has_rows { Ok(samples) } else { Err(DecodeError::BROKEN) }
}

/// Shows the canvas after each frame until `show` returns false.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    show: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    let screen = encode_screen_size(header);
    let mut blocks = Blocks::new(bytes, &screen);
    let [signature, screen, colours] = [blocks.next(), blocks.next(), blocks.next()];
    let mut canvas = Canvas::new(header.width, header.height);
    let (mut control, mut index): (&[u8], _) = (&[], 0);
    loop {
        match blocks.next() {
            part @ [EXTENSION, ..] => control = part,
            part @ [FRAME, ..] => {
                let Some(placement) = read_placement(part, control, header) else { return Ok(()) };
                let file = SplicedReader::new([signature, screen, colours, control, part, blocks.end]);
                if !canvas.play_frame(index, placement, decode_frame(file, placement.area), show)? {
                    return Ok(());
                }
                // A control extension applies only to the frame that follows it.
                (control, index) = (&[], index + 1);
            }
            _ => return Ok(()),
        }
    }
}

/// Returns a frame's placement, cut to the canvas.
fn read_placement(frame: &[u8], control: &[u8], header: &Header) -> Option<Placement> {
    let [x, y, width, height] = [le16(frame, 1)?, le16(frame, 3)?, le16(frame, 5)?, le16(frame, 7)?];
    // A hostile frame may start outside of the canvas, where the subtractions would overflow.
    let (x, y) = (x.min(header.width), y.min(header.height));
    let area = Area { x, y, width: width.min(header.width - x), height: height.min(header.height - y) };
    let disposal = match control.get(3).map_or(0, |flags| flags >> 2 & 7) {
        2 => Disposal::Clear,
        3 => Disposal::Restore,
        _ => Disposal::Keep,
    };
    Some(Placement { area, is_blended: true, disposal })
}

/// Decodes a frame with at least one row. Missing and transparent pixels are transparent black.
fn decode_frame(file: impl Read, Area { width, height, .. }: Area) -> Option<RgbaImage> {
    let (stride, row_count) = (4 * width as usize, height as usize);
    let mut samples = vec![0; stride * row_count];
    let has_rows = FirstFrame::open(file).ok()?.for_each_row(|shown_rows, row| {
        let pixels = row.as_chunks_mut::<4>().0.iter_mut();
        // An empty canvas takes pixels unchanged, and luma ignores alpha: the hidden palette colour would be hashed.
        pixels.filter(|pixel| pixel[3] == 0).for_each(|pixel| *pixel = [0; 4]);
        for at in shown_rows.filter(|at| *at < row_count) {
            samples[at * stride..][..stride].copy_from_slice(&row[..stride]);
        }
    });
    RgbaImage::from_raw(width, height, samples).filter(|_| has_rows)
}

/// Reader of the first frame of a file.
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

    /// Calls `on_row` with each decoded row and the range of rows to show it in. Returns true if there was at least one.
    fn for_each_row(&mut self, mut on_row: impl FnMut(Range<usize>, &mut [u8])) -> bool {
        let [_, _, width, height] = self.area;
        let (mut row, mut has_rows) = (vec![0; 4 * width], false);
        for (at, repetitions) in order_rows(height, self.is_interlaced) {
            row.fill(0);
            if !self.decoder.fill_buffer(&mut row).unwrap_or(false) {
                break;
            }
            on_row(at..height.min(at + repetitions), &mut row);
            has_rows = true;
        }
        has_rows
    }
}

/// Returns the position of each row, and the number of rows to fill with it until later passes arrive, as browsers do.
fn order_rows(height: usize, is_interlaced: bool) -> impl Iterator<Item = (usize, usize)> {
    let passes: &[_] =
        if is_interlaced { &[(0, 8, 8), (4, 8, 4), (2, 4, 2), (1, 2, 1)] } else { &[(0, 1, 1)] };
    passes.iter().flat_map(move |(first, step, repetitions)| {
        (*first..height).step_by(*step).map(move |at| (at, *repetitions))
    })
}

/// Blocks of a file up to its end or to the first invalid byte. Replaces the screen size, and omits extensions other than
/// frame control, because they can make the decoder allocate memory or fail where viewers do not.
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
            let remaining_bytes = self.bytes.get(self.at..).unwrap_or_default();
            let (is_needed, end) = match (self.at, remaining_bytes) {
                (0, _) => (true, 6),
                (6, _) => {
                    self.at = 10;
                    return self.screen;
                }
                (10, [flags, ..]) => (true, 13 + colour_table_length(*flags)),
                (_, [EXTENSION, ..]) => (
                    remaining_bytes.starts_with(CONTROL) && remaining_bytes.get(7) == Some(&0),
                    end_of_blocks(self.bytes, self.at + 2),
                ),
                (_, [FRAME, ..]) => {
                    let flags = remaining_bytes.get(9).copied().unwrap_or_default();
                    (true, end_of_blocks(self.bytes, self.at + 11 + colour_table_length(flags)))
                }
                (_, [0, ..]) => (false, self.at + 1),
                _ => {
                    self.at = self.bytes.len();
                    return std::mem::take(&mut self.end);
                }
            };
            let part = self.bytes.get(self.at..end).unwrap_or(remaining_bytes);
            // A truncated part gets no end marker, so that the decoder still returns its complete rows.
            self.end = if end > self.bytes.len() { &[] } else { self.end };
            self.at = end;
            if is_needed && !part.is_empty() {
                return part;
            }
        }
    }
}
