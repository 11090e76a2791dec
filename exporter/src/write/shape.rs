//! How one row becomes one line.
//!
//! It is told every name; it writes to memory only.

use std::collections::HashMap;

use super::json;
use crate::{
    form::Answer,
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
    phase: Vec<u8>,
    /// Rows of one question are numbered.
    events: bool,
}

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
        let (keys, ids) = items.map(|(key, id)| (bare(key), quoted(id))).unzip();
        let mut middle = b"\",\"phaseId\":".to_vec();
        json::text(&mut middle, phase);
        middle.extend_from_slice(b",\"subjectRef\":");
        Self { keys, ids, phase: middle, events }
    }

    /// A response with its participant.
    #[inline]
    pub(crate) fn row(
        &self,
        into: &mut Vec<u8>,
        row: Row,
        number: u32,
        names: Option<&HashMap<u128, String>>,
    ) {
        into.extend_from_slice(b"{\"id\":\"vote:");
        self.question(into, row.subject, row.object);
        into.push(b':');
        json::hex(into, row.who);
        if self.events {
            into.push(b':');
            json::number(into, u64::from(number));
        }
        self.refs(into, row.subject, row.object);
        into.extend_from_slice(b",\"participantRef\":");
        match names.and_then(|names| names.get(&row.who)) {
            Some(name) => json::text(into, name),
            None => {
                into.push(b'"');
                into.extend_from_slice(PREFIX.as_bytes());
                json::hex(into, row.who);
                into.push(b'"');
            }
        }
        into.extend_from_slice(b",\"response\":\"");
        into.extend_from_slice(row.answer().as_str().as_bytes());
        into.extend_from_slice(b"\",\"count\":1,\"occurredAt\":");
        match row.at() {
            Some(at) => {
                into.push(b'"');
                at.write(into);
                into.extend_from_slice(b"\"}");
            }
            None => into.extend_from_slice(b"null}"),
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
