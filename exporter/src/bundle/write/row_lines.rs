//! Formats a row as a line of JSON.

use std::collections::HashMap;

use crate::{
    form::Answer,
    json::write as json,
    privacy::participants::PREFIX,
    storage::rows::{NO_OBJECT, Row},
    timestamp::{DayCache, FULL_LENGTH, Timestamp},
};

/// Everything about a line that does not change from row to row, escaped once.
#[derive(Debug)]
pub(crate) struct RowFormatter {
    /// Key of each item in the source, escaped, without quotes.
    keys: Vec<Vec<u8>>,
    /// Keys as used in pairs, with the separating colon escaped.
    pair_keys: Vec<Vec<u8>>,
    /// Id of each item, with quotes.
    ids: Vec<Vec<u8>>,
    /// Text between participant and time, by answer.
    ends: [Vec<u8>; Answer::ALL.len()],
    phase: Vec<u8>,
    /// Rows of one question are numbered.
    events: bool,
}

/// State shared by consecutive lines.
#[derive(Debug, Default)]
pub(crate) struct LineCache {
    days: DayCache,
    stencils: [Stencil; Answer::ALL.len()],
}

/// The last line with its answer, if it was about one item and had a full time: the next one differs in participant and
/// time only.
#[derive(Debug, Default)]
struct Stencil {
    subject: u32,
    line: Vec<u8>,
    /// Offsets of the participant, which the line holds twice.
    who: [usize; 2],
}

const START: &[u8] = b"{\"id\":\"vote:";
/// A time and what follows it in a line: a quote and a brace.
const TIME_AND_END: usize = FULL_LENGTH + 2;
const PARTICIPANT: &[u8] = b",\"participantRef\":";

impl RowFormatter {
    pub(crate) fn new<'i>(
        items: impl Iterator<Item = (&'i str, &'i str)>,
        phase: &str,
        events: bool,
    ) -> Self {
        let quoted = |text: &str| {
            let mut quoted = Vec::new();
            json::text(&mut quoted, text);
            quoted
        };
        let bare = |text: &str| {
            let quoted = quoted(text);
            quoted[1..quoted.len() - 1].to_vec()
        };
        let (keys, ids): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            items.map(|(key, id)| (bare(key), quoted(id))).unzip();
        let apart = |key: &Vec<u8>| {
            let escaped = key.iter().map(|byte| match byte {
                b':' => b"%3A".to_vec(),
                b'%' => b"%25".to_vec(),
                byte => vec![*byte],
            });
            escaped.flatten().collect()
        };
        let pair_keys = keys.iter().map(apart).collect();
        let mut phase_text = b"\",\"phaseId\":".to_vec();
        json::text(&mut phase_text, phase);
        phase_text.extend_from_slice(b",\"subjectRef\":");
        let ends = Answer::ALL.map(|answer| {
            format!(",\"response\":\"{}\",\"count\":1,\"occurredAt\":", answer.as_str()).into_bytes()
        });
        Self { keys, pair_keys, ids, ends, phase: phase_text, events }
    }

    /// A response with its participant.
    #[inline]
    pub(crate) fn row(
        &self,
        into: &mut Vec<u8>,
        row: Row,
        number: u32,
        names: Option<&HashMap<u128, String>>,
        before: &mut LineCache,
    ) {
        let at = match row.at() {
            Some(at) if at.fine && row.object == NO_OBJECT && !self.events && names.is_none() => at,
            at => {
                let name = names.and_then(|names| names.get(&row.who));
                self.beginning(into, row, number, &json::hex(row.who), name);
                return self.ending(into, row, at, &mut before.days);
            }
        };
        let stencil = &mut before.stencils[row.answer() as usize];
        if stencil.subject != row.subject || stencil.line.is_empty() {
            self.cut(stencil, row, at);
        }
        let from = into.len();
        into.extend_from_slice(&stencil.line);
        let line = &mut into[from..];
        let who = json::hex(row.who);
        for offset in stencil.who {
            line[offset..offset + who.len()].copy_from_slice(&who);
        }
        let time = line.len() - TIME_AND_END;
        line[time..time + FULL_LENGTH].copy_from_slice(&at.text(&mut before.days));
    }

    #[cold]
    fn cut(&self, stencil: &mut Stencil, row: Row, at: Timestamp) {
        let who = json::hex(row.who);
        stencil.subject = row.subject;
        stencil.line.clear();
        self.beginning(&mut stencil.line, row, 1, &who, None);
        let again = stencil.line.len() - 1 - who.len();
        stencil.who = [START.len() + self.keys[row.subject as usize].len() + 1, again];
        self.ending(&mut stencil.line, row, Some(at), &mut DayCache::default());
    }

    /// The beginning of any row, up to its participant.
    fn beginning(&self, into: &mut Vec<u8>, row: Row, number: u32, who: &[u8], name: Option<&String>) {
        into.extend_from_slice(START);
        self.question(into, row.subject, row.object);
        into.push(b':');
        into.extend_from_slice(who);
        if self.events {
            into.push(b':');
            json::number(into, u64::from(number));
        }
        self.refs(into, row.subject, row.object);
        into.extend_from_slice(PARTICIPANT);
        match name {
            Some(name) => json::text(into, name),
            None => {
                into.push(b'"');
                into.extend_from_slice(PREFIX.as_bytes());
                into.extend_from_slice(who);
                into.push(b'"');
            }
        }
    }

    /// Appends the part of a response behind the participant.
    fn ending(&self, into: &mut Vec<u8>, row: Row, at: Option<Timestamp>, days: &mut DayCache) {
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

    /// Formats a response of many participants.
    pub(crate) fn tally(&self, into: &mut Vec<u8>, subject: u32, object: u32, answer: Answer, count: u64) {
        into.extend_from_slice(b"{\"id\":\"tally:");
        self.question(into, subject, object);
        into.push(b':');
        into.extend_from_slice(answer.as_str().as_bytes());
        self.refs(into, subject, object);
        into.extend_from_slice(b",\"participantRef\":null,\"response\":\"");
        into.extend_from_slice(answer.as_str().as_bytes());
        into.extend_from_slice(b"\",\"count\":");
        json::number(into, count);
        into.extend_from_slice(b",\"occurredAt\":null}");
    }

    fn question(&self, into: &mut Vec<u8>, subject: u32, object: u32) {
        if object == NO_OBJECT {
            into.extend_from_slice(&self.keys[subject as usize]);
        } else {
            into.extend_from_slice(&self.pair_keys[subject as usize]);
            into.push(b':');
            into.extend_from_slice(&self.pair_keys[object as usize]);
        }
    }

    fn refs(&self, into: &mut Vec<u8>, subject: u32, object: u32) {
        into.extend_from_slice(&self.phase);
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

    #[test]
    fn ids_of_pairs_are_unambiguous_whatever_the_keys_hold() {
        let keys = ["1:2", "3", "1", "2:3", "1%3A2", "%"];
        let shape = RowFormatter::new(keys.iter().map(|key| (*key, *key)), "phase", false);
        let mut ids = BTreeSet::new();
        for (subject, object) in (0..6).flat_map(|subject| (0..6).map(move |object| (subject, object))) {
            let mut line = Vec::new();
            shape.tally(&mut line, subject, object, Answer::Equal, 1);
            let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
            ids.insert(line["id"].as_str().unwrap().to_owned());
        }
        assert_eq!(ids.len(), 36);
        assert!(ids.contains("tally:3:1:equal") && ids.contains("tally:1%3A2:3:equal"), "{ids:?}");
    }
}
