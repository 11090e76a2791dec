//! Encodes stored values: a row's write time, expiry, version and cells, or a tombstone's write time.
//!
//! Layout: flags, write time, then expiry and version if flagged, then each cell that is not null as the id of its column,
//! its length and its bytes. Column ids are assigned by the table's [`Layout`], so that columns can be added and reordered.
//! Cells of unknown columns are skipped.

use std::{borrow::Cow, cmp::Ordering};

use bytes::Bytes;
use uuid::Uuid;

use super::layout::Layout;
use crate::{Cell, Kind, Mismatch, Version};

const TOMBSTONE: u8 = 1;
const EXPIRES: u8 = 2;
const VERSIONED: u8 = 4;

/// Header of a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) is_tombstone: bool,
    /// Microseconds since 1970.
    pub(crate) written_at: i64,
    /// Milliseconds since 1970.
    pub(crate) expires_at: Option<i64>,
    pub(crate) version: Option<Version>,
}

impl Header {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(
            flag(self.is_tombstone, TOMBSTONE)
                | flag(self.expires_at.is_some(), EXPIRES)
                | flag(self.version.is_some(), VERSIONED),
        );
        out.extend_from_slice(&self.written_at.to_be_bytes());
        if let Some(expires_at) = self.expires_at {
            out.extend_from_slice(&expires_at.to_be_bytes());
        }
        if let Some(version) = self.version {
            out.extend_from_slice(&version.to_be_bytes());
        }
    }

    /// Decodes the header and returns it with the bytes behind it.
    pub(crate) fn read(value: &[u8]) -> Option<(Self, &[u8])> {
        let (&flags, mut rest) = value.split_first()?;
        let mut number = || {
            let (first_bytes, tail) = rest.split_first_chunk::<8>()?;
            rest = tail;
            Some(i64::from_be_bytes(*first_bytes))
        };
        let header = Self {
            is_tombstone: flags & TOMBSTONE != 0,
            written_at: number()?,
            expires_at: if flags & EXPIRES != 0 { Some(number()?) } else { None },
            version: if flags & VERSIONED != 0 { Some(number()?) } else { None },
        };
        Some((header, rest))
    }

    /// True if readers see the row at this time, in milliseconds.
    pub(crate) fn is_visible(&self, now: i64) -> bool {
        !self.is_tombstone && self.expires_at.is_none_or(|expires_at| expires_at > now)
    }
}

/// True if `new` replaces `old`. The later write time wins, then a deletion, then the greater bytes, so that every order
/// of arrival ends in the same row.
pub(crate) fn wins(new: &[u8], old: &[u8]) -> bool {
    let (Some((new_header, new_cells)), Some((old_header, old_cells))) =
        (Header::read(new), Header::read(old))
    else {
        return true;
    };
    let order = (new_header.written_at, new_header.is_tombstone)
        .cmp(&(old_header.written_at, old_header.is_tombstone))
        .then_with(|| new_cells.cmp(old_cells));
    order == Ordering::Greater
}

/// Appends the cells of a row's value columns, without the version, which is stored in the header.
pub(crate) fn push_cells(out: &mut Vec<u8>, cells: &[Cell<'_>], layout: &Layout) {
    for (cell, &id) in cells.iter().zip(&layout.ids) {
        match cell {
            Cell::Null => {}
            Cell::Text(text) => push_cell(out, id, text.as_bytes()),
            Cell::Blob(bytes) => push_cell(out, id, bytes),
            Cell::BigInt(number) | Cell::Timestamp(number) => push_cell(out, id, &number.to_be_bytes()),
            Cell::Int(number) => push_cell(out, id, &number.to_be_bytes()),
            Cell::Bool(value) => push_cell(out, id, &[u8::from(*value)]),
            Cell::Double(number) => push_cell(out, id, &number.to_be_bytes()),
            Cell::Uuid(uuid) => push_cell(out, id, uuid.as_bytes()),
        }
    }
}

fn push_cell(out: &mut Vec<u8>, id: u8, bytes: &[u8]) {
    out.push(id);
    let mut length = bytes.len();
    loop {
        // Seven bits at a time, the lowest first.
        let [low, ..] = length.to_le_bytes();
        length >>= 7;
        if length == 0 {
            out.push(low & 0x7F);
            break;
        }
        out.push(low | 0x80);
    }
    out.extend_from_slice(bytes);
}

/// Reads the cells behind a header into `out`, in the order of the declared value columns.
///
/// `value` is the whole value: blobs are slices of it, not copies.
pub(crate) fn pull_cells<'a>(
    value: &'a Bytes,
    cells: &'a [u8],
    layout: &Layout,
    out: &mut Vec<Cell<'a>>,
) -> Result<(), Mismatch> {
    const TORN: Mismatch = Mismatch("the stored value ends too early");
    let start = out.len();
    out.resize(start + layout.ids.len(), Cell::Null);
    let mut remaining_bytes = cells;
    while let Some((&id, tail)) = remaining_bytes.split_first() {
        let (length, tail) = pull_length(tail).ok_or(TORN)?;
        let (bytes, tail) = tail.split_at_checked(length).ok_or(TORN)?;
        remaining_bytes = tail;
        // Unknown ids belong to columns of another version.
        if let Some(column) = layout.column_by_id[usize::from(id)] {
            let column = usize::from(column);
            out[start + column] = decode_cell(value, bytes, layout.kinds[column])?;
        }
    }
    Ok(())
}

fn pull_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut length = 0_usize;
    // Five bytes hold 35 bits, more than the length of any value.
    for (index, byte) in bytes.iter().enumerate().take(5) {
        length |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((length, &bytes[index + 1..]));
        }
    }
    None
}

fn decode_cell<'a>(value: &Bytes, bytes: &'a [u8], kind: Kind) -> Result<Cell<'a>, Mismatch> {
    const LENGTH: Mismatch = Mismatch("a stored value of the wrong length");
    fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Mismatch> {
        bytes.try_into().map_err(|_| LENGTH)
    }
    Ok(match kind {
        Kind::Text => Cell::Text(Cow::Borrowed(
            std::str::from_utf8(bytes).map_err(|_| Mismatch("text that is not UTF-8"))?,
        )),
        Kind::Blob => Cell::Blob(value.slice_ref(bytes)),
        Kind::BigInt => Cell::BigInt(i64::from_be_bytes(array(bytes)?)),
        Kind::Timestamp => Cell::Timestamp(i64::from_be_bytes(array(bytes)?)),
        Kind::Int => Cell::Int(i32::from_be_bytes(array(bytes)?)),
        Kind::Bool => Cell::Bool(array::<1>(bytes)? != [0]),
        Kind::Double => Cell::Double(f64::from_be_bytes(array(bytes)?)),
        Kind::Uuid => Cell::Uuid(Uuid::from_bytes(array(bytes)?)),
    })
}
