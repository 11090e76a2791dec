//! The scans of a JPEG that is made of several: how many there are, and where each ends.
//!
//! It decodes none.

use memchr::memchr_iter;

/// Scans that a picture may have. Each goes over the whole picture, and takes a few bytes in the file; encoders make
/// about ten.
pub(super) const MOST: usize = 100;

const START: u8 = 0xda;

pub(super) fn are_too_many(bytes: &[u8]) -> bool {
    // Within a scan these two bytes never follow each other.
    memchr_iter(0xff, bytes).filter(|at| bytes.get(at + 1) == Some(&START)).nth(MOST).is_some()
}

/// Where the next marker is that is not part of the scan's data, or the file's end.
pub(super) fn end_of_scan(bytes: &[u8], from: usize) -> usize {
    let data = bytes.get(from..).unwrap_or_default();
    let is_end = |at: &usize| !matches!(data.get(at + 1), Some(0 | 0xd0..=0xd7 | 0xff));
    memchr_iter(0xff, data).find(is_end).map_or(bytes.len(), |at| from + at)
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
