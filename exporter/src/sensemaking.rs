//! Tables of tallies, as the sensemaking tools read them: comments with counts of votes, in all or by group.
//!
//! Nobody's answers are in them, so nobody can be told apart.

#![allow(clippy::cast_possible_truncation, reason = "a list of items in memory is shorter than 2^32")]

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    fault::{Fault, Wrong},
    form::Answer,
    input::{
        Limits, Member, Role, need,
        table::{Table, twice},
    },
    model::{Head, Item, Keys, Published, Source, by_key},
    privacy::people::People,
    rows::NO_OBJECT,
    tally::Pair,
};

#[derive(Debug)]
pub(crate) struct Sensemaking {
    tallies: Vec<Pair>,
}

/// Columns of one group: agree, disagree, pass.
type Columns = [Option<usize>; 3];
/// More people there are not, and no sum of counts is too large.
const MOST: u64 = 1 << 40;
const ANSWERS: [Answer; 3] = [Answer::Agree, Answer::Disagree, Answer::Pass];

impl Sensemaking {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        source_id: Option<&str>,
        people_of: &mut dyn FnMut(&str) -> People,
    ) -> Result<(Self, Head, People), Fault> {
        let member = need(files, limits, Role::Tallies, "the file of comments")?;
        let id = source_id.map_or_else(|| member.stem(), str::to_owned);
        let mut read = read(member, limits)?;
        read.sort_by(|left, right| by_key(&left.0, &right.0));
        let (items, counts): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        Keys::of(&items, &member.name)?;
        let tallies = counts.into_iter().enumerate();
        let tallies =
            tallies.map(|(at, counts)| Pair { subject: at as u32, object: NO_OBJECT, counts }).collect();
        let people = people_of(&id);
        let source = Source {
            tool: "sensemaking".to_owned(),
            schema: "https://github.com/Jigsaw-Code/sensemaking-tools".to_owned(),
            id,
            ..Source::default()
        };
        let head = Head {
            rows: vec![(Role::Tallies, items.len() as u64)],
            notes: vec!["The source holds tallies only: how many people took part is not known.".to_owned()],
            ..Head::of_statements("tidegate:sensemaking/v1", source, items)
        };
        Ok((Self { tallies }, head, people))
    }

    pub(crate) fn tallies(&self) -> &[Pair] {
        &self.tallies
    }
}

fn read(member: &Member, limits: &Limits) -> Result<Vec<(Item, crate::privacy::suppress::Counts)>, Fault> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let (id, text) = (table.need(&["comment-id"])?, table.need(&["comment_text"])?);
    let whole: Columns = [table.find(&["agrees"])?, table.find(&["disagrees"])?, table.find(&["passes"])?];
    let groups = groups(&table)?;
    if whole.iter().flatten().next().is_some() && !groups.is_empty() {
        let detail = "it has counts in all and counts by group: which ones hold cannot be told";
        return Err(Fault::content(&table.name, 1, Wrong::Format, detail));
    }
    let moderated = table.find(&["moderated"])?;
    let mut words = Vec::new();
    for name in ["topics", "topic", "subtopic"] {
        words.push((name, table.find(&[name])?));
    }
    let mut found = Vec::new();
    while let Some(row) = table.next()? {
        let key = row.text(id)?.trim();
        // Missing is not none: an empty cell adds nothing.
        let count = |column: Option<usize>| match column {
            Some(column) if !row.maybe(Some(column))?.trim().is_empty() => {
                let count = row.number::<u64>(column, "a count")?;
                if count > MOST {
                    Err(row.wrong(Wrong::Value, "a count is larger than any can be"))
                } else {
                    Ok(count)
                }
            }
            _ => Ok(0),
        };
        let mut counts = crate::privacy::suppress::Counts::default();
        let mut outcomes = Vec::new();
        let mut by_group = Map::new();
        let all = groups.iter().map(|(name, columns)| (Some(name), columns)).chain([(None, &whole)]);
        for (name, columns) in all {
            let mut cells = Map::new();
            for (answer, column) in ANSWERS.into_iter().zip(columns) {
                let value = count(*column)?;
                let sum = counts[answer as usize].checked_add(value);
                counts[answer as usize] =
                    sum.ok_or_else(|| row.wrong(Wrong::Value, "a count is too large"))?;
                if column.is_some() {
                    cells.insert(answer.as_str().to_owned(), value.into());
                }
            }
            if let Some(name) = name {
                by_group.insert(name.clone(), Value::Object(cells));
            }
        }
        if !by_group.is_empty() {
            let more = Map::from_iter([("groups".to_owned(), Value::Object(by_group))]);
            outcomes.push(Published { more, ..Published::counts("group-response-counts", Map::new()) });
        }
        let mut topics = Map::new();
        for (name, column) in &words {
            let said = row.maybe(*column)?;
            if !said.is_empty() {
                topics.insert((*name).to_owned(), said.into());
            }
        }
        if !topics.is_empty() {
            outcomes.push(Published { more: topics, ..Published::counts("topics", Map::new()) });
        }
        let item = Item {
            id: format!("statement:{key}"),
            key: key.to_owned(),
            row: row.number,
            text: row.text(text)?.to_owned(),
            status: match row.maybe(moderated)?.trim() {
                "0" => "pending",
                "-1" => "rejected",
                _ => "approved",
            }
            .to_owned(),
            organizer: false,
            created: None,
            author: None,
            outcomes,
        };
        found.push((item, counts));
    }
    Ok(found)
}

/// `<group>-agree-count` and so on, by name of the group.
fn groups(table: &Table) -> Result<BTreeMap<String, Columns>, Fault> {
    let mut groups: BTreeMap<String, Columns> = BTreeMap::new();
    for (at, column) in table.columns.iter().enumerate() {
        for (place, ending) in ["-agree-count", "-disagree-count", "-pass-count"].into_iter().enumerate() {
            if let Some(name) = column.strip_suffix(ending) {
                let group = groups.entry(name.to_owned()).or_default();
                if let Some(first) = group[place].replace(at) {
                    return Err(twice(&table.name, column, first, at));
                }
            }
        }
    }
    Ok(groups)
}
