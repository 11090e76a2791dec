//! Decides whether 1 or -1 means agreement: by option, by declaration, or by what people think of their own
//! statements.
//!
//! A sign is never guessed: a wrong guess would turn every opinion into its opposite.

use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    storage::rows::Row,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteSign {
    /// `agree=+1`, as all exports are meant to be.
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

/// Sign that the export declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DeclaredSign {
    #[default]
    Absent,
    One(VoteSign),
    Both,
    /// Something that is not understood.
    Unknown,
}

impl DeclaredSign {
    /// Combines two declarations.
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

/// Chooses the sign; also returns its origin and a note.
pub(super) fn choose_sign(
    option: Option<VoteSign>,
    declared: DeclaredSign,
) -> Result<(VoteSign, SignSource, Option<String>), ConvertError> {
    let override_declaration = |declared: &str, option: VoteSign| {
        let note =
            format!("The export declares {declared}; --vote-sign {} has the last word.", option.as_str());
        Ok((option, SignSource::Option, Some(note)))
    };
    match (option, declared) {
        (Some(option), DeclaredSign::Both) => override_declaration("both agree=+1 and agree=-1", option),
        (Some(option), DeclaredSign::Unknown) => {
            override_declaration("a vote convention that is not known", option)
        }
        (Some(option), DeclaredSign::One(declared)) if option != declared => {
            override_declaration(declared.as_str(), option)
        }
        (Some(option), _) => Ok((option, SignSource::Option, None)),
        (None, DeclaredSign::Both) => Err(sign_error(
            "the export declares two signs for a vote of agreement: --vote-sign says which one holds",
        )),
        (None, DeclaredSign::Unknown) => Err(sign_error(
            "the vote convention that the export declares is not known: --vote-sign says what holds",
        )),
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
    /// The export has.
    Declared,
    /// Option of the conversion, which overrules any declaration.
    Option,
}

fn sign_error(detail: &str) -> ConvertError {
    ConvertError::content("the input", None, ErrorKind::Sign, detail)
}

/// Counts by which a wrong sign shows.
#[derive(Debug)]
pub(super) struct SignCheck<'c> {
    authors: &'c [Option<u128>],
    published: &'c [Option<(u64, u64)>],
    /// Agrees and disagrees of each item, all events.
    counts_by_item: Vec<(u64, u64)>,
    own_votes: u64,
    own_disagrees: u64,
}

/// Fewer say nothing.
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
        if self.authors[item] == Some(row.who) {
            self.own_votes += 1;
            self.own_disagrees += u64::from(answer == Answer::Disagree);
        }
    }

    /// Items with agrees or disagrees as published, and none as counted.
    pub(super) fn count_unanswered_items(&self) -> u64 {
        let pairs = self.published.iter().zip(&self.counts_by_item);
        pairs
            .filter(|(published, counted)| published.is_some_and(|it| it != (0, 0)) && **counted == (0, 0))
            .count() as u64
    }

    /// Authors hardly ever disagree with themselves, and tallies hardly ever fit the wrong way round.
    pub(super) fn check(&self, file: &str, source: SignSource) -> Result<Option<String>, ConvertError> {
        let (mut matching, mut reversed) = (0_u64, 0_u64);
        for (published, counted) in self.published.iter().zip(&self.counts_by_item) {
            let Some(published) = published.filter(|(agrees, disagrees)| agrees != disagrees) else {
                continue;
            };
            matching += u64::from(published == *counted);
            reversed += u64::from(published == (counted.1, counted.0));
        }
        // Notes are for everybody, and authors may be few.
        let (evidence, public_evidence) =
            if self.own_votes >= MIN_EVIDENCE && self.own_disagrees * 2 > self.own_votes {
                let evidence = format!(
                    "{} of {} votes of authors on their own comments would disagree",
                    self.own_disagrees, self.own_votes
                );
                (evidence, "most authors would disagree with their own comments")
            } else if reversed >= MIN_EVIDENCE && reversed > matching {
                let evidence = "the votes fit the tallies of the comments only the other way round";
                (evidence.to_owned(), evidence)
            } else {
                return Ok(None);
            };
        let detail = match source {
            SignSource::Option => {
                return Ok(Some(format!("The sign is as --vote-sign says, although {public_evidence}.")));
            }
            SignSource::Declared => {
                "the export declares otherwise: --vote-sign agree=-1 turns it round, agree=+1 insists"
            }
            SignSource::Default => {
                "the sign is likely to be the database's: --vote-sign agree=-1 turns it round, agree=+1 \
                              insists"
            }
        };
        Err(ConvertError::content(file, None, ErrorKind::Sign, format!("{evidence}; {detail}")))
    }
}
