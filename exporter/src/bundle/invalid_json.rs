//! Errors of `digest`, `diff` and `inspect` for documents that they cannot read.

use std::io;

use crate::{
    bundle::validate::Rule,
    json::{Flaw, InvalidReason, Position, Stop, canonical::CanonicalError},
    unpack::CompressionError,
};

/// Reason that a document cannot be hashed, compared or inspected, with its position.
#[derive(Debug, thiserror::Error)]
pub enum InvalidJson {
    #[error("line {at_line}, byte {offset}: {} {}", rule.id(), rule.message())]
    Content { rule: Rule, at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: {} {}: {name:?}", Rule::Twice.id(), Rule::Twice.message())]
    DuplicateName { name: String, at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: an element of {list} is not an object with an id")]
    MissingId { list: &'static str, at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: a value is too large to be sorted in memory")]
    TooLarge { at_line: u64, offset: u64 },
    #[error("line {at_line}, byte {offset}: the document is not a JSON object")]
    NotAnObject { at_line: u64, offset: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Maximum length of a quoted member name, in characters.
const MAX_NAME_CHARS: usize = 80;

impl InvalidJson {
    /// Stable identifier of the kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Content { .. } | Self::DuplicateName { .. } => "content",
            Self::MissingId { .. } => "no_id",
            Self::TooLarge { .. } => "large",
            Self::NotAnObject { .. } => "no_object",
            Self::Io(_) => "io",
        }
    }

    pub(crate) fn new(error: CanonicalError, at: Position) -> Self {
        let (rule, at) = match error {
            CanonicalError::Stop(Stop::Io(error)) => match CompressionError::of(&error) {
                None => return Self::Io(error),
                Some(CompressionError::Truncated) => (Rule::Truncated, at),
                Some(CompressionError::Damaged) => (Rule::Packed, at),
                Some(CompressionError::TrailingData) => (Rule::Trailing, at),
            },
            CanonicalError::Stop(Stop::StoppedByCaller) => {
                return Self::Io(io::Error::other("reading stopped before the end of the document"));
            }
            CanonicalError::DuplicateName(name, at) => {
                let name = String::from_utf8_lossy(&name).chars().take(MAX_NAME_CHARS).collect();
                return Self::DuplicateName { name, at_line: at.line, offset: at.offset };
            }
            CanonicalError::TooLarge => return Self::TooLarge { at_line: at.line, offset: at.offset },
            CanonicalError::Stop(Stop::Invalid(why, at)) => (why.into(), at),
            CanonicalError::Flaw(flaw) => (flaw.into(), at),
            CanonicalError::HugeNumber => (Rule::Huge, at),
            CanonicalError::TrailingData => (Rule::Trailing, at),
        };
        Self::at(rule, at)
    }

    pub(crate) fn at(rule: Rule, at: Position) -> Self {
        Self::Content { rule, at_line: at.line, offset: at.offset }
    }
}

impl From<InvalidReason> for Rule {
    fn from(reason: InvalidReason) -> Self {
        match reason {
            InvalidReason::Unexpected => Self::Syntax,
            InvalidReason::Truncated => Self::Truncated,
            InvalidReason::TooDeep => Self::Deep,
            InvalidReason::Encoding => Self::Encoding,
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
