//! Reads a bundle once for the page, with memory for its items, participants and phases. Rows are counted; only the votes for the
//! opinion map are kept one by one, up to a limit.

use std::{collections::HashMap, io, rc::Rc};

use serde_json::{Map, Value};

use super::{
    participation::Participation,
    vote_lists::{Vote, VoteLists},
};
use crate::{
    bundle::{
        inspect::{collect_fields, lossy_text},
        invalid_json::InvalidJson,
        validate::{Findings, Part, Row, Severity, Sink, Walk, outcome, response},
    },
    form::{ARTIFACT, Answer, Naming, Object, PHASE},
    json::{Limits, Reader, Stop},
    timestamp::Timestamp,
    unpack::Source,
};

/// Maximum number of listed phases, artifacts, notes and outcome types. Files of other tools can have any number.
const MAX_LISTED: usize = 1_000;
/// Number of characters of a text that the page shows.
const MAX_TEXT_CHARS: usize = 1_000;

/// Kind of an answer, seen from one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stance {
    Agree,
    Disagree,
    Pass,
    /// Preferred in a comparison.
    Preferred,
    /// Another item was preferred in a comparison.
    NotPreferred,
    Equal,
    /// A comparison without a decision.
    PassedComparison,
}

impl Stance {
    pub(super) const COUNT: usize = 7;
}

/// Sums of counts by [`Stance`]. Sums saturate.
pub(super) type StanceCounts = [u64; Stance::COUNT];

/// Sum of the answers of one stance to an item in a phase. Stored one by one, because most items have few of them.
#[derive(Clone, Copy, Debug)]
struct Tally {
    phase: u32,
    stance: Stance,
    count: u64,
}

/// Item with the sums of its answers.
#[derive(Clone, Debug)]
pub(super) struct Item {
    id: Rc<[u8]>,
    /// Index among the items of the list; `None` while only references to the item were read.
    pub(super) listed_at: Option<u32>,
    pub(super) phase: u32,
    kind: u32,
    status: u32,
    origin: u32,
    pub(super) text: String,
    tallies: Vec<Tally>,
    /// Number of counts that outcomes list as suppressed.
    pub(super) suppressed_counts: u64,
    /// Number of outcomes of the type `moderation-decision`.
    pub(super) decisions: u64,
}

impl Item {
    fn new(id: Rc<[u8]>) -> Self {
        Self {
            id,
            listed_at: None,
            phase: 0,
            kind: 0,
            status: 0,
            origin: 0,
            text: String::new(),
            tallies: Vec::new(),
            suppressed_counts: 0,
            decisions: 0,
        }
    }

    pub(super) fn id(&self) -> String {
        String::from_utf8_lossy(&self.id).into_owned()
    }

    /// Phases with answers to the item, in the order of their first answer.
    pub(super) fn answered_phases(&self) -> Vec<u32> {
        let mut phases = Vec::new();
        for tally in &self.tallies {
            if !phases.contains(&tally.phase) {
                phases.push(tally.phase);
            }
        }
        phases
    }

    pub(super) fn counts_in(&self, phase: u32) -> StanceCounts {
        let mut counts = StanceCounts::default();
        for tally in self.tallies.iter().filter(|tally| tally.phase == phase) {
            counts[tally.stance as usize] = tally.count;
        }
        counts
    }

    fn add(&mut self, phase: u32, stance: Stance, count: u64) {
        let tally = self.tallies.iter_mut().find(|tally| tally.phase == phase && tally.stance == stance);
        match tally {
            Some(tally) => tally.count = tally.count.saturating_add(count),
            None => self.tallies.push(Tally { phase, stance, count }),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) status: String,
    /// Index in the list of phases; `None` for a phase that only responses or items refer to.
    pub(super) listed_at: Option<u64>,
    /// Sum of the counts of its responses.
    pub(super) responses: u64,
    /// Distinct participants named in its responses. Known for the first 64 phases.
    pub(super) participants: Option<u64>,
    pub(super) counts: StanceCounts,
}

/// Participant of the bundle. The reference itself stays in the index.
#[derive(Clone, Copy, Debug)]
struct Participant {
    first_answer_millis: Option<i64>,
    /// Bit set of the first 64 phases.
    phases: u64,
}

/// Numbers of distinct texts, from 0 in the order of their first appearance.
#[derive(Debug, Default)]
struct TextIndex {
    numbers: HashMap<Rc<[u8]>, u32>,
}

impl TextIndex {
    /// Returns the number of the text, and the stored text if it is new.
    fn number_of(&mut self, text: &[u8]) -> (u32, Option<Rc<[u8]>>) {
        if let Some(number) = self.numbers.get(text) {
            return (*number, None);
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let text: Rc<[u8]> = text.into();
        self.numbers.insert(Rc::clone(&text), number);
        (number, Some(text))
    }
}

/// Words of items, such as types and statuses. Few differ, so items hold numbers.
#[derive(Debug, Default)]
struct Words {
    index: TextIndex,
    texts: Vec<String>,
}

impl Words {
    fn number_of(&mut self, word: &[u8]) -> u32 {
        let (number, new_word) = self.index.number_of(word);
        if let Some(word) = new_word {
            self.texts.push(shorten(&String::from_utf8_lossy(&word)));
        }
        number
    }
}

/// Content of a bundle, as far as the page shows it.
#[derive(Debug, Default)]
pub(super) struct BundleContent {
    /// Fields of the document and of its single objects.
    pub(super) head: Map<String, Value>,
    pub(super) artifacts: Vec<Map<String, Value>>,
    pub(super) notes: Vec<String>,
    pub(super) limitations: Vec<String>,
    pub(super) phases: Vec<Phase>,
    /// Items in the order of their first appearance, with those that only references name.
    pub(super) items: Vec<Item>,
    /// Indexes of the listed items in the order of the list.
    listed_items: Vec<u32>,
    /// Number of outcomes by type.
    pub(super) outcomes: Vec<(String, u64)>,
    /// Number of entries in the list of responses.
    pub(super) rows: u64,
    /// Sum of the counts of all responses.
    pub(super) responses: u64,
    /// Sum of the counts of responses without a participant.
    pub(super) unlinked: u64,
    pub(super) participants: u64,
    pub(super) participation: Participation,
    pub(super) votes: VoteLists,
    /// Number of locations that violate a rule of the form.
    pub(super) findings: u64,
    words: Words,
}

impl BundleContent {
    /// Reads a document. `schema` is the required value of the member `schema`; the naming's own URL by default.
    ///
    /// # Errors
    /// If the document cannot be read, is not an object, or has a syntax error.
    pub(super) fn read(
        source: &mut dyn Source,
        naming: Naming,
        schema: Option<&str>,
        max_votes: usize,
    ) -> Result<Self, InvalidJson> {
        // The page shows only the number of findings, so none is listed.
        let mut findings = Findings::new(0, false, 0);
        let mut sink = ContentSink {
            content: Self { votes: VoteLists::new(max_votes), ..Self::default() },
            item_index: TextIndex::default(),
            phase_index: TextIndex::default(),
            participant_index: TextIndex::default(),
            participants: Vec::new(),
            form: naming.bundle(),
        };
        // Number 0 is the word of items that were not read.
        sink.content.words.number_of(b"");
        let reader = Reader::new(source.open()?, Limits::default());
        let schema = schema.unwrap_or(naming.schema());
        let end = Walk::new(reader, naming.bundle(), schema, &mut findings, &mut sink).run();
        let end = end.map_err(|stop| match stop {
            Stop::Io(error) => error,
            Stop::Invalid(..) | Stop::StoppedByCaller => {
                io::Error::other("reading stopped before the end of the document")
            }
        })?;
        if let Some((rule, at)) = end.stop {
            return Err(InvalidJson::at(rule, at));
        }
        if let Some(at) = end.non_object_at {
            return Err(InvalidJson::NotAnObject { at_line: at.line, offset: at.offset });
        }
        let mut content = sink.finish();
        let (totals, _) = findings.into_parts();
        let errors = totals.iter().filter(|(rule, _)| rule.severity() == Severity::Error);
        content.findings = errors.map(|(_, total)| total).sum();
        Ok(content)
    }

    /// True if the document has no part of a bundle.
    pub(super) fn is_empty(&self) -> bool {
        let has_bundle_member =
            ["kind", "bundleId", "source", "dataCard"].iter().any(|name| self.head.contains_key(*name));
        !has_bundle_member && self.phases.is_empty() && self.items.is_empty() && self.rows == 0
    }

    /// Items in the order of the list, without those that only references name.
    pub(super) fn listed_items(&self) -> impl Iterator<Item = &Item> {
        self.listed_items.iter().map(|number| &self.items[*number as usize])
    }

    /// Numbers of the phases in the order of the list, followed by those that only references name.
    pub(super) fn phase_order(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.phases.len()).collect();
        order.sort_by_key(|number| self.phases[*number].listed_at.unwrap_or(u64::MAX));
        order
    }

    pub(super) fn kind_of(&self, item: &Item) -> &str {
        &self.words.texts[item.kind as usize]
    }

    pub(super) fn status_of(&self, item: &Item) -> &str {
        &self.words.texts[item.status as usize]
    }

    pub(super) fn origin_of(&self, item: &Item) -> &str {
        &self.words.texts[item.origin as usize]
    }

    pub(super) fn phase_number(&self, id: &str) -> Option<u32> {
        let number = self.phases.iter().position(|phase| phase.id == id)?;
        u32::try_from(number).ok()
    }

    /// Text of a field such as `title` of the object `source`; empty if it is missing.
    pub(super) fn field_text(&self, object: &str, field: &str) -> &str {
        self.head.get(object).and_then(|object| object[field].as_str()).unwrap_or_default()
    }
}

struct ContentSink {
    content: BundleContent,
    item_index: TextIndex,
    phase_index: TextIndex,
    participant_index: TextIndex,
    participants: Vec<Participant>,
    form: &'static Object,
}

impl ContentSink {
    fn item_number(&mut self, id: &[u8]) -> u32 {
        let (number, new_id) = self.item_index.number_of(id);
        if let Some(id) = new_id {
            self.content.items.push(Item::new(id));
        }
        number
    }

    /// Number of the phase. The last number stands for all phases beyond the limit.
    fn phase_number(&mut self, id: &[u8]) -> u32 {
        if self.content.phases.len() >= MAX_LISTED && !self.phase_index.numbers.contains_key(id) {
            return u32::try_from(MAX_LISTED - 1).unwrap_or_default();
        }
        let (number, new_id) = self.phase_index.number_of(id);
        if let Some(id) = new_id {
            self.content
                .phases
                .push(Phase { id: shorten(&String::from_utf8_lossy(&id)), ..Phase::default() });
        }
        number
    }

    fn read_phase(&mut self, row: &Row) {
        let Some(id) = row.text(0) else { return };
        let number = self.phase_number(id);
        let phase = &mut self.content.phases[number as usize];
        if phase.listed_at.is_none() {
            phase.listed_at = Some(row.index);
            let fields = collect_fields(row, &PHASE);
            let text_of = |name: &str| shorten(fields.get(name).and_then(Value::as_str).unwrap_or_default());
            (phase.kind, phase.title, phase.status) = (text_of("type"), text_of("title"), text_of("status"));
        }
    }

    fn read_item(&mut self, row: &Row) {
        let Some(id) = row.text(0) else { return };
        let number = self.item_number(id);
        // Of several items with one id, the first counts.
        if self.content.items[number as usize].listed_at.is_some() {
            return;
        }
        let listed_at = u32::try_from(self.content.listed_items.len()).ok();
        self.content.listed_items.push(number);
        let phase = self.phase_number(row.text(1).unwrap_or_default());
        let [kind, status, origin] =
            [2, 4, 5].map(|field| self.content.words.number_of(row.text(field).unwrap_or_default()));
        let item = &mut self.content.items[number as usize];
        (item.listed_at, item.phase) = (listed_at, phase);
        (item.kind, item.status, item.origin) = (kind, status, origin);
        item.text = shorten(&lossy_text(row, 3));
    }

    fn read_response(&mut self, row: &Row) {
        let count = row.number(response::COUNT).map_or(0, |count| count.saturating_count());
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let content = &mut self.content;
        content.rows += 1;
        content.responses = content.responses.saturating_add(count);
        let phase = row.text(response::PHASE).map(|phase| self.phase_number(phase));
        let time = row.text(response::OCCURRED).and_then(|time| std::str::from_utf8(time).ok());
        let time = time.and_then(Timestamp::parse);
        let participant = row.text(response::PARTICIPANT).map(|reference| {
            let (number, new_reference) = self.participant_index.number_of(reference);
            if new_reference.is_some() {
                self.participants.push(Participant { first_answer_millis: None, phases: 0 });
            }
            number
        });
        self.content.participation.add_answers(time, count);
        match participant {
            None => self.content.unlinked = self.content.unlinked.saturating_add(count),
            Some(number) => {
                let participant = &mut self.participants[number as usize];
                if let Some(time) = time {
                    let first = participant.first_answer_millis.unwrap_or(i64::MAX);
                    participant.first_answer_millis = Some(first.min(time.millis));
                }
                participant.phases |= phase.and_then(|phase| 1_u64.checked_shl(phase)).unwrap_or(0);
            }
        }
        let (Some(phase), Some(subject), Some(answer)) =
            (phase, row.text(response::SUBJECT), row.text(response::ANSWER).and_then(Answer::parse))
        else {
            return;
        };
        let subject = self.item_number(subject);
        let object = row.text(response::OBJECT).map(|object| self.item_number(object));
        let (subject_stance, object_stance) = match answer {
            Answer::Agree => (Stance::Agree, None),
            Answer::Disagree => (Stance::Disagree, None),
            Answer::Pass if object.is_none() => (Stance::Pass, None),
            Answer::Pass => (Stance::PassedComparison, Some(Stance::PassedComparison)),
            Answer::PreferSubject => (Stance::Preferred, Some(Stance::NotPreferred)),
            Answer::PreferObject => (Stance::NotPreferred, Some(Stance::Preferred)),
            Answer::Equal => (Stance::Equal, Some(Stance::Equal)),
        };
        self.content.items[subject as usize].add(phase, subject_stance, count);
        if let (Some(object), Some(stance)) = (object, object_stance) {
            self.content.items[object as usize].add(phase, stance, count);
        }
        let phase_totals = &mut self.content.phases[phase as usize];
        phase_totals.responses = phase_totals.responses.saturating_add(count);
        let total = &mut phase_totals.counts[subject_stance as usize];
        *total = total.saturating_add(count);
        // Phases can follow the responses. Votes of a phase with another type are dropped early, or else at the end.
        let may_be_opinion = phase_totals.listed_at.is_none() || phase_totals.kind == super::OPINION;
        if let (true, Some(participant), None, Some(vote)) =
            (may_be_opinion, participant, object, Vote::from_answer(answer))
        {
            self.content.votes.push(phase, participant, subject, vote);
        }
    }

    fn read_outcome(&mut self, row: &Row) {
        let outcome_type = lossy_text(row, outcome::TYPE);
        if let Some(item) = row.text(outcome::ITEM) {
            let number = self.item_number(item) as usize;
            let item = &mut self.content.items[number];
            let suppressed = row.number(outcome::SUPPRESSED).map_or(0, |number| number.saturating_count());
            let suppressed = u64::try_from(suppressed).unwrap_or(u64::MAX);
            item.suppressed_counts = item.suppressed_counts.saturating_add(suppressed);
            item.decisions += u64::from(outcome_type == super::MODERATION_DECISION);
        }
        let outcomes = &mut self.content.outcomes;
        if let Some((_, count)) = outcomes.iter_mut().find(|(name, _)| *name == outcome_type) {
            *count += 1;
        } else if outcomes.len() < MAX_LISTED {
            outcomes.push((outcome_type, 1));
        }
    }

    fn finish(mut self) -> BundleContent {
        let content = &mut self.content;
        content.participants = self.participants.len() as u64;
        let first_answers =
            self.participants.iter().filter_map(|participant| participant.first_answer_millis);
        content.participation.set_first_answers(first_answers);
        for (number, phase) in content.phases.iter_mut().enumerate().take(64) {
            let participants = self.participants.iter().filter(|member| member.phases >> number & 1 == 1);
            phase.participants = Some(participants.count() as u64);
        }
        content.outcomes.sort();
        self.content
    }
}

impl Sink for ContentSink {
    fn on_entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        match part {
            Part::Phases => self.read_phase(row),
            Part::Items => self.read_item(row),
            Part::Responses => self.read_response(row),
            _ => self.read_outcome(row),
        }
        Ok(())
    }

    fn on_part(&mut self, part: Part, row: &Row) {
        if let crate::form::Value::Object(form) = &self.form.fields[part as usize].value {
            self.content.head.insert(part.name().to_owned(), Value::Object(collect_fields(row, form)));
        }
    }

    fn on_artifact(&mut self, row: &Row) {
        if self.content.artifacts.len() < MAX_LISTED {
            self.content.artifacts.push(collect_fields(row, &ARTIFACT));
        }
    }

    fn on_list_text(&mut self, part: Part, _field: usize, text: &[u8]) {
        let texts = match part {
            Part::Provenance => &mut self.content.notes,
            Part::DataCard => &mut self.content.limitations,
            _ => return,
        };
        if texts.len() < MAX_LISTED {
            texts.push(shorten(&String::from_utf8_lossy(text)));
        }
    }

    fn on_document(&mut self, row: &Row) {
        self.content.head.extend(collect_fields(row, self.form));
    }
}

/// Cuts a text off after [`MAX_TEXT_CHARS`], so that one text of many megabytes is not kept.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
