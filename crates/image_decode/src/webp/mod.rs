//! WebP: computes the cost of lossless prefix codes, then decodes the picture or the frames of an animation.
//!
//! `image` decodes each frame as a separate file, and `Canvas` composes them, because `image` clears other areas between
//! frames than libwebp.

pub(super) mod header;
mod vp8l;

use image::{DynamicImage, RgbaImage, codecs::webp::WebPDecoder};

use self::header::{Chunks, flags_without_alpha};
pub(super) use self::vp8l::CodeCost;
use self::vp8l::StreamKind;
use super::{
    DecodeError,
    canvas::{Area, Canvas, Disposal, Placement},
    header::{Header, MIN_FRAME_PIXELS},
    image_decoder,
    read_int::le24,
    spliced_reader::SplicedReader,
};

pub(super) fn decode(bytes: &[u8], header: &Header, memory: u64) -> Result<DynamicImage, DecodeError> {
    let flags = flags_without_alpha(bytes);
    let file = SplicedReader::with_patch(bytes, 20, flags.as_slice());
    Ok(image_decoder::decode(WebPDecoder::new(file)?, header, memory)?)
}

/// Returns the cost of the prefix codes of all lossless pictures of a file: the largest memory of one picture, and the
/// total time in excess of the time for the pixels. Covers every picture that `image-webp` may decode, and only frames
/// counted in the header.
pub(super) fn code_cost(bytes: &[u8], header: &Header, max: CodeCost) -> CodeCost {
    let counted_pixels = header.canvas_pixels().max(MIN_FRAME_PIXELS);
    let is_extended = bytes.get(12..16) == Some(b"VP8X");
    let chunks = Chunks(bytes.get(12..).unwrap_or_default()).take(if is_extended { usize::MAX } else { 1 });
    let (mut total_cost, mut stills, mut frames) = (CodeCost::default(), 1, header.frames.max(1));
    for (kind, content, _) in chunks {
        let cost = match kind {
            b"VP8L" if stills > 0 => {
                stills -= 1;
                vp8l::code_cost(content, StreamKind::Chunk, (header.width, header.height), max.bytes)
            }
            b"ANMF" if frames > 0 => {
                frames -= 1;
                frame_code_cost(content, header, max.bytes).unwrap_or_default()
            }
            _ => continue,
        };
        total_cost.bytes = total_cost.bytes.max(cost.bytes);
        total_cost.pixels = total_cost.pixels.saturating_add(cost.pixels.saturating_sub(counted_pixels));
        // The file is refused in any case, so reading further codes would only cost time.
        if total_cost.bytes > max.bytes || total_cost.pixels > max.pixels {
            break;
        }
    }
    total_cost
}

/// Returns the cost of one frame. The size of its picture may differ from the frame's. Pictures larger than the canvas are
/// never decoded and cost 0.
fn frame_code_cost(content: &[u8], header: &Header, max_bytes: u64) -> Option<CodeCost> {
    let canvas = (header.width, header.height);
    let size = (le24(content, 6)? + 1, le24(content, 9)? + 1);
    let (parts, is_within) = (content.get(16..)?, size.0 <= canvas.0 && size.1 <= canvas.1);
    let find_chunk = |wanted_kind: &[u8; 4]| {
        Chunks(parts).find(|(kind, ..)| *kind == wanted_kind).map(|(_, content, _)| content)
    };
    let lossless = find_chunk(b"VP8L");
    let picture = lossless.map(|content| vp8l::code_cost(content, StreamKind::Chunk, canvas, max_bytes));
    let picture = picture.unwrap_or_default();
    let alpha = match find_chunk(b"ALPH") {
        Some([method, content @ ..]) if method & 3 == 1 && is_within => {
            vp8l::code_cost(content, StreamKind::Alpha, size, max_bytes)
        }
        _ => CodeCost::default(),
    };
    Some(CodeCost { bytes: picture.bytes.max(alpha.bytes), pixels: picture.pixels + alpha.pixels })
}

/// Shows the canvas after each frame until `show` returns false.
pub(super) fn play(
    bytes: &[u8],
    header: &Header,
    memory: u64,
    show: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    let mut canvas = Canvas::new(header.width, header.height);
    let chunks = Chunks(bytes.get(12..).unwrap_or_default());
    for (index, (_, content, _)) in (0..).zip(chunks.filter(|(kind, ..)| *kind == b"ANMF")) {
        let frame = Frame::read(content, header).ok_or(DecodeError::BROKEN)?;
        if !canvas.play_frame(index, frame.placement, Some(frame.picture(header, memory)?), show)? {
            break;
        }
    }
    Ok(())
}

struct Frame<'a> {
    placement: Placement,
    /// The alpha chunk, including its header.
    alpha: Option<&'a [u8]>,
    /// The picture chunk, including its header.
    picture: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame; `None` if it exceeds the canvas or has no picture.
    fn read(content: &'a [u8], header: &Header) -> Option<Self> {
        let field = |at| le24(content, at);
        let area = Area { x: 2 * field(0)?, y: 2 * field(3)?, width: field(6)? + 1, height: field(9)? + 1 };
        let flags = *content.get(15)?;
        let disposal = if flags & 1 == 0 { Disposal::Keep } else { Disposal::Clear };
        let placement = Placement { area, is_blended: flags & 2 == 0, disposal };
        if !area.is_within(header.width, header.height) {
            return None;
        }
        let mut alpha = None;
        for (kind, _, whole_chunk) in Chunks(content.get(16..)?) {
            match kind {
                // Only the first alpha chunk counts.
                b"ALPH" if alpha.is_none() => alpha = Some(whole_chunk),
                b"VP8 " | b"VP8L" => {
                    // A lossless picture contains its own alpha.
                    let alpha = alpha.filter(|_| kind == b"VP8 ");
                    return Some(Self { placement, alpha, picture: whole_chunk });
                }
                _ => {}
            }
        }
        None
    }

    /// Decodes the frame as a separate file.
    fn picture(&self, header: &Header, memory: u64) -> Result<RgbaImage, DecodeError> {
        const HEAD: usize = 30;
        let Area { width, height, .. } = self.placement.area;
        let length = (HEAD - 8 + self.alpha.map_or(0, <[u8]>::len) + self.picture.len()) as u64;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(b"RIFF");
        head[4..8].copy_from_slice(&length);
        head[8..20].copy_from_slice(b"WEBPVP8X\x0a\0\0\0");
        head[20] = 0x10;
        head[24..27].copy_from_slice(&(width - 1).to_le_bytes()[..3]);
        head[27..].copy_from_slice(&(height - 1).to_le_bytes()[..3]);
        // Only a separate alpha chunk needs the extended header.
        let head = if self.alpha.is_some() { &head[..] } else { &head[..12] };
        let file = SplicedReader::new([head, self.alpha.unwrap_or_default(), self.picture]);
        let picture = image_decoder::decode(WebPDecoder::new(file)?, header, memory)?.into_rgba8();
        Some(picture).filter(|picture| picture.dimensions() == (width, height)).ok_or(DecodeError::BROKEN)
    }
}
