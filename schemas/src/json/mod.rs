//! Strict JSON parser: one pass checks a text and records the range of each value. Readers of a [`Node`] convert it to
//! a type.

use bytes::{Buf as _, Bytes};

mod digest;
mod node;
mod positions;
mod scan;

pub use node::{Kind, Node};
pub use positions::in_order;
pub use scan::{scan, scan_at, scan_to};

/// Byte order mark that some editors put before UTF-8 text. RFC 8259 does not count it as JSON.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Removes a leading byte order mark.
pub fn skip_byte_order_mark(text: &mut Bytes) {
    // Removed from the bytes themselves, so that pointers and digests ignore it.
    if text.starts_with(BYTE_ORDER_MARK) {
        text.advance(BYTE_ORDER_MARK.len());
    }
}

/// Range of one value or key in the text.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    /// Offset after the last byte. The top bit is set for a string with escapes.
    end: u32,
    /// Index of the first entry after this value and its members.
    next: u32,
}

const ESCAPED: u32 = 1 << 31;

/// Values of a text in text order: containers precede their members, keys precede their values.
#[derive(Clone, Debug)]
pub struct Tape(Vec<Entry>);

impl Tape {
    /// Returns the root value. `text` must be the scanned text. The UTF-8 check here covers the whole text once, so
    /// reads of single values need none.
    pub fn root<'a>(&'a self, text: &'a [u8]) -> Node<'a> {
        Node { text: std::str::from_utf8(text).unwrap_or_default(), tape: &self.0, index: 0 }
    }
}
