//! The frames of an animated WebP, drawn onto its canvas as libwebp draws them.
//!
//! What a frame looks like alone is the matter of `image`; it would clear other places than those that frames had.

use image::{DynamicImage, RgbaImage, codecs::webp::WebPDecoder};

use super::{
    Refusal,
    canvas::{After, Area, Canvas, Placed},
    header::{Chunks, Header, little24},
    joined::Joined,
    still::{pixels, refusal},
};

/// Shows the canvas after each frame for as long as more are wanted.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    memory: u64,
    see: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let mut canvas = Canvas::new(header.width, header.height);
    let chunks = Chunks(bytes.get(12..).unwrap_or_default());
    for (nth, (_, content, _)) in (0..).zip(chunks.filter(|(kind, ..)| *kind == b"ANMF")) {
        let frame = Frame::read(content, header).ok_or(Refusal::BROKEN)?;
        if !canvas.show(nth, frame.placed, Some(frame.picture(header, memory)?), see)? {
            break;
        }
    }
    Ok(())
}

struct Frame<'a> {
    placed: Placed,
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
        let after = if flags & 1 == 0 { After::Stays } else { After::Cleared };
        let placed = Placed { area, is_blended: flags & 2 == 0, after };
        if !area.is_within(header.width, header.height) {
            return None;
        }
        let mut alpha = None;
        for (kind, _, whole) in Chunks(content.get(16..)?) {
            match kind {
                b"ALPH" if alpha.is_none() => alpha = Some(whole),
                b"VP8 " | b"VP8L" => {
                    return Some(Self { placed, alpha: alpha.filter(|_| kind == b"VP8 "), picture: whole });
                }
                _ => {}
            }
        }
        None
    }

    /// Decoded as a file of its own.
    fn picture(&self, header: &Header, memory: u64) -> Result<RgbaImage, Refusal> {
        const HEAD: usize = 30;
        let Area { width, height, .. } = self.placed.area;
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
        Some(picture).filter(|picture| picture.dimensions() == (width, height)).ok_or(Refusal::BROKEN)
    }
}
