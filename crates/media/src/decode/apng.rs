//! The frames of an animated PNG: where each is drawn, and its data, as a file of its own.
//!
//! It decodes none, and says nothing of a picture that is no frame.

use super::{
    Refusal,
    canvas::{After, Area, Placed},
    header::{Header, big},
    needed::Parts,
    png_chunks::{Chunk, END, chunk, is_indexed},
};

/// Where the second chunk is, and the size in the first one.
const SECOND: usize = 33;
const SIZE: usize = 16;
/// How many colours a palette can have.
const COLOURS: usize = 256;

pub(super) struct Frame<'a> {
    pub(super) placed: Placed,
    bytes: &'a [u8],
    kind: [u8; 4],
    /// Where its data may lie.
    from: usize,
    to: usize,
}

/// A frame begins, and may have data or not.
struct Begun {
    placed: Placed,
    kind: Option<[u8; 4]>,
    from: usize,
}

pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    at: usize,
    /// Of the next chunk that has a number.
    number: u32,
    has_pixels: bool,
    /// Chunks that all frames share: palette and transparency. Each frame's decoder gets a copy, so what is longer than
    /// they can be is passed over, as transparency is by libpng.
    shared: [&'a [u8]; 2],
}

impl<'a> Frames<'a> {
    pub(super) fn new(bytes: &'a [u8], header: &'a Header) -> Self {
        let none: &[u8] = &[];
        Self { bytes, header, at: SECOND, number: 0, has_pixels: false, shared: [none; 2] }
    }

    /// Nothing after the last one. What breaks a rule ends the frame before it, and is refused when it comes first.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'a>>, Refusal> {
        let mut begun = None;
        while let Some(chunk) = chunk(self.bytes, self.at) {
            if chunk.kind == b"IEND" || chunk.kind == b"fcTL" && begun.is_some() {
                break;
            }
            match self.read(&chunk, &mut begun) {
                Some(()) => self.at += chunk.all.len(),
                None if begun.is_none() => return Err(Refusal::BROKEN),
                None => break,
            }
        }
        let (bytes, to) = (self.bytes, self.at);
        let frame = begun.map(|Begun { placed, kind, from }| {
            let kind = kind.unwrap_or(*b"fdAT");
            Frame { placed, bytes, kind, from, to }
        });
        Ok(frame)
    }

    fn read(&mut self, chunk: &Chunk<'a>, begun: &mut Option<Begun>) -> Option<()> {
        match chunk.kind {
            b"IHDR" => return None,
            b"PLTE" if !self.has_pixels && is_indexed(self.bytes) && chunk.content.len() <= 3 * COLOURS => {
                self.shared[0] = chunk.all;
            }
            b"tRNS" if !self.has_pixels && chunk.content.len() <= COLOURS => self.shared[1] = chunk.all,
            b"fcTL" => {
                let placed = self.placed(chunk.content)?;
                self.count(chunk.content)?;
                *begun = Some(Begun { placed, kind: None, from: self.at + chunk.all.len() });
            }
            b"IDAT" | b"fdAT" => {
                let is_of_frame = chunk.kind == b"fdAT";
                let kind = begun.as_mut().map(|begun| *begun.kind.get_or_insert(*chunk.kind));
                if kind.map_or(is_of_frame, |kind| kind != *chunk.kind) {
                    return None;
                }
                if is_of_frame {
                    self.count(chunk.content)?;
                }
                self.has_pixels = true;
            }
            _ => {}
        }
        Some(())
    }

    fn count(&mut self, content: &[u8]) -> Option<()> {
        if big(content, 0)? != self.number {
            return None;
        }
        self.number = self.number.saturating_add(1);
        Some(())
    }

    /// Nothing for a frame that is not within the canvas, or that is shown to those who do not play and does not fill it.
    fn placed(&self, control: &[u8]) -> Option<Placed> {
        let number = |at| big(control, at);
        let area = Area { width: number(4)?, height: number(8)?, x: number(12)?, y: number(16)? };
        let Header { width, height, .. } = *self.header;
        let is_all = (area.width, area.height) == (width, height);
        if area.width.min(area.height) == 0 || !area.is_within(width, height) || !(is_all || self.has_pixels)
        {
            return None;
        }
        let after = match *control.get(24)? {
            0 => After::Stays,
            2 if self.number > 0 => After::Undone,
            // Before the first there is nothing.
            1 | 2 => After::Cleared,
            _ => return None,
        };
        let is_blended = match *control.get(25)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Placed { area, is_blended, after })
    }

    /// The file of a frame up to its data, which is one chunk.
    pub(super) fn head(&self, frame: &Frame<'a>) -> Vec<u8> {
        let Area { width, height, .. } = frame.placed.area;
        let mut head = self.bytes[..SECOND].to_vec();
        head[SIZE..SIZE + 4].copy_from_slice(&width.to_be_bytes());
        head[SIZE + 4..SIZE + 8].copy_from_slice(&height.to_be_bytes());
        head.extend(self.shared.concat());
        let length: usize = frame.data().map(<[u8]>::len).sum();
        head.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        head.extend(b"IDAT");
        head
    }
}

impl<'a> Frame<'a> {
    fn data(&self) -> Data<'a> {
        Data { bytes: &self.bytes[..self.to], at: self.from, kind: self.kind }
    }

    /// A file whose checksums are none.
    pub(super) fn alone(&self, head: &'a [u8]) -> Alone<'a> {
        Alone { head, data: self.data(), end: [b"\0\0\0\0", END] }
    }
}

/// The parts of a frame's data.
struct Data<'a> {
    bytes: &'a [u8],
    at: usize,
    kind: [u8; 4],
}

impl<'a> Iterator for Data<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let chunk = chunk(self.bytes, self.at)?;
            self.at += chunk.all.len();
            if *chunk.kind == self.kind {
                let data = if chunk.kind == b"fdAT" { chunk.content.get(4..) } else { Some(chunk.content) };
                return Some(data.unwrap_or_default());
            }
        }
    }
}

pub(super) struct Alone<'a> {
    head: &'a [u8],
    data: Data<'a>,
    end: [&'a [u8]; 2],
}

impl<'a> Parts<'a> for Alone<'a> {
    fn next(&mut self) -> &'a [u8] {
        if !self.head.is_empty() {
            return std::mem::take(&mut self.head);
        }
        // What is empty is taken for the end.
        let data = self.data.find(|data| !data.is_empty());
        data.unwrap_or_else(|| {
            let [checksum, end] = self.end;
            self.end = [end, &[]];
            checksum
        })
    }
}
