//! A PNG file without the chunks that its pixels do not need, read without a copy: any chunk can ask for memory, or break
//! a rule that no viewer minds.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

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
pub(super) struct Needed<'a> {
    bytes: &'a [u8],
    /// Where the next chunk is.
    at: usize,
    left: &'a [u8],
    end: &'static [u8],
    shown: Shown,
    has_data: bool,
}

impl<'a> Needed<'a> {
    pub(super) fn new(bytes: &'a [u8], shown: Shown) -> Self {
        let (left, _) = bytes.split_at(bytes.len().min(8));
        let end = b"\0\0\0\0IEND\xae\x42\x60\x82";
        Self { bytes, at: 8, left, end, shown, has_data: false }
    }

    fn next(&mut self) -> &'a [u8] {
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

impl Read for Needed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Needed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left.is_empty() {
            self.left = self.next();
        }
        Ok(self.left)
    }

    fn consume(&mut self, amount: usize) {
        self.left = self.left.get(amount..).unwrap_or_default();
    }
}

/// Asked for by the decoder's type, and never used.
impl Seek for Needed<'_> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
