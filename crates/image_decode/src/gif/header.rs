//! Reads screen size, frames and block structure of a GIF.

use super::super::{header::Header, read_int::le16};

pub(in super::super) fn read(bytes: &[u8]) -> Option<Header> {
    let mut header =
        Header { width: le16(bytes, 6)?, height: le16(bytes, 8)?, pixel_bytes: 4, ..Header::default() };
    let mut at = 13 + colour_table_length(*bytes.get(10)?);
    loop {
        match bytes.get(at) {
            Some(0x21) => at = end_of_blocks(bytes, at + 2),
            Some(0x2c) => {
                let (Some(width), Some(height), Some(flags)) =
                    (le16(bytes, at + 5), le16(bytes, at + 7), bytes.get(at + 9))
                else {
                    break;
                };
                if header.frames == 0 {
                    // Viewers enlarge the screen so that the whole first frame is visible.
                    let offset = |at| le16(bytes, at).unwrap_or_default();
                    header.width = header.width.max(offset(at + 1) + width);
                    header.height = header.height.max(offset(at + 3) + height);
                }
                header.add_frame(width, height);
                at = end_of_blocks(bytes, at + 11 + colour_table_length(*flags));
            }
            // Decoders skip empty blocks as well.
            Some(0) => at += 1,
            _ => break,
        }
    }
    // A single frame is decoded as a picture, without the cost of an animation.
    if header.frames < 2 {
        header = Header { frames: 0, total_frame_pixels: 0, ..header };
    }
    Some(header)
}

/// Encodes width and height for the screen descriptor.
pub(super) fn encode_screen_size(header: &Header) -> [u8; 4] {
    let [width, height] = [header.width, header.height].map(|side| u16::try_from(side).unwrap_or(u16::MAX));
    let ([a, b], [c, d]) = (width.to_le_bytes(), height.to_le_bytes());
    [a, b, c, d]
}

pub(super) const fn colour_table_length(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Returns the offset after the data blocks starting at `at`.
pub(super) fn end_of_blocks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(length) = bytes.get(at).filter(|length| **length > 0) {
        at += 1 + usize::from(*length);
    }
    at + 1
}
