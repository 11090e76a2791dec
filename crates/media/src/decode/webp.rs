//! The frames of an animated WebP, drawn onto its canvas as libwebp draws them.
//!
//! What a frame looks like alone is the matter of `image`; it would clear other places than those that frames had.

use image::{DynamicImage, RgbaImage, codecs::webp::WebPDecoder};

use super::{
    Refusal,
    header::{Chunks, Header, little24},
    joined::Joined,
    still::{pixels, refusal},
};
use crate::fingerprint::reason;

const BROKEN: Refusal = Refusal::Undecodable(reason::BROKEN);

/// Shows the canvas after each frame for as long as more are wanted.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    memory: u64,
    see: &mut dyn FnMut(&RgbaImage) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let mut canvas = Canvas {
        picture: RgbaImage::new(header.width, header.height),
        is_clear: true,
        left_by: Area::default(),
    };
    for (kind, content, _) in Chunks(bytes.get(12..).unwrap_or_default()) {
        if kind == b"ANMF" {
            let frame = Frame::read(content, header).ok_or(BROKEN)?;
            let was_clear = canvas.is_clear;
            canvas.draw(&frame, &frame.picture(header, memory)?);
            if !see(&canvas.picture)? {
                break;
            }
            if frame.is_disposed_of {
                canvas.clear(frame.area);
                canvas.is_clear |= was_clear;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Area {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl Area {
    fn has(self, x: u32, y: u32) -> bool {
        (self.x..self.x + self.width).contains(&x) && (self.y..self.y + self.height).contains(&y)
    }
}

struct Canvas {
    picture: RgbaImage,
    /// Nothing is left on it.
    is_clear: bool,
    /// Where the last frame was disposed of.
    left_by: Area,
}

impl Canvas {
    /// Where there is nothing, pixels are taken as they are, with the colours that their alpha hides.
    fn draw(&mut self, frame: &Frame<'_>, picture: &RgbaImage) {
        let all = !frame.is_blended || self.is_clear;
        for (x, y, pixel) in picture.enumerate_pixels() {
            let (x, y) = (x + frame.area.x, y + frame.area.y);
            let under = self.picture.get_pixel_mut(x, y);
            under.0 = if all || self.left_by.has(x, y) { pixel.0 } else { blended(pixel.0, under.0) };
        }
        self.left_by = Area::default();
        self.is_clear = false;
    }

    fn clear(&mut self, area: Area) {
        for y in area.y..area.y + area.height {
            for x in area.x..area.x + area.width {
                self.picture.get_pixel_mut(x, y).0 = [0; 4];
            }
        }
        self.left_by = area;
        self.is_clear = self.picture.dimensions() == (area.width, area.height);
    }
}

/// In libwebp's whole numbers.
#[expect(clippy::cast_possible_truncation, reason = "means of two bytes")]
fn blended(over: [u8; 4], under: [u8; 4]) -> [u8; 4] {
    let alpha = u32::from(over[3]);
    if alpha == 0 {
        return under;
    }
    if alpha == 255 {
        return over;
    }
    let left = (u32::from(under[3]) * (256 - alpha)) >> 8;
    let scale = (1 << 24) / (alpha + left);
    let mix = |at: usize| {
        let sum = u32::from(over[at]) * alpha + u32::from(under[at]) * left;
        ((sum * scale) >> 24) as u8
    };
    [mix(0), mix(1), mix(2), (alpha + left) as u8]
}

struct Frame<'a> {
    area: Area,
    is_blended: bool,
    is_disposed_of: bool,
    /// Chunks with their heads.
    alpha: Option<&'a [u8]>,
    picture: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Nothing for one that is not within the canvas, or has no picture.
    fn read(content: &'a [u8], header: &Header) -> Option<Self> {
        let number = |at| little24(content, at);
        let area =
            Area { x: 2 * number(0)?, y: 2 * number(3)?, width: number(6)? + 1, height: number(9)? + 1 };
        let flags = *content.get(15)?;
        if area.x + area.width > header.width || area.y + area.height > header.height {
            return None;
        }
        let mut alpha = None;
        for (kind, _, whole) in Chunks(content.get(16..)?) {
            match kind {
                b"ALPH" if alpha.is_none() => alpha = Some(whole),
                b"VP8 " | b"VP8L" => {
                    return Some(Self {
                        area,
                        is_blended: flags & 2 == 0,
                        is_disposed_of: flags & 1 != 0,
                        alpha: alpha.filter(|_| kind == b"VP8 "),
                        picture: whole,
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Decoded as a file of its own.
    fn picture(&self, header: &Header, memory: u64) -> Result<RgbaImage, Refusal> {
        const HEAD: usize = 30;
        let Area { width, height, .. } = self.area;
        let length = (HEAD - 8 + self.alpha.map_or(0, <[u8]>::len) + self.picture.len()) as u64;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(b"RIFF");
        head[4..8].copy_from_slice(&length);
        head[8..20].copy_from_slice(b"WEBPVP8X\x0a\0\0\0");
        head[20] = 0x10;
        head[24..27].copy_from_slice(&(width - 1).to_le_bytes()[..3]);
        head[27..].copy_from_slice(&(height - 1).to_le_bytes()[..3]);
        // Alpha is told by the head only if it is apart.
        let head = if self.alpha.is_some() { &head[..] } else { &head[..12] };
        let file = Joined::new([head, self.alpha.unwrap_or_default(), self.picture]);
        let picture = WebPDecoder::new(file).and_then(|decoder| pixels(decoder, header, memory));
        let picture = picture.map(DynamicImage::into_rgba8).map_err(|error| refusal(&error))?;
        Some(picture).filter(|picture| picture.dimensions() == (width, height)).ok_or(BROKEN)
    }
}
