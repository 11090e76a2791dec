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
    fn written(self) -> &'static str {
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
    Nothing,
    One(VoteSign),
    Both,
    /// Something that is not understood.
    Unknown,
}

impl DeclaredSign {
    /// Combines two declarations.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, Self::Nothing) => one,
            (Self::Nothing, other) => other,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (one, other) if one == other => one,
            _ => Self::Both,
        }
    }
}

/// Chooses the sign; also returns its origin and a note.
pub(super) fn settle(
    told: Option<VoteSign>,
    declared: DeclaredSign,
) -> Result<(VoteSign, SignSource, Option<String>), ConvertError> {
    let overruled = |declared: &str, told: VoteSign| {
        let note =
            format!("The export declares {declared}; --vote-sign {} has the last word.", told.written());
        Ok((told, SignSource::Told, Some(note)))
    };
    match (told, declared) {
        (Some(told), DeclaredSign::Both) => overruled("both agree=+1 and agree=-1", told),
        (Some(told), DeclaredSign::Unknown) => overruled("a vote convention that is not known", told),
        (Some(told), DeclaredSign::One(declared)) if told != declared => overruled(declared.written(), told),
        (Some(told), _) => Ok((told, SignSource::Told, None)),
        (None, DeclaredSign::Both) => Err(refused(
            "the export declares two signs for a vote of agreement: --vote-sign says which one holds",
        )),
        (None, DeclaredSign::Unknown) => Err(refused(
            "the vote convention that the export declares is not known: --vote-sign says what holds",
        )),
        (None, DeclaredSign::One(VoteSign::AgreeIsMinus)) => {
            Err(refused("the export declares agree=-1: confirm it with --vote-sign agree=-1"))
        }
        (None, DeclaredSign::One(sign)) => Ok((sign, SignSource::Declared, None)),
        (None, DeclaredSign::Nothing) => Ok((VoteSign::AgreeIsPlus, SignSource::Nothing, None)),
    }
}

/// Origin of the chosen sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignSource {
    Nothing,
    /// The export has.
    Declared,
    /// Option of the conversion, which overrules any declaration.
    Told,
}

fn refused(detail: &str) -> ConvertError {
    ConvertError::content("the input", None, ErrorKind::Sign, detail)
}

/// Counts by which a wrong sign shows.
#[derive(Debug)]
pub(super) struct SignCheck<'c> {
    authors: &'c [Option<u128>],
    published: &'c [Option<(u64, u64)>],
    /// Agrees and disagrees of each item, all events.
    counted: Vec<(u64, u64)>,
    own: u64,
    own_disagree: u64,
}

/// Fewer say nothing.
const LEAST: u64 = 5;

impl<'c> SignCheck<'c> {
    pub(super) fn new(authors: &'c [Option<u128>], published: &'c [Option<(u64, u64)>]) -> Self {
        Self { authors, published, counted: vec![(0, 0); authors.len()], own: 0, own_disagree: 0 }
    }

    #[inline]
    pub(super) fn see(&mut self, row: Row) {
        let item = row.subject as usize;
        let answer = row.answer();
        match answer {
            Answer::Agree => self.counted[item].0 += 1,
            Answer::Disagree => self.counted[item].1 += 1,
            _ => {}
        }
        if self.authors[item] == Some(row.who) {
            self.own += 1;
            self.own_disagree += u64::from(answer == Answer::Disagree);
        }
    }

    /// Items with agrees or disagrees as published, and none as counted.
    pub(super) fn unanswered(&self) -> u64 {
        let both = self.published.iter().zip(&self.counted);
        both.filter(|(published, counted)| published.is_some_and(|it| it != (0, 0)) && **counted == (0, 0))
            .count() as u64
    }

    /// Authors hardly ever disagree with themselves, and tallies hardly ever fit the wrong way round.
    pub(super) fn verdict(&self, file: &str, said: SignSource) -> Result<Option<String>, ConvertError> {
        let (mut straight, mut turned) = (0_u64, 0_u64);
        for (published, counted) in self.published.iter().zip(&self.counted) {
            let Some(published) = published.filter(|(agrees, disagrees)| agrees != disagrees) else {
                continue;
            };
            straight += u64::from(published == *counted);
            turned += u64::from(published == (counted.1, counted.0));
        }
        // Notes are for everybody, and authors may be few.
        let (found, said_so) = if self.own >= LEAST && self.own_disagree * 2 > self.own {
            let found = format!(
                "{} of {} votes of authors on their own comments would disagree",
                self.own_disagree, self.own
            );
            (found, "most authors would disagree with their own comments")
        } else if turned >= LEAST && turned > straight {
            let found = "the votes fit the tallies of the comments only the other way round";
            (found.to_owned(), found)
        } else {
            return Ok(None);
        };
        let detail = match said {
            SignSource::Told => {
                return Ok(Some(format!("The sign is as --vote-sign says, although {said_so}.")));
            }
            SignSource::Declared => {
                "the export declares otherwise: --vote-sign agree=-1 turns it round, agree=+1 insists"
            }
            SignSource::Nothing => {
                "the sign is likely to be the database's: --vote-sign agree=-1 turns it round, agree=+1 \
                              insists"
            }
        };
        Err(ConvertError::content(file, None, ErrorKind::Sign, format!("{found}; {detail}")))
    }
}
