//! What the other formats say of themselves: size, frames, and how many pixels decoding them will make.
//!
//! Not responsible for pixels. The decoders read the same again; this is read first, and allocates nothing.

use std::io::Cursor;

use image::{ImageDecoder as _, codecs::tiff::TiffDecoder};

use super::{Refusal, guard::guarded, still::refusal, tiff::Samples, vp8l::Codes};
use crate::fingerprint::Format;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Bytes of a decoded pixel, at most.
    pub(super) pixel_bytes: u64,
    /// Of an animation; 0 for one picture.
    pub(super) frames: u32,
    /// Pixels of the largest frame or embedded picture. Files may name one larger than the canvas.
    pub(super) largest_frame: u64,
    /// Pixels of all frames, each at least the canvas, which is composed anew for each, and at least `LEAST`.
    pub(super) pixels_of_frames: u64,
    /// What the codes of a WebP take at most while one of its pictures is decoded.
    pub(super) code_bytes: u64,
    /// A picture for those who play no animations is not among the frames.
    pub(super) is_default_apart: bool,
}

/// What a frame counts as, however few pixels it has: a decoder of its own costs as much as up to 2,200 pixels.
pub(super) const LEAST: u64 = 64 * 64;

impl Header {
    pub(super) fn pixels(&self) -> u64 {
        (u64::from(self.width) * u64::from(self.height)).max(self.largest_frame)
    }

    pub(super) fn add_codes(&mut self, codes: Codes) {
        self.code_bytes = codes.bytes;
        self.pixels_of_frames = self.pixels_of_frames.saturating_add(codes.pixels);
    }

    /// Of a GIF, as its bytes say it.
    pub(super) fn screen(&self) -> [u8; 4] {
        let [width, height] = [self.width, self.height].map(|side| u16::try_from(side).unwrap_or(u16::MAX));
        let ([a, b], [c, d]) = (width.to_le_bytes(), height.to_le_bytes());
        [a, b, c, d]
    }

    /// As viewers: the first frame of a GIF is shown as a whole.
    fn enlarge_screen(&mut self, bytes: &[u8], at: usize, width: u32, height: u32) {
        let place = |at| little16(bytes, at).unwrap_or_default();
        self.width = self.width.max(place(at + 1) + width);
        self.height = self.height.max(place(at + 3) + height);
    }

    fn embedded(&mut self, width: u32, height: u32) -> u64 {
        let pixels = u64::from(width) * u64::from(height);
        self.largest_frame = self.largest_frame.max(pixels);
        pixels
    }

    fn frame(&mut self, width: u32, height: u32) {
        let canvas = u64::from(self.width) * u64::from(self.height);
        let frame = self.embedded(width, height);
        self.frames += 1;
        self.pixels_of_frames = self.pixels_of_frames.saturating_add(canvas.max(frame).max(LEAST));
    }
}

pub(super) fn read(bytes: &[u8], format: Format) -> Result<Header, Refusal> {
    let header = match format {
        Format::Png => png(bytes),
        Format::Gif => gif(bytes),
        Format::WebP => webp(bytes),
        Format::Bmp => bmp(bytes),
        Format::Tiff => return tiff(bytes),
        Format::Jpeg => None,
    };
    header.ok_or(Refusal::BROKEN)
}

pub(super) fn big(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn big16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

fn little(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn little16(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

pub(super) fn little24(bytes: &[u8], at: usize) -> Option<u32> {
    let three: [u8; 3] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes([three[0], three[1], three[2], 0]))
}

/// Bytes of a frame's control in a PNG.
const CONTROL: usize = 26;

fn png(bytes: &[u8]) -> Option<Header> {
    if bytes.get(8..16)? != b"\0\0\0\x0dIHDR" {
        return None;
    }
    let depth = if *bytes.get(24)? == 16 { 2 } else { 1 };
    let channels = if matches!(bytes.get(25)?, 0 | 4) { 2 } else { 4 };
    let mut header = Header {
        width: big(bytes, 16)?,
        height: big(bytes, 20)?,
        pixel_bytes: channels * depth,
        ..Header::default()
    };
    let (mut at, mut most, mut has_pixels) = (8, None, false);
    while let (Some(length), Some(kind)) = (big(bytes, at), bytes.get(at + 4..at + 8)) {
        let content = bytes.get(at + 8..).unwrap_or_default();
        let content = &content[..content.len().min(length as usize)];
        match kind {
            b"IEND" => break,
            // Twice it is a fault, as in libpng: nobody sees what stands behind it.
            b"IHDR" if at > 8 && has_pixels => break,
            b"IHDR" if at > 8 => return None,
            b"acTL" => most = most.or(big(content, 0).filter(|most| *most > 0 && content.len() >= 8)),
            b"fcTL" => {
                let (Some(width), Some(height)) = (big(content, 4), big(content, 8)) else { break };
                // What is cut is no frame, and hides none of those before it.
                if content.len() < CONTROL {
                    break;
                }
                if most.is_none_or(|most| header.frames < most) {
                    header.frame(width, height);
                }
            }
            // Without its control before the first data, a file is one picture, whatever follows.
            b"IDAT" if most.is_none() => break,
            b"IDAT" => {
                header.is_default_apart |= header.frames == 0;
                has_pixels = true;
            }
            _ => {}
        }
        at = at.saturating_add(12).saturating_add(length as usize);
    }
    if most.is_none() || header.frames == 0 {
        header = Header { frames: 0, pixels_of_frames: 0, is_default_apart: false, ..header };
    }
    if header.is_default_apart {
        let pixels = u64::from(header.width) * u64::from(header.height);
        header.pixels_of_frames = header.pixels_of_frames.saturating_add(pixels);
    }
    Some(header)
}

fn gif(bytes: &[u8]) -> Option<Header> {
    let mut header = Header {
        width: little16(bytes, 6)?,
        height: little16(bytes, 8)?,
        pixel_bytes: 4,
        ..Header::default()
    };
    let mut at = 13 + table(*bytes.get(10)?);
    loop {
        match bytes.get(at) {
            Some(0x21) => at = after_blocks(bytes, at + 2),
            Some(0x2c) => {
                let (Some(width), Some(height), Some(flags)) =
                    (little16(bytes, at + 5), little16(bytes, at + 7), bytes.get(at + 9))
                else {
                    break;
                };
                if header.frames == 0 {
                    header.enlarge_screen(bytes, at, width, height);
                }
                header.frame(width, height);
                at = after_blocks(bytes, at + 11 + table(*flags));
            }
            // Decoders skip empty blocks, too.
            Some(0) => at += 1,
            _ => break,
        }
    }
    if header.frames < 2 {
        header = Header { frames: 0, pixels_of_frames: 0, ..header };
    }
    Some(header)
}

pub(super) const fn table(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

pub(super) fn after_blocks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(length) = bytes.get(at).filter(|length| **length > 0) {
        at += 1 + usize::from(*length);
    }
    at + 1
}

/// A WebP without what follows its end.
pub(super) fn within_riff(bytes: &[u8]) -> &[u8] {
    let end = little(bytes, 4).map_or(0, |length| (length as usize).saturating_add(8));
    &bytes[..end.min(bytes.len())]
}

/// Which kind of file it is, its first chunk says alone.
fn webp(bytes: &[u8]) -> Option<Header> {
    let mut header = Header { pixel_bytes: 4, ..Header::default() };
    let mut chunks = Chunks(bytes.get(12..)?);
    let (kind, first, _) = chunks.next()?;
    if kind != b"VP8X" {
        (header.width, header.height) = bitstream(kind, first)?;
        return Some(header);
    }
    (header.width, header.height) = (little24(first, 4)? + 1, little24(first, 7)? + 1);
    let is_animated = first[0] & 2 != 0;
    for (kind, content, _) in chunks {
        if is_animated && kind == b"ANMF" {
            let (Some(width), Some(height), Some(parts)) =
                (little24(content, 6), little24(content, 9), content.get(16..))
            else {
                break;
            };
            header.frame(width + 1, height + 1);
            let mut pictures = Chunks(parts).filter_map(|(kind, content, _)| bitstream(kind, content));
            if let Some((width, height)) = pictures.next() {
                header.embedded(width, height);
            }
        } else if !is_animated && let Some((width, height)) = bitstream(kind, content) {
            // Others after it are not shown.
            header.embedded(width, height);
            break;
        }
    }
    Some(header)
}

/// The flags of a WebP without the one of alpha, if there are any and its picture has alpha in a chunk of its own: none
/// of that is hashed, and it may be missing or broken.
pub(super) fn flags_without_alpha(bytes: &[u8]) -> Option<u8> {
    let mut chunks = Chunks(bytes.get(12..)?);
    let flags = chunks.next().and_then(|(kind, content, _)| content.first().filter(|_| kind == b"VP8X"))?;
    let (picture, ..) = chunks.find(|(kind, ..)| matches!(*kind, b"VP8 " | b"VP8L"))?;
    (flags & 0x12 == 0x10 && picture == b"VP8 ").then_some(flags & !0x10)
}

/// The size that a bitstream names.
fn bitstream(kind: &[u8; 4], content: &[u8]) -> Option<(u32, u32)> {
    match kind {
        b"VP8 " => Some((little16(content, 6)? & 0x3fff, little16(content, 8)? & 0x3fff)),
        b"VP8L" => {
            let bits = little(content, 1)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

/// The chunks of a RIFF file: kind, content, and all of it with what fills it up. The last one may be cut.
pub(super) struct Chunks<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.0.first_chunk()?;
        let length = little(self.0, 4)? as usize;
        let rest = &self.0[8..];
        let content = &rest[..length.min(rest.len())];
        let end = length.saturating_add(8 + length % 2).min(self.0.len());
        let (whole, rest) = self.0.split_at(end);
        self.0 = rest;
        Some((kind, content, whole))
    }
}

fn bmp(bytes: &[u8]) -> Option<Header> {
    let (width, height) = if little(bytes, 14)? == 12 {
        (little16(bytes, 18)?, little16(bytes, 20)?)
    } else {
        (little(bytes, 18)?.cast_signed().unsigned_abs(), little(bytes, 22)?.cast_signed().unsigned_abs())
    };
    pixels_of_bmp(bytes)?;
    Some(Header { width, height, pixel_bytes: 4, ..Header::default() })
}

/// The header of OS/2 2, which begins as the usual one, and how long that is.
pub(super) const OS2: [u32; 2] = [64, 40];

/// A BMP's parts as its decoder reads them: it says where pixels are, has one plane whatever it says, and none of the
/// fields that only OS/2 2 has.
pub(super) fn shown_of_bmp<'a>(bytes: &'a [u8], at: u32, fields: &'a mut [u8; 18]) -> [&'a [u8]; 4] {
    let Some(said) = bytes.get(10..).and_then(<[u8]>::first_chunk) else { return [bytes, &[], &[], &[]] };
    *fields = *said;
    let [long, short] = OS2;
    let is_long = little(bytes, 14) == Some(long);
    let at = if is_long { at - (long - short) } else { at };
    fields[..4].copy_from_slice(&at.to_le_bytes());
    let planes = if little(bytes, 14) == Some(12) { 12 } else { 16 };
    fields[planes..planes + 2].copy_from_slice(&[1, 0]);
    let (before, rest) = (&bytes[..10], &bytes[28..]);
    if is_long {
        fields[4..8].copy_from_slice(&short.to_le_bytes());
        let (shared, rest) = rest.split_at(rest.len().min(26));
        [before, fields, shared, rest.get(24..).unwrap_or_default()]
    } else {
        [before, fields, rest, &[]]
    }
}

/// A row of pixels at least, if they are not packed.
pub(super) fn has_row_of_bmp(bytes: &[u8], header: &Header) -> bool {
    let is_old = little(bytes, 14) == Some(12);
    let bits = little16(bytes, if is_old { 24 } else { 28 }).unwrap_or_default();
    let is_packed = !is_old && matches!(little(bytes, 30), Some(1 | 2));
    let row = if is_packed { 2 } else { 4 * (u64::from(bits) * u64::from(header.width)).div_ceil(32) };
    pixels_of_bmp(bytes).is_some_and(|at| u64::from(at) + row <= bytes.len() as u64)
}

/// Where they are: right after the header, masks and palette where the file does not say. Nothing if they were within the
/// header.
pub(super) fn pixels_of_bmp(bytes: &[u8]) -> Option<u32> {
    let (said, length) = (little(bytes, 10)?, little(bytes, 14)?);
    let header = length.checked_add(14)?;
    if said > 0 {
        return (said >= header).then_some(said);
    }
    let is_old = length == 12;
    let of_new = |at| if is_old { Some(0) } else { little(bytes, at) };
    let bits = little16(bytes, if is_old { 24 } else { 28 })?;
    let masks = match of_new(30)? {
        3 if length == 40 => 12,
        6 if length == 40 => 16,
        _ => 0,
    };
    let colours = match (bits, of_new(46)?) {
        (1..=8, 0) => 1 << bits,
        (1..=8, colours) => colours.min(1 << bits),
        _ => 0,
    };
    header.checked_add(masks + colours * if is_old { 3 } else { 4 })
}

/// Its directory may lie anywhere in the file, so the decoder reads it, within its own bounds for a directory.
fn tiff(bytes: &[u8]) -> Result<Header, Refusal> {
    guarded(Format::Tiff, || {
        if let Some(samples) = Samples::of(bytes)? {
            return Ok(samples.header());
        }
        let decoder = TiffDecoder::new(Cursor::new(bytes)).map_err(|error| refusal(&error))?;
        let (width, height) = decoder.dimensions();
        let pixel_bytes = u64::from(decoder.original_color_type().bits_per_pixel()).div_ceil(8);
        let pixel_bytes = pixel_bytes.max(decoder.color_type().bytes_per_pixel().into());
        Ok(Header { width, height, pixel_bytes, ..Header::default() })
    })
}
