//! Decides whether 1 or -1 means agreement: by option, by declaration, or by authors' votes on their own statements.
//!
//! The sign is never guessed: a wrong guess would invert every opinion.

use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    storage::rows::Row,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteSign {
    /// `agree=+1`, the documented export format.
    AgreeIsPlus,
    /// `agree=-1`, as in the source's database.
    AgreeIsMinus,
}

impl VoteSign {
    fn as_str(self) -> &'static str {
        match self {
            Self::AgreeIsPlus => "agree=+1",
            Self::AgreeIsMinus => "agree=-1",
        }
    }
}

/// Sign of votes declared by the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DeclaredSign {
    #[default]
    Absent,
    One(VoteSign),
    Both,
    /// Declaration that is not understood.
    Unknown,
}

impl DeclaredSign {
    /// Combines the declarations of two files.
    pub(super) fn combine(self, other: Self) -> Self {
        match (self, other) {
            (declared, Self::Absent) => declared,
            (Self::Absent, other) => other,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (one, other) if one == other => one,
            _ => Self::Both,
        }
    }
}

/// Chooses the sign. Also returns its origin and an optional note.
pub(super) fn choose_sign(
    option: Option<VoteSign>,
    declared: DeclaredSign,
) -> Result<(VoteSign, SignSource, Option<String>), ConvertError> {
    let override_declaration = |declared: &str, option: VoteSign| {
        let note = format!("The export declares {declared}; --vote-sign {} overrides it.", option.as_str());
        Ok((option, SignSource::Option, Some(note)))
    };
    match (option, declared) {
        (Some(option), DeclaredSign::Both) => override_declaration("both agree=+1 and agree=-1", option),
        (Some(option), DeclaredSign::Unknown) => override_declaration("an unknown vote convention", option),
        (Some(option), DeclaredSign::One(declared)) if option != declared => {
            override_declaration(declared.as_str(), option)
        }
        (Some(option), _) => Ok((option, SignSource::Option, None)),
        (None, DeclaredSign::Both) => {
            Err(sign_error("the export declares both signs for agreement: choose one with --vote-sign"))
        }
        (None, DeclaredSign::Unknown) => Err(sign_error(
            "the export declares an unknown vote convention: choose the sign with --vote-sign",
        )),
        // Exports are meant to use +1, so the declaration may be a mistake that inverts all votes.
        (None, DeclaredSign::One(VoteSign::AgreeIsMinus)) => {
            Err(sign_error("the export declares agree=-1: confirm it with --vote-sign agree=-1"))
        }
        (None, DeclaredSign::One(sign)) => Ok((sign, SignSource::Declared, None)),
        (None, DeclaredSign::Absent) => Ok((VoteSign::AgreeIsPlus, SignSource::Default, None)),
    }
}

/// Origin of the chosen sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignSource {
    Default,
    /// Declaration in the export.
    Declared,
    /// Option of the conversion, which overrides any declaration.
    Option,
}

fn sign_error(detail: &str) -> ConvertError {
    ConvertError::content("the input", None, ErrorKind::Sign, detail)
}

/// Statistics that reveal a wrong sign.
#[derive(Debug)]
pub(super) struct SignCheck<'c> {
    authors: &'c [Option<u128>],
    published: &'c [Option<(u64, u64)>],
    /// Agree and disagree votes by item, including replaced ones.
    counts_by_item: Vec<(u64, u64)>,
    own_votes: u64,
    own_disagrees: u64,
}

/// Minimum number of votes or items for a conclusion.
const MIN_EVIDENCE: u64 = 5;

impl<'c> SignCheck<'c> {
    pub(super) fn new(authors: &'c [Option<u128>], published: &'c [Option<(u64, u64)>]) -> Self {
        Self {
            authors,
            published,
            counts_by_item: vec![(0, 0); authors.len()],
            own_votes: 0,
            own_disagrees: 0,
        }
    }

    #[inline]
    pub(super) fn count(&mut self, row: Row) {
        let item = row.subject as usize;
        let answer = row.answer();
        match answer {
            Answer::Agree => self.counts_by_item[item].0 += 1,
            Answer::Disagree => self.counts_by_item[item].1 += 1,
            _ => {}
        }
        if self.authors[item] == Some(row.pseudonym) {
            self.own_votes += 1;
            self.own_disagrees += u64::from(answer == Answer::Disagree);
        }
    }

    /// Number of items with published votes but none in the list.
    pub(super) fn count_unanswered_items(&self) -> u64 {
        let pairs = self.published.iter().zip(&self.counts_by_item);
        pairs
            .filter(|(published, recount)| {
                published.is_some_and(|counts| counts != (0, 0)) && **recount == (0, 0)
            })
            .count() as u64
    }

    /// Checks the sign: authors rarely disagree with their own statements, and published counts rarely match swapped
    /// votes.
    pub(super) fn check(&self, file: &str, source: SignSource) -> Result<Option<String>, ConvertError> {
        let (mut matching, mut reversed) = (0_u64, 0_u64);
        for (published, recount) in self.published.iter().zip(&self.counts_by_item) {
            // Equal counts match both signs and prove neither.
            let Some(published) = published.filter(|(agrees, disagrees)| agrees != disagrees) else {
                continue;
            };
            matching += u64::from(published == *recount);
            reversed += u64::from(published == (recount.1, recount.0));
        }
        // Public notes omit the numbers: the authors may be few.
        let (evidence, public_evidence) =
            if self.own_votes >= MIN_EVIDENCE && self.own_disagrees * 2 > self.own_votes {
                let evidence = format!(
                    "{} of {} votes of authors on their own comments would disagree",
                    self.own_disagrees, self.own_votes
                );
                (evidence, "most authors would disagree with their own comments")
            } else if reversed >= MIN_EVIDENCE && reversed > matching {
                let evidence = "the votes match the tallies of the comments only when inverted";
                (evidence.to_owned(), evidence)
            } else {
                return Ok(None);
            };
        let detail = match source {
            SignSource::Option => {
                return Ok(Some(format!("The sign is set by --vote-sign, although {public_evidence}.")));
            }
            SignSource::Declared => {
                "the export declares otherwise: invert with --vote-sign agree=-1, or confirm with agree=+1"
            }
            SignSource::Default => {
                "the sign is probably the database's: invert with --vote-sign agree=-1, or confirm with agree=+1"
            }
        };
        Err(ConvertError::content(file, None, ErrorKind::Sign, format!("{evidence}; {detail}")))
    }
}
