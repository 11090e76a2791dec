//! Participant table of an export: groups, external ids, and votes if there is no list of them.
//!
//! Its vote counts serve only to detect a truncated list of votes.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
};

use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    input::{
        Limits, Member,
        table::{Table, repeated_column},
    },
    meter::Meter,
    model::ItemIndex,
    plural::format_count,
    privacy::participants::ParticipantRegistry,
    storage::rows::{MAX_GROUPS, NO_OBJECT, ReadResult, Row, order::Flow},
};

#[derive(Debug)]
pub(super) struct Participants {
    /// Names of the groups, sorted.
    pub(super) groups: Vec<String>,
    pub(super) rows: u64,
    pub(super) notes: Vec<String>,
}

/// Registers participants with their groups and external ids. With `comment_keys`, also the number of votes that each
/// one should have in the list of votes.
pub(super) fn register_participants(
    member: &Member,
    limits: &Limits,
    comment_keys: Option<&ItemIndex>,
    people: &mut ParticipantRegistry,
) -> Result<Participants, ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let id = table.require(&["participant"])?;
    let (group, xid) = (table.find(&["group-id"])?, table.find(&["xid"])?);
    let vote_count = table.find(&["n-votes"])?;
    let is_comment = |name: &String| comment_keys.is_some_and(|keys| keys.find(name.as_bytes()).is_some());
    let comments: Vec<_> = (0..table.columns.len()).filter(|at| is_comment(&table.columns[*at])).collect();
    let mut members = Vec::new();
    let mut row_by_participant = HashMap::<Box<[u8]>, u64>::new();
    let uses_external_ids = people.uses_external_ids();
    if uses_external_ids && xid.is_none() {
        let detail = "the column xid is missing: --participants external-ids needs its ids";
        return Err(ConvertError::content(&table.name, 1, ErrorKind::MissingColumn, detail));
    }
    let mut row_by_xid = HashMap::<Box<str>, u64>::new();
    let (mut names, mut group_indexes, mut xid_count) =
        (Vec::<String>::new(), HashMap::<String, usize>::new(), 0_u64);
    while let Some(row) = table.next()? {
        let (participant, name, xid) =
            (row.text(id)?.as_bytes(), row.optional_text(group)?.trim(), row.optional_text(xid)?.trim());
        if participant.is_empty() {
            return Err(row.error(ErrorKind::Value, "participant is empty"));
        }
        match row_by_participant.entry(participant.into()) {
            Entry::Occupied(first) => {
                let detail = format!("the participant occurs in row {} already", first.get());
                return Err(row.error(ErrorKind::Duplicate, detail));
            }
            Entry::Vacant(place) => place.insert(row.number),
        };
        if !xid.is_empty() {
            xid_count += 1;
            if uses_external_ids && let Some(first) = row_by_xid.insert(xid.into(), row.number) {
                let detail = format!(
                    "its xid occurs in row {first} already: --participants external-ids needs unique ids"
                );
                return Err(row.error(ErrorKind::Duplicate, detail));
            }
            people.set_external_id(participant, xid);
        }
        if comment_keys.is_some() {
            let mut votes = 0;
            for at in &comments {
                votes += u32::from(!row.optional_text(Some(*at))?.trim().is_empty());
            }
            let stated_votes = row.optional_text(vote_count)?.trim().parse().unwrap_or_default();
            // The table may count more votes than it lists; the larger number reveals a truncated list.
            people.set_answers(participant, votes.max(stated_votes));
        }
        if name.is_empty() {
            // Registered as well, so that participants without votes are counted.
            people.set_group(participant, 0);
            continue;
        }
        let group_index = match group_indexes.get(name) {
            Some(at) => *at,
            None if names.len() == MAX_GROUPS => {
                return Err(row.error(ErrorKind::Value, format!("there are more than {MAX_GROUPS} groups")));
            }
            None => {
                names.push(name.to_owned());
                group_indexes.insert(name.to_owned(), names.len() - 1);
                names.len() - 1
            }
        };
        members.push((Box::<[u8]>::from(participant), group_index));
    }
    let mut sorted_groups: Vec<_> = (0..names.len()).collect();
    // Numeric groups by value, so that group 10 follows group 9.
    sorted_groups.sort_by_key(|at| (names[*at].parse::<u64>().unwrap_or(u64::MAX), names[*at].clone()));
    let mut group_numbers = vec![0_u16; names.len()];
    for (rank, at) in sorted_groups.iter().enumerate() {
        group_numbers[*at] = u16::try_from(rank + 1).unwrap_or(u16::MAX);
    }
    for (participant, group_index) in members {
        people.set_group(&participant, group_numbers[group_index]);
    }
    let groups = sorted_groups.into_iter().map(|at| names[at].clone()).collect();
    let mut notes = Vec::new();
    let without_xid = row_by_participant.len() as u64 - xid_count;
    if uses_external_ids && without_xid > 0 {
        let (phrase, were) = people.hidden_below.format_count(without_xid, "participant");
        notes.push(format!(
            "{phrase} {were} without an id of the embedding site (xid): a pseudonym is used instead."
        ));
    }
    if xid_count > 0 && !uses_external_ids {
        // The rest of all participants may be few, so a public note gives no count.
        let subject = if people.hidden_below.hides_any() {
            "Participants".to_owned()
        } else {
            format_count(xid_count, "participant")
        };
        notes.push(format!(
            "{subject} had an id of the embedding site (xid), which identifies them directly: only \
             `--participants external-ids` keeps it."
        ));
    }
    Ok(Participants { groups, rows: table.rows(), notes })
}

/// Reads all votes of the table. They have no times.
pub(super) fn read_rows(
    member: &Member,
    limits: &Limits,
    meter: &Arc<Meter>,
    item_index: &ItemIndex,
    is_reversed: bool,
    people: &mut ParticipantRegistry,
    mut on_row: impl FnMut(Row) -> Result<Flow, ConvertError>,
) -> Result<ReadResult, ConvertError> {
    let mut table = Table::open(member.open(limits, Some(meter))?, limits, true)?;
    let id = table.require(&["participant"])?;
    // All other columns are comments.
    let count_columns =
        ["participant", "xid", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree", "n-pass"];
    let (mut items, mut column_of_item) = (Vec::<(usize, u32)>::new(), HashMap::new());
    for (at, column) in table.columns.iter().enumerate() {
        if count_columns.contains(&column.to_lowercase().as_str()) {
            if item_index.find(column.as_bytes()).is_some() {
                let detail = format!("column {} has the name of a comment as well: {column}", at + 1);
                return Err(ConvertError::content(&table.name, 1, ErrorKind::Duplicate, detail));
            }
            continue;
        }
        let item = item_index.find(column.as_bytes()).ok_or_else(|| {
            ConvertError::content(
                &table.name,
                1,
                ErrorKind::UnknownItem,
                format!("column {} is not a comment", at + 1),
            )
        })?;
        if let Some(first) = column_of_item.insert(item, at) {
            return Err(repeated_column(&table.name, column, first, at));
        }
        items.push((at, item));
    }
    let mut rows = 0;
    while let Some(row) = table.next()? {
        let id = row.text(id)?.as_bytes();
        for (at, item) in &items {
            let answer = match row.optional_text(Some(*at))?.trim() {
                "" => continue,
                "1" => Answer::Agree,
                "-1" => Answer::Disagree,
                "0" => Answer::Pass,
                _ => return Err(row.error(ErrorKind::Value, "a vote is none of 1, 0, -1 and empty")),
            };
            let (pseudonym, group) = people.look_up(id);
            rows += 1;
            meter.rows_read.fetch_add(1, Ordering::Relaxed);
            let row = Row::new(pseudonym, *item, NO_OBJECT, apply_sign(answer, is_reversed), None, group);
            if on_row(row)? == Flow::Stop {
                return Ok(ReadResult { flow: Flow::Stop, rows, file_digest: None });
            }
        }
    }
    let rows = table.rows();
    Ok(ReadResult { flow: Flow::Continue, rows, file_digest: Some(table.finish()?) })
}

pub(super) fn apply_sign(answer: Answer, is_reversed: bool) -> Answer {
    match (answer, is_reversed) {
        (Answer::Agree, true) => Answer::Disagree,
        (Answer::Disagree, true) => Answer::Agree,
        _ => answer,
    }
}
