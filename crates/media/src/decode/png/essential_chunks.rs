//! The chunks of a PNG file that its pixels need.

use super::super::parts_reader::Parts;

const SIGNATURE: usize = 8;
/// Colour type of indices into a palette.
const INDEXED: u8 = 3;
/// Last chunk of a file.
pub(super) const END: &[u8] = b"\0\0\0\0IEND\xae\x42\x60\x82";

/// A chunk. The last one of a file may be cut off.
pub(super) struct Chunk<'a> {
    pub(super) kind: &'a [u8; 4],
    pub(super) content: &'a [u8],
    pub(super) all: &'a [u8],
    pub(super) is_whole: bool,
}

/// Returns the chunk that begins at `at`.
pub(super) fn chunk_at(bytes: &[u8], at: usize) -> Option<Chunk<'_>> {
    let rest = bytes.get(at..)?;
    let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
    let kind = rest.get(4..)?.first_chunk()?;
    let whole = rest.get(..length.saturating_add(12));
    let content = &rest[8..];
    let content = &content[..content.len().min(length)];
    Some(Chunk { kind, content, all: whole.unwrap_or(rest), is_whole: whole.is_some() })
}

pub(super) fn is_indexed(bytes: &[u8]) -> bool {
    bytes.get(25) == Some(&INDEXED)
}

/// The chunks of the default picture, up to the end of its pixels. A file without an end gets one: decoders hold back rows
/// until they see the next chunk.
pub(super) struct EssentialChunks<'a> {
    bytes: &'a [u8],
    /// Offset of the next chunk.
    at: usize,
    end: &'static [u8],
    has_data: bool,
}

impl<'a> EssentialChunks<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: END, has_data: false }
    }

    fn is_essential(&self, kind: &[u8]) -> bool {
        match kind {
            b"IHDR" | b"IDAT" => true,
            b"PLTE" => is_indexed(self.bytes),
            _ => false,
        }
    }
}

impl<'a> Parts<'a> for EssentialChunks<'a> {
    fn next(&mut self) -> &'a [u8] {
        if self.at == 0 {
            self.at = SIGNATURE;
            return self.bytes.get(..SIGNATURE).unwrap_or(self.bytes);
        }
        while let Some(chunk) = chunk_at(self.bytes, self.at) {
            let is_data = chunk.kind == b"IDAT";
            if chunk.kind == b"IEND" || self.has_data && !is_data || !chunk.is_whole && !is_data {
                break;
            }
            self.at += chunk.all.len();
            self.has_data |= is_data;
            if !chunk.is_whole {
                // Rows of a chunk that is cut off are still shown, so no end may follow them.
                self.end = &[];
            }
            if self.is_essential(chunk.kind) {
                return chunk.all;
            }
        }
        self.at = self.bytes.len();
        std::mem::take(&mut self.end)
    }
}
