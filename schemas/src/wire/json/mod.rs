//! Strict JSON as a flat index over the client's own bytes: one pass checks everything and records where each value lies.
//!
//! It does not convert values into numbers or maps; whoever reads a node decides what it should be.

mod digest;
mod node;
mod scan;

pub use node::{Kind, Node};
pub use scan::{scan, scan_at, scan_to};

/// Where one value or key lies in the text.
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
    /// The root value; `text` must be the text that was scanned.
    pub fn root<'a>(&'a self, text: &'a [u8]) -> Node<'a> {
        self.node(text, 0)
    }

    /// The value with this index, as [`Node::index`] gave it.
    pub fn node<'a>(&'a self, text: &'a [u8], index: u32) -> Node<'a> {
        Node { text, tape: &self.0, at: index }
    }
}
