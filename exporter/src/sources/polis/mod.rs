//! Adapter for Polis and its relatives, in six variants of exports.
//!
//! Columns are found by name, and the sign of votes is settled in `vote_sign` before any vote is read.

mod comments;
mod fast_rows;
mod matrix;
mod summary;
mod truncation;
mod vote_sign;
mod votes;

use std::sync::Arc;

pub use self::vote_sign::VoteSign;
use self::{
    comments::Comments,
    vote_sign::{DeclaredSign, SignCheck, SignSource},
};
use crate::{
    error::ConvertError,
    input::{Limits, Member, Role, absent, check_name, check_summary, missing, need, one_of, unless_broken},
    meter::Meter,
    model::{BundleHeader, ItemIndex, Source},
    privacy::participants::{ParticipantRegistry, RegistryFor, scope},
    storage::rows::{Read, Row, order::Flow},
};

/// The shapes of exports, in the order in which they came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The archive of the first server, to 2024.
    A,
    /// Variant A without times as text.
    B,
    /// The first export of the second server: seconds, bodies without quotes.
    C,
    /// The second server's.
    D,
    /// Variant D with its format declared.
    E,
    /// Exports of other tools that write the format.
    F,
}

impl Variant {
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }
}

/// Options for Polis exports.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub variant: Option<Variant>,
    pub vote_sign: Option<VoteSign>,
    /// Ids of participants whose statements are the organizer's.
    pub organizers: Vec<String>,
}

/// An export whose statements have been read.
#[derive(Debug)]
pub(crate) struct Polis {
    votes: Option<Member>,
    matrix: Option<Member>,
    /// The file of comments.
    comments: String,
    keys: ItemIndex,
    /// Author by item, to check the sign of votes.
    authors: Vec<Option<u128>>,
    /// Published agrees and disagrees by item.
    published: Vec<Option<(u64, u64)>>,
    sign: VoteSign,
    said: SignSource,
    pub(crate) variant: Variant,
}

const TOOL: &str = "polis";
const SCHEMA: &str = "https://compdemocracy.org/export/";

impl Polis {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        options: &Options,
        source_id: Option<&str>,
        people_of: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let one = |role| one_of(files, role);
        let (votes, matrix) = (one(Role::PolisVotes)?, one(Role::PolisMatrix)?);
        for role in [Role::PolisVotes, Role::PolisMatrix] {
            check_name(files, limits, role)?;
        }
        check_summary(files, limits)?;
        let comments = need(files, limits, Role::PolisComments, "the file of comments (comments.csv)")?;
        if votes.is_none() && matrix.is_none() {
            let either = "a file of votes (votes.csv) or of participants (participants-votes.csv)";
            return Err(missing(files, limits, Role::PolisVotes, either));
        }
        let summary = summary::Summary::read(one(Role::PolisSummary)?, limits)?;
        let format = summary::Format::read(one(Role::PolisFormat)?, limits)?;
        let named_old =
            matrix.is_some_and(|matrix| matrix.name.to_lowercase().contains("participants-votes"));
        let look = comments::look(comments, limits)?;
        let declared = summary.sign.and(format.sign);
        let found = look.variant(declared != DeclaredSign::Nothing, named_old, summary.has_views);
        let variant = options.variant.unwrap_or(found);
        let (sign, said, overruled) = vote_sign::settle(options.vote_sign, declared)?;

        let known = source_id.map(str::to_owned).or_else(|| summary.id());
        let scope = source_id.map(str::to_owned).or_else(|| summary.address()).map(|id| scope(TOOL, &id));
        let mut people = people_of(scope.as_deref())?;
        let unknown = || summary.invented().or_else(|| votes.or(matrix).map(Member::stem));
        let id = known.or_else(unknown).unwrap_or_default();
        let mut read = Comments::read(comments, limits, variant, sign, &options.organizers, &people)?;
        let keys = ItemIndex::sort(&mut read.items, &comments.name)?;
        let mut notes = read.notes;
        notes.extend(format.notes);
        notes.extend(overruled);
        if variant != found {
            let (variant, found) = (variant.name(), found.name());
            notes.push(format!("--variant says {variant}; by itself the export would be taken for {found}."));
        }
        let (mut groups, mut rows) = (Vec::new(), vec![(Role::PolisComments, read.rows)]);
        if let Some(matrix) = matrix {
            let said = votes.map(|_| &keys);
            let found = matrix::participants(matrix, limits, said, &mut people)?;
            groups = found.groups;
            rows.push((Role::PolisMatrix, found.rows));
            notes.extend(found.notes);
        }
        let unless = unless_broken(files);
        if votes.is_none() {
            notes.push(format!("There was no list of votes (votes.csv){unless}; the matrix has no times."));
        }
        if matrix.is_none() && people.wants_external() {
            let detail =
                "--participants external-ids: the ids are in the table of participants, and there is none";
            return Err(ConvertError::Refused(detail.to_owned()));
        }
        if matrix.is_none() {
            let name =
                if matches!(variant, Variant::A | Variant::B) { "participants" } else { "participant" };
            notes.push(format!(
                "There was no table of participants ({name}-votes.csv){unless}: groups are not known."
            ));
        }
        if one(Role::PolisSummary)?.is_none() {
            notes.push(format!(
                "There was no summary (summary.csv){unless}: title, description and address are not known."
            ));
        }
        if sign == VoteSign::AgreeIsMinus {
            notes.push(
                "Votes had the sign of the source's database (agree = -1) and were turned round.".to_owned(),
            );
        }
        let source = Source {
            tool: TOOL.to_owned(),
            schema: SCHEMA.to_owned(),
            id,
            title: summary.topic.clone().unwrap_or_default(),
            description: summary.description(variant),
            url: summary.url.clone().unwrap_or_default(),
        };
        let adapter = format!("tidegate:polis/v1 (variant {})", variant.name());
        let head =
            BundleHeader { groups, rows, notes, ..BundleHeader::of_statements(adapter, source, read.items) };
        let authors = head.items.iter().map(|item| item.author).collect();
        let published = head.items.iter().map(comments::published).collect();
        let (votes, matrix) = (votes.cloned(), matrix.cloned());
        let comments = comments.name.clone();
        Ok((Self { votes, matrix, comments, keys, authors, published, sign, said, variant }, head, people))
    }

    /// True if rows are likely to come item by item.
    pub(crate) fn by_item(&self) -> bool {
        self.votes.is_some()
    }

    /// The file that the rows come from.
    pub(crate) fn rows_file(&self) -> Option<&Member> {
        self.votes.as_ref().or(self.matrix.as_ref())
    }

    pub(crate) fn rows(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        mut each: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Read, ConvertError> {
        let turned = self.sign == VoteSign::AgreeIsMinus;
        let file = self.rows_file().ok_or_else(|| absent("a file of votes"))?;
        let mut check = SignCheck::new(&self.authors, &self.published);
        let seen = |row| {
            check.see(row);
            each(row)
        };
        let read = match self.votes {
            Some(_) => votes::rows(file, limits, meter, &self.keys, turned, people, seen)?,
            None => matrix::rows(file, limits, meter, &self.keys, turned, people, seen)?,
        };
        if read.flow == Flow::More {
            notes.extend(check.verdict(&file.name, self.said)?);
            if let Some(votes) = &self.votes {
                let matrix = self.matrix.as_ref().map(|matrix| matrix.name.as_str());
                let names = truncation::FileNames { votes: &votes.name, comments: &self.comments, matrix };
                notes.extend(names.note(read.rows, people, &check)?);
            }
        }
        Ok(read)
    }
}
