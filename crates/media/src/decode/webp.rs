//! The frames of an animated WebP, drawn onto its canvas as libwebp draws them.
//!
//! What a frame looks like alone is the matter of `image`; it would clear other places than those that frames had.

use image::{DynamicImage, RgbaImage, codecs::webp::WebPDecoder};

use super::{
    Refusal,
    canvas::{After, Area, Canvas, Placed},
    header::{Chunks, Header, LEAST, little24},
    joined::Joined,
    still::{pixels, refusal},
    vp8l::{self, Codes, Place},
};

/// What the codes of a file's pictures without loss cost: memory of the one that takes most of it, and the time of all
/// that is above the time of their pixels. Whatever `image-webp` may come to decode is among them, and no frame that the
/// header did not count: of a still picture, too, it knows the first one.
pub(super) fn codes(bytes: &[u8], header: &Header, most: Codes) -> Codes {
    let counted = (u64::from(header.width) * u64::from(header.height)).max(LEAST);
    let has_more = bytes.get(12..16) == Some(b"VP8X");
    let chunks = Chunks(bytes.get(12..).unwrap_or_default()).take(if has_more { usize::MAX } else { 1 });
    let (mut all, mut stills, mut frames) = (Codes::default(), 1, header.frames.max(1));
    for (kind, content, _) in chunks {
        let codes = match kind {
            b"VP8L" if stills > 0 => {
                stills -= 1;
                vp8l::codes(content, Place::Chunk, (header.width, header.height), most.bytes)
            }
            b"ANMF" if frames > 0 => {
                frames -= 1;
                codes_of_frame(content, header, most.bytes).unwrap_or_default()
            }
            _ => continue,
        };
        all.bytes = all.bytes.max(codes.bytes);
        all.pixels = all.pixels.saturating_add(codes.pixels.saturating_sub(counted));
        if all.bytes > most.bytes || all.pixels > most.pixels {
            break;
        }
    }
    all
}

/// What is larger than the canvas is not decoded. A picture may have another size than its frame.
fn codes_of_frame(content: &[u8], header: &Header, most: u64) -> Option<Codes> {
    let canvas = (header.width, header.height);
    let size = (little24(content, 6)? + 1, little24(content, 9)? + 1);
    let (parts, is_within) = (content.get(16..)?, size.0 <= canvas.0 && size.1 <= canvas.1);
    let of =
        |wanted: &[u8; 4]| Chunks(parts).find(|(kind, ..)| *kind == wanted).map(|(_, content, _)| content);
    let picture =
        of(b"VP8L").map(|content| vp8l::codes(content, Place::Chunk, canvas, most)).unwrap_or_default();
    let alpha = match of(b"ALPH") {
        Some([how, content @ ..]) if how & 3 == 1 && is_within => {
            vp8l::codes(content, Place::Alpha, size, most)
        }
        _ => Codes::default(),
    };
    Some(Codes { bytes: picture.bytes.max(alpha.bytes), pixels: picture.pixels + alpha.pixels })
}

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
