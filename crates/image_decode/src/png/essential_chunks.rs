//! Selects the chunks of a PNG file needed for its pixels.

use super::super::parts_reader::Parts;

const SIGNATURE: usize = 8;
/// Colour type of indices into a palette.
const INDEXED: u8 = 3;
/// Last chunk of a file.
pub(super) const END: &[u8] = b"\0\0\0\0IEND\xae\x42\x60\x82";

/// A chunk. The last chunk of a file may be truncated.
pub(super) struct Chunk<'a> {
    pub(super) kind: &'a [u8; 4],
    pub(super) content: &'a [u8],
    pub(super) bytes: &'a [u8],
    pub(super) is_complete: bool,
}

/// Returns the chunk starting at `at`.
pub(super) fn chunk_at(bytes: &[u8], at: usize) -> Option<Chunk<'_>> {
    let remaining_bytes = bytes.get(at..)?;
    let length = u32::from_be_bytes(*remaining_bytes.first_chunk()?) as usize;
    let kind = remaining_bytes.get(4..)?.first_chunk()?;
    let complete_chunk = remaining_bytes.get(..length.saturating_add(12));
    let content = &remaining_bytes[8..];
    let content = &content[..content.len().min(length)];
    Some(Chunk {
        kind,
        content,
        bytes: complete_chunk.unwrap_or(remaining_bytes),
        is_complete: complete_chunk.is_some(),
    })
}

pub(super) fn is_indexed(bytes: &[u8]) -> bool {
    bytes.get(25) == Some(&INDEXED)
}

/// Chunks of the default picture, up to the end of its pixels. Adds a missing end chunk, because decoders hold back rows
/// until they read the next chunk.
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
            if chunk.kind == b"IEND" || self.has_data && !is_data || !chunk.is_complete && !is_data {
                break;
            }
            self.at += chunk.bytes.len();
            self.has_data |= is_data;
            if !chunk.is_complete {
                // Rows of a truncated chunk are still decoded. An end chunk would be read as its missing content.
                self.end = &[];
            }
            if self.is_essential(chunk.kind) {
                return chunk.bytes;
            }
        }
        self.at = self.bytes.len();
        std::mem::take(&mut self.end)
    }
}
