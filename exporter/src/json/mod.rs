//! JSON reader that knows where each token stands and needs bounded memory, and a small writer.

pub(crate) mod canonical;
mod number;
mod reader;
mod text;
mod to_text;
pub(crate) mod write;

pub(crate) use number::Number;
pub(crate) use reader::{Position, Reader, Stop, Why};
pub(crate) use text::{Flaw, Text};
pub(crate) use to_text::{Each, JsonText};

/// Limits of a JSON reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Deepest nesting of containers, including the document.
    pub depth: usize,
    /// Bytes of one string.
    pub string: usize,
    /// Members of one object beyond those of the form.
    pub members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64, string: 16 << 20, members: 100_000 }
    }
}
