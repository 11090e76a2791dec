//! Indexes of fields in their forms, and locations of findings in lists.

use super::{
    findings::{Findings, Step},
    row::Row,
    rules::Rule,
    sink::Part,
};
use crate::{form, json::Position};

// Indexes of fields in their forms. The first field of each list entry is its id.
pub(super) const ID: usize = 0;
pub(super) mod item {
    pub(in crate::bundle::validate) const PHASE: usize = 1;
    pub(in crate::bundle::validate) const TEXT: usize = 3;
    pub(in crate::bundle::validate) const STATUS: usize = 4;
    pub(in crate::bundle::validate) const ORIGIN: usize = 5;
    pub(in crate::bundle::validate) const CREATED: usize = 6;
}
pub(crate) mod response {
    pub(crate) const PHASE: usize = 1;
    pub(crate) const SUBJECT: usize = 2;
    pub(crate) const OBJECT: usize = 3;
    pub(crate) const PARTICIPANT: usize = 4;
    pub(crate) const ANSWER: usize = 5;
    pub(crate) const COUNT: usize = 6;
    pub(crate) const OCCURRED: usize = 7;
}
pub(crate) mod outcome {
    pub(crate) const PHASE: usize = 1;
    pub(crate) const TYPE: usize = 2;
    pub(crate) const ITEM: usize = 3;
    pub(crate) const OBSERVATIONS: usize = 6;
    pub(crate) const COUNTS: usize = 7;
    pub(crate) const MEMBERS: usize = 8;
    pub(crate) const SUPPRESSED: usize = 9;
    /// Slot after the fields: suppressed answers as a bit set, if `suppressed` is a list of names.
    pub(crate) const SUPPRESSED_ANSWERS: usize = 10;
    /// First of six slots after the fields: the sum of each answer over the `groups`, if it can be computed.
    pub(crate) const GROUP_SUMS: usize = 16;
}

#[cold]
pub(super) fn add_finding(findings: &mut Findings, rule: Rule, part: Part, row: &Row, field: usize) {
    let form = match part {
        Part::Phases => &form::PHASE,
        Part::Items => &form::ITEM,
        Part::Responses => &form::RESPONSE,
        _ => &form::OUTCOME,
    };
    let [list, index] = steps_to_row(part, row.index);
    let steps = [list, index, Step::Name(form.fields[field].name)];
    findings.add(rule, row.position(field), &steps, row.text(field));
}

pub(super) fn steps_to_row(part: Part, index: u64) -> [Step; 2] {
    [Step::Name(part.name()), Step::Index(index)]
}

/// Encodes the location of a row, so that the order of the bytes is the order of the file.
pub(super) fn encode_location(row: &Row, at: Position) -> [u8; 24] {
    let mut location = [0; 24];
    location[..8].copy_from_slice(&at.offset.to_be_bytes());
    location[8..16].copy_from_slice(&at.line.to_be_bytes());
    location[16..].copy_from_slice(&row.index.to_be_bytes());
    location
}

pub(super) fn decode_location(location: &[u8]) -> (Position, u64) {
    let word = |at: usize| {
        location.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_be_bytes)
    };
    (Position { offset: word(0), line: word(8) }, word(16))
}

/// Decodes the phase, the subject, and the object plus one from the key of an answer.
pub(super) fn decode_question(key: &[u8]) -> Option<(u32, u32, u32)> {
    let word = |at: usize| key.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some((word(0)?, word(4)?, word(8)?))
}
