//! Why a document cannot be brought into one form: what `digest` and `diff` answer to one that is not JSON.
//!
//! What makes a bundle invalid beyond that is `validate`'s.

use std::io;

use crate::{
    bundle::validate::Rule,
    json::{Flaw, Position, Stop, Why, canonical::Bad},
    unpack::Damaged,
};

/// A document that cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
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

impl Unfit {
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

    pub(crate) fn new(bad: Bad, at: Position) -> Self {
        let (rule, at) = match bad {
            Bad::Stop(Stop::Io(error)) => match Damaged::of(&error) {
                None => return Self::Io(error),
                Some(Damaged::Cut) => (Rule::Truncated, at),
                Some(Damaged::Spoiled) => (Rule::Packed, at),
                Some(Damaged::Followed) => (Rule::Trailing, at),
            },
            Bad::Stop(Stop::Enough) => return Self::Io(io::Error::other("the reading ended early")),
            Bad::Twice(name, at) => {
                let name = String::from_utf8_lossy(&name).chars().take(SHOWN).collect();
                return Self::Twice { name, at_line: at.line, offset: at.offset };
            }
            Bad::Large => return Self::Large { at_line: at.line, offset: at.offset },
            Bad::Stop(Stop::Fault(why, at)) => (why.into(), at),
            Bad::Flaw(flaw) => (flaw.into(), at),
            Bad::Huge => (Rule::Huge, at),
            Bad::Trailing => (Rule::Trailing, at),
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
