//! Reads size, frames and chunks of a WebP.

use super::super::{
    header::Header,
    read_int::{le16, le24, le32},
};

/// Removes bytes after the end of the RIFF container.
pub(in super::super) fn trim_to_riff(bytes: &[u8]) -> &[u8] {
    let end = le32(bytes, 4).map_or(0, |length| (length as usize).saturating_add(8));
    &bytes[..end.min(bytes.len())]
}

/// Reads the header. The first chunk decides whether the file is simple or extended.
pub(in super::super) fn read(bytes: &[u8]) -> Option<Header> {
    let mut header = Header { pixel_bytes: 4, ..Header::default() };
    let mut chunks = Chunks(bytes.get(12..)?);
    let (kind, first, _) = chunks.next()?;
    if kind != b"VP8X" {
        (header.width, header.height) = bitstream_size(kind, first)?;
        return Some(header);
    }
    (header.width, header.height) = (le24(first, 4)? + 1, le24(first, 7)? + 1);
    let is_animated = first[0] & 2 != 0;
    for (kind, content, _) in chunks {
        if is_animated && kind == b"ANMF" {
            let (Some(width), Some(height), Some(parts)) =
                (le24(content, 6), le24(content, 9), content.get(16..))
            else {
                break;
            };
            // The format stores sides minus one.
            header.add_frame(width + 1, height + 1);
            let mut pictures = Chunks(parts).filter_map(|(kind, content, _)| bitstream_size(kind, content));
            if let Some((width, height)) = pictures.next() {
                header.add_embedded(width, height);
            }
        } else if !is_animated && let Some((width, height)) = bitstream_size(kind, content) {
            // Viewers show only the first picture.
            header.add_embedded(width, height);
            break;
        }
    }
    Some(header)
}

/// Returns the flags of an extended WebP without the alpha flag, if its alpha is in a separate chunk. Alpha is not hashed,
/// and a missing or broken alpha chunk would fail the decoder.
pub(super) fn flags_without_alpha(bytes: &[u8]) -> Option<u8> {
    let mut chunks = Chunks(bytes.get(12..)?);
    let flags = chunks.next().and_then(|(kind, content, _)| content.first().filter(|_| kind == b"VP8X"))?;
    let (picture, ..) = chunks.find(|(kind, ..)| matches!(*kind, b"VP8 " | b"VP8L"))?;
    (flags & 0x12 == 0x10 && picture == b"VP8 ").then_some(flags & !0x10)
}

/// Returns the size stated by a bitstream.
fn bitstream_size(kind: &[u8; 4], content: &[u8]) -> Option<(u32, u32)> {
    match kind {
        b"VP8 " => Some((le16(content, 6)? & 0x3fff, le16(content, 8)? & 0x3fff)),
        b"VP8L" => {
            let bits = le32(content, 1)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

/// Chunks of a RIFF file: kind, content, and the whole chunk with padding. The last chunk may be truncated.
pub(super) struct Chunks<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.0.first_chunk()?;
        let length = le32(self.0, 4)? as usize;
        let remaining_bytes = &self.0[8..];
        let content = &remaining_bytes[..length.min(remaining_bytes.len())];
        let end = length.saturating_add(8 + length % 2).min(self.0.len());
        let (whole_chunk, later_chunks) = self.0.split_at(end);
        self.0 = later_chunks;
        Some((kind, content, whole_chunk))
    }
}
