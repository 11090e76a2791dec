//! Adapter for tables of counts in the format of the sensemaking tools: comments with votes in total or by group.
//!
//! Such tables contain no participants.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    error::{ConvertError, ErrorKind},
    form::{Answer, GROUP_RESPONSE_COUNTS},
    input::{
        Limits, Member, Role, require_file,
        table::{Table, repeated_column},
    },
    model::{BundleHeader, Item, ItemIndex, Origin, PublishedOutcome, Source, by_key},
    plural::{format_count, was_or_were},
    privacy::{
        participants::{ParticipantRegistry, RegistryFor, scope},
        suppression::Counts,
    },
    storage::rows::NO_OBJECT,
    tally::{CountTable, UnknownCounts},
};

#[derive(Debug)]
pub(crate) struct Sensemaking {
    tallies: Vec<CountTable>,
}

/// Count columns of one group or of the total: agree, disagree, pass.
type Columns = [Option<usize>; 3];
/// Largest accepted count: more than there are people, and small enough that sums do not overflow.
const MAX_COUNT: u64 = 1 << 40;
const TOOL: &str = "sensemaking";
const ANSWERS: [Answer; 3] = [Answer::Agree, Answer::Disagree, Answer::Pass];

impl Sensemaking {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        source_id: Option<&str>,
        registry_for: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let member = require_file(files, limits, Role::Tallies, "the file of comments")?;
        let id = source_id.map_or_else(|| member.stem(), str::to_owned);
        let ReadTable { mut rows, notes: table_notes } = read_table(member, limits)?;
        rows.sort_by(|left, right| by_key(&left.0, &right.0));
        let (items, counts): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        // Refuses repeated ids.
        ItemIndex::from_sorted(&items, &member.name)?;
        let tallies = (0..).zip(counts);
        let tallies = tallies
            .map(|(subject, (counts, unknown))| CountTable {
                unknown,
                ..CountTable::new(subject, NO_OBJECT, counts)
            })
            .collect();
        let note = "The source holds tallies only: the number of participants is unknown.".to_owned();
        // Tables of counts register no participants, so the fallback id cannot mix up any.
        let people = registry_for(Some(&scope(TOOL, &id)))?;
        let source = Source {
            tool: TOOL.to_owned(),
            schema: "https://github.com/Jigsaw-Code/sensemaking-tools".to_owned(),
            id,
            ..Source::default()
        };
        let head = BundleHeader {
            rows: vec![(Role::Tallies, items.len() as u64)],
            notes: [note].into_iter().chain(table_notes).collect(),
            ..BundleHeader::of_statements("tidegate:sensemaking/v1", source, items)
        };
        Ok((Self { tallies }, head, people))
    }

    pub(crate) fn tallies(&self) -> &[CountTable] {
        &self.tallies
    }
}

struct ReadTable {
    rows: Vec<(Item, (Counts, UnknownCounts))>,
    /// Notes about counts that the table does not contain.
    notes: Vec<String>,
}

fn read_table(member: &Member, limits: &Limits) -> Result<ReadTable, ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let (id, text) = (table.require(&["comment-id"])?, table.require(&["comment_text"])?);
    let total_columns: Columns =
        [table.find(&["agrees"])?, table.find(&["disagrees"])?, table.find(&["passes"])?];
    let groups = find_group_columns(&table)?;
    if total_columns.iter().flatten().next().is_some() && !groups.is_empty() {
        let detail = "it has both total counts and counts by group: remove one kind of columns";
        return Err(ConvertError::content(&table.name, 1, ErrorKind::Format, detail));
    }
    let moderated_column = table.find(&["moderated"])?;
    let mut topic_columns = Vec::new();
    for name in ["topics", "topic", "subtopic"] {
        topic_columns.push((name, table.find(&[name])?));
    }
    let columns_with = |place: usize| {
        groups.values().chain([&total_columns]).filter(|columns| columns[place].is_some()).count()
    };
    // If only some groups have a column, the total of the answer is unknown.
    let group_count = if groups.is_empty() { 1 } else { groups.len() };
    let mut unknown = UnknownCounts::default();
    for (place, answer) in ANSWERS.into_iter().enumerate() {
        unknown.absent_answers[answer as usize] = columns_with(place) == 0;
        unknown.hidden_answers[answer as usize] = (1..group_count).contains(&columns_with(place));
    }
    let mut notes = Vec::new();
    for (place, name) in ["agrees", "disagrees", "passes"].into_iter().enumerate() {
        match columns_with(place) {
            0 => notes.push(format!("The table has no column of {name}: their number is unknown, not zero.")),
            present if present < group_count => {
                notes.push(format!(
                    "{present} of {group_count} groups have a column of {name}: their total is unknown."
                ));
            }
            _ => {}
        }
    }
    let mut rows = Vec::new();
    let mut empty_cells = 0_u64;
    while let Some(row) = table.next()? {
        let key = row.text(id)?.trim();
        if key.is_empty() {
            return Err(row.error(ErrorKind::Value, "comment-id is empty"));
        }
        // An empty cell is an unknown count, which differs from zero.
        let count = |column: usize| {
            if row.optional_text(Some(column))?.trim().is_empty() {
                return Ok(None);
            }
            let count = row.number::<u64>(column, "a count")?;
            if count > MAX_COUNT {
                return Err(row.error(ErrorKind::Value, "a count exceeds the largest possible one"));
            }
            Ok(Some(count))
        };
        let mut counts = Counts::default();
        let mut unknown = unknown;
        let mut outcomes = Vec::new();
        let mut by_group = Map::new();
        let count_columns =
            // Group and total columns exclude each other, so each answer is counted once.
            groups.iter().map(|(name, columns)| (Some(name), columns)).chain([(None, &total_columns)]);
        for (name, columns) in count_columns {
            let mut cells = Map::new();
            for (answer, column) in ANSWERS.into_iter().zip(columns) {
                let Some(column) = *column else { continue };
                let Some(value) = count(column)? else {
                    empty_cells += 1;
                    unknown.hidden_answers[answer as usize] = true;
                    continue;
                };
                let sum = counts[answer as usize].checked_add(value);
                counts[answer as usize] =
                    sum.ok_or_else(|| row.error(ErrorKind::Value, "a count is too large"))?;
                cells.insert(answer.as_str().to_owned(), value.into());
            }
            if let Some(name) = name {
                by_group.insert(name.clone(), Value::Object(cells));
            }
        }
        if !by_group.is_empty() {
            let groups_member = Map::from_iter([("groups".to_owned(), Value::Object(by_group))]);
            outcomes.push(PublishedOutcome {
                other_members: groups_member,
                ..PublishedOutcome::counts(GROUP_RESPONSE_COUNTS, Map::new())
            });
        }
        let mut topics = Map::new();
        for (name, column) in &topic_columns {
            let topic = row.optional_text(*column)?;
            if !topic.is_empty() {
                topics.insert((*name).to_owned(), topic.into());
            }
        }
        if !topics.is_empty() {
            outcomes.push(PublishedOutcome {
                other_members: topics,
                ..PublishedOutcome::counts("topics", Map::new())
            });
        }
        let item = Item {
            id: format!("statement:{key}"),
            key: key.to_owned(),
            row: row.number,
            text: row.text(text)?.to_owned(),
            status: match row.optional_text(moderated_column)?.trim() {
                "0" => "pending",
                "-1" => "rejected",
                _ => "approved",
            }
            .to_owned(),
            origin: Origin::Participant,
            phase: 0,
            created: None,
            author: None,
            outcomes,
        };
        rows.push((item, (counts, unknown)));
    }
    if empty_cells > 0 {
        let (cells, were) = (format_count(empty_cells, "empty cell"), was_or_were(empty_cells));
        notes.push(format!("{cells} among the counts {were} treated as hidden counts: unknown, not zero."));
    }
    Ok(ReadTable { rows, notes })
}

/// Columns `<group>-agree-count`, `-disagree-count` and `-pass-count`, by group name.
fn find_group_columns(table: &Table) -> Result<BTreeMap<String, Columns>, ConvertError> {
    let mut groups: BTreeMap<String, Columns> = BTreeMap::new();
    for (index, column) in table.columns.iter().enumerate() {
        for (place, ending) in ["-agree-count", "-disagree-count", "-pass-count"].into_iter().enumerate() {
            if let Some(name) = column.strip_suffix(ending) {
                let group = groups.entry(name.to_owned()).or_default();
                if let Some(first) = group[place].replace(index) {
                    return Err(repeated_column(&table.name, column, first, index));
                }
            }
        }
    }
    Ok(groups)
}
