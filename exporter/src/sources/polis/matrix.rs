//! Table with a row for each participant: groups, external ids, and votes where there is no list of them.
//!
//! Its counts are used only to notice a list of votes that was cut off.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
};

use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    input::{
        Limits, Member,
        table::{Table, twice},
    },
    meter::Meter,
    model::ItemIndex,
    plural::counted,
    privacy::participants::ParticipantRegistry,
    storage::rows::{MOST_GROUPS, NO_OBJECT, Read, Row, order::Flow},
};

#[derive(Debug)]
pub(super) struct Participants {
    /// Group names, sorted.
    pub(super) groups: Vec<String>,
    pub(super) rows: u64,
    pub(super) notes: Vec<String>,
}

/// Registers what the table says of participants. With the keys of comments, also how many votes each should have in
/// a list.
pub(super) fn participants(
    member: &Member,
    limits: &Limits,
    listed: Option<&ItemIndex>,
    people: &mut ParticipantRegistry,
) -> Result<Participants, ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let id = table.need(&["participant"])?;
    let (group, xid) = (table.find(&["group-id"])?, table.find(&["xid"])?);
    let own = table.find(&["n-votes"])?;
    let is_comment = |name: &String| listed.is_some_and(|keys| keys.find(name.as_bytes()).is_some());
    let comments: Vec<_> = (0..table.columns.len()).filter(|at| is_comment(&table.columns[*at])).collect();
    let mut members = Vec::new();
    let mut seen = HashMap::<Box<[u8]>, u64>::new();
    let wanted = people.wants_external();
    if wanted && xid.is_none() {
        let detail = "there is no column xid, and --participants external-ids asks for the ids in it";
        return Err(ConvertError::content(&table.name, 1, ErrorKind::MissingColumn, detail));
    }
    let mut known_outside = HashMap::<Box<str>, u64>::new();
    let (mut names, mut places_of, mut external) =
        (Vec::<String>::new(), HashMap::<String, usize>::new(), 0_u64);
    while let Some(row) = table.next()? {
        let (who, name, xid) = (row.text(id)?.as_bytes(), row.maybe(group)?.trim(), row.maybe(xid)?.trim());
        if who.is_empty() {
            return Err(row.wrong(ErrorKind::Value, "participant is empty"));
        }
        match seen.entry(who.into()) {
            Entry::Occupied(first) => {
                let detail = format!("the participant stands in row {} already", first.get());
                return Err(row.wrong(ErrorKind::Duplicate, detail));
            }
            Entry::Vacant(place) => place.insert(row.number),
        };
        if !xid.is_empty() {
            external += 1;
            if wanted && let Some(first) = known_outside.insert(xid.into(), row.number) {
                let detail = format!(
                    "its xid stands in row {first} already, and --participants external-ids tells apart by it"
                );
                return Err(row.wrong(ErrorKind::Duplicate, detail));
            }
            people.set_external(who, xid);
        }
        if listed.is_some() {
            let mut votes = 0;
            for at in &comments {
                votes += u32::from(!row.maybe(Some(*at))?.trim().is_empty());
            }
            let own = row.maybe(own)?.trim().parse().unwrap_or_default();
            people.set_answers(who, votes.max(own));
        }
        if name.is_empty() {
            people.set_group(who, 0);
            continue;
        }
        let at = match places_of.get(name) {
            Some(at) => *at,
            None if names.len() == MOST_GROUPS => {
                return Err(row.wrong(ErrorKind::Value, format!("there are more than {MOST_GROUPS} groups")));
            }
            None => {
                names.push(name.to_owned());
                places_of.insert(name.to_owned(), names.len() - 1);
                names.len() - 1
            }
        };
        members.push((Box::<[u8]>::from(who), at));
    }
    let mut order: Vec<_> = (0..names.len()).collect();
    order.sort_by_key(|at| (names[*at].parse::<u64>().unwrap_or(u64::MAX), names[*at].clone()));
    let mut places = vec![0_u16; names.len()];
    for (place, at) in order.iter().enumerate() {
        places[*at] = u16::try_from(place + 1).unwrap_or(u16::MAX);
    }
    for (who, at) in members {
        people.set_group(&who, places[at]);
    }
    let groups = order.into_iter().map(|at| names[at].clone()).collect();
    let mut notes = Vec::new();
    let others = seen.len() as u64 - external;
    if wanted && others > 0 {
        let (told, were) = people.hidden_below.counted(others, "participant");
        notes
            .push(format!("{told} {were} without an id of the embedding site (xid): a pseudonym stands in."));
    }
    if external > 0 && !wanted {
        // Of all who took part, the others could be few.
        let told = if people.hidden_below.hides_any() {
            "Participants".to_owned()
        } else {
            counted(external, "participant")
        };
        notes.push(format!(
            "{told} had an id of the embedding site (xid), which identifies them directly: only \
             `--participants external-ids` keeps it."
        ));
    }
    Ok(Participants { groups, rows: table.rows(), notes })
}

/// The votes of everybody, without times.
pub(super) fn rows(
    member: &Member,
    limits: &Limits,
    meter: &Arc<Meter>,
    keys: &ItemIndex,
    turned: bool,
    people: &mut ParticipantRegistry,
    mut each: impl FnMut(Row) -> Result<Flow, ConvertError>,
) -> Result<Read, ConvertError> {
    let mut table = Table::open(member.open(limits, Some(meter))?, limits, true)?;
    let id = table.need(&["participant"])?;
    // Comments are the columns behind the counts.
    let counts =
        ["participant", "xid", "group-id", "n-comments", "n-votes", "n-agree", "n-disagree", "n-pass"];
    let (mut items, mut first_of) = (Vec::<(usize, u32)>::new(), HashMap::new());
    for (at, column) in table.columns.iter().enumerate() {
        if counts.contains(&column.to_lowercase().as_str()) {
            if keys.find(column.as_bytes()).is_some() {
                let detail = format!("column {} is called as a comment is, too: {column}", at + 1);
                return Err(ConvertError::content(&table.name, 1, ErrorKind::Duplicate, detail));
            }
            continue;
        }
        let item = keys.find(column.as_bytes()).ok_or_else(|| {
            ConvertError::content(
                &table.name,
                1,
                ErrorKind::UnknownItem,
                format!("column {} is no comment", at + 1),
            )
        })?;
        if let Some(first) = first_of.insert(item, at) {
            return Err(twice(&table.name, column, first, at));
        }
        items.push((at, item));
    }
    let mut rows = 0;
    while let Some(row) = table.next()? {
        let id = row.text(id)?.as_bytes();
        for (at, item) in &items {
            let answer = match row.maybe(Some(*at))?.trim() {
                "" => continue,
                "1" => Answer::Agree,
                "-1" => Answer::Disagree,
                "0" => Answer::Pass,
                _ => return Err(row.wrong(ErrorKind::Value, "a vote is none of 1, 0, -1 and nothing")),
            };
            let (who, group) = people.see(id);
            rows += 1;
            meter.rows.fetch_add(1, Ordering::Relaxed);
            let row = Row::new(who, *item, NO_OBJECT, turn(answer, turned), None, group);
            if each(row)? == Flow::Enough {
                return Ok(Read { flow: Flow::Enough, rows, ended: None });
            }
        }
    }
    let rows = table.rows();
    Ok(Read { flow: Flow::More, rows, ended: Some(table.finish()?) })
}

pub(super) fn turn(answer: Answer, turned: bool) -> Answer {
    match (answer, turned) {
        (Answer::Agree, true) => Answer::Disagree,
        (Answer::Disagree, true) => Answer::Agree,
        _ => answer,
    }
}
