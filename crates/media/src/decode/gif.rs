//! The first picture of a GIF file and the frames of an animation, row by row: what is missing costs no more than the
//! rows that it held.
//!
//! What is left of a frame is the canvas' matter.

use std::{io::Read, ops::Range};

use gif::{ColorOutput, DecodeOptions, Decoder};
use image::RgbaImage;

use super::{
    Refusal,
    canvas::{After, Area, Canvas, Placed},
    header::{Header, after_blocks, little16, table},
    joined::Joined,
    luma,
    needed::{Needed, Parts},
};

const EXTENSION: u8 = 0x21;
const FRAME: u8 = 0x2c;
const END: &[u8] = &[0x3b];
/// How a frame's control begins: it has four bytes in one block.
const CONTROL: &[u8] = &[EXTENSION, 0xf9, 4];

/// Rows that did not come are black, as everything is that nothing was drawn on.
pub(super) fn luma(bytes: &[u8], header: &Header) -> Result<Vec<u8>, Refusal> {
    let screen = header.screen();
    let mut first = First::of(Needed::new(Blocks::new(bytes, &screen)))?;
    let [left, top, width, height] = first.place;
    let (across, down) = (header.width as usize, header.height as usize);
    if left + width > across || top + height > down {
        return Err(Refusal::BROKEN);
    }
    let mut samples = vec![0; across * down];
    let came = first.each_row(|places, row| {
        let shown = luma::of_pixels(row, |[r, g, b, _]| luma::of_rgb(r, g, b));
        for at in places {
            samples[(top + at) * across + left..][..width].copy_from_slice(&shown);
        }
    });
    if came { Ok(samples) } else { Err(Refusal::BROKEN) }
}

/// Shows the canvas after each frame for as long as more are wanted.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    see: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let screen = header.screen();
    let mut blocks = Blocks::new(bytes, &screen);
    let [signature, screen, colours] = [blocks.next(), blocks.next(), blocks.next()];
    let mut canvas = Canvas::new(header.width, header.height);
    let (mut control, mut nth): (&[u8], _) = (&[], 0);
    loop {
        match blocks.next() {
            part @ [EXTENSION, ..] => control = part,
            part @ [FRAME, ..] => {
                let Some(placed) = placed(part, control, header) else { return Ok(()) };
                let file = Joined::new([signature, screen, colours, control, part, blocks.end]);
                if !canvas.show(nth, placed, picture(file, placed.area), see)? {
                    return Ok(());
                }
                (control, nth) = (&[], nth + 1);
            }
            _ => return Ok(()),
        }
    }
}

/// Where a frame is on the canvas: what is beyond it is not shown.
fn placed(frame: &[u8], control: &[u8], header: &Header) -> Option<Placed> {
    let [x, y, width, height] =
        [little16(frame, 1)?, little16(frame, 3)?, little16(frame, 5)?, little16(frame, 7)?];
    let (x, y) = (x.min(header.width), y.min(header.height));
    let area = Area { x, y, width: width.min(header.width - x), height: height.min(header.height - y) };
    let after = match control.get(3).map_or(0, |flags| flags >> 2 & 7) {
        2 => After::Cleared,
        3 => After::Undone,
        _ => After::Stays,
    };
    Some(Placed { area, is_blended: true, after })
}

/// What came of a frame, if a row did. Pixels that did not, and those that one looks through, have no colour.
fn picture(file: impl Read, Area { width, height, .. }: Area) -> Option<RgbaImage> {
    let (stride, down) = (4 * width as usize, height as usize);
    let mut samples = vec![0; stride * down];
    let came = First::of(file).ok()?.each_row(|places, row| {
        let pixels = row.as_chunks_mut::<4>().0.iter_mut();
        pixels.filter(|pixel| pixel[3] == 0).for_each(|pixel| *pixel = [0; 4]);
        for at in places.filter(|at| *at < down) {
            samples[at * stride..][..stride].copy_from_slice(&row[..stride]);
        }
    });
    RgbaImage::from_raw(width, height, samples).filter(|_| came)
}

/// A file of which the first frame is to be read.
struct First<R: Read> {
    decoder: Decoder<R>,
    /// From the left and the top, and its sides.
    place: [usize; 4],
    is_interlaced: bool,
}

impl<R: Read> First<R> {
    fn of(file: R) -> Result<Self, Refusal> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::RGBA);
        let mut decoder = options.read_info(file).map_err(|_| Refusal::BROKEN)?;
        let frame = decoder.next_frame_info().ok().flatten().ok_or(Refusal::BROKEN)?;
        let place = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
        let is_interlaced = frame.interlaced;
        Ok(Self { decoder, place, is_interlaced })
    }

    /// Rows as they come, with the places where they are shown. Whether any came.
    fn each_row(&mut self, mut each: impl FnMut(Range<usize>, &mut [u8])) -> bool {
        let [_, _, width, height] = self.place;
        let (mut row, mut came) = (vec![0; 4 * width], false);
        for (at, repeated) in order(height, self.is_interlaced) {
            row.fill(0);
            if !self.decoder.fill_buffer(&mut row).unwrap_or(false) {
                break;
            }
            each(at..height.min(at + repeated), &mut row);
            came = true;
        }
        came
    }
}

/// Where each row belongs, and in how many rows it is shown until others come, as in browsers.
fn order(height: usize, is_interlaced: bool) -> impl Iterator<Item = (usize, usize)> {
    let passes: &[_] =
        if is_interlaced { &[(0, 8, 8), (4, 8, 4), (2, 4, 2), (1, 2, 1)] } else { &[(0, 1, 1)] };
    passes.iter().flat_map(move |(first, step, repeated)| {
        (*first..height).step_by(*step).map(move |at| (at, *repeated))
    })
}

/// A file up to its end, or to what is no part of a GIF; with another size of its screen, and without extensions, any of
/// which can ask for memory or break a rule that no viewer minds, but for the control of frames.
pub(super) struct Blocks<'a> {
    bytes: &'a [u8],
    screen: &'a [u8],
    /// Where the next part is.
    at: usize,
    end: &'static [u8],
}

impl<'a> Blocks<'a> {
    pub(super) fn new(bytes: &'a [u8], screen: &'a [u8; 4]) -> Self {
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
                (10, [flags, ..]) => (true, 13 + table(*flags)),
                (_, [EXTENSION, ..]) => (
                    rest.starts_with(CONTROL) && rest.get(7) == Some(&0),
                    after_blocks(self.bytes, self.at + 2),
                ),
                (_, [FRAME, ..]) => {
                    let flags = rest.get(9).copied().unwrap_or_default();
                    (true, after_blocks(self.bytes, self.at + 11 + table(flags)))
                }
                (_, [0, ..]) => (false, self.at + 1),
                _ => {
                    self.at = self.bytes.len();
                    return std::mem::take(&mut self.end);
                }
            };
            let part = self.bytes.get(self.at..end).unwrap_or(rest);
            // What is cut has no end.
            self.end = if end > self.bytes.len() { &[] } else { self.end };
            self.at = end;
            if is_needed && !part.is_empty() {
                return part;
            }
        }
    }
}
