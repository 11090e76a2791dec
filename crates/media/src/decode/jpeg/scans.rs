//! The scans of a JPEG that is made of several: how many there are, and which of them luma needs.
//!
//! It decodes none; what it cannot follow, it leaves as it is.

use memchr::memchr_iter;

#[cfg(any(feature = "turbo", test))]
use super::header::next_marker;

/// Scans that a picture may have. Each goes over the whole picture, and takes a few bytes in the file; encoders make
/// about ten.
pub(super) const MOST: usize = 100;

const START: u8 = 0xda;

pub(super) fn are_too_many(bytes: &[u8]) -> bool {
    // Within a scan these two bytes never follow each other.
    memchr_iter(0xff, bytes).filter(|at| bytes.get(at + 1) == Some(&START)).nth(MOST).is_some()
}

/// The file without the scans that do not have the component; nothing if all have it. No component depends on another
/// one's scans, and those of colours are a third of a file with as much of them as of luma.
#[cfg(any(feature = "turbo", test))]
pub(super) fn of_component(bytes: &[u8], component: u8) -> Option<Vec<u8>> {
    let mut kept: Option<Vec<u8>> = None;
    let (mut done, mut at) = (0, 2);
    while let Some((marker, after)) = bytes.get(at..).and_then(next_marker) {
        let begins = bytes.len() - after.len();
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            at = begins;
            continue;
        }
        let Some(length) = after.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length))) else {
            break;
        };
        let Some(segment) = after.get(2..length.max(2)).filter(|_| marker != 0xd9) else { break };
        at = begins + length.max(2);
        if marker != START {
            continue;
        }
        at = end_of_scan(bytes, at);
        let [count, components @ ..] = segment else { break };
        let mut components = components.chunks(2).take(usize::from(*count));
        if !components.any(|named| named[0] == component) {
            let kept = kept.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
            kept.extend(&bytes[done..begins - 2]);
            done = at;
        }
    }
    kept.map(|mut kept| {
        kept.extend(&bytes[done..]);
        kept
    })
}

/// Where the next marker is that is not part of the scan's data, or the file's end.
pub(super) fn end_of_scan(bytes: &[u8], from: usize) -> usize {
    let data = bytes.get(from..).unwrap_or_default();
    let is_end = |at: &usize| !matches!(data.get(at + 1), Some(0 | 0xd0..=0xd7 | 0xff));
    memchr_iter(0xff, data).find(is_end).map_or(bytes.len(), |at| from + at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn scan(components: &[u8], data: &[u8]) -> Vec<u8> {
        let named: Vec<u8> = components.iter().flat_map(|id| [*id, 0]).collect();
        let length = u8::try_from(6 + named.len()).unwrap();
        let count = u8::try_from(components.len()).unwrap();
        [&[0xff, START, 0, length, count], &named[..], &[0, 63, 0], data].concat()
    }

    const HEAD: &[u8] = &[0xff, 0xd8, 0xff, 0xc4, 0, 4, 0xff, START];
    const TABLE: &[u8] = &[0xff, 0xc4, 0, 3, 7];
    const END: &[u8] = &[0xff, 0xd9];

    #[test]
    fn scans_without_the_component_are_left_out_and_what_is_between_them_stays() {
        let all = scan(&[1, 2, 3], &[4, 0xff, 0, 5]);
        let luma = scan(&[1], &[6, 0xff, 0xd0, 7]);
        let colour = scan(&[2], &[8, 0xff, 0, 0xff, 0xd7, 9]);
        let file = [HEAD, &all, &colour, TABLE, &colour, &luma, TABLE, &colour, END].concat();
        let kept = [HEAD, &all, TABLE, &luma, TABLE, END].concat();
        assert_eq!(of_component(&file, 1).unwrap(), kept);
        assert_eq!(of_component(&kept, 1), None);
    }

    #[test]
    fn what_cannot_be_followed_stays() {
        let (luma, colour) = (scan(&[1], &[6]), scan(&[2], &[8, 0xff, 0]));
        let whole = [HEAD, &colour, &luma, END].concat();
        let kept = of_component(&whole, 1).unwrap();
        for cut in 0..whole.len() {
            let (file, left) = (&whole[..cut], kept.len().min(cut));
            match of_component(file, 1) {
                None => assert!(cut < HEAD.len() + colour.len(), "{cut}"),
                Some(file) => assert!(kept[..left].starts_with(&file) || file == kept[..file.len()], "{cut}"),
            }
        }
        assert_eq!(of_component(&[HEAD, &luma, &[0xff], &colour[1..3]].concat(), 1), None);
    }

    #[test]
    fn as_many_scans_as_allowed_are_not_too_many() {
        let file = |scans: usize| [HEAD, &scan(&[1], &[3, 0xff, 0]).repeat(scans), END].concat();
        // One is in a table of `HEAD`.
        assert!(!are_too_many(&file(MOST - 1)) && are_too_many(&file(MOST)));
    }
}
