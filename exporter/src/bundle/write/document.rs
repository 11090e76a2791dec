//! Formats the parts of a bundle before and after its responses, in the order of the form.

use std::borrow::Cow;

use crate::{
    form::{Answer, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS, Naming, RESPONSE_COUNTS},
    json::write::{self as json, ObjectWriter, encode_hex},
    model::{Artifact, BundleHeader, Phase, PublishedOutcome},
    privacy::{data_card::Card, suppression::Counts},
    timestamp::Timestamp,
};

/// Values that the job determines, not the input.
#[derive(Clone, Debug)]
pub(crate) struct Constants {
    pub(crate) naming: Naming,
    pub(crate) schema_url: Option<String>,
    pub(crate) exported_at: Timestamp,
}

/// Published text and time of an item.
#[derive(Clone, Debug)]
pub(crate) struct ItemLine {
    pub(crate) text: String,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) is_published: bool,
}

/// Text before the responses, and the location of the id in it.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) bytes: Vec<u8>,
    pub(crate) id_start: u64,
    /// Offset after the id. The digest in the id covers all bytes from here on.
    pub(crate) id_end: u64,
}

pub(crate) fn format_beginning(
    constants: &Constants,
    id: &str,
    head: &BundleHeader,
    lines: &[ItemLine],
) -> Beginning {
    let mut bytes = Vec::new();
    let mut object = ObjectWriter::begin(&mut bytes);
    let schema = constants.schema_url.as_deref().unwrap_or(constants.naming.schema());
    object.text("schema", schema).text("kind", constants.naming.kind());
    let id_buffer = object.key("bundleId");
    // The id starts after its quote.
    let id_start = id_buffer.len() as u64 + 1;
    json::write_string(id_buffer, id);
    let id_end = id_buffer.len() as u64;
    object.text("exportedAt", &constants.exported_at.to_string());
    let mut source = ObjectWriter::begin(object.key("source"));
    source
        .text("tool", &head.source.tool)
        .text("sourceSchema", &head.source.schema)
        .text("sourceId", &head.source.id)
        .text("title", &head.source.title)
        .text("description", &head.source.description)
        .text("url", &head.source.url);
    source.end();
    let phases = object.key("phases");
    phases.extend_from_slice(b"[\n");
    for (at, phase) in head.phases.iter().enumerate() {
        if at > 0 {
            phases.extend_from_slice(b",\n");
        }
        let mut object = ObjectWriter::begin(phases);
        object
            .text("id", phase.id)
            .text("type", phase.kind)
            .text("title", phase.title.unwrap_or(&head.source.title))
            .text("status", "completed");
        object.end();
    }
    phases.extend_from_slice(b"\n]");
    let items = object.key("items");
    let mut list = ListWriter::begin(items);
    // Items and lines are parallel lists, so suppressed items are dropped only after both are paired.
    for (item, line) in head.items.iter().zip(lines).filter(|(_, line)| line.is_published) {
        let phase = &head.phases[usize::from(item.phase)];
        let mut member = ObjectWriter::begin(list.begin_element());
        member
            .text("id", &item.id)
            .text("phaseId", phase.id)
            .text("type", phase.item_type)
            .text("text", &line.text)
            .text("status", &item.status)
            .text("origin", item.origin.as_str());
        write_time(member.key("createdAt"), line.created_at);
        member.end();
    }
    list.end();
    // Left open: responses are written one by one, and `format_end` closes list and document.
    object.key("responses").push(b'[');
    Beginning { bytes, id_start, id_end }
}

fn write_time(into: &mut Vec<u8>, at: Option<Timestamp>) {
    match at {
        Some(at) => json::write_string(into, &at.to_string()),
        None => into.extend_from_slice(b"null"),
    }
}

/// Writer of an array with one element on each line.
struct ListWriter<'l> {
    into: &'l mut Vec<u8>,
    is_empty: bool,
}

impl<'l> ListWriter<'l> {
    fn begin(into: &'l mut Vec<u8>) -> Self {
        into.push(b'[');
        Self { into, is_empty: true }
    }

    fn begin_element(&mut self) -> &mut Vec<u8> {
        self.into.extend_from_slice(if std::mem::take(&mut self.is_empty) { b"\n" } else { b",\n" });
        self.into
    }

    fn end(self) {
        self.into.extend_from_slice(b"\n]");
    }
}

/// Formatted outcomes, and their number.
#[derive(Debug)]
pub(crate) struct Outcomes<'o> {
    phases: &'o [Phase],
    bytes: Vec<u8>,
    pub(crate) count: u64,
}

impl<'o> Outcomes<'o> {
    pub(crate) fn new(phases: &'o [Phase]) -> Self {
        Self { phases, bytes: Vec::new(), count: 0 }
    }

    fn begin(&mut self, phase: u16, kind: &str, key: &str, item: &str) -> ObjectWriter<'_> {
        self.bytes.extend_from_slice(if self.count == 0 { b"\n" } else { b",\n" });
        self.count += 1;
        let mut object = ObjectWriter::begin(&mut self.bytes);
        object
            .text("id", &format!("{kind}:{key}"))
            .text("phaseId", self.phases[usize::from(phase)].id)
            .text("type", kind)
            .text("itemRef", item);
        object
    }

    /// Adds the counts of an item's responses. Suppressed answers are listed by name instead of counted.
    pub(crate) fn add_counts(
        &mut self,
        phase: u16,
        key: &str,
        item: &str,
        counts: &Counts,
        answers: &[Answer],
        hidden: &[bool],
    ) {
        // An empty list hides no answer.
        let is_suppressed = |answer: Answer| hidden.get(answer as usize).copied().unwrap_or_default();
        let mut object = self.begin(phase, RESPONSE_COUNTS, key, item);
        let mut cells = ObjectWriter::begin(object.key("counts"));
        for answer in answers.iter().filter(|answer| !is_suppressed(**answer)) {
            cells.integer(answer.as_str(), counts[*answer as usize]);
        }
        cells.end();
        let suppressed: Vec<_> =
            answers.iter().filter(|answer| is_suppressed(**answer)).map(|answer| answer.as_str()).collect();
        if !suppressed.is_empty() {
            object.value("suppressed", &suppressed);
        }
        object.end();
    }

    /// Adds the counts of an item's responses by group of participants.
    pub(crate) fn add_group_counts(
        &mut self,
        key: &str,
        item: &str,
        names: &[String],
        groups: &[Counts],
        answers: &[Answer],
    ) {
        let mut object = self.begin(0, GROUP_RESPONSE_COUNTS, key, item);
        let mut members = ObjectWriter::begin(object.key("groups"));
        for (name, counts) in names.iter().zip(groups) {
            let mut cells = ObjectWriter::begin(members.key(name));
            for answer in answers {
                cells.integer(answer.as_str(), counts[*answer as usize]);
            }
            cells.end();
        }
        members.end();
        object.end();
    }

    /// Adds the members of a group. `item` has no meaning here, but the form requires an item for each outcome.
    pub(crate) fn add_group_members(&mut self, group: &str, item: &str, members: &[String]) {
        let mut object = self.begin(0, GROUP_MEMBERS, group, item);
        object.text("group", group).value("members", &members);
        object.end();
    }

    pub(crate) fn add_published_outcome(&mut self, key: &str, item: &str, outcome: &PublishedOutcome) {
        let mut key = Cow::Borrowed(key);
        if let Some(number) = &outcome.number {
            key = Cow::Owned(format!("{key}:{number}"));
        }
        let mut object = self.begin(outcome.phase, outcome.kind, &key, item);
        if let Some(rank) = outcome.rank {
            object.integer("rank", rank);
        }
        if let Some(score) = outcome.score {
            object.value("score", &score);
        }
        if let Some(observations) = outcome.observations {
            object.integer("observations", observations);
        }
        if !outcome.counts.is_empty() {
            object.value("counts", &outcome.counts);
        }
        for (name, value) in &outcome.other_members {
            object.value(name, value);
        }
        object.end();
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) participants: u64,
    pub(crate) items: u64,
    pub(crate) responses: u64,
    pub(crate) coverage: f64,
}

/// Formats the part of the document after the responses. `has_responses` is true if a response was written.
pub(crate) fn format_end(
    has_responses: bool,
    outcomes: &Outcomes<'_>,
    summary: Summary,
    head: &BundleHeader,
    constants: &Constants,
    card: &Card,
) -> Vec<u8> {
    let mut bytes = if has_responses { b"\n]".to_vec() } else { b"]".to_vec() };
    bytes.extend_from_slice(b",\"outcomes\":[");
    bytes.extend_from_slice(&outcomes.bytes);
    bytes.extend_from_slice(if outcomes.count == 0 { b"]" } else { b"\n]" });
    bytes.extend_from_slice(b",\"summary\":");
    let mut object = ObjectWriter::begin(&mut bytes);
    object
        .integer("participants", summary.participants)
        .integer("items", summary.items)
        .integer("responses", summary.responses)
        .value("coverage", &summary.coverage);
    object.end();
    bytes.extend_from_slice(b",\"provenance\":");
    let mut object = ObjectWriter::begin(&mut bytes);
    object.text("adapter", &head.adapter).text("transformedAt", &constants.exported_at.to_string());
    let artifacts = object.key("sourceArtifacts");
    let mut list = ListWriter::begin(artifacts);
    for artifact in &head.artifacts {
        write_artifact(list.begin_element(), artifact);
    }
    list.end();
    let notes = object.key("notes");
    let mut list = ListWriter::begin(notes);
    head.notes.iter().for_each(|note| json::write_string(list.begin_element(), note));
    list.end();
    object.end();
    bytes.extend_from_slice(b",\"dataCard\":");
    let mut object = ObjectWriter::begin(&mut bytes);
    object
        .flag("containsParticipantData", card.participant_data)
        .flag("containsDirectIdentifiers", card.direct_identifiers)
        .flag("containsParticipantFreeText", card.participant_text)
        .flag("containsPseudonymousLinkage", card.linkage)
        .text("aggregation", card.aggregation)
        .text("publicationStatus", card.publication)
        .flag(constants.naming.stored_by(), false)
        .flag("suitableForPublicSharing", card.suitable)
        .value("limitations", &card.limitations);
    object.end();
    bytes.extend_from_slice(b"}\n");
    bytes
}

fn write_artifact(into: &mut Vec<u8>, artifact: &Artifact) {
    let mut object = ObjectWriter::begin(into);
    object.text("role", artifact.role).text("name", &artifact.name);
    if let Some(within) = &artifact.archive_name {
        object.text("within", within);
    }
    // Only a file that was read to its end has a digest.
    if let Some(digest) = artifact.file_digest {
        object.integer("size", digest.bytes).text("sha256", &encode_hex(&digest.sha256));
    }
    if let Some(rows) = artifact.rows {
        object.integer("rows", rows);
    }
    object.end();
}
