//! Bit reader of a scan: removes the stuffing bytes of the data, and moves a window over the bits.
//!
//! Reads zeros after the end of the data; `has_ended_early` reports it.

use memchr::memchr;

use super::header::{END, next_marker};

/// Zeros after the data, so that the last bytes can be loaded eight at a time.
const SPARE: usize = size_of::<u64>();

/// Pieces of a scan's data, each up to the next marker.
pub(super) struct Pieces<'a> {
    file: &'a [u8],
    at: usize,
    data: Vec<u8>,
}

impl<'a> Pieces<'a> {
    /// Allocates `max_bytes` at once. No piece needs more.
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self { file, at: 0, data: Vec::with_capacity(Self::max_bytes(file)) }
    }

    /// Returns the number of allocated bytes.
    pub(super) const fn max_bytes(file: &[u8]) -> usize {
        file.len() + SPARE
    }

    pub(super) fn begin(&mut self, at: usize) {
        self.at = at;
    }

    /// Returns the bits up to the next marker, and the marker. The end of the file counts as `END`.
    pub(super) fn next(&mut self) -> (Bits<'_>, u8) {
        self.data.clear();
        let marker = loop {
            let remaining_bytes = self.file.get(self.at..).unwrap_or_default();
            let length = memchr(0xff, remaining_bytes).unwrap_or(remaining_bytes.len());
            let fill = remaining_bytes[length..].iter().position(|byte| *byte != 0xff);
            let Some((fill, next_byte)) =
                fill.and_then(|fill| Some((fill, *remaining_bytes.get(length + fill)?)))
            else {
                self.data.extend(&remaining_bytes[..length]);
                self.at = self.file.len();
                break END;
            };
            self.at += length + fill + 1;
            if next_byte != 0 {
                self.data.extend(&remaining_bytes[..length]);
                break next_byte;
            }
            // Encoders insert a zero after a data byte 0xff, which would otherwise look like a marker.
            self.data.extend(&remaining_bytes[..=length]);
        };
        let length = self.data.len();
        self.data.extend([0; SPARE]);
        (Bits { data: &self.data, length, at: 0, window: 0, held_bits: 0 }, marker)
    }

    /// Skips data and returns the next marker.
    pub(super) fn next_marker(&mut self) -> u8 {
        let next = next_marker(self.file.get(self.at..).unwrap_or_default());
        self.at = self.file.len() - next.map_or(0, |(_, after)| after.len());
        next.map_or(END, |(marker, _)| marker)
    }

    /// Skips to the restart with this number. Returns `None` if it was found, or another marker that belongs to later data.
    /// Uses the rule of libjpeg, which recovers from a few lost or inserted restarts.
    pub(super) fn find_restart(&mut self, mut marker: u8, number: u8) -> Option<u8> {
        loop {
            match marker {
                0xd0..=0xd7 => match (marker - 0xd0).wrapping_sub(number) % 8 {
                    1 | 2 => return Some(marker),
                    6 | 7 => {}
                    _ => return None,
                },
                0xc0.. => return Some(marker),
                _ => {}
            }
            marker = self.next_marker();
        }
    }

    /// Returns the offset after the last marker.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

impl Bits<'_> {
    /// Reader of missing data: zeros only.
    pub(super) const NONE: Self = Self { data: &[], length: 0, at: 0, window: 0, held_bits: 0 };
}

/// Bit reader. The next bits are the highest bits of the window.
#[derive(Clone)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    length: usize,
    at: usize,
    window: u64,
    held_bits: u32,
}

impl Bits<'_> {
    /// Fills the window to at least 56 bits.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        let next = self.data.get(self.at..).and_then(<[u8]>::first_chunk);
        self.window |= next.map_or(0, |bytes| u64::from_be_bytes(*bytes)) >> self.held_bits;
        self.at += ((63 - self.held_bits) >> 3) as usize;
        // Equal to adding eight bits a loaded byte, without a branch in the innermost loop.
        self.held_bits |= 56;
    }

    /// Returns the next 1 to 63 bits without consuming them.
    #[inline(always)]
    pub(super) fn peek(&self, count: u32) -> u64 {
        self.window >> (64 - count)
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.window <<= count;
        self.held_bits -= count;
    }

    /// Consumes up to 32 bits. The window must contain them.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        // In two steps, because a shift by 64 overflows if `count` is 0.
        let bits = self.window >> 32 >> (32 - count);
        self.skip(count);
        #[allow(clippy::cast_possible_truncation, reason = "32 bits at most")]
        return bits as u32;
    }

    /// Consumes up to 63 bits. The window must contain 32.
    #[inline(always)]
    pub(super) fn take_many(&mut self, count: u32) -> u64 {
        if count <= 32 {
            return self.take(count).into();
        }
        self.fill();
        let upper = u64::from(self.take(count - 32));
        self.fill();
        upper << 32 | u64::from(self.take(32))
    }

    /// Reads a signed value of `size` bits. Values with a clear first bit are negative.
    #[inline(always)]
    pub(super) fn value(&mut self, size: u32) -> i32 {
        let bits = self.take(size).cast_signed();
        let is_negative = (bits >> (size.max(1) - 1)) ^ 1;
        bits + is_negative * ((-1 << size) + 1)
    }

    /// True if more bits were consumed than the data has.
    pub(super) fn has_ended_early(&self) -> bool {
        8 * self.at - self.held_bits as usize > 8 * self.length
    }
}
