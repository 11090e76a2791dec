//! Adapter for All Our Ideas: ideas compared in pairs. Supports three generations of headers.
//!
//! The left idea is the subject and the right one the object, whichever wins: the position of an idea is kept as
//! data.

mod ideas;
mod session;

use std::sync::{Arc, atomic::Ordering};

use self::session::{SESSION_COLUMNS, UnattributedAnswers, choose_session_column, session_of};
use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    input::{
        Limits, Member, Role, check_optional_file, find_single, require_file,
        table::{self, Table},
    },
    meter::Meter,
    model::{BundleHeader, ItemIndex, Source},
    privacy::participants::{ParticipantRegistry, RegistryFor, scope},
    storage::rows::{ReadResult, Row, order::Flow},
    timestamp::Timestamp,
};

const TOOL: &str = "all-our-ideas";

/// Skip reasons that declare both ideas equal; skips with other reasons become passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub equal_reasons: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let default_reasons =
            ["like both", "i like both ideas", "i think both ideas are the same", "same", "the same"];
        Self { equal_reasons: default_reasons.map(str::to_owned).to_vec() }
    }
}

#[derive(Debug)]
pub(crate) struct Ideas {
    votes: Member,
    skips: Option<Member>,
    /// Column that identifies participants in votes and skips.
    session: &'static str,
    item_index: ItemIndex,
    equal_reasons: Vec<String>,
}

impl Ideas {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        options: &Options,
        source_id: Option<&str>,
        registry_for: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let votes = require_file(files, limits, Role::IdeasVotes, "the file of votes")?;
        let ideas = require_file(files, limits, Role::Ideas, "the file of ideas")?;
        check_optional_file(files, limits, Role::IdeasNonVotes)?;
        let ideas_file = ideas::read_ideas(ideas, limits)?;
        let survey_id = source_id.map(str::to_owned).or(ideas_file.survey);
        let people = registry_for(survey_id.as_deref().map(|id| scope(TOOL, id)).as_deref())?;
        // A file name is no stable id: it names the source, but gives pseudonyms no scope.
        let id = survey_id.unwrap_or_else(|| votes.stem());
        let mut items = ideas_file.items;
        let item_index = ItemIndex::sort_items(&mut items, &ideas.name)?;
        let source = Source {
            tool: TOOL.to_owned(),
            schema: "https://github.com/allourideas/pairwise-api".to_owned(),
            id,
            ..Source::default()
        };
        let rows = vec![(Role::Ideas, items.len() as u64)];
        let skips = find_single(files, Role::IdeasNonVotes)?.cloned();
        let (session, note) = choose_session_column(votes, skips.as_ref(), limits)?;
        let equal_reasons = options.equal_reasons.iter().map(|reason| normalize_reason(reason)).collect();
        let notes = ideas_file.notes.into_iter().chain(note).collect();
        let head = BundleHeader {
            rows,
            notes,
            ..BundleHeader::of_options("tidegate:all-our-ideas/v1", source, items)
        };
        Ok((Self { votes: votes.clone(), skips, session, item_index, equal_reasons }, head, people))
    }

    pub(crate) fn rows_file(&self) -> &Member {
        &self.votes
    }

    pub(crate) fn read_rows(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        mut on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<ReadResult, ConvertError> {
        let mut summary = self.read_votes(limits, meter, people, notes, &mut on_row)?;
        if let Some(skips) = &self.skips
            && summary.flow == Flow::Continue
        {
            // Digest and row count remain those of the vote file.
            summary.flow = self.read_skips(skips, limits, people, notes, &mut on_row)?;
        }
        Ok(summary)
    }

    fn read_votes(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        on_row: &mut impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<ReadResult, ConvertError> {
        let mut table = Table::open(self.votes.open(limits, Some(meter))?, limits, true)?;
        let columns = SharedColumns::find(&table, self.session)?;
        let (winner, loser) = (table.require(&["Winner ID"])?, table.require(&["Loser ID"])?);
        let valid = table.find(&["Valid"])?;
        let (mut invalid, mut unattributed) = (0_u64, UnattributedAnswers::default());
        while let Some(row) = table.next()? {
            meter.rows_read.fetch_add(1, Ordering::Relaxed);
            // Only an explicit `false` leaves a vote out: the column may be missing or empty.
            if row.optional_text(valid)?.trim().eq_ignore_ascii_case("false") {
                invalid += 1;
                continue;
            }
            let (left, right) = self.find_pair(&row, &columns)?;
            let item = |column| self.find_item(&row, column);
            let answer = match (item(winner)?, item(loser)?) {
                (won, lost) if won == left && lost == right => Answer::PreferSubject,
                (won, lost) if won == right && lost == left => Answer::PreferObject,
                _ => {
                    return Err(
                        row.error(ErrorKind::Value, "winner and loser are not the left and right choices")
                    );
                }
            };
            let Some(row) = columns.make_row(&row, people, left, right, answer)? else {
                unattributed.add(&row, columns.session_id)?;
                continue;
            };
            if on_row(row)? == Flow::Stop {
                // The remainder of the file is unread, so it has no digest.
                return Ok(ReadResult { flow: Flow::Stop, rows: table.rows(), file_digest: None });
            }
        }
        if invalid > 0 {
            let (phrase, were) = people.hidden_below.format_count(invalid, "vote");
            notes.push(format!("{phrase} that the source marks as not valid {were} left out."));
        }
        notes.extend(unattributed.note(people, "vote"));
        let rows = table.rows();
        Ok(ReadResult { flow: Flow::Continue, rows, file_digest: Some(table.finish()?) })
    }

    /// Reads the skipped pairs, which are answers. Pairs that were only displayed are not.
    fn read_skips(
        &self,
        member: &Member,
        limits: &Limits,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        on_row: &mut impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Flow, ConvertError> {
        let mut table = Table::open(member.open(limits, None)?, limits, true)?;
        let columns = SharedColumns::find(&table, self.session)?;
        let (kind, reason) = (table.require(&["Record Type"])?, table.find(&["Reason"])?);
        let valid = table.find(&["Valid"])?;
        let (mut unanswered, mut unattributed) = (0_u64, UnattributedAnswers::default());
        while let Some(row) = table.next()? {
            let is_skip = row.text(kind)?.trim().eq_ignore_ascii_case("skip");
            if !is_skip || row.optional_text(valid)?.trim().eq_ignore_ascii_case("false") {
                unanswered += 1;
                continue;
            }
            let (left, right) = self.find_pair(&row, &columns)?;
            let reason = normalize_reason(row.optional_text(reason)?);
            let answer = if self.equal_reasons.contains(&reason) { Answer::Equal } else { Answer::Pass };
            let Some(row) = columns.make_row(&row, people, left, right, answer)? else {
                unattributed.add(&row, columns.session_id)?;
                continue;
            };
            if on_row(row)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        if unanswered > 0 {
            let (phrase, were) = people.hidden_below.format_count(unanswered, "record");
            notes.push(format!("{phrase} of pairs that were shown but not answered {were} left out."));
        }
        notes.extend(unattributed.note(people, "skip"));
        Ok(Flow::Continue)
    }

    fn find_pair(&self, row: &table::Row<'_>, columns: &SharedColumns) -> Result<(u32, u32), ConvertError> {
        let (left, right) = (self.find_item(row, columns.left)?, self.find_item(row, columns.right)?);
        if left == right {
            return Err(row.error(ErrorKind::Value, "an idea is compared with itself"));
        }
        Ok((left, right))
    }

    fn find_item(&self, row: &table::Row<'_>, column: usize) -> Result<u32, ConvertError> {
        let item = self.item_index.find(row.text(column)?.trim().as_bytes());
        item.ok_or_else(|| row.error(ErrorKind::UnknownItem, "a choice is not among the ideas"))
    }
}

/// Indexes of the columns that votes and skips have in common.
struct SharedColumns {
    left: usize,
    right: usize,
    session: usize,
    /// Column with the session id, if another column identifies participants.
    session_id: Option<usize>,
    created: Option<usize>,
}

impl SharedColumns {
    fn find(table: &Table, session: &str) -> Result<Self, ConvertError> {
        Ok(Self {
            left: table.require(&["Left Choice ID"])?,
            right: table.require(&["Right Choice ID"])?,
            session: table.require(&[session])?,
            // Only for the note about answers without a session.
            session_id: table.find(&SESSION_COLUMNS[1..])?.filter(|_| session != SESSION_COLUMNS[1]),
            created: table.find(&["Created at"])?,
        })
    }

    /// Converts a row. `None` if it has no session: a repeated answer could then not be recognised.
    fn make_row(
        &self,
        row: &table::Row<'_>,
        people: &mut ParticipantRegistry,
        left: u32,
        right: u32,
        answer: Answer,
    ) -> Result<Option<Row>, ConvertError> {
        let answered_at =
            match row.optional_text(self.created)?.trim() {
                "" | "NA" => None,
                text => Some(Timestamp::parse(text).ok_or_else(|| {
                    row.error(ErrorKind::Value, "Created at is not a time with a time zone")
                })?),
            };
        let Some(session) = session_of(row.text(self.session)?) else { return Ok(None) };
        let (pseudonym, group) = people.look_up(session.as_bytes());
        Ok(Some(Row::new(pseudonym, left, right, answer, answered_at, group)))
    }
}

/// Normalizes a skip reason: some exports contain the texts of the page, others the names of its buttons.
fn normalize_reason(reason: &str) -> String {
    let words =
        reason.split(|character: char| character.is_whitespace() || character == '_' || character == '-');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_match_page_texts_and_button_names() {
        let reasons: Vec<_> =
            Options::default().equal_reasons.iter().map(|reason| normalize_reason(reason)).collect();
        for equal in
            ["like both", "like_both", "Like-Both", " I like  both ideas ", "same", "the same", "The_Same"]
        {
            assert!(reasons.contains(&normalize_reason(equal)), "{equal}");
        }
        for other in
            ["", "NA", "like neither", "I don't know enough about either idea", "not the same", "both"]
        {
            assert!(!reasons.contains(&normalize_reason(other)), "{other}");
        }
    }
}
