//! Errors of `digest`, `diff` and `inspect` for documents that are not valid JSON.

use std::io;

use crate::{
    bundle::validate::Rule,
    json::{Flaw, Position, Stop, Why, canonical::CanonicalError},
    unpack::CompressionError,
};

/// A document that cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum InvalidJson {
    #[error("line {at_line}, byte {offset}: {} {}", rule.id(), rule.says())]
    Content { rule: Rule, at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: {} {}: {name:?}", Rule::Twice.id(), Rule::Twice.says())]
    Twice { name: String, at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: an element of the list {list} has no id")]
    NoId { list: &'static str, at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: a value is too large to be put in order")]
    Large { at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: the document is no object")]
    NoObject { at_line: u64, offset: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Characters of a name that are shown.
const SHOWN: usize = 80;

impl InvalidJson {
    /// A stable word for the kind of fault.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Content { .. } | Self::Twice { .. } => "content",
            Self::NoId { .. } => "no_id",
            Self::Large { .. } => "large",
            Self::NoObject { .. } => "no_object",
            Self::Io(_) => "io",
        }
    }

    pub(crate) fn new(bad: CanonicalError, at: Position) -> Self {
        let (rule, at) = match bad {
            CanonicalError::Stop(Stop::Io(error)) => match CompressionError::of(&error) {
                None => return Self::Io(error),
                Some(CompressionError::Cut) => (Rule::Truncated, at),
                Some(CompressionError::Spoiled) => (Rule::Packed, at),
                Some(CompressionError::Followed) => (Rule::Trailing, at),
            },
            CanonicalError::Stop(Stop::Enough) => {
                return Self::Io(io::Error::other("the reading ended early"));
            }
            CanonicalError::Twice(name, at) => {
                let name = String::from_utf8_lossy(&name).chars().take(SHOWN).collect();
                return Self::Twice { name, at_line: at.line, offset: at.offset };
            }
            CanonicalError::Large => return Self::Large { at_line: at.line, offset: at.offset },
            CanonicalError::Stop(Stop::Invalid(why, at)) => (why.into(), at),
            CanonicalError::Flaw(flaw) => (flaw.into(), at),
            CanonicalError::Huge => (Rule::Huge, at),
            CanonicalError::Trailing => (Rule::Trailing, at),
        };
        Self::at(rule, at)
    }

    pub(crate) fn at(rule: Rule, at: Position) -> Self {
        Self::Content { rule, at_line: at.line, offset: at.offset }
    }
}

impl From<Why> for Rule {
    fn from(why: Why) -> Self {
        match why {
            Why::Unexpected => Self::Syntax,
            Why::Truncated => Self::Truncated,
            Why::Deep => Self::Deep,
            Why::Encoding => Self::Encoding,
        }
    }
}

impl From<Flaw> for Rule {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Encoding => Self::Encoding,
            Flaw::Control => Self::Control,
            Flaw::Escape => Self::Escape,
            Flaw::Surrogate => Self::Surrogate,
            Flaw::Long => Self::Long,
        }
    }
}
