//! Overview of a bundle: its head, how much there is of everything, its data card and a table of its items.
//!
//! Nothing is validated, and participants' texts are shown only on request. Items are listed as far as memory holds them,
//! and counted beyond that.

use std::{
    collections::{BTreeMap, HashMap},
    io,
};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    bundle::{
        invalid_json::InvalidJson,
        validate::{Findings, Part, Row, Set, Severity, Sink, Walk, outcome, response},
    },
    form::{Answer, Naming, Object},
    json::{Each, JsonText, Limits, Reader, Stop},
    storage::spill::SpillOptions,
    unpack::Source,
};

/// An item and what was answered to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    pub id: String,
    pub phase: String,
    pub status: String,
    pub origin: String,
    /// Empty unless texts were asked for.
    pub text: String,
    /// Counts by answer, in the order of [`Answer::ALL`]; of comparisons, those in which the item comes first.
    pub counts: [u128; 6],
    /// Counts that outcomes say are suppressed.
    pub hidden: u64,
}

/// Overview of a bundle.
#[derive(Debug, Default)]
pub struct Overview {
    /// Fields of the document and of its objects.
    pub head: Map<String, Value>,
    /// The first ones, each with its own fields.
    pub phases: Vec<Map<String, Value>>,
    pub artifacts: Vec<Map<String, Value>>,
    /// The first items, as far as memory holds them.
    pub items: Vec<Item>,
    /// Number of items that are counted only.
    pub unlisted: u64,
    /// The sum of the counts of its rows. No sum of counts goes beyond what its type holds: it stays there.
    pub responses: u128,
    /// Entries of the list.
    pub rows: u64,
    /// Number of participants who are named.
    pub participants: u64,
    /// Responses that name no participant.
    pub unlinked: u128,
    pub outcomes: BTreeMap<String, u64>,
    /// Answers to items that are not listed, or not in the bundle.
    pub elsewhere: [u128; 6],
    /// Number of places that violate a rule of the form.
    pub findings: u64,
    /// Why it was not read to its end, if it was not.
    pub stopped: Option<InvalidJson>,
    pub bytes: u64,
}

/// Number of phases, artifacts and types of outcomes that are listed: foreign files may name any number.
const MOST_TYPES: usize = 1_000;

/// Number of items to list, and what to show of them.
#[derive(Clone, Copy, Debug)]
pub struct ItemOptions {
    pub most: usize,
    /// Shows the items' texts.
    pub texts: bool,
}

/// Reads a document once, in the memory of the room. `schema` is what its own member of that name must hold; the
/// naming's own if there is none.
///
/// # Errors
/// If it cannot be read, or is no object.
pub fn inspect(
    source: &mut dyn Source,
    naming: Naming,
    schema: Option<&str>,
    options: ItemOptions,
    limits: Limits,
    room: &SpillOptions,
) -> Result<Overview, InvalidJson> {
    let mut findings = Findings::new(0, false, 0);
    // Half of the memory is for items, half for participants.
    let room = SpillOptions { memory: room.memory / 2, ..room.clone() };
    let mut sink = OverviewSink {
        options,
        memory: room.memory,
        overview: Overview::default(),
        items: HashMap::new(),
        subjects: HashMap::new(),
        hidden: HashMap::new(),
        participants: Set::new(room),
        form: naming.bundle(),
    };
    let reader = Reader::new(source.open()?, limits);
    let schema = schema.unwrap_or(naming.schema());
    let walk = Walk::new(reader, naming.bundle(), schema, &mut findings, &mut sink);
    let end = walk.run().map_err(|stop| match stop {
        Stop::Io(error) => error,
        Stop::Invalid(..) | Stop::Enough => io::Error::other("the reading ended early"),
    })?;
    if let (None, Some(at)) = (end.stopped, end.no_object) {
        return Err(InvalidJson::NoObject { at_line: at.line, offset: at.offset });
    }
    let OverviewSink { mut overview, items, subjects, hidden, participants, .. } = sink;
    for (subject, hidden) in hidden {
        if let Some(item) = items.get(&subject) {
            overview.items[*item].hidden = hidden;
        }
    }
    for (subject, counts) in subjects {
        let into = match items.get(&subject) {
            Some(item) => &mut overview.items[*item].counts,
            None => &mut overview.elsewhere,
        };
        add(into, &counts);
    }
    participants.finish(|_| overview.participants += 1)?;
    let (totals, _) = findings.into_parts();
    let errors = totals.iter().filter(|(rule, _)| rule.severity() == Severity::Error);
    overview.findings = errors.map(|(_, total)| total).sum();
    overview.bytes = end.bytes;
    overview.stopped = end.stopped.map(|(rule, at)| InvalidJson::at(rule, at));
    Ok(overview)
}

impl Overview {
    /// True if nothing of a bundle was found.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.phases.is_empty() && self.items.is_empty() && self.rows == 0
    }

    /// Number of items in the bundle.
    pub fn item_count(&self) -> u64 {
        self.items.len() as u64 + self.unlisted
    }

    /// Returns the overview as JSON. The items are written one after the other.
    pub fn to_json<'a>(&'a self, name: &'a str) -> JsonText<impl Serialize + 'a> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Document<'a, I> {
            file: &'a str,
            bytes: u64,
            complete: bool,
            faults: u64,
            head: &'a Map<String, Value>,
            phases: &'a [Map<String, Value>],
            artifacts: &'a [Map<String, Value>],
            items: I,
            unlisted_items: u64,
            responses: u128,
            rows: u64,
            participants: u64,
            unlinked: u128,
            outcomes: &'a BTreeMap<String, u64>,
        }
        JsonText(Document {
            file: name,
            bytes: self.bytes,
            complete: self.stopped.is_none(),
            faults: self.findings,
            head: &self.head,
            phases: &self.phases,
            artifacts: &self.artifacts,
            items: Each(&self.items, item_json),
            unlisted_items: self.unlisted,
            responses: self.responses,
            rows: self.rows,
            participants: self.participants,
            unlinked: self.unlinked,
            outcomes: &self.outcomes,
        })
    }
}

fn item_json(item: &Item) -> Value {
    let mut entry = json!({
        "id": item.id, "phaseId": item.phase, "status": item.status, "origin": item.origin,
        "counts": counts(&item.counts),
    });
    if item.hidden > 0 {
        entry["hidden"] = json!(item.hidden);
    }
    if !item.text.is_empty() {
        entry["text"] = json!(item.text);
    }
    entry
}

/// Counts by the name of the answer, without zeros.
pub fn counts(counts: &[u128; 6]) -> BTreeMap<&'static str, u128> {
    let named = Answer::ALL.into_iter().map(|answer| (answer.as_str(), counts[answer as usize]));
    named.filter(|(_, count)| *count > 0).collect()
}

struct OverviewSink {
    options: ItemOptions,
    /// Bytes left for items, and for what is said of items that were not read yet.
    memory: usize,
    overview: Overview,
    items: HashMap<Box<[u8]>, usize>,
    /// Answers that came before their items.
    subjects: HashMap<Box<[u8]>, [u128; 6]>,
    /// Number of suppressed counts by item.
    hidden: HashMap<Box<[u8]>, u64>,
    participants: Set,
    form: &'static Object,
}

impl OverviewSink {
    fn item(&mut self, row: &Row) {
        // The items after one that found no memory are not listed either: the list is a beginning, without gaps.
        if self.overview.unlisted > 0 || self.overview.items.len() >= self.options.most {
            self.overview.unlisted += 1;
            return;
        }
        let item = Item {
            id: text(row, 0),
            phase: text(row, 1),
            status: text(row, 4),
            origin: text(row, 5),
            text: if self.options.texts { text(row, 3) } else { String::new() },
            counts: [0; 6],
            hidden: 0,
        };
        let texts = [&item.id, &item.phase, &item.status, &item.origin, &item.text];
        let bytes =
            texts.map(|text| text.capacity() + ALLOCATION).iter().sum::<usize>() + 2 * size_of::<Item>();
        if !take(&mut self.memory, bytes + entry_bytes::<usize>(item.id.as_bytes())) {
            self.overview.unlisted += 1;
            return;
        }
        if let Some(id) = row.text(0) {
            self.items.entry(id.into()).or_insert(self.overview.items.len());
        }
        self.overview.items.push(item);
    }

    fn response(&mut self, row: &Row) -> io::Result<()> {
        let overview = &mut self.overview;
        let count = row.number(response::COUNT).map_or(0, |count| count.count());
        overview.rows += 1;
        overview.responses = overview.responses.saturating_add(count);
        match row.text(response::PARTICIPANT) {
            Some(participant) => {
                self.participants.insert(participant)?;
            }
            None => overview.unlinked = overview.unlinked.saturating_add(count),
        }
        let (Some(subject), Some(answer)) =
            (row.text(response::SUBJECT), row.text(response::ANSWER).and_then(Answer::parse))
        else {
            return Ok(());
        };
        let counts = if let Some(item) = self.items.get(subject) {
            &mut overview.items[*item].counts
        } else if let Some(counts) = self.subjects.get_mut(subject) {
            counts
        } else if take(&mut self.memory, entry_bytes::<[u128; 6]>(subject)) {
            self.subjects.entry(subject.into()).or_default()
        } else {
            &mut overview.elsewhere
        };
        let sum = &mut counts[answer as usize];
        *sum = sum.saturating_add(count);
        Ok(())
    }
}

impl Sink for OverviewSink {
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        match part {
            Part::Phases => {
                if self.overview.phases.len() < MOST_TYPES {
                    self.overview.phases.push(fields(row, &crate::form::PHASE));
                }
            }
            Part::Items => self.item(row),
            Part::Responses => self.response(row)?,
            _ => {
                let types = &mut self.overview.outcomes;
                let kind = text(row, 2);
                if let (Some(item), Some(hidden)) = (row.text(outcome::ITEM), row.number(outcome::SUPPRESSED))
                    && (self.hidden.contains_key(item) || take(&mut self.memory, entry_bytes::<u64>(item)))
                {
                    let sum = self.hidden.entry(item.into()).or_default();
                    *sum = sum.saturating_add(u64::try_from(hidden.count()).unwrap_or(u64::MAX));
                }
                if types.len() < MOST_TYPES || types.contains_key(&kind) {
                    *types.entry(kind).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn part(&mut self, part: Part, row: &Row) {
        if let crate::form::Value::Object(form) = &self.form.fields[part as usize].value {
            self.overview.head.insert(part.name().to_owned(), Value::Object(fields(row, form)));
        }
    }

    fn artifact(&mut self, row: &Row) {
        if self.overview.artifacts.len() < MOST_TYPES {
            self.overview.artifacts.push(fields(row, &crate::form::ARTIFACT));
        }
    }

    fn top(&mut self, row: &Row) {
        let own = fields(row, self.form);
        self.overview.head.extend(own);
    }
}

/// Bytes that an allocation takes beyond those that were asked for.
const ALLOCATION: usize = 16;

/// Bytes of an entry of a map, which may be half empty.
fn entry_bytes<V>(key: &[u8]) -> usize {
    key.len() + ALLOCATION + 2 * (size_of::<(Box<[u8]>, V)>() + 1)
}

/// Takes the bytes from what is left; false if there are not enough.
fn take(left: &mut usize, bytes: usize) -> bool {
    let Some(rest) = left.checked_sub(bytes) else { return false };
    *left = rest;
    true
}

/// Texts, numbers and flags by name. A text in place of an object, a list or a number is not shown: it may be anything.
fn fields(row: &Row, form: &Object) -> Map<String, Value> {
    let mut fields = Map::new();
    for (index, field) in form.fields.iter().enumerate() {
        let value = if row.text(index).is_some() && field.value.may_be_text() {
            json!(text(row, index))
        } else if let Some(number) = row.number(index) {
            // A count as it is; anything else as near as a double comes.
            match number.count() {
                count if number.whole && number.at_least(0) && count < u128::MAX => json!(count),
                _ => json!(number.double),
            }
        } else if let Some(flag) = row.flag(index) {
            json!(flag)
        } else {
            continue;
        };
        fields.insert(field.name.to_owned(), value);
    }
    fields
}

fn text(row: &Row, field: usize) -> String {
    String::from_utf8_lossy(row.text(field).unwrap_or_default()).into_owned()
}

fn add(into: &mut [u128; 6], counts: &[u128; 6]) {
    for (sum, count) in into.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}
