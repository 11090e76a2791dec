//! The scans of a JPEG that is made of several: how many there are, and where each ends.
//!
//! It decodes none.

use memchr::memchr_iter;

use super::{
    frame::Frame,
    header::{END, JpegHeader, next_marker},
};

/// Scans that any picture may have. Each goes over the whole picture, and takes a few bytes in the file; encoders make
/// about ten.
const MOST: usize = 100;

/// Blocks that the scans of a component may go over if they are more, and how many a scan costs by itself.
const BLOCKS: usize = MOST << 18;
const A_SCAN: usize = 256;

pub(super) fn most(frame: &Frame) -> usize {
    MOST.max(BLOCKS / (frame.columns * frame.rows + A_SCAN))
}

const START: u8 = 0xda;

pub(super) fn are_too_many(bytes: &[u8]) -> bool {
    // Within a scan these two bytes never follow each other.
    memchr_iter(0xff, bytes).filter(|at| bytes.get(at + 1) == Some(&START)).nth(MOST).is_some()
}

/// Returns the offset of the next marker that is not within the scan's data, or the file's end.
pub(super) fn end_of_scan(bytes: &[u8], from: usize) -> usize {
    let data = bytes.get(from..).unwrap_or_default();
    let is_end = |at: &usize| !matches!(data.get(at + 1), Some(0..=0xbf | 0xd0..=0xd7 | 0xff));
    memchr_iter(0xff, data).find(is_end).map_or(bytes.len(), |at| from + at)
}

/// The scans up to the picture's end: what each names.
struct Scans<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scans<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2 }
    }
}

impl<'a> Iterator for Scans<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (marker, after) = next_marker(self.bytes.get(self.at..)?)?;
            self.at = self.bytes.len() - after.len();
            match marker {
                END => self.at = self.bytes.len(),
                // Of these, only garbage within data can have a length.
                0x01..=0xbf | 0xd0..=0xd8 => {}
                _ => {
                    let length = usize::from(u16::from_be_bytes(*after.first_chunk()?)).max(2);
                    self.at += length;
                    if marker == START {
                        self.at = end_of_scan(self.bytes, self.at);
                        let (count, named) = after.get(2..length)?.split_first()?;
                        return named.get(..2 * usize::from(*count));
                    }
                }
            }
        }
    }
}

fn names(named: &[u8]) -> impl Iterator<Item = u8> {
    named.iter().copied().step_by(2)
}

/// Several scans name that component of a sequential file.
pub(super) fn is_repeated(bytes: &[u8], header: &JpegHeader, component: usize) -> bool {
    let is_named = |named: &&[u8]| names(named).any(|id| id == header.components[component].id);
    header.is_buffered && !header.is_progressive && Scans::new(bytes).filter(is_named).nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCAN: &[u8] = &[0xff, START, 0, 8, 1, 1, 0, 0, 63, 0, 3, 0xff, 0];
    /// A table that looks like a scan.
    const HEAD: &[u8] = &[0xff, 0xd8, 0xff, 0xc4, 0, 4, 0xff, START];
    const END: &[u8] = &[0xff, 0xd9];

    #[test]
    fn a_scan_ends_at_the_first_marker_that_is_not_part_of_its_data() {
        for data in [&[][..], &[4, 5], &[4, 0xff, 0, 5], &[0xff, 0xd0, 7, 0xff, 0xd7]] {
            let file = [SCAN, data, END, END].concat();
            let end = SCAN.len() + data.len();
            assert_eq!(end_of_scan(&file, 10), end, "{data:x?}");
            assert_eq!(end_of_scan(&file[..end], 10), end, "{data:x?}");
        }
        assert_eq!(end_of_scan(&[SCAN, &[0xff], END].concat(), 10), SCAN.len() + 1);
        assert_eq!(end_of_scan(SCAN, 99), SCAN.len());
    }

    #[test]
    fn as_many_scans_as_allowed_are_not_too_many() {
        let file = |scans: usize| [HEAD, &SCAN.repeat(scans), END].concat();
        // One is in a table of `HEAD`.
        assert!(!are_too_many(&file(MOST - 1)) && are_too_many(&file(MOST)));
    }
}
