//! The chunks of a PNG file that its pixels need.

use super::needed::Parts;

const SIGNATURE: usize = 8;
/// Indices into a palette.
const INDEXED: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The picture for those who play nothing. Its data ends where other chunks follow.
    Still,
    Animation,
}

/// A file up to the end of its chunks, and an end where it has none of its own: decoders hold back what came until they
/// see the next chunk.
pub(super) struct Chunks<'a> {
    bytes: &'a [u8],
    /// Where the next chunk is.
    at: usize,
    end: &'static [u8],
    shown: Shown,
    has_data: bool,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(bytes: &'a [u8], shown: Shown) -> Self {
        Self { bytes, at: 0, end: b"\0\0\0\0IEND\xae\x42\x60\x82", shown, has_data: false }
    }

    fn is_over(&self, kind: &[u8]) -> bool {
        self.shown == Shown::Still && self.has_data && kind != b"IDAT"
    }

    fn shows(&self, kind: &[u8]) -> bool {
        match kind {
            b"IHDR" | b"IDAT" => true,
            b"PLTE" => self.bytes.get(25) == Some(&INDEXED),
            b"tRNS" | b"acTL" | b"fcTL" | b"fdAT" => self.shown == Shown::Animation,
            _ => false,
        }
    }
}

impl<'a> Parts<'a> for Chunks<'a> {
    fn next(&mut self) -> &'a [u8] {
        if self.at == 0 {
            self.at = SIGNATURE;
            return self.bytes.get(..SIGNATURE).unwrap_or(self.bytes);
        }
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let length = rest.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
            let whole = rest.get(..length.saturating_add(12));
            match (rest.get(4..8), whole) {
                (Some(kind), Some(whole)) if kind != b"IEND" && !self.is_over(kind) => {
                    self.at += whole.len();
                    self.has_data |= kind == b"IDAT";
                    if self.shows(kind) {
                        return whole;
                    }
                }
                // Rows of a chunk that is cut are worth having.
                (Some(b"IDAT"), None) => {
                    (self.at, self.end) = (self.bytes.len(), &[]);
                    return rest;
                }
                _ => {
                    self.at = self.bytes.len();
                    return std::mem::take(&mut self.end);
                }
            }
        }
    }
}
