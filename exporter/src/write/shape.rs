//! How one row becomes one line.
//!
//! It is told every name; it writes to memory only.

use std::collections::HashMap;

use super::json;
use crate::{
    form::Answer,
    moment::Days,
    privacy::people::PREFIX,
    rows::{NO_OBJECT, Row},
};

/// Everything about a line that does not change from row to row, escaped once.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Of each item: its key in the source, within a string.
    keys: Vec<Vec<u8>>,
    /// Of each item: its id, with quotes.
    ids: Vec<Vec<u8>>,
    /// Of each item: how a row about it alone begins, up to the participant.
    starts: Vec<Vec<u8>>,
    /// Of each item: what stands between the two places of the participant then.
    middles: Vec<Vec<u8>>,
    /// Of each answer: what stands between participant and time.
    ends: [Vec<u8>; Answer::ALL.len()],
    phase: Vec<u8>,
    /// Rows of one question are numbered.
    events: bool,
}

const START: &[u8] = b"{\"id\":\"vote:";
const PARTICIPANT: &[u8] = b",\"participantRef\":";

impl Shape {
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
        let mut phase_text = b"\",\"phaseId\":".to_vec();
        json::text(&mut phase_text, phase);
        phase_text.extend_from_slice(b",\"subjectRef\":");
        let starts = keys.iter().map(|key| [START, key, b":"].concat()).collect();
        let quote_and_prefix = [b"\"", PREFIX.as_bytes()].concat();
        let middles =
            ids.iter().map(|id| [&phase_text, id, PARTICIPANT, &quote_and_prefix].concat()).collect();
        let ends = Answer::ALL.map(|answer| {
            format!(",\"response\":\"{}\",\"count\":1,\"occurredAt\":", answer.as_str()).into_bytes()
        });
        Self { keys, ids, starts, middles, ends, phase: phase_text, events }
    }

    /// A response with its participant.
    #[inline]
    pub(crate) fn row(
        &self,
        into: &mut Vec<u8>,
        row: Row,
        number: u32,
        names: Option<&HashMap<u128, String>>,
        days: &mut Days,
    ) {
        let who = json::hex(row.who);
        if row.object == NO_OBJECT && !self.events && names.is_none() {
            into.extend_from_slice(&self.starts[row.subject as usize]);
            into.extend_from_slice(&who);
            into.extend_from_slice(&self.middles[row.subject as usize]);
            into.extend_from_slice(&who);
            into.push(b'"');
        } else {
            self.any(into, row, number, &who, names.and_then(|names| names.get(&row.who)));
        }
        into.extend_from_slice(&self.ends[row.answer() as usize]);
        match row.at() {
            Some(at) => {
                into.push(b'"');
                at.write(into, days);
                into.extend_from_slice(b"\"}");
            }
            None => into.extend_from_slice(b"null}"),
        }
    }

    /// The beginning of any row, up to its participant.
    fn any(&self, into: &mut Vec<u8>, row: Row, number: u32, who: &[u8], name: Option<&String>) {
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

    /// A response that stands for many participants.
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
        into.extend_from_slice(&self.keys[subject as usize]);
        if object != NO_OBJECT {
            into.push(b':');
            into.extend_from_slice(&self.keys[object as usize]);
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
