//! Finds and counts the scans of a JPEG with several scans, without decoding them.

use memchr::memchr_iter;

use super::{
    frame::Frame,
    header::{END, JpegHeader, next_marker},
};

/// Number of scans allowed for pictures of any size. Each scan processes the whole picture but needs only a few bytes in
/// the file, so a limit is necessary; encoders write about ten.
const MIN_SCAN_LIMIT: usize = 100;

/// Number of blocks that all scans of a small component may process, and the fixed cost of a scan in blocks.
const MAX_SCANNED_BLOCKS: usize = MIN_SCAN_LIMIT << 18;
const BLOCKS_PER_SCAN: usize = 256;

pub(super) fn max_scans(frame: &Frame) -> usize {
    MIN_SCAN_LIMIT.max(MAX_SCANNED_BLOCKS / (frame.columns * frame.rows + BLOCKS_PER_SCAN))
}

const START: u8 = 0xda;

pub(super) fn has_too_many_scans(bytes: &[u8]) -> bool {
    // These two bytes cannot occur in the data of a scan.
    memchr_iter(0xff, bytes).filter(|at| bytes.get(at + 1) == Some(&START)).nth(MIN_SCAN_LIMIT).is_some()
}

/// Returns the offset of the first marker after the data of a scan, or the end of the file.
pub(super) fn end_of_scan(bytes: &[u8], from: usize) -> usize {
    let data = bytes.get(from..).unwrap_or_default();
    let is_end = |at: &usize| !matches!(data.get(at + 1), Some(0..=0xbf | 0xd0..=0xd7 | 0xff));
    memchr_iter(0xff, data).find(is_end).map_or(bytes.len(), |at| from + at)
}

/// Iterator over the component selectors of each scan, up to the end of the picture.
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
                // These markers have no segment.
                0x01..=0xbf | 0xd0..=0xd8 => {}
                _ => {
                    let length = usize::from(u16::from_be_bytes(*after.first_chunk()?)).max(2);
                    self.at += length;
                    if marker == START {
                        self.at = end_of_scan(self.bytes, self.at);
                        let (count, selectors) = after.get(2..length)?.split_first()?;
                        return selectors.get(..2 * usize::from(*count));
                    }
                }
            }
        }
    }
}

fn component_ids(selectors: &[u8]) -> impl Iterator<Item = u8> {
    selectors.iter().copied().step_by(2)
}

/// True if several scans of a sequential file contain the component.
pub(super) fn is_repeated(bytes: &[u8], header: &JpegHeader, component: usize) -> bool {
    let is_named =
        |selectors: &&[u8]| component_ids(selectors).any(|id| id == header.components[component].id);
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
    fn scan_ends_at_the_first_marker_outside_its_data() {
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
    fn allowed_number_of_scans_is_not_too_many() {
        let file = |scans: usize| [HEAD, &SCAN.repeat(scans), END].concat();
        // One is in a table of `HEAD`.
        assert!(!has_too_many_scans(&file(MIN_SCAN_LIMIT - 1)) && has_too_many_scans(&file(MIN_SCAN_LIMIT)));
    }
}
