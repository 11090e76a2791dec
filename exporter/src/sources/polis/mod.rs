//! Adapter for Polis and compatible tools, in six variants of exports.
//!
//! Columns are found by name. `vote_sign` chooses the sign of votes before any vote is read.

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
    input::{
        Limits, Member, Role, broken_file_suffix, check_optional_file, check_summary, explain_missing,
        find_single, missing_file_error, require_file,
    },
    meter::Meter,
    model::{BundleHeader, ItemIndex, Source},
    privacy::participants::{ParticipantRegistry, RegistryFor, scope},
    storage::rows::{ReadResult, Row, order::Flow},
};

/// Variant of an export, in historical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Archive of the first server, until 2024.
    A,
    /// Variant A without time texts.
    B,
    /// First export of the second server: times in seconds, texts without quotes.
    C,
    /// Current export of the second server.
    D,
    /// Variant D with a declared format.
    E,
    /// Exports of other tools in this format.
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
    /// Participant ids of organizers: their statements count as the organizer's.
    pub organizers: Vec<String>,
}

/// Export with its statements read.
#[derive(Debug)]
pub(crate) struct Polis {
    votes: Option<Member>,
    matrix: Option<Member>,
    /// Name of the file of comments.
    comments: String,
    item_index: ItemIndex,
    /// Author of each item, to check the sign of votes.
    authors: Vec<Option<u128>>,
    /// Published agree and disagree counts of each item.
    published: Vec<Option<(u64, u64)>>,
    sign: VoteSign,
    sign_source: SignSource,
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
        registry_for: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let find_one = |role| find_single(files, role);
        let (votes, matrix) = (find_one(Role::PolisVotes)?, find_one(Role::PolisMatrix)?);
        // A file with a known name but renamed columns must fail here, not count as missing.
        for role in [Role::PolisVotes, Role::PolisMatrix] {
            check_optional_file(files, limits, role)?;
        }
        check_summary(files, limits)?;
        let comments =
            require_file(files, limits, Role::PolisComments, "the file of comments (comments.csv)")?;
        if votes.is_none() && matrix.is_none() {
            let description = "a file of votes (votes.csv) or of participants (participants-votes.csv)";
            return Err(explain_missing(files, limits, Role::PolisVotes, description));
        }
        let summary = summary::Summary::read(find_one(Role::PolisSummary)?, limits)?;
        let format = summary::Format::read(find_one(Role::PolisFormat)?, limits)?;
        let has_old_name =
            matrix.is_some_and(|matrix| matrix.name.to_lowercase().contains("participants-votes"));
        let hints = comments::read_hints(comments, limits)?;
        let declared = summary.sign.combine(format.sign);
        let detected_variant =
            hints.variant(declared != DeclaredSign::Absent, has_old_name, summary.has_views);
        let variant = options.variant.unwrap_or(detected_variant);
        let (sign, sign_source, sign_note) = vote_sign::choose_sign(options.vote_sign, declared)?;

        let source_name = source_id.map(str::to_owned).or_else(|| summary.id());
        // The address includes the host: conversation ids are unique per server only.
        let scope = source_id.map(str::to_owned).or_else(|| summary.address()).map(|id| scope(TOOL, &id));
        let mut people = registry_for(scope.as_deref())?;
        let fallback_name = || summary.made_up_id().or_else(|| votes.or(matrix).map(Member::stem));
        // The last part of the URL is preferred; the fallbacks only label the source.
        let id = source_name.or_else(fallback_name).unwrap_or_default();
        let mut comments_file =
            Comments::read(comments, limits, variant, sign, &options.organizers, &people)?;
        let item_index = ItemIndex::sort_items(&mut comments_file.items, &comments.name)?;
        let mut notes = comments_file.notes;
        notes.extend(format.notes);
        notes.extend(sign_note);
        if variant != detected_variant {
            let (variant, detected) = (variant.name(), detected_variant.name());
            notes.push(format!("--variant is {variant}; the detected variant is {detected}."));
        }
        let (mut groups, mut rows) = (Vec::new(), vec![(Role::PolisComments, comments_file.rows)]);
        if let Some(matrix) = matrix {
            let comment_keys = votes.map(|_| &item_index);
            let participants = matrix::register_participants(matrix, limits, comment_keys, &mut people)?;
            groups = participants.groups;
            rows.push((Role::PolisMatrix, participants.rows));
            notes.extend(participants.notes);
        }
        let broken_suffix = broken_file_suffix(files);
        if votes.is_none() {
            notes.push(format!(
                "There was no list of votes (votes.csv){broken_suffix}; the participant table has no times."
            ));
        }
        if matrix.is_none() && people.uses_external_ids() {
            let detail =
                "--participants external-ids: the table of participants, which contains the ids, is missing";
            return Err(ConvertError::Refused(detail.to_owned()));
        }
        if matrix.is_none() {
            let name =
                if matches!(variant, Variant::A | Variant::B) { "participants" } else { "participant" };
            notes.push(format!(
                "There was no table of participants ({name}-votes.csv){broken_suffix}: groups are unknown."
            ));
        }
        if find_one(Role::PolisSummary)?.is_none() {
            notes.push(format!(
                "There was no summary (summary.csv){broken_suffix}: title, description and address are unknown."
            ));
        }
        if sign == VoteSign::AgreeIsMinus {
            notes.push(
                "Votes had the sign of the source's database (agree = -1) and were inverted.".to_owned(),
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
        let head = BundleHeader {
            groups,
            rows,
            notes,
            ..BundleHeader::of_statements(adapter, source, comments_file.items)
        };
        let authors = head.items.iter().map(|item| item.author).collect();
        let published = head.items.iter().map(comments::published_counts).collect();
        let (votes, matrix) = (votes.cloned(), matrix.cloned());
        let comments = comments.name.clone();
        Ok((
            Self { votes, matrix, comments, item_index, authors, published, sign, sign_source, variant },
            head,
            people,
        ))
    }

    /// True if the rows are probably sorted by item.
    pub(crate) fn is_sorted_by_item(&self) -> bool {
        self.votes.is_some()
    }

    /// File that contains the rows.
    pub(crate) fn rows_file(&self) -> Option<&Member> {
        self.votes.as_ref().or(self.matrix.as_ref())
    }

    pub(crate) fn read_rows(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        mut on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<ReadResult, ConvertError> {
        let is_reversed = self.sign == VoteSign::AgreeIsMinus;
        let file = self.rows_file().ok_or_else(|| missing_file_error("a file of votes"))?;
        // Checked while the rows are read: a wrong sign fails the conversion before publication.
        let mut check = SignCheck::new(&self.authors, &self.published);
        let check_and_pass = |row| {
            check.count(row);
            on_row(row)
        };
        let summary = match self.votes {
            Some(_) => {
                votes::read_rows(file, limits, meter, &self.item_index, is_reversed, people, check_and_pass)?
            }
            None => {
                matrix::read_rows(file, limits, meter, &self.item_index, is_reversed, people, check_and_pass)?
            }
        };
        // The check needs all rows. If they are read again, it runs then.
        if summary.flow == Flow::Continue {
            notes.extend(check.check(&file.name, self.sign_source)?);
            if let Some(votes) = &self.votes {
                let matrix = self.matrix.as_ref().map(|matrix| matrix.name.as_str());
                let names = truncation::FileNames { votes: &votes.name, comments: &self.comments, matrix };
                notes.extend(names.note(summary.rows, people, &check)?);
            }
        }
        Ok(summary)
    }
}
