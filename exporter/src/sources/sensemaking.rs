//! Adapter for tables of counts, as the sensemaking tools read them: comments with votes in total or by group.
//!
//! Such tables hold no participants.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    error::{ConvertError, ErrorKind},
    form::{Answer, GROUP_RESPONSE_COUNTS},
    input::{
        Limits, Member, Role, need,
        table::{Table, twice},
    },
    model::{BundleHeader, Item, ItemIndex, PublishedOutcome, Source, by_key},
    plural::{counted, were},
    privacy::{
        participants::{ParticipantRegistry, RegistryFor, scope},
        suppression::Counts,
    },
    storage::rows::NO_OBJECT,
    tally::{Pair, Unknown},
};

#[derive(Debug)]
pub(crate) struct Sensemaking {
    tallies: Vec<Pair>,
}

/// Columns of one group: agree, disagree, pass.
type Columns = [Option<usize>; 3];
/// More people there are not, and no sum of counts is too large.
const MOST: u64 = 1 << 40;
const TOOL: &str = "sensemaking";
const ANSWERS: [Answer; 3] = [Answer::Agree, Answer::Disagree, Answer::Pass];

impl Sensemaking {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        source_id: Option<&str>,
        people_of: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let member = need(files, limits, Role::Tallies, "the file of comments")?;
        let id = source_id.map_or_else(|| member.stem(), str::to_owned);
        let ReadTable { rows: mut read, notes: missing } = read(member, limits)?;
        read.sort_by(|left, right| by_key(&left.0, &right.0));
        let (items, counts): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        ItemIndex::of(&items, &member.name)?;
        let tallies = (0..).zip(counts);
        let tallies = tallies
            .map(|(subject, (counts, unknown))| Pair { unknown, ..Pair::of(subject, NO_OBJECT, counts) })
            .collect();
        let known = "The source holds tallies only: how many people took part is not known.".to_owned();
        // Nobody is in them who could be taken for somebody else.
        let people = people_of(Some(&scope(TOOL, &id)))?;
        let source = Source {
            tool: TOOL.to_owned(),
            schema: "https://github.com/Jigsaw-Code/sensemaking-tools".to_owned(),
            id,
            ..Source::default()
        };
        let head = BundleHeader {
            rows: vec![(Role::Tallies, items.len() as u64)],
            notes: [known].into_iter().chain(missing).collect(),
            ..BundleHeader::of_statements("tidegate:sensemaking/v1", source, items)
        };
        Ok((Self { tallies }, head, people))
    }

    pub(crate) fn tallies(&self) -> &[Pair] {
        &self.tallies
    }
}

struct ReadTable {
    rows: Vec<(Item, (Counts, Unknown))>,
    /// Notes about what the table leaves open.
    notes: Vec<String>,
}

fn read(member: &Member, limits: &Limits) -> Result<ReadTable, ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let (id, text) = (table.need(&["comment-id"])?, table.need(&["comment_text"])?);
    let whole: Columns = [table.find(&["agrees"])?, table.find(&["disagrees"])?, table.find(&["passes"])?];
    let groups = groups(&table)?;
    if whole.iter().flatten().next().is_some() && !groups.is_empty() {
        let detail = "it has counts in all and counts by group: which ones hold cannot be told";
        return Err(ConvertError::content(&table.name, 1, ErrorKind::Format, detail));
    }
    let moderated = table.find(&["moderated"])?;
    let mut words = Vec::new();
    for name in ["topics", "topic", "subtopic"] {
        words.push((name, table.find(&[name])?));
    }
    let asked =
        |place: usize| groups.values().chain([&whole]).filter(|columns| columns[place].is_some()).count();
    // Where only some groups have a column, the others' answers are not known.
    let each = if groups.is_empty() { 1 } else { groups.len() };
    let mut unknown = Unknown::default();
    for (place, answer) in ANSWERS.into_iter().enumerate() {
        unknown.absent[answer as usize] = asked(place) == 0;
        unknown.hidden[answer as usize] = (1..each).contains(&asked(place));
    }
    let mut notes = Vec::new();
    for (place, name) in ["agrees", "disagrees", "passes"].into_iter().enumerate() {
        match asked(place) {
            0 => notes
                .push(format!("The table has no column of {name}: they are not known, which is not nought.")),
            asked if asked < each => {
                notes.push(format!("{asked} of {each} groups have a column of {name}: how many there are in all is not known."));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    let mut empty = 0_u64;
    while let Some(row) = table.next()? {
        let key = row.text(id)?.trim();
        if key.is_empty() {
            return Err(row.wrong(ErrorKind::Value, "comment-id is empty"));
        }
        // Missing is not none.
        let count = |column: usize| {
            if row.maybe(Some(column))?.trim().is_empty() {
                return Ok(None);
            }
            let count = row.number::<u64>(column, "a count")?;
            if count > MOST {
                return Err(row.wrong(ErrorKind::Value, "a count is larger than any can be"));
            }
            Ok(Some(count))
        };
        let mut counts = Counts::default();
        let mut unknown = unknown;
        let mut outcomes = Vec::new();
        let mut by_group = Map::new();
        let all = groups.iter().map(|(name, columns)| (Some(name), columns)).chain([(None, &whole)]);
        for (name, columns) in all {
            let mut cells = Map::new();
            for (answer, column) in ANSWERS.into_iter().zip(columns) {
                let Some(column) = *column else { continue };
                let Some(value) = count(column)? else {
                    empty += 1;
                    unknown.hidden[answer as usize] = true;
                    continue;
                };
                let sum = counts[answer as usize].checked_add(value);
                counts[answer as usize] =
                    sum.ok_or_else(|| row.wrong(ErrorKind::Value, "a count is too large"))?;
                cells.insert(answer.as_str().to_owned(), value.into());
            }
            if let Some(name) = name {
                by_group.insert(name.clone(), Value::Object(cells));
            }
        }
        if !by_group.is_empty() {
            let more = Map::from_iter([("groups".to_owned(), Value::Object(by_group))]);
            outcomes.push(PublishedOutcome {
                more,
                ..PublishedOutcome::counts(GROUP_RESPONSE_COUNTS, Map::new())
            });
        }
        let mut topics = Map::new();
        for (name, column) in &words {
            let said = row.maybe(*column)?;
            if !said.is_empty() {
                topics.insert((*name).to_owned(), said.into());
            }
        }
        if !topics.is_empty() {
            outcomes
                .push(PublishedOutcome { more: topics, ..PublishedOutcome::counts("topics", Map::new()) });
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
        found.push((item, (counts, unknown)));
    }
    if empty > 0 {
        let (cells, were) = (counted(empty, "empty cell"), were(empty));
        notes.push(format!(
            "{cells} among the counts {were} taken for hidden counts: they are unknown, not nought."
        ));
    }
    Ok(ReadTable { rows: found, notes })
}

/// `<group>-agree-count` and so on, by name of the group.
fn groups(table: &Table) -> Result<BTreeMap<String, Columns>, ConvertError> {
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
