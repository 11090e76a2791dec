//! JSON tokenizer with token positions and bounded memory, canonical form, and a small writer.

pub(crate) mod canonical;
mod number;
mod reader;
mod text;
mod to_text;
pub(crate) mod write;

pub(crate) use number::Number;
pub(crate) use reader::{InvalidReason, Position, Reader, Stop};
pub(crate) use text::{Flaw, Text};
pub(crate) use to_text::{JsonText, MappedArray};

/// Limits of a JSON reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting of containers, including the document.
    pub depth: usize,
    /// Maximum bytes of one string.
    pub string: usize,
    /// Maximum members of one object, in addition to the fields of its form.
    pub members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, string: 16 << 20, members: 100_000 }
    }
}
