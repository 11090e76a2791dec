//! Builds an overview of a bundle: its head, totals, data card and a table of its items. Texts of participants are
//! included only on request. Items are listed up to the memory limit, and counted beyond it.

use std::{
    collections::{BTreeMap, HashMap},
    io,
};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    bundle::{
        invalid_json::InvalidJson,
        validate::{Findings, KeySet, Part, Row, Severity, Sink, Walk, outcome, response},
    },
    form::{Answer, Naming, Object},
    json::{JsonText, Limits, MappedArray, Reader, Stop},
    storage::spill::SpillOptions,
    unpack::Source,
};

/// Item, with the counts of its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    pub id: String,
    pub phase: String,
    pub status: String,
    pub origin: String,
    /// Empty unless texts were requested.
    pub text: String,
    /// Counts by answer, in the order of [`Answer::ALL`]. Comparisons count for their first item.
    pub counts: [u128; 6],
    /// Number of counts that outcomes list as suppressed.
    pub suppressed_counts: u64,
}

/// Overview of a bundle.
#[derive(Debug, Default)]
pub struct Overview {
    /// Fields of the document and of its single objects.
    pub head: Map<String, Value>,
    /// Fields of the first phases.
    pub phases: Vec<Map<String, Value>>,
    pub artifacts: Vec<Map<String, Value>>,
    /// First items, up to the memory limit.
    pub items: Vec<Item>,
    /// Number of items that are counted but not listed.
    pub unlisted_items: u64,
    /// Sum of the counts of all responses. Saturates, as all sums here do.
    pub responses: u128,
    /// Number of entries in the list of responses.
    pub rows: u64,
    /// Number of distinct participants named in responses.
    pub participants: u64,
    /// Sum of the counts of responses without a participant.
    pub unlinked: u128,
    pub outcomes: BTreeMap<String, u64>,
    /// Counts of answers to items that are not listed, or not in the bundle.
    pub elsewhere: [u128; 6],
    /// Number of locations that violate a rule of the form.
    pub findings: u64,
    /// Error that stopped the reading before the end of the document.
    pub read_error: Option<InvalidJson>,
    pub bytes: u64,
}

/// Maximum number of phases, artifacts and outcome types in the overview. Files of other tools can have any number.
const MAX_LISTED: usize = 1_000;

/// Number of items to list, and whether to include their texts.
#[derive(Clone, Copy, Debug)]
pub struct ItemOptions {
    pub max_items: usize,
    /// Includes the items' texts.
    pub with_texts: bool,
}

/// Reads a document once, within the memory limit of `spill_options`. `schema` is the required value of the member
/// `schema`; the naming's own URL by default.
///
/// # Errors
/// If the document cannot be read, or is not an object.
pub fn inspect(
    source: &mut dyn Source,
    naming: Naming,
    schema: Option<&str>,
    options: ItemOptions,
    limits: Limits,
    spill_options: &SpillOptions,
) -> Result<Overview, InvalidJson> {
    // The overview shows only the number of findings, so none is listed.
    let mut findings = Findings::new(0, false, 0);
    // Half of the memory is for the items, half for the set of participants.
    let spill_options = SpillOptions { memory: spill_options.memory / 2, ..spill_options.clone() };
    let mut sink = OverviewSink {
        options,
        free_bytes: spill_options.memory,
        overview: Overview::default(),
        items: HashMap::new(),
        early_answers: HashMap::new(),
        suppressed_by_item: HashMap::new(),
        participants: KeySet::new(spill_options),
        form: naming.bundle(),
    };
    let reader = Reader::new(source.open()?, limits);
    let schema = schema.unwrap_or(naming.schema());
    let walk = Walk::new(reader, naming.bundle(), schema, &mut findings, &mut sink);
    let end = walk.run().map_err(|stop| match stop {
        Stop::Io(error) => error,
        Stop::Invalid(..) | Stop::StoppedByCaller => {
            io::Error::other("reading stopped before the end of the document")
        }
    })?;
    // A document that stops at a syntax error has an overview up to there. A document that is no object has none.
    if let (None, Some(at)) = (end.stop, end.non_object_at) {
        return Err(InvalidJson::NotAnObject { at_line: at.line, offset: at.offset });
    }
    let OverviewSink { mut overview, items, early_answers, suppressed_by_item, participants, .. } = sink;
    // The order of the lists is free: suppressed counts and answers can be read before their item. They are assigned
    // now, when all items are known.
    for (subject, hidden) in suppressed_by_item {
        if let Some(item) = items.get(&subject) {
            overview.items[*item].suppressed_counts = hidden;
        }
    }
    for (subject, counts) in early_answers {
        let counts_of_subject = match items.get(&subject) {
            Some(item) => &mut overview.items[*item].counts,
            None => &mut overview.elsewhere,
        };
        add_counts(counts_of_subject, &counts);
    }
    participants.finish(|_| overview.participants += 1)?;
    let (totals, _) = findings.into_parts();
    let errors = totals.iter().filter(|(rule, _)| rule.severity() == Severity::Error);
    overview.findings = errors.map(|(_, total)| total).sum();
    overview.bytes = end.bytes;
    overview.read_error = end.stop.map(|(rule, at)| InvalidJson::at(rule, at));
    Ok(overview)
}

impl Overview {
    /// True if the document has no part of a bundle.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.phases.is_empty() && self.items.is_empty() && self.rows == 0
    }

    /// Number of items in the bundle.
    pub fn item_count(&self) -> u64 {
        self.items.len() as u64 + self.unlisted_items
    }

    /// Returns the overview as JSON. Items are converted one at a time while the text is written.
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
            complete: self.read_error.is_none(),
            faults: self.findings,
            head: &self.head,
            phases: &self.phases,
            artifacts: &self.artifacts,
            items: MappedArray(&self.items, item_json),
            unlisted_items: self.unlisted_items,
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
    if item.suppressed_counts > 0 {
        entry["hidden"] = json!(item.suppressed_counts);
    }
    if !item.text.is_empty() {
        entry["text"] = json!(item.text);
    }
    entry
}

/// Counts by the name of their answer, without zeros.
pub fn counts(counts: &[u128; 6]) -> BTreeMap<&'static str, u128> {
    let counts_by_name = Answer::ALL.into_iter().map(|answer| (answer.as_str(), counts[answer as usize]));
    counts_by_name.filter(|(_, count)| *count > 0).collect()
}

struct OverviewSink {
    options: ItemOptions,
    /// Bytes left for items, and for counts of items that were not read yet.
    free_bytes: usize,
    overview: Overview,
    items: HashMap<Box<[u8]>, usize>,
    /// Counts of answers that were read before their items.
    early_answers: HashMap<Box<[u8]>, [u128; 6]>,
    /// Number of suppressed counts by item.
    suppressed_by_item: HashMap<Box<[u8]>, u64>,
    participants: KeySet,
    form: &'static Object,
}

impl OverviewSink {
    fn item(&mut self, row: &Row) {
        // After the first item that did not fit, none is listed, so that the list is a prefix of the bundle's items.
        if self.overview.unlisted_items > 0 || self.overview.items.len() >= self.options.max_items {
            self.overview.unlisted_items += 1;
            return;
        }
        // Fields by their index in `form::ITEM`.
        let item = Item {
            id: lossy_text(row, 0),
            phase: lossy_text(row, 1),
            status: lossy_text(row, 4),
            origin: lossy_text(row, 5),
            text: if self.options.with_texts { lossy_text(row, 3) } else { String::new() },
            counts: [0; 6],
            suppressed_counts: 0,
        };
        let texts = [&item.id, &item.phase, &item.status, &item.origin, &item.text];
        // The item counts twice, because a growing list can be half empty.
        let bytes = texts.map(|text| text.capacity() + ALLOCATION_BYTES).iter().sum::<usize>()
            + 2 * size_of::<Item>();
        if !reserve(&mut self.free_bytes, bytes + entry_bytes::<usize>(item.id.as_bytes())) {
            self.overview.unlisted_items += 1;
            return;
        }
        if let Some(id) = row.text(0) {
            // Of several items with one id, the first receives the counts.
            self.items.entry(id.into()).or_insert(self.overview.items.len());
        }
        self.overview.items.push(item);
    }

    fn response(&mut self, row: &Row) -> io::Result<()> {
        let overview = &mut self.overview;
        let count = row.number(response::COUNT).map_or(0, |count| count.saturating_count());
        overview.rows += 1;
        overview.responses = overview.responses.saturating_add(count);
        match row.text(response::PARTICIPANT) {
            Some(participant) => {
                self.participants.insert(participant)?;
            }
            None => overview.unlinked = overview.unlinked.saturating_add(count),
        }
        // Without an item or a known answer, the response counts only in the totals above.
        let (Some(subject), Some(answer)) =
            (row.text(response::SUBJECT), row.text(response::ANSWER).and_then(Answer::parse))
        else {
            return Ok(());
        };
        let counts = if let Some(item) = self.items.get(subject) {
            &mut overview.items[*item].counts
        } else if let Some(counts) = self.early_answers.get_mut(subject) {
            counts
        } else if reserve(&mut self.free_bytes, entry_bytes::<[u128; 6]>(subject)) {
            self.early_answers.entry(subject.into()).or_default()
        } else {
            &mut overview.elsewhere
        };
        let sum = &mut counts[answer as usize];
        *sum = sum.saturating_add(count);
        Ok(())
    }
}

impl Sink for OverviewSink {
    fn on_entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        match part {
            Part::Phases => {
                if self.overview.phases.len() < MAX_LISTED {
                    self.overview.phases.push(collect_fields(row, &crate::form::PHASE));
                }
            }
            Part::Items => self.item(row),
            Part::Responses => self.response(row)?,
            _ => {
                let types = &mut self.overview.outcomes;
                let outcome_type = lossy_text(row, 2);
                if let (Some(item), Some(suppressed_names)) =
                    (row.text(outcome::ITEM), row.number(outcome::SUPPRESSED))
                    && (self.suppressed_by_item.contains_key(item)
                        || reserve(&mut self.free_bytes, entry_bytes::<u64>(item)))
                {
                    let sum = self.suppressed_by_item.entry(item.into()).or_default();
                    *sum = sum.saturating_add(
                        u64::try_from(suppressed_names.saturating_count()).unwrap_or(u64::MAX),
                    );
                }
                if types.len() < MAX_LISTED || types.contains_key(&outcome_type) {
                    *types.entry(outcome_type).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn on_part(&mut self, part: Part, row: &Row) {
        if let crate::form::Value::Object(form) = &self.form.fields[part as usize].value {
            self.overview.head.insert(part.name().to_owned(), Value::Object(collect_fields(row, form)));
        }
    }

    fn on_artifact(&mut self, row: &Row) {
        if self.overview.artifacts.len() < MAX_LISTED {
            self.overview.artifacts.push(collect_fields(row, &crate::form::ARTIFACT));
        }
    }

    fn on_document(&mut self, row: &Row) {
        let document_fields = collect_fields(row, self.form);
        self.overview.head.extend(document_fields);
    }
}

/// Overhead of an allocation in bytes.
const ALLOCATION_BYTES: usize = 16;

/// Bytes of a map entry. Counted twice, because a map can be half empty.
fn entry_bytes<V>(key: &[u8]) -> usize {
    key.len() + ALLOCATION_BYTES + 2 * (size_of::<(Box<[u8]>, V)>() + 1)
}

/// Subtracts the bytes from the free ones; false if too few are free.
fn reserve(free_bytes: &mut usize, bytes: usize) -> bool {
    let Some(remaining_bytes) = free_bytes.checked_sub(bytes) else { return false };
    *free_bytes = remaining_bytes;
    true
}

/// Texts, numbers and flags by name. A text where the form has an object, a list or a number is omitted, since it can
/// be personal data.
pub(crate) fn collect_fields(row: &Row, form: &Object) -> Map<String, Value> {
    let mut fields = Map::new();
    for (index, field) in form.fields.iter().enumerate() {
        let value = if row.text(index).is_some() && field.value.may_be_text() {
            json!(lossy_text(row, index))
        } else if let Some(number) = row.number(index) {
            // Counts are exact; other numbers are shown as their nearest double.
            match number.saturating_count() {
                count if number.is_whole && number.is_at_least(0) && count < u128::MAX => json!(count),
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

pub(crate) fn lossy_text(row: &Row, field: usize) -> String {
    String::from_utf8_lossy(row.text(field).unwrap_or_default()).into_owned()
}

fn add_counts(into: &mut [u128; 6], counts: &[u128; 6]) {
    for (sum, count) in into.iter_mut().zip(counts) {
        *sum = sum.saturating_add(*count);
    }
}
