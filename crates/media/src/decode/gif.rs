//! A GIF file without what its frames do not need, and its first frame, row by row: what is missing at a file's end costs
//! no more than the rows that it held.

use gif::{ColorOutput, DecodeOptions};

use super::{
    Refusal,
    header::{Header, after_blocks, table},
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
    let (screen, mut options) = (header.screen(), DecodeOptions::new());
    options.set_color_output(ColorOutput::RGBA);
    let mut decoder =
        options.read_info(Needed::new(Blocks::new(bytes, &screen))).map_err(|_| Refusal::BROKEN)?;
    let frame = decoder.next_frame_info().ok().flatten().ok_or(Refusal::BROKEN)?;
    let place = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
    let (is_interlaced, [left, top, width, height]) = (frame.interlaced, place);
    let (across, down) = (header.width as usize, header.height as usize);
    if left + width > across || top + height > down {
        return Err(Refusal::BROKEN);
    }
    let (mut row, mut samples) = (vec![0; 4 * width], vec![0; across * down]);
    let mut rows = 0;
    for (at, repeated) in order(height, is_interlaced) {
        row.fill(0);
        if !decoder.fill_buffer(&mut row).unwrap_or(false) {
            break;
        }
        let shown = luma::of_pixels(&row, |[r, g, b, _]| luma::of_rgb(r, g, b));
        for at in at..height.min(at + repeated) {
            samples[(top + at) * across + left..][..width].copy_from_slice(&shown);
        }
        rows += 1;
    }
    if rows == 0 { Err(Refusal::BROKEN) } else { Ok(samples) }
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
