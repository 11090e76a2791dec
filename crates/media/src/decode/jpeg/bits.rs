//! The bits of a scan: its data without what keeps them from looking like markers, and a window that moves over them.
//!
//! What codes they are is not known here. Past the end there are zeros, and `has_ended_early` tells.

use memchr::memchr;

use super::header::{END, next_marker};

/// Zeros after the data, so that its last bytes are loaded as all others are.
const SPARE: usize = size_of::<u64>();

/// A piece of a scan's data after the other: up to a marker.
pub(super) struct Pieces<'a> {
    file: &'a [u8],
    at: usize,
    data: Vec<u8>,
}

impl<'a> Pieces<'a> {
    /// Holds no more than `most` bytes, which are allocated at once.
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self { file, at: 0, data: Vec::with_capacity(Self::most(file)) }
    }

    /// Returns the number of bytes that are allocated.
    pub(super) const fn most(file: &[u8]) -> usize {
        file.len() + SPARE
    }

    pub(super) fn begin(&mut self, at: usize) {
        self.at = at;
    }

    /// The bits up to the next marker, and which one it is. The file's end is the picture's.
    pub(super) fn next(&mut self) -> (Bits<'_>, u8) {
        self.data.clear();
        let marker = loop {
            let rest = self.file.get(self.at..).unwrap_or_default();
            let length = memchr(0xff, rest).unwrap_or(rest.len());
            let fill = rest[length..].iter().position(|byte| *byte != 0xff);
            let Some((fill, next)) = fill.and_then(|fill| Some((fill, *rest.get(length + fill)?))) else {
                self.data.extend(&rest[..length]);
                self.at = self.file.len();
                break END;
            };
            self.at += length + fill + 1;
            if next != 0 {
                self.data.extend(&rest[..length]);
                break next;
            }
            self.data.extend(&rest[..=length]);
        };
        let length = self.data.len();
        self.data.extend([0; SPARE]);
        (Bits { data: &self.data, length, at: 0, window: 0, held: 0 }, marker)
    }

    /// Past any data.
    pub(super) fn next_marker(&mut self) -> u8 {
        let next = next_marker(self.file.get(self.at..).unwrap_or_default());
        self.at = self.file.len() - next.map_or(0, |(_, after)| after.len());
        next.map_or(END, |(marker, _)| marker)
    }

    /// Past the restart of that number if it is the marker, or follows it. Otherwise there is a marker for which it is too
    /// early; by libjpeg's rule, which a few lost or added restarts do not lead astray.
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

    /// Returns the offset behind the last marker.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

impl Bits<'_> {
    /// Bits of missing data.
    pub(super) const NONE: Self = Self { data: &[], length: 0, at: 0, window: 0, held: 0 };
}

/// The next bits are the highest ones of the window.
#[derive(Clone)]
pub(super) struct Bits<'a> {
    data: &'a [u8],
    length: usize,
    at: usize,
    window: u64,
    held: u32,
}

impl Bits<'_> {
    /// Fills the window, so that 56 bits can be taken.
    #[inline(always)]
    pub(super) fn fill(&mut self) {
        let next = self.data.get(self.at..).and_then(<[u8]>::first_chunk);
        self.window |= next.map_or(0, |bytes| u64::from_be_bytes(*bytes)) >> self.held;
        self.at += ((63 - self.held) >> 3) as usize;
        self.held |= 56;
    }

    /// The next bits, 1 to 63 of them.
    #[inline(always)]
    pub(super) fn peek(&self, count: u32) -> u64 {
        self.window >> (64 - count)
    }

    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        self.window <<= count;
        self.held -= count;
    }

    /// Up to 32 bits, which must be there.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let bits = self.window >> 32 >> (32 - count);
        self.skip(count);
        #[allow(clippy::cast_possible_truncation, reason = "32 bits at most")]
        return bits as u32;
    }

    /// Up to 63 bits, of which 32 must be there.
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

    /// A value of so many bits, of which half are negative: those whose first bit is not set.
    #[inline(always)]
    pub(super) fn value(&mut self, size: u32) -> i32 {
        let bits = self.take(size).cast_signed();
        let is_negative = (bits >> (size.max(1) - 1)) ^ 1;
        bits + is_negative * ((-1 << size) + 1)
    }

    /// More was taken than there is.
    pub(super) fn has_ended_early(&self) -> bool {
        8 * self.at - self.held as usize > 8 * self.length
    }
}
