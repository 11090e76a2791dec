//! Strict JSON as a flat index over the client's own bytes: one pass checks everything and records where each value lies.
//!
//! It does not convert values into numbers or maps; whoever reads a node decides what it should be.

use bytes::{Buf as _, Bytes};

mod digest;
mod node;
mod positions;
mod scan;

pub use node::{Kind, Node};
pub use positions::in_order;
pub use scan::{scan, scan_at, scan_to};

/// Mark that some editors and programs put before UTF-8 text. It is no part of the JSON.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Removes a leading byte order mark.
pub fn skip_byte_order_mark(text: &mut Bytes) {
    if text.starts_with(BYTE_ORDER_MARK) {
        text.advance(BYTE_ORDER_MARK.len());
    }
}

/// Range of one value or key in the text.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    /// One past its last byte; the top bit says that a string holds escapes.
    end: u32,
    /// The entry after this value and everything in it.
    next: u32,
}

const ESCAPED: u32 = 1 << 31;

/// The values of a text in their order, containers before their members, keys before their values.
#[derive(Clone, Debug)]
pub struct Tape(Vec<Entry>);

impl Tape {
    /// The root value; `text` must be the text that was scanned. It is looked through once more, so that no value of it
    /// needs to be.
    pub fn root<'a>(&'a self, text: &'a [u8]) -> Node<'a> {
        Node { text: std::str::from_utf8(text).unwrap_or_default(), tape: &self.0, at: 0 }
    }
}
