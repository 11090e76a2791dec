//! The frames of an animated PNG: where each is drawn, and its data as a file of its own.

use super::{
    super::{
        DecodeError,
        canvas::{Area, Disposal, Placement},
        header::Header,
        parts_reader::Parts,
        read_int::be32,
    },
    essential_chunks::{Chunk, END, chunk_at, is_indexed},
};

/// Offset of the second chunk, and of the size in the first one.
const SECOND_CHUNK: usize = 33;
const SIZE: usize = 16;
/// Largest number of colours in a palette.
const MAX_COLOURS: usize = 256;

pub(super) struct Frame<'a> {
    pub(super) placement: Placement,
    bytes: &'a [u8],
    kind: [u8; 4],
    /// Range of the file that its data lies in.
    from: usize,
    to: usize,
}

/// A frame whose control was read. `kind` is that of its data, if there was any yet.
struct OpenFrame {
    placement: Placement,
    kind: Option<[u8; 4]>,
    from: usize,
}

pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    at: usize,
    /// Sequence number of the next chunk that has one.
    sequence: u32,
    has_pixels: bool,
    /// Palette and transparency, which all frames share. Each frame's decoder gets a copy, so a chunk that is longer than
    /// allowed is ignored, as libpng does with transparency.
    shared: [&'a [u8]; 2],
}

impl<'a> Frames<'a> {
    pub(super) fn new(bytes: &'a [u8], header: &'a Header) -> Self {
        let none: &[u8] = &[];
        Self { bytes, header, at: SECOND_CHUNK, sequence: 0, has_pixels: false, shared: [none; 2] }
    }

    /// Returns the next frame. A chunk that breaks a rule ends the frame before it, and is an error if it comes first.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'a>>, DecodeError> {
        let mut open = None;
        while let Some(chunk) = chunk_at(self.bytes, self.at) {
            if chunk.kind == b"IEND" || chunk.kind == b"fcTL" && open.is_some() {
                break;
            }
            match self.read(&chunk, &mut open) {
                Some(()) => self.at += chunk.all.len(),
                None if open.is_none() => return Err(DecodeError::BROKEN),
                None => break,
            }
        }
        let (bytes, to) = (self.bytes, self.at);
        let frame = open.map(|OpenFrame { placement, kind, from }| {
            let kind = kind.unwrap_or(*b"fdAT");
            Frame { placement, bytes, kind, from, to }
        });
        Ok(frame)
    }

    /// Reads one chunk; `None` if it breaks a rule.
    fn read(&mut self, chunk: &Chunk<'a>, open: &mut Option<OpenFrame>) -> Option<()> {
        match chunk.kind {
            b"IHDR" => return None,
            b"PLTE"
                if !self.has_pixels && is_indexed(self.bytes) && chunk.content.len() <= 3 * MAX_COLOURS =>
            {
                self.shared[0] = chunk.all;
            }
            b"tRNS" if !self.has_pixels && chunk.content.len() <= MAX_COLOURS => self.shared[1] = chunk.all,
            b"fcTL" => {
                let placement = self.placement(chunk.content)?;
                self.check_sequence(chunk.content)?;
                *open = Some(OpenFrame { placement, kind: None, from: self.at + chunk.all.len() });
            }
            b"IDAT" | b"fdAT" => {
                let is_of_frame = chunk.kind == b"fdAT";
                let kind = open.as_mut().map(|frame| *frame.kind.get_or_insert(*chunk.kind));
                if kind.map_or(is_of_frame, |kind| kind != *chunk.kind) {
                    return None;
                }
                if is_of_frame {
                    self.check_sequence(chunk.content)?;
                }
                self.has_pixels = true;
            }
            _ => {}
        }
        Some(())
    }

    fn check_sequence(&mut self, content: &[u8]) -> Option<()> {
        if be32(content, 0)? != self.sequence {
            return None;
        }
        self.sequence = self.sequence.saturating_add(1);
        Some(())
    }

    /// Returns where a frame is drawn; `None` if it is not within the canvas, or is the default picture and does not fill it.
    fn placement(&self, control: &[u8]) -> Option<Placement> {
        let field = |at| be32(control, at);
        let area = Area { width: field(4)?, height: field(8)?, x: field(12)?, y: field(16)? };
        let Header { width, height, .. } = *self.header;
        let fills_canvas = (area.width, area.height) == (width, height);
        if area.width.min(area.height) == 0
            || !area.is_within(width, height)
            || !(fills_canvas || self.has_pixels)
        {
            return None;
        }
        let disposal = match *control.get(24)? {
            0 => Disposal::Keep,
            2 if self.sequence > 0 => Disposal::Restore,
            // Before the first frame there is nothing to restore.
            1 | 2 => Disposal::Clear,
            _ => return None,
        };
        let is_blended = match *control.get(25)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Placement { area, is_blended, disposal })
    }

    /// Returns the beginning of a frame's own file, up to its data, which is one chunk.
    pub(super) fn file_head(&self, frame: &Frame<'a>) -> Vec<u8> {
        let Area { width, height, .. } = frame.placement.area;
        let mut head = self.bytes[..SECOND_CHUNK].to_vec();
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

    /// Returns the frame as a file of its own, whose checksums are not valid.
    pub(super) fn file(&self, head: &'a [u8]) -> FrameFile<'a> {
        FrameFile { head, data: self.data(), end: [b"\0\0\0\0", END] }
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
            let chunk = chunk_at(self.bytes, self.at)?;
            self.at += chunk.all.len();
            if *chunk.kind == self.kind {
                let data = if chunk.kind == b"fdAT" { chunk.content.get(4..) } else { Some(chunk.content) };
                return Some(data.unwrap_or_default());
            }
        }
    }
}

pub(super) struct FrameFile<'a> {
    head: &'a [u8],
    data: Data<'a>,
    end: [&'a [u8]; 2],
}

impl<'a> Parts<'a> for FrameFile<'a> {
    fn next(&mut self) -> &'a [u8] {
        if !self.head.is_empty() {
            return std::mem::take(&mut self.head);
        }
        // An empty part would be taken for the end.
        let data = self.data.find(|data| !data.is_empty());
        data.unwrap_or_else(|| {
            let [checksum, end] = self.end;
            self.end = [end, &[]];
            checksum
        })
    }
}
