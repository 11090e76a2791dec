//! Chooses the column of an All Our Ideas export by which people are told apart, and counts answers without one.

use crate::{
    error::{ConvertError, ErrorKind},
    input::{
        Limits, Member,
        table::{Row, Table, no_column},
    },
    privacy::participants::ParticipantRegistry,
};

/// The identifier outlives a session; it came later.
pub(super) const SESSIONS: [&str; 2] = ["Session Identifier", "Session ID"];

/// Session columns of a file.
struct SessionColumns {
    file: String,
    has: [bool; 2],
    /// Identifier has a column, and no value in it.
    is_empty: bool,
}

/// Chooses the first session column that all files have, since with two of them one person would be two. Also returns
/// a note about the other.
pub(super) fn session(
    votes: &Member,
    skips: Option<&Member>,
    limits: &Limits,
) -> Result<(&'static str, Option<String>), ConvertError> {
    let said = [Some(votes), skips].into_iter().flatten().map(|member| said(member, limits));
    let said = said.collect::<Result<Vec<_>, _>>()?;
    let everywhere = |at: usize| said.iter().all(|said| said.has[at]);
    let [identifier, id] = SESSIONS;
    let note =
        |why: String| Some(format!("Participants are told apart by {id}, which all files have: {why}."));
    if everywhere(0) {
        return Ok(match said.iter().find(|said| said.is_empty) {
            Some(said) if everywhere(1) => (
                id,
                note(format!("{identifier}, which outlives a session, is empty in all of {}", said.file)),
            ),
            _ => (identifier, None),
        });
    }
    if everywhere(1) {
        let some = said.iter().any(|said| said.has[0]);
        return Ok((
            id,
            note(format!("not all have {identifier}, which outlives a session")).filter(|_| some),
        ));
    }
    let file = said.iter().find(|said| !said.has[0]).map_or("the input", |said| said.file.as_str());
    let detail =
        format!("it lacks the column {identifier}, another file {id}: who is the same in both is not known");
    Err(ConvertError::content(file, 1, ErrorKind::MissingColumn, detail))
}

fn said(member: &Member, limits: &Limits) -> Result<SessionColumns, ConvertError> {
    let mut table = Table::open(member.without_digest().open(limits, None)?, limits, true)?;
    let places = [table.find(&SESSIONS[..1])?, table.find(&SESSIONS[1..])?];
    if places == [None, None] {
        return Err(no_column(&table.name, &SESSIONS.join(" or "), &table.columns));
    }
    let file = table.name.clone();
    let mut is_empty = false;
    // As a rule the first row has one.
    while let Some(row) = table.next()?.filter(|_| places[0].is_some()) {
        is_empty = named(row.maybe(places[0])?).is_none();
        if !is_empty {
            break;
        }
    }
    Ok(SessionColumns { file, has: places.map(|place| place.is_some()), is_empty })
}

/// Returns the session of a cell; `None` if it is empty.
pub(super) fn named(cell: &str) -> Option<&str> {
    Some(cell.trim()).filter(|cell| !matches!(*cell, "" | "NA"))
}

/// Answers without a session.
#[derive(Default)]
pub(super) struct UnattributedAnswers {
    all: u64,
    /// Answers among them that have a session id, in an export that uses identifiers.
    with_id: u64,
}

impl UnattributedAnswers {
    pub(super) fn add(&mut self, row: &Row<'_>, id: Option<usize>) -> Result<(), ConvertError> {
        self.all += 1;
        self.with_id += u64::from(named(row.maybe(id)?).is_some());
        Ok(())
    }

    pub(super) fn note(&self, people: &ParticipantRegistry, what: &str) -> Option<String> {
        let (told, were) = people.hidden_below.counted(self.all, what);
        let with_id = people
            .hidden_below
            .hidden_phrase(self.with_id)
            .unwrap_or_else(|| self.with_id.to_string())
            .to_lowercase();
        let [identifier, id] = SESSIONS;
        let more = match self.with_id {
            0 => String::new(),
            _ => format!(", {with_id} of them with a {id}: the others are told apart by {identifier}"),
        };
        (self.all > 0).then(|| format!("{told} of nobody, without a session, {were} left out{more}."))
    }
}
