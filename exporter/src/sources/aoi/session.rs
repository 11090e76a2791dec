//! Chooses the column of an All Our Ideas export that identifies participants, and counts answers without a value in
//! it.

use crate::{
    error::{ConvertError, ErrorKind},
    input::{
        Limits, Member,
        table::{Row, Table, missing_column},
    },
    privacy::participants::ParticipantRegistry,
};

/// Columns in order of preference. The identifier, which newer exports add, persists across sessions.
pub(super) const SESSION_COLUMNS: [&str; 2] = ["Session Identifier", "Session ID"];

/// Session columns of one file.
struct SessionColumns {
    file: String,
    has_column: [bool; 2],
    /// True if the identifier column exists but has no values.
    is_empty: bool,
}

/// Chooses the first session column that all files have: with a different column in each, one person would count as
/// two. Also returns a note about the other column.
pub(super) fn choose_session_column(
    votes: &Member,
    skips: Option<&Member>,
    limits: &Limits,
) -> Result<(&'static str, Option<String>), ConvertError> {
    let files = [Some(votes), skips].into_iter().flatten().map(|member| read_session_columns(member, limits));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let in_all_files = |at: usize| files.iter().all(|file| file.has_column[at]);
    let [identifier, id] = SESSION_COLUMNS;
    let note = |reason: String| {
        Some(format!("Participants are identified by {id}, which all files have: {reason}."))
    };
    if in_all_files(0) {
        return Ok(match files.iter().find(|file| file.is_empty) {
            // With an empty column, all answers of the file would be omitted.
            Some(file) if in_all_files(1) => (
                id,
                note(format!("{identifier}, which persists across sessions, has no values in {}", file.file)),
            ),
            _ => (identifier, None),
        });
    }
    if in_all_files(1) {
        let any_has_identifier = files.iter().any(|file| file.has_column[0]);
        return Ok((
            id,
            note(format!("not all have {identifier}, which persists across sessions"))
                .filter(|_| any_has_identifier),
        ));
    }
    let file = files
        .iter()
        .find(|columns| !columns.has_column[0])
        .map_or("the input", |columns| columns.file.as_str());
    let detail = format!(
        "it lacks the column {identifier}, and another file lacks {id}: participants cannot be matched between them"
    );
    Err(ConvertError::content(file, 1, ErrorKind::MissingColumn, detail))
}

fn read_session_columns(member: &Member, limits: &Limits) -> Result<SessionColumns, ConvertError> {
    let mut table = Table::open(member.without_digest().open(limits, None)?, limits, true)?;
    let columns = [table.find(&SESSION_COLUMNS[..1])?, table.find(&SESSION_COLUMNS[1..])?];
    if columns == [None, None] {
        return Err(missing_column(&table.name, &SESSION_COLUMNS.join(" or "), &table.columns));
    }
    let file = table.name.clone();
    let mut is_empty = false;
    // Usually ends at the first row, which has a value.
    while let Some(row) = table.next()?.filter(|_| columns[0].is_some()) {
        is_empty = session_of(row.optional_text(columns[0])?).is_none();
        if !is_empty {
            break;
        }
    }
    Ok(SessionColumns { file, has_column: columns.map(|place| place.is_some()), is_empty })
}

/// Returns the session of a cell; `None` if it is empty.
pub(super) fn session_of(cell: &str) -> Option<&str> {
    Some(cell.trim()).filter(|cell| !matches!(*cell, "" | "NA"))
}

/// Counts of answers without a session.
#[derive(Default)]
pub(super) struct UnattributedAnswers {
    total: u64,
    /// Answers among them that have a session id, in an export identified by the other column.
    with_id: u64,
}

impl UnattributedAnswers {
    pub(super) fn add(&mut self, row: &Row<'_>, id: Option<usize>) -> Result<(), ConvertError> {
        self.total += 1;
        self.with_id += u64::from(session_of(row.optional_text(id)?).is_some());
        Ok(())
    }

    pub(super) fn note(&self, people: &ParticipantRegistry, noun: &str) -> Option<String> {
        let (phrase, were) = people.hidden_below.format_count(self.total, noun);
        let with_id = people
            .hidden_below
            .hidden_phrase(self.with_id)
            .unwrap_or_else(|| self.with_id.to_string())
            .to_lowercase();
        let [identifier, id] = SESSION_COLUMNS;
        let suffix = match self.with_id {
            0 => String::new(),
            _ => format!(", {with_id} of them with a {id}: the others are identified by {identifier}"),
        };
        (self.total > 0).then(|| format!("{phrase} without a session {were} left out{suffix}."))
    }
}
