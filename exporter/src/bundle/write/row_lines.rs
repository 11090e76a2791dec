//! Formats rows as lines of JSON.

use std::collections::HashMap;

use crate::{
    form::Answer,
    json::write as json,
    model::BundleHeader,
    privacy::participants::PREFIX,
    storage::rows::{NO_OBJECT, Row},
    timestamp::{DayCache, FULL_LENGTH, Timestamp},
};

/// Formatter of rows. Holds the constant parts of a line, escaped once.
#[derive(Debug)]
pub(crate) struct RowFormatter {
    /// Key of each question, escaped, without quotes.
    keys: Vec<Vec<u8>>,
    /// Keys for ids of pairs, in which the colon is a separator and therefore escaped. Empty if no items are compared.
    pair_keys: Vec<Vec<u8>>,
    /// Id of each question's item, escaped, with quotes.
    ids: Vec<Vec<u8>>,
    /// Phase index of each question; empty if there is one phase.
    phase_indexes: Vec<u16>,
    /// Text between the participant and the time, by answer.
    ends: [Vec<u8>; Answer::ALL.len()],
    /// Text between the participant's pseudonym and the subject, by phase.
    phases: Vec<Vec<u8>>,
    /// True if ids of responses contain the number of the row within its question.
    events: bool,
}

/// Cache that speeds up consecutive lines.
#[derive(Debug, Default)]
pub(crate) struct LineCache {
    days: DayCache,
    templates: [LineTemplate; Answer::ALL.len()],
}

/// Last line with one answer to one item, if its time had a fraction. The next such line differs only in participant
/// and time, which have a fixed length and are overwritten in a copy.
#[derive(Debug, Default)]
struct LineTemplate {
    subject: u32,
    line: Vec<u8>,
    /// Offsets of the pseudonym, which a line contains twice.
    pseudonym_offsets: [usize; 2],
}

const LINE_START: &[u8] = b"{\"id\":\"vote:";
/// Length of the time with its closing quote, and of the line's closing brace.
const TIME_AND_END: usize = FULL_LENGTH + 2;
const PARTICIPANT_KEY: &[u8] = b",\"participantRef\":";

impl RowFormatter {
    pub(crate) fn new(head: &BundleHeader, events: bool) -> Self {
        let quote = |text: &str| {
            let mut text_with_quotes = Vec::new();
            json::write_string(&mut text_with_quotes, text);
            text_with_quotes
        };
        let escape_without_quotes = |text: &str| {
            let text_with_quotes = quote(text);
            text_with_quotes[1..text_with_quotes.len() - 1].to_vec()
        };
        let questions = 0..head.question_count();
        let (keys, ids): (Vec<Vec<u8>>, Vec<Vec<u8>>) = questions
            .clone()
            .map(|at| (escape_without_quotes(&head.question_key(at)), quote(&head.question_item(at).id)))
            .unzip();
        let escape_separators = |key: &Vec<u8>| {
            let escaped = key.iter().map(|byte| match byte {
                // A percent sign is escaped too, so that `1%3A2` and `1:2` stay different.
                b':' => b"%3A".to_vec(),
                b'%' => b"%25".to_vec(),
                byte => vec![*byte],
            });
            escaped.flatten().collect()
        };
        let pair_keys = keys.iter().filter(|_| head.pairwise).map(escape_separators).collect();
        let phases = head.phases.iter().map(|phase| {
            let mut phase_text = b"\",\"phaseId\":".to_vec();
            json::write_string(&mut phase_text, phase.id);
            phase_text.extend_from_slice(b",\"subjectRef\":");
            phase_text
        });
        let phases: Vec<_> = phases.collect();
        let has_several_phases = phases.len() > 1;
        let phase_indexes =
            questions.filter(|_| has_several_phases).map(|at| head.question(at).phase).collect();
        let ends = Answer::ALL.map(|answer| {
            format!(",\"response\":\"{}\",\"count\":1,\"occurredAt\":", answer.as_str()).into_bytes()
        });
        Self { keys, pair_keys, ids, phase_indexes, ends, phases, events }
    }

    /// Appends the line of a response with its participant.
    #[inline]
    pub(crate) fn write_row(
        &self,
        into: &mut Vec<u8>,
        row: Row,
        number: u32,
        names: Option<&HashMap<u128, String>>,
        cache: &mut LineCache,
    ) {
        let at = match row.time() {
            // The template needs a fixed layout: a time with a fraction, one item, no number and no reference name.
            Some(at) if at.has_millis && row.object == NO_OBJECT && !self.events && names.is_none() => at,
            at => {
                let name = names.and_then(|names| names.get(&row.pseudonym));
                self.write_beginning(into, row, number, &json::hex(row.pseudonym), name);
                return self.write_ending(into, row, at, &mut cache.days);
            }
        };
        let template = &mut cache.templates[row.answer() as usize];
        // An unused template has the index of the first item, so the line is checked too.
        if template.subject != row.subject || template.line.is_empty() {
            self.rebuild_template(template, row, at);
        }
        let start = into.len();
        into.extend_from_slice(&template.line);
        let line = &mut into[start..];
        let pseudonym = json::hex(row.pseudonym);
        for offset in template.pseudonym_offsets {
            line[offset..offset + pseudonym.len()].copy_from_slice(&pseudonym);
        }
        let time_offset = line.len() - TIME_AND_END;
        line[time_offset..time_offset + FULL_LENGTH].copy_from_slice(&at.text(&mut cache.days));
    }

    #[cold]
    fn rebuild_template(&self, template: &mut LineTemplate, row: Row, at: Timestamp) {
        let pseudonym = json::hex(row.pseudonym);
        template.subject = row.subject;
        template.line.clear();
        // The number is not written: templates are used only if ids contain none.
        self.write_beginning(&mut template.line, row, 1, &pseudonym, None);
        // The line ends here with the second pseudonym and its closing quote.
        let second_offset = template.line.len() - 1 - pseudonym.len();
        template.pseudonym_offsets =
            [LINE_START.len() + self.keys[row.subject as usize].len() + 1, second_offset];
        // Each copy overwrites the time, so its day is not worth caching.
        self.write_ending(&mut template.line, row, Some(at), &mut DayCache::default());
    }

    /// Appends the part of a line up to its participant.
    fn write_beginning(
        &self,
        into: &mut Vec<u8>,
        row: Row,
        number: u32,
        pseudonym: &[u8],
        name: Option<&String>,
    ) {
        into.extend_from_slice(LINE_START);
        self.write_question_key(into, row.subject, row.object);
        into.push(b':');
        into.extend_from_slice(pseudonym);
        if self.events {
            into.push(b':');
            json::write_number(into, u64::from(number));
        }
        self.write_references(into, row.subject, row.object);
        into.extend_from_slice(PARTICIPANT_KEY);
        match name {
            Some(name) => json::write_string(into, name),
            None => {
                into.push(b'"');
                into.extend_from_slice(PREFIX.as_bytes());
                into.extend_from_slice(pseudonym);
                into.push(b'"');
            }
        }
    }

    /// Appends the part of a line after its participant.
    fn write_ending(&self, into: &mut Vec<u8>, row: Row, at: Option<Timestamp>, days: &mut DayCache) {
        into.extend_from_slice(&self.ends[row.answer() as usize]);
        match at {
            Some(at) => {
                into.push(b'"');
                at.write(into, days);
                into.extend_from_slice(b"\"}");
            }
            None => into.extend_from_slice(b"null}"),
        }
    }

    /// Appends the line of a response that counts several participants.
    pub(crate) fn write_tally(
        &self,
        into: &mut Vec<u8>,
        subject: u32,
        object: u32,
        answer: Answer,
        count: u64,
    ) {
        into.extend_from_slice(b"{\"id\":\"tally:");
        self.write_question_key(into, subject, object);
        into.push(b':');
        into.extend_from_slice(answer.as_str().as_bytes());
        self.write_references(into, subject, object);
        into.extend_from_slice(b",\"participantRef\":null,\"response\":\"");
        into.extend_from_slice(answer.as_str().as_bytes());
        into.extend_from_slice(b"\",\"count\":");
        json::write_number(into, count);
        into.extend_from_slice(b",\"occurredAt\":null}");
    }

    fn write_question_key(&self, into: &mut Vec<u8>, subject: u32, object: u32) {
        if object == NO_OBJECT {
            into.extend_from_slice(&self.keys[subject as usize]);
        } else {
            into.extend_from_slice(&self.pair_keys[subject as usize]);
            into.push(b':');
            into.extend_from_slice(&self.pair_keys[object as usize]);
        }
    }

    fn write_references(&self, into: &mut Vec<u8>, subject: u32, object: u32) {
        let phase = self.phase_indexes.get(subject as usize).copied().unwrap_or_default();
        into.extend_from_slice(&self.phases[usize::from(phase)]);
        into.extend_from_slice(&self.ids[subject as usize]);
        if object != NO_OBJECT {
            into.extend_from_slice(b",\"objectRef\":");
            into.extend_from_slice(&self.ids[object as usize]);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Item, Origin, Source};

    #[test]
    fn ids_of_pairs_are_unambiguous_for_any_keys() {
        let keys = ["1:2", "3", "1", "2:3", "1%3A2", "%"];
        let item = |key: &str| Item {
            key: key.to_owned(),
            row: 1,
            id: key.to_owned(),
            text: String::new(),
            status: "active".to_owned(),
            origin: Origin::Participant,
            phase: 0,
            created: None,
            author: None,
            outcomes: Vec::new(),
        };
        let items = keys.iter().map(|key| item(key)).collect();
        let formatter =
            RowFormatter::new(&BundleHeader::of_options("adapter", Source::default(), items), false);
        let mut ids = BTreeSet::new();
        for (subject, object) in (0..6).flat_map(|subject| (0..6).map(move |object| (subject, object))) {
            let mut line = Vec::new();
            formatter.write_tally(&mut line, subject, object, Answer::Equal, 1);
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            ids.insert(line["id"].as_str().unwrap().to_owned());
        }
        assert_eq!(ids.len(), 36);
        assert!(ids.contains("tally:3:1:equal") && ids.contains("tally:1%3A2:3:equal"), "{ids:?}");
    }
}
