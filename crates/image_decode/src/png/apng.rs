//! Frames of an animated PNG: reads the placement of each, and wraps its data as a separate PNG file.

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

/// Offsets of the second chunk, and of the size in the first chunk.
const SECOND_CHUNK: usize = 33;
const SIZE: usize = 16;
/// Largest number of colours in a palette.
const MAX_COLOURS: usize = 256;

pub(super) struct Frame<'a> {
    pub(super) placement: Placement,
    bytes: &'a [u8],
    kind: [u8; 4],
    /// Range of the file that contains the frame's data.
    data_start: usize,
    data_end: usize,
}

/// Frame in progress: its control chunk was read. `kind` is the type of its data chunks, `None` before the first.
struct OpenFrame {
    placement: Placement,
    kind: Option<[u8; 4]>,
    data_start: usize,
}

pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    at: usize,
    /// Expected sequence number of the next control or data chunk.
    sequence: u32,
    has_pixels: bool,
    /// Palette and transparency, shared by all frames. Each frame's decoder gets a copy, so oversized chunks are ignored,
    /// as libpng does for transparency.
    shared_chunks: [&'a [u8]; 2],
}

impl<'a> Frames<'a> {
    pub(super) fn new(bytes: &'a [u8], header: &'a Header) -> Self {
        let empty_chunk: &[u8] = &[];
        Self {
            bytes,
            header,
            at: SECOND_CHUNK,
            sequence: 0,
            has_pixels: false,
            shared_chunks: [empty_chunk; 2],
        }
    }

    /// Returns the next frame. An invalid chunk ends the current frame; without a current frame, it is an error.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'a>>, DecodeError> {
        let mut open_frame = None;
        while let Some(chunk) = chunk_at(self.bytes, self.at) {
            if chunk.kind == b"IEND" || chunk.kind == b"fcTL" && open_frame.is_some() {
                break;
            }
            match self.read_chunk(&chunk, &mut open_frame) {
                Some(()) => self.at += chunk.bytes.len(),
                None if open_frame.is_none() => return Err(DecodeError::BROKEN),
                None => break,
            }
        }
        let (bytes, to) = (self.bytes, self.at);
        let frame = open_frame.map(|OpenFrame { placement, kind, data_start: from }| {
            let kind = kind.unwrap_or(*b"fdAT");
            Frame { placement, bytes, kind, data_start: from, data_end: to }
        });
        Ok(frame)
    }

    /// Reads one chunk; `None` if it is invalid.
    fn read_chunk(&mut self, chunk: &Chunk<'a>, open_frame: &mut Option<OpenFrame>) -> Option<()> {
        match chunk.kind {
            // A second header ends the picture, as in `header::read`.
            b"IHDR" => return None,
            b"PLTE"
                if !self.has_pixels && is_indexed(self.bytes) && chunk.content.len() <= 3 * MAX_COLOURS =>
            {
                self.shared_chunks[0] = chunk.bytes;
            }
            b"tRNS" if !self.has_pixels && chunk.content.len() <= MAX_COLOURS => {
                self.shared_chunks[1] = chunk.bytes;
            }
            b"fcTL" => {
                let placement = self.read_placement(chunk.content)?;
                self.check_sequence(chunk.content)?;
                *open_frame =
                    Some(OpenFrame { placement, kind: None, data_start: self.at + chunk.bytes.len() });
            }
            b"IDAT" | b"fdAT" => {
                let is_of_frame = chunk.kind == b"fdAT";
                let kind = open_frame.as_mut().map(|frame| *frame.kind.get_or_insert(*chunk.kind));
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

    /// Returns the placement of a frame. `None` if it exceeds the canvas, or if the default picture does not fill the
    /// canvas.
    fn read_placement(&self, control: &[u8]) -> Option<Placement> {
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
            // The first frame has no previous state, so the specification says to clear.
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

    /// Returns the start of the separate file of a frame, up to the content of its single data chunk.
    pub(super) fn file_head(&self, frame: &Frame<'a>) -> Vec<u8> {
        let Area { width, height, .. } = frame.placement.area;
        let mut head = self.bytes[..SECOND_CHUNK].to_vec();
        head[SIZE..SIZE + 4].copy_from_slice(&width.to_be_bytes());
        head[SIZE + 4..SIZE + 8].copy_from_slice(&height.to_be_bytes());
        head.extend(self.shared_chunks.concat());
        let length: usize = frame.data().map(<[u8]>::len).sum();
        head.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        head.extend(b"IDAT");
        head
    }
}

impl<'a> Frame<'a> {
    fn data(&self) -> Data<'a> {
        Data { bytes: &self.bytes[..self.data_end], at: self.data_start, kind: self.kind }
    }

    /// Returns the frame as a separate file. Its checksums are invalid, so the decoder must ignore them.
    pub(super) fn file(&self, head: &'a [u8]) -> FrameFile<'a> {
        FrameFile { head, data: self.data(), end: [b"\0\0\0\0", END] }
    }
}

/// Iterator over the data chunks of a frame.
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
            self.at += chunk.bytes.len();
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
        // The reader would take an empty part for the end.
        let data = self.data.find(|data| !data.is_empty());
        data.unwrap_or_else(|| {
            let [checksum, end] = self.end;
            self.end = [end, &[]];
            checksum
        })
    }
}
