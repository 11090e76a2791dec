//! The entries of a TIFF file's first directory, looked at before a decoder makes room for their values. What the values
//! mean is not told here.

use super::super::Refusal;
use crate::fingerprint::reason;

/// What decoders ask for: sizes, samples, colours, strips, tiles and tables.
const READ: [u16; 24] = [
    254, 255, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338,
    339, 347, 530,
];

/// Values of one entry. The decoder makes room for as many as the entry says, 32 bytes each, before it has seen one.
const MOST: u64 = 1 << 17;

pub(super) struct Directory<'a> {
    bytes: &'a [u8],
    pub(super) is_big_endian: bool,
    /// Offsets and counts have eight bytes.
    pub(super) is_wide: bool,
    first: usize,
    entries: usize,
}

pub(super) struct Entry {
    pub(super) at: usize,
    pub(super) tag: u16,
    pub(super) kind: u16,
    count: u64,
}

impl<'a> Directory<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (is_big_endian, is_wide) = match bytes.get(..4)? {
            b"II*\0" => (false, false),
            b"MM\0*" => (true, false),
            b"II+\0" => (false, true),
            b"MM\0+" => (true, true),
            _ => return None,
        };
        let mut directory = Self { bytes, is_big_endian, is_wide, first: 0, entries: 0 };
        let (at, offset, count) = if is_wide { (8, 8, 8) } else { (4, 4, 2) };
        let begin = usize::try_from(directory.number(at, offset)?).ok()?;
        directory.entries = usize::try_from(directory.number(begin, count)?).ok()?;
        directory.first = begin.checked_add(count)?;
        Some(directory)
    }

    pub(super) fn short(&self, at: usize) -> Option<u16> {
        u16::try_from(self.number(at, 2)?).ok()
    }

    /// Those that lie within the file.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let (length, count) = if self.is_wide { (20, 8) } else { (12, 4) };
        (0..self.entries).map_while(move |nth| {
            let at = self.first.checked_add(nth.checked_mul(length)?)?;
            let (tag, kind) = (self.short(at)?, self.short(at.checked_add(2)?)?);
            Some(Entry { at, tag, kind, count: self.number(at.checked_add(4)?, count)? })
        })
    }

    /// Refuses a file of which the decoder would keep more values than it is given room for.
    pub(super) fn hold(&self) -> Result<(), Refusal> {
        match self.entries().find(|entry| READ.contains(&entry.tag) && entry.count > MOST) {
            None => Ok(()),
            Some(entry) if entry.count > self.bytes.len() as u64 => Err(Refusal::BROKEN),
            Some(_) => Err(Refusal::TooLarge(reason::MEMORY)),
        }
    }

    fn number(&self, at: usize, length: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(length)?)?;
        let join = |number, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.is_big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
    }
}
