//! Adapter for Pocket Polis: statements and votes.
//!
//! A repeated answer to a statement is an error, since the tool stores one answer per participant and statement.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    error::{ConvertError, ErrorKind},
    form::{Answer, SOURCE_RESPONSE_COUNTS},
    input::{Limits, Member, Role, require_file, table::Table},
    meter::Meter,
    model::{BundleHeader, Item, ItemIndex, Origin, PublishedOutcome, Source},
    privacy::participants::{ParticipantRegistry, RegistryFor, scope},
    storage::{
        rows::{NO_OBJECT, ReadResult, Row, order::Flow},
        spill::{Spill, SpillOptions},
    },
    timestamp::Timestamp,
};

const TOOL: &str = "pocket-polis";

#[derive(Debug)]
pub(crate) struct PocketPolis {
    votes: Member,
    item_index: ItemIndex,
}

impl PocketPolis {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        source_id: Option<&str>,
        registry_for: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let votes = require_file(files, limits, Role::PocketVotes, "the file of votes (votes.csv)")?;
        let statements =
            require_file(files, limits, Role::PocketStatements, "the file of statements (statements.csv)")?;
        // The files do not name their conversation, and each conversation numbers its participants from `p1`.
        let people = registry_for(source_id.map(|id| scope(TOOL, id)).as_deref())?;
        // A file name is no stable id: it names the source, but gives pseudonyms no scope.
        let id = source_id.map_or_else(|| votes.stem(), str::to_owned);
        let mut items = read_items(statements, limits)?;
        let item_index = ItemIndex::sort_items(&mut items, &statements.name)?;
        refuse_repeated_answers(votes, limits, &item_index)?;
        let source = Source {
            tool: TOOL.to_owned(),
            schema: "https://delib.mashbean.net/schemas/pocket-polis/v1".to_owned(),
            id,
            ..Source::default()
        };
        let rows = vec![(Role::PocketStatements, items.len() as u64)];
        let head =
            BundleHeader { rows, ..BundleHeader::of_statements("tidegate:pocket-polis/v1", source, items) };
        Ok((Self { votes: votes.clone(), item_index }, head, people))
    }

    pub(crate) fn rows_file(&self) -> &Member {
        &self.votes
    }

    pub(crate) fn read_rows(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        mut on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<ReadResult, ConvertError> {
        let mut table = Table::open(self.votes.open(limits, Some(meter))?, limits, true)?;
        let (participant, statement) = (table.require(&["participant"])?, table.require(&["statement_id"])?);
        let (vote, updated_at) = (table.require(&["vote"])?, table.find(&["updated_at"])?);
        while let Some(row) = table.next()? {
            let item = self.item_index.find(row.text(statement)?.as_bytes());
            let item = item.ok_or_else(|| {
                row.error(ErrorKind::UnknownItem, "statement_id is not among the statements")
            })?;
            let answer = match row.text(vote)? {
                "1" => Answer::Agree,
                "-1" => Answer::Disagree,
                "0" => Answer::Pass,
                _ => return Err(row.error(ErrorKind::Value, "vote is none of 1, 0 and -1")),
            };
            let answered_at = match row.optional_text(updated_at)? {
                "" => None,
                text => Some(Timestamp::parse(text).ok_or_else(|| {
                    row.error(ErrorKind::Value, "updated_at is not a time with a time zone")
                })?),
            };
            let id = row.text(participant)?.as_bytes();
            if id.is_empty() {
                return Err(row.error(ErrorKind::Value, "participant is empty"));
            }
            let (pseudonym, group) = people.look_up(id);
            meter.rows_read.fetch_add(1, Ordering::Relaxed);
            if on_row(Row::new(pseudonym, item, NO_OBJECT, answer, answered_at, group))? == Flow::Stop {
                return Ok(ReadResult { flow: Flow::Stop, rows: table.rows(), file_digest: None });
            }
        }
        let rows = table.rows();
        Ok(ReadResult { flow: Flow::Continue, rows, file_digest: Some(table.finish()?) })
    }
}

/// Refuses the input at the first row that repeats an answer, before any output is written.
fn refuse_repeated_answers(
    votes: &Member,
    limits: &Limits,
    item_index: &ItemIndex,
) -> Result<(), ConvertError> {
    let io_error = |error| ConvertError::from_io(&votes.name, error);
    let mut table = Table::open(votes.without_digest().open(limits, None)?, limits, true)?;
    let (participant, statement) = (table.require(&["participant"])?, table.require(&["statement_id"])?);
    let mut answers = Spill::new(SpillOptions { memory: limits.sort_memory, folder: std::env::temp_dir() });
    let mut key = Vec::new();
    while let Some(row) = table.next()? {
        // Rows about unknown statements are reported when the votes are read.
        let Some(item) = item_index.find(row.text(statement)?.as_bytes()) else { continue };
        key.clear();
        // Fixed length, so that different pairs of item and participant never share a key.
        key.extend_from_slice(&item.to_be_bytes());
        key.extend_from_slice(row.text(participant)?.as_bytes());
        answers.push(&key, &row.number.to_be_bytes()).map_err(io_error)?;
    }
    let (mut previous_row, mut repeated) = (0, None::<(u64, u64)>);
    let on_answer = |_: &[u8], row: &[u8], is_first: bool| {
        votes.check_stop().map_err(ConvertError::into_io)?;
        let row = row.first_chunk().map_or(0, |row: &[u8; 8]| u64::from_be_bytes(*row));
        // Keys arrive in sorted order, so the earliest repeated row of the file is searched for.
        if !is_first && repeated.is_none_or(|(first, _)| row < first) {
            repeated = Some((row, previous_row));
        }
        previous_row = row;
        Ok(())
    };
    answers.finish(on_answer).map_err(io_error)?;
    let Some((row, before)) = repeated else { return Ok(()) };
    let detail = format!("the participant has already answered the statement in row {before}");
    Err(ConvertError::content(&votes.name, row, ErrorKind::Duplicate, detail))
}

fn read_items(member: &Member, limits: &Limits) -> Result<Vec<Item>, ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let (id, text) = (table.require(&["statement_id"])?, table.require(&["text"])?);
    let (status, is_seed) = (table.find(&["status"])?, table.find(&["is_seed"])?);
    let created_at = table.find(&["created_at"])?;
    let tallies = [
        ("agree", table.find(&["agrees"])?),
        ("disagree", table.find(&["disagrees"])?),
        ("pass", table.find(&["passes"])?),
    ];
    let mut items = Vec::new();
    while let Some(row) = table.next()? {
        let key = row.text(id)?;
        if key.trim().is_empty() {
            return Err(row.error(ErrorKind::Value, "statement_id is empty"));
        }
        let created_at =
            match row.optional_text(created_at)? {
                "" => None,
                text => Some(Timestamp::parse(text).ok_or_else(|| {
                    row.error(ErrorKind::Value, "created_at is not a time with a time zone")
                })?),
            };
        let mut counts = serde_json::Map::new();
        for (name, column) in tallies {
            if let Some(column) = column {
                counts.insert(name.to_owned(), row.number::<u64>(column, name)?.into());
            }
        }
        let status = row.optional_text(status)?;
        items.push(Item {
            id: format!("statement:{key}"),
            key: key.to_owned(),
            row: row.number,
            text: row.text(text)?.to_owned(),
            status: if status.is_empty() { "approved" } else { status }.to_owned(),
            origin: Origin::organizer_if(matches!(
                row.optional_text(is_seed)?,
                "1" | "true" | "TRUE" | "True"
            )),
            phase: 0,
            created: created_at,
            author: None,
            outcomes: if counts.is_empty() {
                Vec::new()
            } else {
                vec![PublishedOutcome::counts(SOURCE_RESPONSE_COUNTS, counts)]
            },
        });
    }
    Ok(items)
}
